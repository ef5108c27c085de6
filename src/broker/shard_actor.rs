//! The shard actor: one per thread. The actor receives messages for the shard and passes them to
//! the driver.
//!
//! The handlers of the actor are the ways into a shard, except for bytes: a connection reads bytes
//! itself. The actor also starts the flusher, the task that runs [`crate::shard::Shard::turn`].

use crate::broker::authenticator::decided::Decided;
use crate::broker::connection::ConnectionNotice;
use crate::broker::driver::ShardDriver;
use crate::broker::dump::InspectShard;
use crate::broker::message::{
    AclChanged, Admission, Adopt, BansChanged, ConnectAuthenticator, ConnectPeers, DelayedPage, Page,
    PasswordsChanged, PeerTurn, SettingsChanged, StartTimers, Stop, StoredUpTo, TlsChanged,
};
use crate::broker::question::{AskShard, CommandShard, PublishInShard, TraceShard};
use crate::broker::sys::SysTopics;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::message::{ExpiredDeadline, ExpiredDeadlines};
use crate::operators::command::Command;
use crate::pulse::Pulse;
use crate::shard::Input;
use crate::shard::SharedState;
use crate::shard::clients::deadlines::DeadlineAction;
use crate::shard::settings::OWN_DELAYED;
use crate::time::Instant;
use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult, ResponseFuture};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::unconstrained;
use tracing::error;

/// The interval of a shard's housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// The mailbox of one shard.
pub struct ShardActor {
    driver: Rc<ShardDriver>,
    shared: Arc<SharedState>,
    /// The interval between publications of `$SYS`. `None` if `$SYS` is off, and on all shards but
    /// the first.
    sys_interval: Option<Duration>,
    sys_due: Instant,
    sys: SysTopics,
}

impl ShardActor {
    /// Returns the actor of one shard. An actor with a `sys_interval` publishes `$SYS`.
    pub fn new(
        driver: Rc<ShardDriver>,
        shared: Arc<SharedState>,
        sys_interval: Option<Duration>,
    ) -> ShardActor {
        ShardActor { driver, shared, sys_interval, sys_due: Instant::ZERO, sys: SysTopics::default() }
    }

    fn housekeeping(&mut self) {
        self.driver.housekeeping(HOUSEKEEPING);
        let missing = self.shared.totals.take_missing();
        if missing > 0 {
            error!(
                event = "broker.total_wrong",
                missing,
                "a total of sessions, delayed messages or dead letters was below zero and is zero now: a fault of \
                 the broker; its limit admits too much until a restart. Please report this line"
            );
        }
        let Some(interval) = self.sys_interval else { return };
        self.driver.with_shard(|shard, now| {
            if self.sys_due <= now {
                self.sys_due = now + interval;
                // The next publication has the result.
                self.driver.survey_deadlines();
                self.sys.publish(shard, now, self.driver.statistics(), &self.shared);
            }
        });
    }
}

/// Sends a message to the shard itself once the sockets of its thread had their turn. A message
/// that the actor sent at once would be handled before the thread does anything else.
fn after_sockets<M>(message: M, context: &Context<ShardActor>)
where
    M: Message<Result = ()> + Send + 'static,
    ShardActor: Handler<M>,
{
    let shard = context.address();
    actix_rt::spawn(async move {
        tokio::task::yield_now().await;
        shard.do_send(message);
    });
}

impl Actor for ShardActor {
    type Context = Context<ShardActor>;

    fn started(&mut self, _: &mut Context<ShardActor>) {
        // The flusher writes to every dirty socket. Tokio's budget of operations per poll would
        // stop it midway.
        actix_rt::spawn(unconstrained(Rc::clone(&self.driver).run_flusher()));
    }
}

impl Handler<ConnectPeers> for ShardActor {
    type Result = ();

    fn handle(&mut self, message: ConnectPeers, _: &mut Context<ShardActor>) {
        self.driver.connect_peers(message);
        self.housekeeping();
        // Peers get their messages before the caller gets its reply.
        self.driver.finish();
    }
}

impl Handler<ConnectAuthenticator> for ShardActor {
    type Result = ();

    fn handle(&mut self, message: ConnectAuthenticator, _: &mut Context<ShardActor>) {
        self.driver.connect_authenticator(message.0);
    }
}

impl Handler<Adopt> for ShardActor {
    type Result = ();

    fn handle(&mut self, message: Adopt, _: &mut Context<ShardActor>) {
        for incoming in message.0 {
            self.driver.adopt(incoming);
        }
    }
}

impl Handler<ExpiredDeadlines> for ShardActor {
    type Result = ();

    /// Sends a notice to each connection actor whose deadline expired. The shard itself handles the
    /// deadlines of sessions, connected or not.
    fn handle(&mut self, message: ExpiredDeadlines, _: &mut Context<ShardActor>) {
        let driver = &self.driver;
        let mut is_housekeeping_due = false;
        driver.in_new_turn(|shard, now| {
            driver.notice_tick(shard, now, now.since(message.tick));
            driver.statistics().expiry.expired_lag.add(now.since(message.sent), 1);
            for ExpiredDeadline { kind, slot, generation } in message.batch {
                if kind == DeadlineKind::Housekeeping {
                    match slot {
                        OWN_DELAYED => shard.input(now, Input::DelayedDue),
                        _ => is_housekeeping_due = true,
                    }
                    continue;
                }
                match shard.expired_deadline(now, kind, slot, generation) {
                    Some(DeadlineAction::Retransmit(id)) => driver.notify(id, ConnectionNotice::Retransmit),
                    Some(DeadlineAction::Disconnect(id)) => driver.notify(id, ConnectionNotice::Disconnect),
                    None => {}
                }
            }
        });
        if is_housekeeping_due {
            self.housekeeping();
        }
    }
}

