//! The actor of one connection: reads its socket, handles notices, and reports the end.

use super::context::{ConnectionContext, Polled};
use super::handle::{ConnectionNotice, Endpoint};
use super::incoming::{Incoming, Released};
use super::transport::{HangUp, SocketRead};
use crate::login::listener_terms::ListenerTerms;
use crate::routing::subscription_tree::ShardId;
use crate::session::outbound::stall::SocketView;
use crate::shard::clients::connection::FIRST_READ_SIZE;
use crate::shard::clients::deadlines::IdleConnection;
use crate::shard::{ConnectionId, ReadProgress};
use actix::{Actor, Handler};
use std::cell::RefMut;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll};

/// Number of reads of one connection after which the next read is the last of its turn. A turn has
/// three reads at most, so that a fast publisher does not keep others waiting.
const READS_PER_TURN: usize = 2;

/// The cause of an end that the peer began.
const PEER_CLOSED: &str = "closed by the peer";

/// The calls of a connection into the driver of its shard. Dispatch is static.
pub trait ConnectionDriver: 'static {
    /// Begins a turn of the shard.
    fn begin_turn(&self);

    /// Lends the read buffer of all connections of this thread.
    fn read_buffer(&self) -> RefMut<'_, Vec<u8>>;

    /// Lends the buffer for the MQTT bytes of a connection with TLS or WebSocket.
    fn opened(&self) -> RefMut<'_, Vec<u8>>;

    /// Returns the most bytes that are read from the socket at once; 0 if it is not read.
    fn read_size(&self, id: ConnectionId) -> usize;

    /// Returns true if the shard is about to disconnect this connection for its silence, and for
    /// nothing else.
    fn is_silent(&self, id: ConnectionId) -> bool;

    /// Returns true if the shard keeps bytes of this connection that are not handled.
    fn has_unread(&self, id: ConnectionId) -> bool;

    /// Returns true if packets of this connection wait in the shard behind a pause.
    fn has_waiting(&self, id: ConnectionId) -> bool;

    /// Passes bytes to the shard, behind the bytes that the shard keeps.
    fn take_in(&self, id: ConnectionId, bytes: &[u8]) -> ReadProgress;

    /// Tells the shard whether a part of a TLS record or WebSocket frame has just come, whose rest
    /// has not.
    fn await_rest(&self, id: ConnectionId, has_partial: bool);

    /// Writes the outbox of this connection.
    fn flush_connection(&self, id: ConnectionId);

    /// Tells the shard that the client has closed its side, after all its packets were handled.
    /// Returns true if the client is owed bytes. The shard then has the connection closed when they
    /// are written, or at a deadline.
    fn half_close(&self, id: ConnectionId) -> bool;

    /// Tells the shard that packets of this connection are overdue for their acknowledgement.
    /// `view` is the state of the socket.
    fn acknowledgement_due(&self, id: ConnectionId, view: SocketView);

    /// Disconnects a client whose TLS connection cannot go on for long.
    fn keys_used_up(&self, id: ConnectionId);

    /// Disconnects the client if a deadline has passed.
    fn disconnect_if_due(&self, id: ConnectionId) -> IdleConnection;

    /// Forgets a connection whose socket moves to another shard, and drops its handle. Returns the
    /// parts that move with the socket.
    fn release(&self, id: ConnectionId) -> Option<Released>;

    /// Sends a released socket to its shard. Without the socket, counts a connection of its
    /// listener less.
    fn move_to_shard(&self, shard: ShardId, socket: Result<Incoming, Arc<ListenerTerms>>);

    /// Tells the shard that the socket of this connection is closed, and why. Called once.
    fn closed(&self, id: ConnectionId, why: &str);
}

