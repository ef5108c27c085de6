//! The connection actor: one per client, on the thread of its session.
//!
//! Each connection is an actix actor with a mailbox and a life cycle. Its task polls its own
//! socket, and passes the bytes that it reads to the shard in the same turn. The mailbox gets
//! notices: wake-ups of the driver, and expired deadlines that tell it to retransmit or to
//! disconnect. It never gets messages of clients: the shard writes these into the outbox.
//!
//! # Its context cannot spawn or wait
//!
//! [`ConnectionContext`] takes the place of `actix::Context`. The latter keeps some 350 bytes
//! inline for spawned futures, timers and waits, and an `Addr` that is held costs two allocations
//! more. A connection uses none of them, because its only future is its socket. At ten thousand
//! idle connections this saves four and a half megabytes. So `spawn` and `wait` panic, and with
//! them `run_later`, `run_interval` and asynchronous message handlers. A deadline belongs to the
//! expiry actor; `tests/layers.rs` checks that no file of a shard's thread names a timer.
//!
//! # Files
//!
//! | file | concern |
//! |---|---|
//! | `context` | the context and the task |
//! | `handle` | the driver's way to the actor, and the flag that wakes the mailbox |
//! | `transport` | the socket |

mod context;
mod handle;
mod transport;

use super::message::Incoming;
use crate::broker::driver::ShardDriver;
use crate::clock;
use crate::routing::subscription_tree::ShardId;
use crate::shard::deadlines::OverdueConnection;
use crate::shard::{ConnectionId, ReadProgress};
use actix::{Actor, Handler, Message};
pub use context::{ConnectionContext, start};
pub use handle::{ConnectionHandle, Endpoint};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{self, Poll};
pub use transport::{SocketRead, Transport};

/// Reads of one connection in one turn at most, so that a fast publisher does not keep others
/// waiting.
const READS_PER_TURN: usize = 2;

/// See the module's text.
pub struct ConnectionActor {
    driver: Rc<ShardDriver>,
    id: ConnectionId,
    /// `None` once it is closed, or moved to another arbiter.
    endpoint: Option<Rc<Endpoint>>,
    state: SocketState,
    /// Its socket takes no bytes, and some wait.
    awaits_writable: bool,
    /// A expired deadline said that it was silent, or took no bytes, for too long.
    overdue: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketState {
    Open,
    /// Everything is said: the peer's bytes are read and thrown away until it closes.
    Lingering,
    Gone,
}

/// What a connection's mailbox gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionNotice {
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

impl Message for ConnectionNotice {
    type Result = ();
}

impl ConnectionActor {
    fn new(driver: Rc<ShardDriver>, id: ConnectionId, endpoint: Rc<Endpoint>) -> ConnectionActor {
        ConnectionActor {
            driver,
            id,
            endpoint: Some(endpoint),
            state: SocketState::Open,
            awaits_writable: false,
            overdue: false,
        }
    }

    /// Its task is polled: whatever follows is one turn.
    fn begin_turn(&self) {
        self.driver.begin_turn();
    }

    /// Does what the socket allows; [`SocketState::Gone`] afterwards if there is no more to do
    /// ever.
    fn drive(&mut self, cx: &mut task::Context<'_>) {
        if self.awaits_writable
            && let Some(endpoint) = &self.endpoint
            && endpoint.transport().poll_write_ready(cx).is_ready()
        {
            self.awaits_writable = false;
            self.driver.flush_connection(self.id);
        }
        if std::mem::take(&mut self.overdue) {
            self.read_what_came();
            self.disconnect_if_due();
        }
        self.read(cx);
    }

    /// Takes in what the kernel has of a client that is said to be silent, until a whole packet
    /// shows that it is not. What the client sends meanwhile is not read here, or one that never
    /// stops would hold the arbiter.
    fn read_what_came(&mut self) {
        let driver = Rc::clone(&self.driver);
        let mut left = self.endpoint.as_ref().map_or(0, |endpoint| endpoint.transport().unread());
        while left > 0 && self.state == SocketState::Open && self.seems_silent() {
            let Some(endpoint) = &self.endpoint else { return };
            let mut scratch = driver.scratch.borrow_mut();
            let read = match endpoint.transport().read_now(&mut scratch) {
                Ok(SocketRead::Some(n) | SocketRead::Last(n)) => n,
                // The reading side meets the same and ends the connection.
                Ok(SocketRead::Nothing | SocketRead::End) | Err(_) => return,
            };
            left = left.saturating_sub(read);
            self.take_in(scratch.get(..read).unwrap_or_default());
        }
    }

    /// Whether it is to be cut for its silence, unless it is found to have sent something. Not
    /// where it takes no bytes: for that it does not matter what it sends.
    fn seems_silent(&self) -> bool {
        self.driver.look(|shard| shard.reads(self.id) && shard.is_silent(clock::now(), self.id))
    }