impl Handler<StartTimers> for ShardActor {
    type Result = ();

    fn handle(&mut self, message: StartTimers, _: &mut Context<ShardActor>) {
        self.driver.start_timers(message.expiry);
        self.driver.finish();
    }
}

impl Handler<StoredUpTo> for ShardActor {
    type Result = ();

    fn handle(&mut self, stored: StoredUpTo, _: &mut Context<ShardActor>) {
        self.driver.committed(stored.0);
    }
}

impl Handler<Decided> for ShardActor {
    type Result = ();

    fn handle(&mut self, decided: Decided, _: &mut Context<ShardActor>) {
        self.driver.decided(decided);
    }
}

impl Handler<PasswordsChanged> for ShardActor {
    type Result = ();

    /// Looks at some sessions. The sockets and other messages come before the next ones.
    fn handle(&mut self, change: PasswordsChanged, context: &mut Context<ShardActor>) {
        if let Some(from) = self.driver.passwords_changed(&change) {
            after_sockets(PasswordsChanged { from, ..change }, context);
        }
    }
}

impl Handler<TlsChanged> for ShardActor {
    type Result = ();

    /// Checks some connections. The sockets and other messages come before the next ones.
    fn handle(&mut self, change: TlsChanged, context: &mut Context<ShardActor>) {
        if let Some(from) = self.driver.tls_changed(&change) {
            after_sockets(TlsChanged { from, ..change }, context);
        }
    }
}

impl Handler<BansChanged> for ShardActor {
    type Result = ();

    /// Checks some connections. The sockets and other messages come before the next ones.
    fn handle(&mut self, change: BansChanged, context: &mut Context<ShardActor>) {
        if let Some(from) = self.driver.bans_changed(&change) {
            after_sockets(BansChanged { from, ..change }, context);
        }
    }
}

impl Handler<AclChanged> for ShardActor {
    type Result = ();

    fn handle(&mut self, change: AclChanged, _: &mut Context<ShardActor>) {
        self.driver.in_new_turn(|shard, _| shard.permission_changes().replace_acls(change.0));
    }
}

impl Handler<SettingsChanged> for ShardActor {
    type Result = ();

    fn handle(&mut self, change: SettingsChanged, _: &mut Context<ShardActor>) {
        self.driver.settings_changed(&change);
        if self.sys_interval != change.sys_interval {
            // The next housekeeping publishes, and the new interval begins.
            (self.sys_interval, self.sys_due) = (change.sys_interval, Instant::ZERO);
        }
    }
}

impl Handler<DelayedPage> for ShardActor {
    type Result = ();

    fn handle(&mut self, page: DelayedPage, _: &mut Context<ShardActor>) {
        self.driver.in_new_turn(|shard, now| shard.input(now, Input::Delayed(page.request, page.delayed)));
    }
}

impl Handler<Page> for ShardActor {
    type Result = ();

    fn handle(&mut self, page: Page, _: &mut Context<ShardActor>) {
        self.driver.in_new_turn(|shard, now| shard.input(now, Input::Page(page.request, page.entries)));
    }
}

impl Handler<PeerTurn> for ShardActor {
    type Result = ();

    fn handle(&mut self, PeerTurn(peer_batch): PeerTurn, _: &mut Context<ShardActor>) {
        self.driver.in_new_turn(|shard, now| shard.take_peer_batch(now, peer_batch));
    }
}

impl Handler<Arc<Pulse>> for ShardActor {
    type Result = ();

    fn handle(&mut self, pulse: Arc<Pulse>, _: &mut Context<ShardActor>) {
        pulse.beat();
    }
}

impl Handler<InspectShard> for ShardActor {
    type Result = MessageResult<InspectShard>;

    fn handle(&mut self, _: InspectShard, _: &mut Context<ShardActor>) -> Self::Result {
        MessageResult(self.driver.inspect())
    }
}

impl Handler<AskShard> for ShardActor {
    type Result = MessageResult<AskShard>;

    fn handle(&mut self, question: AskShard, _: &mut Context<ShardActor>) -> Self::Result {
        MessageResult(self.driver.answer(&question.0))
    }
}

impl<C: Command<Outcome: 'static>> Handler<CommandShard<C>> for ShardActor {
    type Result = ResponseFuture<Option<C::Outcome>>;

    /// Answers once the change is committed.
    fn handle(&mut self, command: CommandShard<C>, _: &mut Context<ShardActor>) -> Self::Result {
        let (outcome, committed) = self.driver.carry_out(&command.0);
        Box::pin(async move { committed.wait().await.then_some(outcome) })
    }
}

impl Handler<PublishInShard> for ShardActor {
    type Result = <PublishInShard as Message>::Result;

    fn handle(
        &mut self,
        PublishInShard(command): PublishInShard,
        _: &mut Context<ShardActor>,
    ) -> Self::Result {
        self.driver.publish(&command)
    }
}

impl Handler<TraceShard> for ShardActor {
    type Result = ();

    fn handle(&mut self, order: TraceShard, _: &mut Context<ShardActor>) {
        self.driver.in_new_turn(|shard, now| shard.input(now, Input::Traces(order.0)));
    }
}

impl Handler<Admission> for ShardActor {
    type Result = ();

    fn handle(&mut self, admission: Admission, _: &mut Context<ShardActor>) {
        match admission {
            Admission::Open => self.driver.let_in(),
            Admission::Shut => self.driver.shut_out(),
        }
    }
}

impl Handler<Stop> for ShardActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Stop, _: &mut Context<ShardActor>) -> ResponseFuture<()> {
        self.driver.stop();
        let driver = Rc::clone(&self.driver);
        Box::pin(async move {
            driver.emptied().await;
            // The last records go to the store.
            driver.finish();
        })
    }
}