/// The actor of one connection. The actor owns the reading side of the socket.
pub struct ConnectionActor<D> {
    driver: Rc<D>,
    id: ConnectionId,
    /// `None` once the socket is closed, or has moved to another shard.
    endpoint: Option<Rc<Endpoint>>,
    state: SocketState,
    /// True while the socket takes no bytes, and some are pending.
    awaits_writable: bool,
    /// True if a deadline of the connection has passed, and the client is not disconnected yet. The
    /// client was silent, or took no bytes, for too long.
    overdue: bool,
    /// True if the peer has closed its side, and the shard has not handled all that came before, or
    /// owes answers. The connection ends when it has, and does not.
    peer_closed: bool,
    /// True if the shard knows that a part of a TLS record or WebSocket frame has come.
    has_partial: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketState {
    Open,
    /// The last bytes are written. The client's bytes are read and discarded until it closes.
    Lingering,
    Gone,
}

impl<D: ConnectionDriver> ConnectionActor<D> {
    pub(super) fn new(driver: Rc<D>, id: ConnectionId, endpoint: Rc<Endpoint>) -> ConnectionActor<D> {
        // The close may have come before the socket moved here.
        let peer_closed = endpoint.transport().is_peer_closed();
        ConnectionActor {
            driver,
            id,
            endpoint: Some(endpoint),
            state: SocketState::Open,
            awaits_writable: false,
            overdue: false,
            peer_closed,
            has_partial: false,
        }
    }

    /// Takes in the bytes that the kernel has now, until `size` returns 0: the most bytes that are
    /// read at once. Returns the number of bytes that are left. Bytes that come during this call
    /// are not read, because a client that never stops would hold the thread.
    fn read_what_came(&mut self, size: impl Fn(&D, ConnectionId) -> usize) -> usize {
        let driver = Rc::clone(&self.driver);
        let mut left = self.endpoint.as_ref().map_or(0, |endpoint| endpoint.transport().unread());
        while left > 0 && self.state == SocketState::Open {
            let size = size(&driver, self.id);
            let Some(endpoint) = self.endpoint.as_ref().filter(|_| size > 0) else { break };
            let mut buffer = driver.read_buffer();
            let read = match endpoint.transport().read_now(&mut buffer, size) {
                Ok(SocketRead::Some(n) | SocketRead::Last(n)) => n,
                // The next regular read meets the same and ends the connection.
                Ok(SocketRead::Nothing | SocketRead::End) | Err(_) => return 0,
            };
            left = left.saturating_sub(read);
            let wrapped = endpoint.transport().is_wrapped();
            self.received(&mut buffer, read, wrapped);
        }
        left
    }

    /// Reports that packets of this connection are overdue for their acknowledgement. The client's
    /// unread bytes are read before, because they may hold the acknowledgement.
    fn acknowledgement_due(&mut self) {
        let unread = self.read_what_came(|driver, id| driver.read_size(id));
        if let Some(endpoint) = &self.endpoint {
            let view = SocketView { arrived: unread, ..endpoint.transport().view() };
            self.driver.acknowledgement_due(self.id, view);
        }
    }

