//! The handshake threads: PROXY header, TLS and WebSocket upgrade, between the accept and the
//! shard.
//!
//! Handshakes are hostile, slow or costly work before MQTT. Their own threads have a lower priority
//! ([`scheduling`]), so that established traffic wins a core. A plain listener needs none of this:
//! its sockets go to a shard at once. The threads start only if some listener needs them.
//!
//! One clock runs from the accept to the end of CONNECT (`network.connect_timeout`). No stage
//! restarts it, because [`Incoming::accepted`] carries the time of the accept to the shard.
//!
//! | file | concern |
//! |---|---|
//! | [`entrance`] | settings and counters of one listener |
//! | `limit` | the limit on sockets in their handshakes |
//! | `progress` | how far the handshakes of one socket have come |
//! | `refusal` | the reasons why a socket is closed |
//! | `reload` | the TLS of all listeners, read again while the broker runs |
//! | `stages` | the handshakes of one socket |

pub(crate) mod entrance;
pub(crate) mod limit;
mod progress;
mod refusal;
pub(crate) mod reload;
mod stages;

use super::connect_limits::{AddressLimit, LiveLimits};
use super::connection::{DetachedTransport, Incoming, PeerAddress};
use super::events::EventLog;
use super::handshake_counts::HandshakeEnd;
use super::message::Adopt;
use super::statistics::BrokerStatistics;
use crate::clock;
use crate::login::arrival::Arrival;
use crate::net::tls::identity::NoIdentity;
use crate::scheduling;
use crate::time::Instant;
use actix::Recipient;
use entrance::Entrance;
use limit::{Eviction, HandshakeLimit, Host, Seat};
use progress::HandshakeProgress;
use refusal::HandshakeRefusal;
use stages::Done;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;
use tracing::{debug, info, warn};

/// A socket that was accepted and needs handshakes.
#[derive(Debug)]
pub(crate) struct NewSocket {
    /// The listener that accepted the socket.
    pub(crate) entrance: Arc<Entrance>,
    /// The socket.
    pub(crate) transport: DetachedTransport,
    pub(crate) peer: PeerAddress,
    /// The time of the accept.
    pub(crate) accepted: Instant,
    /// The known facts about the connection.
    pub(crate) arrival: Arrival,
}

/// A socket on its way to a handshake thread.
struct CountedSocket {
    socket: NewSocket,
    counted: CountedHandshake,
}

/// The parts of the broker that a handshake thread needs.
#[derive(Clone)]
pub(crate) struct HandshakeParts {
    /// The shards, to which the sockets go in turn.
    pub(crate) shards: Vec<Recipient<Adopt>>,
    /// The counters of the broker.
    pub(crate) statistics: Arc<BrokerStatistics>,
    /// The log of refused connections.
    pub(crate) log: Arc<EventLog>,
    /// The bounds of new connections: the time from the accept to the end of CONNECT.
    pub(crate) limits: Arc<LiveLimits>,
    /// The limit of each address that a proxy names; `None` without one.
    pub(crate) addresses: Option<AddressLimit>,
}

/// The way to the handshake threads. The threads end when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Handshakes {
    threads: Vec<UnboundedSender<CountedSocket>>,
    limit: Arc<HandshakeLimit>,
    statistics: Arc<BrokerStatistics>,
}

impl Handshakes {
    /// Starts this many threads. `most` is the maximum number of sockets in their handshakes.
    /// Errors: the system refuses a thread or an event loop.
    pub(crate) fn start(count: usize, most: usize, parts: &HandshakeParts) -> io::Result<Handshakes> {
        let limit = Arc::new(HandshakeLimit::new(most));
        let mut threads = Vec::new();
        for number in 0..count.max(1) {
            let (sender, sockets) = unbounded_channel();
            let parts = parts.clone();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
            // The kernel keeps 15 bytes of a name.
            let name = format!("homing-shake-{number}");
            let answers = parts.statistics.pulses().watch_loop(&name);
            std::thread::Builder::new().name(name).spawn(move || {
                scheduling::yield_to_traffic();
                let thread = HandshakeThread { parts, next: Cell::new(number) };
                let tasks = LocalSet::new();
                tasks.spawn_local(answers);
                tasks.block_on(&runtime, Rc::new(thread).run(sockets));
            })?;
            threads.push(sender);
        }
        Ok(Handshakes { threads, limit, statistics: Arc::clone(&parts.statistics) })
    }

    /// Waits until there is room for one more socket.
    pub(crate) async fn room(&self) {
        self.limit.room().await;
    }

    /// Sends a socket to a thread. `turn` selects the thread. If the thread has ended, because the
    /// broker stops, the socket is closed.
    pub(crate) fn send(&self, turn: usize, socket: NewSocket) {
        let host = Host::of(socket.peer.socket_address().map(|address| address.ip()));
        let (seat, eviction) = self.limit.enter(host);
        let counted = CountedHandshake {
            seat,
            eviction,
            limit: Arc::clone(&self.limit),
            statistics: Arc::clone(&self.statistics),
            entrance: Arc::clone(&socket.entrance),
            is_handed_over: false,
        };
        if let Some(thread) = self.threads.get(turn % self.threads.len().max(1)) {
            let _ = thread.send(CountedSocket { socket, counted });
        }
    }
}

