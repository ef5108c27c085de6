//! The connection actor: one per client, where its session lives.
//!
//! Its context polls its own socket; what it reads it hands to the shard's state machine in the same turn. By mailbox it
//! gets verdicts of the expiry actor and wake-ups, never messages: those are in its outbox.

mod context;
mod transport;

use super::message::Incoming;
use super::shell::Shell;
use crate::clock;
use crate::routing::shard::deadline::Overdue;
use crate::routing::shard::{ConnectionId, Progress};
use crate::routing::subscription_tree::ShardId;
use actix::{Actor, Handler, Message};
pub use context::{ConnectionContext, start};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{self, Poll};
pub use transport::{Read, Transport};

/// Reads of one connection in one turn at most, so that a fast publisher does not keep others waiting.
const READS_PER_TURN: usize = 2;

/// See the module's text.
pub struct Connection {
    shell: Rc<Shell>,
    id: ConnectionId,
    /// `None` once it is closed, or moved to another arbiter.
    transport: Option<Rc<Transport>>,
    state: State,
    /// Its socket takes no bytes, and some wait.
    awaits_writable: bool,
    /// A verdict said that it was silent, or took no bytes, for too long.
    overdue: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Everything is said: the peer's bytes are read and thrown away until it closes.
    Lingering,
    Gone,
}

/// What a connection's mailbox gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Bytes came with it from another arbiter, or reading goes on after a pause.
    Read,
    /// Its outbox could not be written whole: wait until the socket takes more.
    AwaitWritable,
    /// Its last bytes are written: wait for the peer to close.
    Linger,
    /// Its last bytes are written and the peer has said that it leaves.
    Close,
    /// A write failed for good.
    Broken,
    /// The expiry actor: unacknowledged packets are due.
    Retransmit,
    /// The expiry actor: it was silent, or took no bytes, for too long.
    Disconnect,
}

impl Message for Notice {
    type Result = ();
}

impl Connection {
    pub fn new(shell: Rc<Shell>, id: ConnectionId, transport: Rc<Transport>) -> Connection {
        Connection {
            shell,
            id,
            transport: Some(transport),
            state: State::Open,
            awaits_writable: false,
            overdue: false,
        }
    }

    /// Its task is polled: whatever follows is one turn.
    fn begin_turn(&self) {
        self.shell.core.borrow_mut().begin_turn();
    }

    /// Does what the socket allows; [`State::Gone`] afterwards if there is no more to do ever.
    fn drive(&mut self, cx: &mut task::Context<'_>) {
        if self.awaits_writable
            && let Some(transport) = &self.transport
            && transport.poll_write_ready(cx).is_ready()
        {
            self.awaits_writable = false;
            self.shell.flush_one(clock::now(), self.id);
            self.shell.turn_ended();
        }
        if std::mem::take(&mut self.overdue) {
            self.read_what_came();
            self.cut_if_due();
        }
        self.read(cx);
    }

    /// Takes in what the kernel has of a client that is said to be silent, until a whole packet shows that it is not. What the
    /// client sends meanwhile is not read here, or one that never stops would hold the arbiter.
    fn read_what_came(&mut self) {
        let shell = Rc::clone(&self.shell);
        let mut left = self.transport.as_ref().map_or(0, |transport| transport.unread());
        while left > 0 && self.state == State::Open && self.seems_silent() {
            let Some(transport) = &self.transport else { return };
            let mut scratch = shell.scratch.borrow_mut();
            let read = match transport.read_now(&mut scratch) {
                Ok(Read::Some(n) | Read::Last(n)) => n,
                // The reading side meets the same and ends the connection.
                Ok(Read::Nothing | Read::End) | Err(_) => return,
            };
            left = left.saturating_sub(read);
            self.take_in(scratch.get(..read).unwrap_or_default());
        }
    }

    /// Whether it is to be cut for its silence, unless it is found to have sent something. Not where it takes no bytes: for that
    /// it does not matter what it sends.
    fn seems_silent(&self) -> bool {
        let core = self.shell.core.borrow();
        core.reads(self.id) && core.is_silent(clock::now(), self.id)
    }

    /// Whether its mailbox is to be polled.
    fn has_mail(&self) -> bool {
        self.shell.take_noticed(self.id)
    }

    fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// Reads until the socket is empty, the turn is used up, or reading is paused.
    fn read(&mut self, cx: &mut task::Context<'_>) {
        let shell = Rc::clone(&self.shell);
        for reads in 0.. {
            let reading = match self.state {
                State::Open => shell.core.borrow().reads(self.id),
                State::Lingering => true,
                State::Gone => false,
            };
            let Some(transport) = self.transport.as_ref().filter(|_| reading) else { return };
            let mut scratch = shell.scratch.borrow_mut();
            let read = match transport.try_read(&mut scratch) {
                Ok(Read::Nothing) => match transport.poll_read_ready(cx) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return self.gone(&error.to_string()),
                },
                Ok(Read::Some(n)) if reads < READS_PER_TURN => n,
                // There may be more: after the others.
                Ok(Read::Some(n)) => {
                    yield_to_all(cx);
                    self.take_in(scratch.get(..n).unwrap_or_default());
                    return;
                }
                Ok(Read::Last(n)) => n,
                Ok(Read::End) => {
                    // It may have closed its side alone, and still read the answers.
                    shell.flush_one(clock::now(), self.id);
                    return self.gone("closed by the peer");
                }
                Err(error) => return self.gone(&error.to_string()),
            };
            self.take_in(scratch.get(..read).unwrap_or_default());
        }
    }

    /// Hands bytes to the shard, until they are handled or it is not to be read.
    fn take_in(&mut self, bytes: &[u8]) {
        if self.state != State::Open {
            return;
        }
        let now = clock::now();
        let mut progress = self.shell.core.borrow_mut().receive(now, self.id, bytes);
        while progress == Progress::Flush {
            self.shell.flush();
            progress = self.shell.core.borrow_mut().receive(now, self.id, &[]);
        }
        if let Progress::Home { shard, unread } = progress {
            self.move_home(shard, unread);
        }
        self.shell.account_partial();
        self.shell.turn_ended();
    }

    /// The session lives in another arbiter: the socket goes there, with what was read.
    fn move_home(&mut self, shard: ShardId, unread: Vec<u8>) {
        let peer = self.shell.forget(self.id);
        self.shell.core.borrow_mut().moved(self.id);
        self.state = State::Gone;
        let transport = self.transport.take().and_then(Rc::into_inner);
        match (transport.map(Transport::into_std), peer) {
            (Some(Ok(socket)), Some(peer)) => {
                self.shell.hand_over(shard, Incoming { socket, peer, unread });
            }
            // The socket is closed, and its place is another's.
            _ => self.shell.statistics.connection_closed(),
        }
    }

    /// The socket is at its end.
    fn gone(&mut self, why: &str) {
        if self.state == State::Gone {
            return;
        }
        self.state = State::Gone;
        self.transport = None;
        self.shell.core.borrow_mut().closed(clock::now(), self.id, why);
        // While the shell still knows its address.
        self.shell.log_events();
        // Before the socket closes: who sees it close may take its place at once.
        self.shell.statistics.connection_closed();
        self.shell.forget(self.id);
        self.shell.turn_ended();
    }

    /// A deadline is said to have passed, and the socket is read empty: what it held counts as come in time.
    fn cut_if_due(&mut self) {
        if self.state == State::Gone {
            return;
        }
        let overdue = self.shell.core.borrow_mut().disconnect_if_due(clock::now(), self.id);
        if overdue == Overdue::Abandon {
            self.gone("takes no bytes");
        }
        self.shell.turn_ended();
    }
}

/// Arranges to be polled again once the others had their turn and the reactor was looked at. A plain wake-up would come
/// before that: the reactor is looked at after up to 61 polls alone, and a socket that always has bytes would have them all.
fn yield_to_all(cx: &mut task::Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

impl Actor for Connection {
    type Context = ConnectionContext;

    fn stopped(&mut self, _: &mut ConnectionContext) {
        self.gone("the arbiter stops");
    }
}

impl Handler<Notice> for Connection {
    type Result = ();

    /// The socket is polled after the mailbox in the same turn: what needs its readiness is left to that.
    fn handle(&mut self, notice: Notice, _: &mut ConnectionContext) {
        match notice {
            Notice::Read => {
                if self.shell.core.borrow().has_unread(self.id) {
                    self.take_in(&[]);
                }
            }
            Notice::AwaitWritable => self.awaits_writable = true,
            Notice::Linger => {
                if self.state == State::Open
                    && let Some(transport) = &self.transport
                {
                    transport.shut_down_writing();
                    self.state = State::Lingering;
                }
            }
            Notice::Close => self.gone("closed"),
            Notice::Broken => self.gone("cannot be written to"),
            Notice::Retransmit => {
                if let Some(transport) = &self.transport {
                    let view = transport.view();
                    self.shell.core.borrow_mut().acknowledgement_due(clock::now(), self.id, view);
                    self.shell.turn_ended();
                }
            }
            Notice::Disconnect => self.overdue = true,
        }
    }
}
