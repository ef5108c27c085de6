//! The shard actor: one per arbiter, around its shell.

use super::connection::Notice;
use super::dump::InspectShard;
use super::message::{Adopt, Introduce, Looked, Page, Settle, Stop};
use super::shell::Shell;
use super::sys;
use crate::clock;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::message::Verdicts;
use crate::journal::record::Committed;
use crate::routing::shard::Common;
use crate::routing::shard::deadline::{OWN_DELAYED, Summons};
use crate::routing::shard::exchange::Parcel;
use crate::time::Instant;
use actix::{Actor, Context, Handler, MessageResult, ResponseFuture};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::unconstrained;

/// How often a shard sees to its regular work.
const CHORE: Duration = Duration::from_secs(1);

/// See the module's text.
pub struct ShardActor {
    shell: Rc<Shell>,
    common: Arc<Common>,
    /// Between publications of `$SYS`; `None` on all shards but the one that publishes, and where it is off.
    sys_interval: Option<Duration>,
    sys_due: Instant,
}

impl ShardActor {
    pub fn new(shell: Rc<Shell>, common: Arc<Common>, sys_interval: Option<Duration>) -> ShardActor {
        ShardActor { shell, common, sys_interval, sys_due: Instant::ZERO }
    }

    fn chore(&mut self) {
        self.shell.chore(CHORE);
        let now = clock::now();
        if let Some(interval) = self.sys_interval
            && self.sys_due <= now
        {
            self.sys_due = now + interval;
            let statistics = Arc::clone(&self.shell.statistics);
            // Its answer is shown the next time.
            self.shell.survey_deadlines();
            sys::publish(&mut self.shell.core.borrow_mut(), now, &statistics, &self.common);
            self.shell.turn_ended();
        }
    }
}

impl Actor for ShardActor {
    type Context = Context<ShardActor>;

    fn started(&mut self, _: &mut Context<ShardActor>) {
        let shell = Rc::clone(&self.shell);
        // It writes to as many sockets as are dirty: tokio's budget of operations per poll would stop it midway.
        actix_rt::spawn(unconstrained(async move {
            loop {
                poll_fn(|cx| shell.flusher_turn(cx.waker())).await;
                // Unlike a plain wake-up this lets the reactor look at the sockets first, and the others have their turn.
                tokio::task::yield_now().await;
            }
        }));
    }
}

impl Handler<Introduce> for ShardActor {
    type Result = ();

    fn handle(&mut self, message: Introduce, _: &mut Context<ShardActor>) {
        self.shell.introduce(message);
        self.chore();
        // What peers must know is on its way to them before this is answered.
        self.shell.finish();
    }
}

impl Handler<Adopt> for ShardActor {
    type Result = ();

    fn handle(&mut self, message: Adopt, _: &mut Context<ShardActor>) {
        for incoming in message.0 {
            self.shell.adopt(incoming);
        }
        self.shell.turn_ended();
    }
}

impl Handler<Verdicts> for ShardActor {
    type Result = ();

    /// Each owning connection actor gets its own notice; sessions without one are seen to here.
    fn handle(&mut self, message: Verdicts, _: &mut Context<ShardActor>) {
        let now = clock::now();
        self.shell.core.borrow_mut().begin_turn();
        self.shell.notice_suspend(now);
        self.shell.tick_late.set(now.since(message.tick));
        self.shell.statistics.expiry.verdict_lag.add(now.since(message.sent), 1);
        for verdict in message.batch {
            if verdict.kind == DeadlineKind::Chore {
                match verdict.slot {
                    OWN_DELAYED => self.shell.core.borrow_mut().publish_delayed(now),
                    _ => self.chore(),
                }
                continue;
            }
            let summons =
                self.shell.core.borrow_mut().verdict(now, verdict.kind, verdict.slot, verdict.generation);
            match summons {
                Some(Summons::Retransmit(id)) => self.shell.notify(id, Notice::Retransmit),
                Some(Summons::Disconnect(id)) => self.shell.notify(id, Notice::Disconnect),
                None => {}
            }
        }
        self.shell.turn_ended();
    }
}

impl Handler<Settle> for ShardActor {
    type Result = ();

    fn handle(&mut self, message: Settle, _: &mut Context<ShardActor>) {
        self.shell.settle(message.expiry);
        self.shell.finish();
    }
}

impl Handler<Committed> for ShardActor {
    type Result = ();

    fn handle(&mut self, committed: Committed, _: &mut Context<ShardActor>) {
        self.shell.committed(committed.lsn);
    }
}

impl Handler<Looked> for ShardActor {
    type Result = ();

    fn handle(&mut self, looked: Looked, _: &mut Context<ShardActor>) {
        let mut core = self.shell.core.borrow_mut();
        core.begin_turn();
        core.take_delayed(clock::now(), looked.request, looked.delayed);
        drop(core);
        self.shell.turn_ended();
    }
}

impl Handler<Page> for ShardActor {
    type Result = ();

    fn handle(&mut self, page: Page, _: &mut Context<ShardActor>) {
        let mut core = self.shell.core.borrow_mut();
        core.begin_turn();
        core.take_page(clock::now(), &page.request, page.entries);
        drop(core);
        self.shell.turn_ended();
    }
}

impl Handler<Parcel> for ShardActor {
    type Result = ();

    fn handle(&mut self, parcel: Parcel, _: &mut Context<ShardActor>) {
        let mut core = self.shell.core.borrow_mut();
        core.begin_turn();
        core.take_parcel(clock::now(), parcel);
        drop(core);
        self.shell.turn_ended();
    }
}

impl Handler<InspectShard> for ShardActor {
    type Result = MessageResult<InspectShard>;

    fn handle(&mut self, _: InspectShard, _: &mut Context<ShardActor>) -> Self::Result {
        MessageResult(self.shell.inspect())
    }
}

impl Handler<Stop> for ShardActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Stop, _: &mut Context<ShardActor>) -> ResponseFuture<()> {
        self.shell.stop();
        let shell = Rc::clone(&self.shell);
        Box::pin(async move {
            while shell.open() > 0 {
                shell.emptied.notified().await;
            }
            // The last of it to the store.
            shell.finish();
        })
    }
}