struct HandshakeThread {
    parts: HandshakeParts,
    /// The shard that gets the next socket.
    next: Cell<usize>,
}

/// A handshake in the broker's counters. The drop ends it there: after an error, a timeout or an
/// eviction.
struct CountedHandshake {
    limit: Arc<HandshakeLimit>,
    seat: Seat,
    /// Comes when the socket has to make room.
    eviction: Eviction,
    statistics: Arc<BrokerStatistics>,
    entrance: Arc<Entrance>,
    /// True once the shard counts the connection.
    is_handed_over: bool,
}

impl Drop for CountedHandshake {
    fn drop(&mut self) {
        self.limit.leave(self.seat);
        if !self.is_handed_over {
            self.statistics.connection_closed(&self.entrance.terms.connections);
        }
    }
}

impl HandshakeThread {
    /// Runs the handshakes of each socket in a task of its own, until the acceptors are gone.
    async fn run(self: Rc<HandshakeThread>, mut sockets: UnboundedReceiver<CountedSocket>) {
        while let Some(CountedSocket { socket, counted }) = sockets.recv().await {
            tokio::task::spawn_local(Rc::clone(&self).handshakes(socket, counted));
        }
    }

    /// Runs the handshakes of one socket, and hands it to a shard.
    async fn handshakes(self: Rc<HandshakeThread>, socket: NewSocket, mut counted: CountedHandshake) {
        let NewSocket { entrance, transport, peer, accepted, mut arrival } = socket;
        let left = self.parts.limits.connect_timeout().saturating_sub(clock::now().since(accepted));
        let progress = HandshakeProgress::default();
        let stages = tokio::time::timeout(left, stages::run(&entrance, transport, &peer, &progress));
        let result = tokio::select! {
            biased;
            () = counted.eviction.comes() => {
                return self.log_ended(HandshakeEnd::Evicted, &entrance, &peer, &progress);
            }
            result = stages => result,
        };
        let Done { transport, unread, certificate_user } = match result {
            Ok(Ok(done)) => done,
            Ok(Err(refused)) => return self.log_refused(&entrance, &peer, &progress, &refused),
            Err(_) => return self.log_ended(HandshakeEnd::Timeout, &entrance, &peer, &progress),
        };
        let source = progress.source();
        if let (Some(limit), Some(source)) = (&self.parts.addresses, source)
            && !limit.admits(clock::now(), source.ip())
        {
            if self.parts.log.admits(clock::now()) {
                warn!(event = "connection.address_limited", listener = %entrance.name, address = %source, "connection refused before CONNECT: limits.connects_per_address is reached");
            }
            return;
        }
        let peer = client_address(&peer, &progress);
        arrival.reach = entrance.reach_through(&peer, progress.is_of_unknown_source());
        arrival.certificate_user = match certificate_user {
            Ok(name) => Some(name.into_boxed_str()),
            Err(NoIdentity::NoCertificate | NoIdentity::NotWanted) => None,
            Err(why) => {
                debug!(event = "handshake.no_user", listener = %entrance.name, address = %peer, %why, "the client's certificate gives no user name");
                None
            }
        };
        counted.is_handed_over = true;
        let shard = self.next.get();
        self.next.set(shard.wrapping_add(1));
        if let Some(shard) = self.parts.shards.get(shard % self.parts.shards.len().max(1)) {
            let mut incoming = Incoming::accepted(transport, peer, accepted, arrival);
            incoming.unread = unread;
            shard.do_send(Adopt(vec![incoming]));
        }
    }

    /// Counts and logs the end of a socket whose time is over, or that has to make room.
    fn log_ended(
        &self,
        end: HandshakeEnd,
        entrance: &Entrance,
        peer: &PeerAddress,
        progress: &HandshakeProgress,
    ) {
        self.parts.statistics.handshakes_refused().count(end);
        if !self.parts.log.admits(clock::now()) {
            return;
        }
        let (listener, stage) = (&*entrance.name, progress.stage());
        let address = client_address(peer, progress);
        match end {
            HandshakeEnd::Evicted => {
                warn!(event = "handshake.evicted", listener, %address, %stage, "connection closed before CONNECT, because limits.handshakes is reached and other connections wait");
            }
            _ => {
                info!(event = "handshake.late", listener, %address, %stage, "connection closed before CONNECT, because the handshake was not done within network.connect_timeout");
            }
        }
    }

    /// Counts and logs the end of a socket whose handshakes have failed.
    fn log_refused(
        &self,
        entrance: &Entrance,
        peer: &PeerAddress,
        progress: &HandshakeProgress,
        why: &HandshakeRefusal,
    ) {
        let listener = &*entrance.name;
        let address = client_address(peer, progress);
        let Some(end) = why.end() else {
            debug!(event = "handshake.closed", listener, %address, %why, "connection closed before CONNECT");
            return;
        };
        self.parts.statistics.handshakes_refused().count(end);
        if self.parts.log.admits(clock::now()) {
            warn!(event = "handshake.refused", listener, %address, %why, "connection refused before CONNECT");
        }
    }
}

/// Returns the address for the log: the address named by a trusted proxy, else the peer's.
fn client_address(peer: &PeerAddress, progress: &HandshakeProgress) -> PeerAddress {
    progress.source().map_or_else(|| peer.clone(), PeerAddress::ip)
}