    /// Reads until the socket is empty, the turn is used up, or reading is paused.
    fn read(&mut self, cx: &mut task::Context<'_>) {
        let driver = Rc::clone(&self.driver);
        // True after a read that emptied the socket: another one before the reactor reports bytes
        // would find nothing.
        let mut empty = false;
        for reads in 0.. {
            let size = match self.state {
                SocketState::Open => driver.read_size(self.id),
                SocketState::Lingering => usize::MAX,
                SocketState::Gone => 0,
            };
            if self.peer_closed && self.state != SocketState::Gone {
                return self.end_unless_waiting();
            }
            let Some(endpoint) = self.endpoint.as_ref().filter(|_| size > 0) else { return };
            let transport = endpoint.transport();
            if empty {
                match transport.poll_read_ready(cx) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(())) => empty = false,
                    Poll::Ready(Err(error)) => return self.gone(&error.to_string()),
                }
            }
            let wrapped = transport.is_wrapped();
            let mut buffer = driver.read_buffer();
            let read = match transport.try_read(&mut buffer, size) {
                Ok(SocketRead::Nothing) => {
                    empty = true;
                    continue;
                }
                Ok(SocketRead::Some(n)) if reads < READS_PER_TURN => n,
                // There may be more, which is read after the other connections had their turn.
                Ok(SocketRead::Some(n)) => {
                    yield_to_all(cx);
                    return self.received(&mut buffer, n, wrapped);
                }
                Ok(SocketRead::Last(n)) => {
                    empty = true;
                    n
                }
                Ok(SocketRead::End) => return self.end_unless_waiting(),
                Err(_) if driver.has_waiting(self.id) => return,
                Err(error) => return self.gone(&error.to_string()),
            };
            self.received(&mut buffer, read, wrapped);
        }
    }

    /// Ends the connection after the last byte of the client. Packets that wait in the shard behind
    /// a pause are handled first: the read after the pause meets the same end.
    fn end_unless_waiting(&mut self) {
        if !self.driver.has_waiting(self.id) {
            self.end_of_stream();
        }
    }

    /// Takes in the bytes in the buffer. `wrapped` is true for a connection with codecs.
    #[inline]
    fn received(&mut self, buffer: &mut [u8], read: usize, wrapped: bool) {
        if wrapped {
            self.open(buffer, read);
        } else {
            self.take_in(buffer.get(..read).unwrap_or_default());
        }
    }

    /// Opens the TLS records or WebSocket frames that were read, and passes their bytes to the
    /// shard.
    fn open(&mut self, buffer: &mut [u8], read: usize) {
        let driver = Rc::clone(&self.driver);
        let Some(endpoint) = self.endpoint.clone().filter(|_| self.state == SocketState::Open) else {
            return;
        };
        let mut opened = driver.opened();
        opened.clear();
        let result = endpoint.transport().open(buffer, read, &mut opened);
        if endpoint.transport().has_pending() {
            // A pong, an alert, or the answer to a close frame.
            driver.flush_connection(self.id);
        }
        drop(endpoint);
        if !opened.is_empty() {
            self.take_in(&opened);
        }
        self.report_partial();
        match result {
            Ok(false) => {}
            // Of a paused connection, the packets before the close wait in the shard. A DISCONNECT
            // may be among them.
            Ok(true) if self.state == SocketState::Open && driver.has_waiting(self.id) => {
                self.peer_closed = true;
            }
            Ok(true) => self.end_of_stream(),
            Err(error) => self.gone(&error.to_string()),
        }
    }

    /// Reports to the shard whether a part of a TLS record or WebSocket frame waits for its rest.
    fn report_partial(&mut self) {
        let Some(endpoint) = self.endpoint.as_ref().filter(|_| self.state == SocketState::Open) else {
            return;
        };
        let has_partial = endpoint.transport().has_partial();
        if has_partial || self.has_partial {
            self.has_partial = has_partial;
            self.driver.await_rest(self.id, has_partial);
        }
    }

    /// Passes bytes to the shard, and moves the socket if its session lives in another shard.
    fn take_in(&mut self, bytes: &[u8]) {
        if self.state != SocketState::Open {
            return;
        }
        if let ReadProgress::Home { shard, unread } = self.driver.take_in(self.id, bytes) {
            self.move_to_shard(shard, unread);
        }
    }

    fn move_to_shard(&mut self, shard: ShardId, unread: Vec<u8>) {
        let released = self.driver.release(self.id);
        self.state = SocketState::Gone;
        let transport = self.endpoint.take().and_then(Endpoint::into_transport);
        let Some(released) = released else { return };
        let incoming = match transport {
            Some(transport) => Ok(Incoming::moved(transport.detach(), released, unread)),
            None => Err(released.arrival.listener),
        };
        self.driver.move_to_shard(shard, incoming);
    }

    /// Ends the connection after the last byte of the client, and after the answers to it.
    fn end_of_stream(&mut self) {
        // The client may have closed its side alone, and still read the answers. A WebSocket client
        // waits for the reply to its close frame.
        self.driver.flush_connection(self.id);
        // A socket that has just moved here takes no bytes until the reactor has reported it, and
        // some answers wait for a commit or for another shard.
        let is_owed = self.driver.half_close(self.id);
        if let Some(endpoint) = &self.endpoint {
            if is_owed || endpoint.transport().has_pending() {
                self.peer_closed = true;
                return;
            }
            endpoint.transport().close_layers();
        }
        self.gone(PEER_CLOSED);
    }

    /// Closes the socket and reports it, once.
    fn gone(&mut self, why: &str) {
        if self.state == SocketState::Gone {
            return;
        }
        self.state = SocketState::Gone;
        self.endpoint = None;
        self.driver.closed(self.id, why);
    }

    /// Disconnects the client if its deadline has passed. The caller has read what the socket had,
    /// so these bytes count as in time.
    fn disconnect_if_due(&mut self) {
        if self.state == SocketState::Gone {
            return;
        }
        match self.driver.disconnect_if_due(self.id) {
            IdleConnection::NotYet | IdleConnection::Disconnected => {}
            IdleConnection::Paused => {
                if self.driver.has_unread(self.id) {
                    self.take_in(&[]);
                }
                self.end_if_hung_up();
            }
            IdleConnection::Abandon if self.peer_closed => self.gone(PEER_CLOSED),
            IdleConnection::Abandon => self.gone("takes no bytes"),
        }
    }

    /// Ends a connection that is not read, if its socket has failed, or if the client has closed it
    /// and nothing is left to be read or handled. Bytes that the client sent before it left are
    /// handled.
    fn end_if_hung_up(&mut self) {
        let Some(transport) = self.endpoint.as_ref().map(|endpoint| endpoint.transport()) else { return };
        match transport.hang_up() {
            HangUp::None => {}
            HangUp::Failed => self.gone("the connection was reset"),
            HangUp::PeerClosed => {
                if transport.unread() == 0 && !self.driver.has_unread(self.id) {
                    self.end_of_stream();
                }
            }
        }
    }
}