    /// Whether its mailbox is to be polled.
    fn has_mail(&self) -> bool {
        self.endpoint.as_ref().is_none_or(|endpoint| endpoint.take_noticed())
    }

    fn is_gone(&self) -> bool {
        self.state == SocketState::Gone
    }

    /// Reads until the socket is empty, the turn is used up, or reading is paused.
    fn read(&mut self, cx: &mut task::Context<'_>) {
        let driver = Rc::clone(&self.driver);
        for reads in 0.. {
            let reading = match self.state {
                SocketState::Open => driver.look(|shard| shard.reads(self.id)),
                SocketState::Lingering => true,
                SocketState::Gone => false,
            };
            let Some(endpoint) = self.endpoint.as_ref().filter(|_| reading) else { return };
            let transport = endpoint.transport();
            let mut scratch = driver.scratch.borrow_mut();
            let read = match transport.try_read(&mut scratch) {
                Ok(SocketRead::Nothing) => match transport.poll_read_ready(cx) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return self.gone(&error.to_string()),
                },
                Ok(SocketRead::Some(n)) if reads < READS_PER_TURN => n,
                // There may be more: after the others.
                Ok(SocketRead::Some(n)) => {
                    yield_to_all(cx);
                    self.take_in(scratch.get(..n).unwrap_or_default());
                    return;
                }
                Ok(SocketRead::Last(n)) => n,
                Ok(SocketRead::End) => {
                    // It may have closed its side alone, and still read the answers.
                    driver.flush_connection(self.id);
                    return self.gone("closed by the peer");
                }
                Err(error) => return self.gone(&error.to_string()),
            };
            self.take_in(scratch.get(..read).unwrap_or_default());
        }
    }

    /// Hands bytes to the shard, until they are handled or it is not to be read.
    fn take_in(&mut self, bytes: &[u8]) {
        if self.state != SocketState::Open {
            return;
        }
        if let ReadProgress::Home { shard, unread } = self.driver.take_in(self.id, bytes) {
            self.move_to_shard(shard, unread);
        }
    }

    /// The session lives in another arbiter: the socket goes there, with what was read.
    fn move_to_shard(&mut self, shard: ShardId, unread: Vec<u8>) {
        let peer = self.driver.forget(self.id);
        self.driver.with_shard(|shard, _| shard.moved(self.id));
        self.state = SocketState::Gone;
        let transport = self.endpoint.take().and_then(Endpoint::into_transport);
        match (transport.map(Transport::into_std), peer) {
            (Some(Ok(socket)), Some(peer)) => {
                self.driver.hand_over(shard, Incoming::moved(socket, peer, unread));
            }
            // The socket is closed, and its place is another's.
            _ => self.driver.statistics.connection_closed(),
        }
    }

    /// The socket is at its end.
    fn gone(&mut self, why: &str) {
        if self.state == SocketState::Gone {
            return;
        }
        self.state = SocketState::Gone;
        self.endpoint = None;
        self.driver.closed(self.id, why);
    }

    /// A deadline is said to have passed, and the socket is read empty: what it held counts as come
    /// in time.
    fn disconnect_if_due(&mut self) {
        if self.state == SocketState::Gone {
            return;
        }
        let overdue = self.driver.with_shard(|shard, now| shard.disconnect_if_due(now, self.id));
        if overdue == OverdueConnection::Abandon {
            self.gone("takes no bytes");
        }
    }
}

/// Arranges to be polled again once the others had their turn and the reactor was looked at. A
/// plain wake-up would come before that: the reactor is looked at after up to 61 polls alone, and a
/// socket that always has bytes would have them all.
fn yield_to_all(cx: &mut task::Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

impl Actor for ConnectionActor {
    type Context = ConnectionContext;

    fn stopped(&mut self, _: &mut ConnectionContext) {
        self.gone("the arbiter stops");
    }
}

impl Handler<ConnectionNotice> for ConnectionActor {
    type Result = ();

    /// The socket is polled after the mailbox in the same turn: what needs its readiness is left to
    /// that.
    fn handle(&mut self, notice: ConnectionNotice, _: &mut ConnectionContext) {
        match notice {
            ConnectionNotice::Read => {
                if self.driver.look(|shard| shard.has_unread(self.id)) {
                    self.take_in(&[]);
                }
            }
            ConnectionNotice::AwaitWritable => self.awaits_writable = true,
            ConnectionNotice::Linger => {
                if self.state == SocketState::Open
                    && let Some(endpoint) = &self.endpoint
                {
                    endpoint.transport().shut_down_writing();
                    self.state = SocketState::Lingering;
                }
            }
            ConnectionNotice::Close => self.gone("closed"),
            ConnectionNotice::Broken => self.gone("cannot be written to"),
            ConnectionNotice::Retransmit => {
                if let Some(endpoint) = &self.endpoint {
                    let view = endpoint.transport().view();
                    self.driver.with_shard(|shard, now| shard.acknowledgement_due(now, self.id, view));
                }
            }
            ConnectionNotice::Disconnect => self.overdue = true,
        }
    }
}