impl<D: ConnectionDriver> Polled for ConnectionActor<D> {
    fn begin_turn(&mut self) -> bool {
        self.driver.begin_turn();
        self.endpoint.as_ref().is_none_or(|endpoint| endpoint.take_noticed())
    }

    /// Reads and writes as far as the socket allows now.
    fn drive(&mut self, cx: &mut task::Context<'_>) {
        if self.awaits_writable
            && let Some(endpoint) = &self.endpoint
            && endpoint.transport().poll_write_ready(cx).is_ready()
        {
            self.awaits_writable = false;
            self.driver.flush_connection(self.id);
        }
        if std::mem::take(&mut self.overdue) {
            self.read_what_came(|driver, id| if driver.is_silent(id) { FIRST_READ_SIZE } else { 0 });
            self.disconnect_if_due();
        }
        self.read(cx);
    }

    fn is_gone(&self) -> bool {
        self.state == SocketState::Gone
    }
}

/// Arranges to be polled again after the other tasks and the reactor. A plain wake-up would come
/// before the reactor, which runs after up to 61 polls. A socket that always has bytes would use
/// all of them.
fn yield_to_all(cx: &mut task::Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

impl<D: ConnectionDriver> Actor for ConnectionActor<D> {
    type Context = ConnectionContext<ConnectionActor<D>>;

    fn stopped(&mut self, _: &mut Self::Context) {
        self.gone("the thread stops");
    }
}

impl<D: ConnectionDriver> Handler<ConnectionNotice> for ConnectionActor<D> {
    type Result = ();

    /// The socket is polled after the mailbox in the same turn. A notice that needs the readiness
    /// of the socket only sets a flag.
    fn handle(&mut self, notice: ConnectionNotice, _: &mut Self::Context) {
        match notice {
            ConnectionNotice::Read => {
                if self.driver.has_unread(self.id) {
                    self.take_in(&[]);
                    self.report_partial();
                }
            }
            ConnectionNotice::ReadNow => {
                self.read_what_came(|driver, id| driver.read_size(id));
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
            ConnectionNotice::Close => {
                if let Some(endpoint) = &self.endpoint {
                    endpoint.transport().close_layers();
                }
                self.gone(if self.peer_closed { PEER_CLOSED } else { "closed" });
            }
            ConnectionNotice::KeysUsedUp => self.driver.keys_used_up(self.id),
            ConnectionNotice::Broken => self.gone("cannot be written to"),
            ConnectionNotice::Retransmit => self.acknowledgement_due(),
            ConnectionNotice::Disconnect => self.overdue = true,
        }
    }
}
