//! Listening sockets, and the task that accepts connections.

use super::bind::{self, SocketFile};
use super::connect_limits::{AddressLimit, ConnectRates, LiveLimits};
use super::connection::{Incoming, PeerAddress};
use super::handshake::entrance::Entrance;
use super::handshake::{Handshakes, NewSocket};
use super::message::Adopt;
use super::rate_limit::{Rate, RateLimiter};
use super::start_error::StartError;
use super::statistics::{BrokerStatistics, ConnectionLimit};
use crate::clock;
use crate::config::{self, ListenerAddress};
use crate::login::arrival::Arrival;
use crate::time::Instant;
use actix::Recipient;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::cell::RefCell;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::warn;

/// Maximum number of sockets accepted in one go, before other tasks of the thread run.
const AT_ONCE: usize = 64;

/// The rate of log lines about refused connections.
const LINES: Rate = Rate::per_second(1);

#[derive(Debug)]
pub(super) struct ListeningSocket {
    pub(super) socket: Arc<OwnedFd>,
    /// The file of a Unix socket, which is removed at the end.
    pub(super) file: Option<SocketFile>,
    /// The address. A port 0 is replaced by the port that the system chose.
    pub(super) address: ListenerAddress,
}

/// Binds a listener, and listens. `name` is that of the listener, `backlog` that of
/// `network.backlog`. Errors: the system refuses the address.
pub(super) fn open(
    name: &str,
    listener: &config::Listener,
    backlog: u32,
) -> Result<ListeningSocket, StartError> {
    let backlog = listener.backlog.unwrap_or(backlog);
    let Some(address) = &listener.address else {
        return Err(StartError::NoAddress { listener: name.into() });
    };
    Ok(match address {
        ListenerAddress::Ip(address) => {
            let (socket, bound) = bind::tcp(*address, backlog)?;
            let address = ListenerAddress::Ip(bound);
            ListeningSocket { socket: Arc::new(socket.into()), file: None, address }
        }
        ListenerAddress::Unix(path) => {
            let (socket, file) = bind::unix(path, listener.into(), backlog)?;
            let socket = Arc::new(socket.into());
            ListeningSocket { socket, file: Some(file), address: address.clone() }
        }
    })
}

/// The limits of an acceptor, and the way of its sockets. A reload replaces both.
#[derive(Clone)]
pub(super) struct AcceptTerms {
    /// The settings of the listener.
    pub(super) entrance: Arc<Entrance>,
    /// The way to the handshake threads, if the listener needs them.
    pub(super) handshakes: Option<Handshakes>,
    /// The maximum number of connections of the listener; `usize::MAX` without a limit.
    pub(super) connections: usize,
    pub(super) rates: ConnectRates,
}

/// The limits on new connections of all listeners.
#[derive(Clone, Debug)]
pub(super) struct ConnectLimits {
    /// The bounds of the whole broker.
    pub(super) broker: Arc<LiveLimits>,
    /// The limit of each address; `None` without one.
    pub(super) addresses: Option<AddressLimit>,
}

/// Accepts connections of one listener and spreads them over the shards in turn.
pub(super) struct Acceptor {
    listener: AsyncFd<Arc<OwnedFd>>,
    /// Removed when the acceptor ends.
    _file: Option<SocketFile>,
    /// Shared with the owner of the acceptor, on the same thread. Never borrowed over an `await`.
    terms: Rc<RefCell<AcceptTerms>>,
    shards: Vec<Recipient<Adopt>>,
    /// The sockets accepted in this turn, by shard.
    batches: Vec<Vec<Incoming>>,
    next: usize,
    statistics: Arc<BrokerStatistics>,
    limits: ConnectLimits,
    /// Counts the refused connections that no line has reported.
    refusals: RateLimiter,
    /// A descriptor that is closed when there is no other, so that one socket can be accepted and
    /// closed. Without it the listener would stay readable and the loop would spin.
    reserve: Option<File>,
}

impl Acceptor {
    /// Registers the listener with the current reactor. Its sockets go to the handshake threads if
    /// it needs them, else to the shards. Errors: the reactor refuses the listener.
    pub(super) fn new(
        listening: ListeningSocket,
        terms: Rc<RefCell<AcceptTerms>>,
        shards: Vec<Recipient<Adopt>>,
        statistics: Arc<BrokerStatistics>,
        limits: ConnectLimits,
    ) -> io::Result<Acceptor> {
        let ListeningSocket { socket, file, .. } = listening;
        // SAFETY: the listener owns its descriptor. The descriptor stays open and unchanged for as
        // long as the listener lives, and nobody takes the listener out of its place.
        #[expect(
            unsafe_code,
            reason = "half the system calls of tokio's listener, whose sockets come registered with it"
        )]
        let listener = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE)? };
        Ok(Acceptor {
            listener,
            _file: file,
            terms,
            batches: shards.iter().map(|_| Vec::new()).collect(),
            shards,
            next: 0,
            statistics,
            limits,
            refusals: RateLimiter::default(),
            reserve: reserve(),
        })
    }

    /// Accepts until the task is aborted.
    pub(super) async fn run(mut self) {
        loop {
            let handshakes = self.terms.borrow().handshakes.clone();
            if let Some(handshakes) = handshakes {
                // The backlog of the kernel holds new sockets until there is room.
                handshakes.room().await;
            }
            let rates = self.terms.borrow().rates.clone();
            rates.room().await;
            poll_fn(|cx| self.poll_batch(cx)).await;
            tokio::task::yield_now().await;
        }
    }

    /// Accepts up to [`AT_ONCE`] sockets and hands them out. Ready after that many, or when a rate
    /// is reached; one at a time if each has to wait for room.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let terms = Rc::clone(&self.terms);
        let terms = terms.borrow();
        let at_once = if terms.handshakes.is_some() { 1 } else { AT_ONCE };
        for _ in 0..at_once {
            if !terms.rates.have_room() {
                break;
            }
            match self.poll_accept(cx) {
                Poll::Ready(accepted) => self.accepted(&terms, accepted),
                Poll::Pending => {
                    self.hand_out();
                    return Poll::Pending;
                }
            }
        }
        self.hand_out();
        Poll::Ready(())
    }

    /// Polls for the next socket. The socket is not registered here, because the reactor of its
    /// shard registers it.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(OwnedFd, PeerAddress)>> {
        loop {
            let mut ready = ready!(self.listener.poll_read_ready(cx))?;
            if let Ok(accepted) = ready.try_io(|listener| accept(listener.get_ref())) {
                return Poll::Ready(accepted);
            }
        }
    }

    fn accepted(&mut self, terms: &AcceptTerms, accepted: io::Result<(OwnedFd, PeerAddress)>) {
        match accepted {
            Ok((socket, peer)) => {
                terms.rates.meter();
                if !self.admits(&terms.entrance, &peer) {
                    let why = format!("limits.connects_per_address is reached (the latest came from {peer})");
                    return self.log_refused(&why);
                }
                let Entrance { terms: of_clients, name, .. } = &*terms.entrance;
                let of_broker = self.limits.broker.connections();
                match self.statistics.open_connection(&of_clients.connections, of_broker, terms.connections) {
                    Ok(()) => self.send_on(terms, socket, peer),
                    Err(ConnectionLimit::Broker) => {
                        let why = format!("limits.connections is reached (the latest came from {peer})");
                        self.log_refused(&why);
                    }
                    Err(ConnectionLimit::Listener) => {
                        let why = format!(
                            "connections of listener {name} is reached (the latest came from {peer})"
                        );
                        self.log_refused(&why);
                    }
                }
            }
            Err(error) if is_out_of_descriptors(&error) => {
                self.log_refused(&format!("{error}: raise the descriptor limit (ulimit -n)"));
                self.shed();
            }
            // The client has closed the connection already.
            Err(_) => {}
        }
    }

    /// Returns false if the address of a peer has opened too many connections. A proxy is not
    /// counted: the handshake threads count the address that the proxy names.
    fn admits(&self, entrance: &Entrance, peer: &PeerAddress) -> bool {
        let Some(limit) = &self.limits.addresses else { return true };
        let Some(address) = peer.socket_address().map(|address| address.ip()) else { return true };
        let is_proxy = entrance.proxy.is_some() || entrance.forwarding(Some(address)).is_some();
        is_proxy || limit.admits(clock::now(), address)
    }

    /// Sends a socket on, one after the other in turn: to a handshake thread, which has a turn of its own
    /// over the shards, or with the others of this turn to a shard. A shard sends it home once CONNECT
    /// has named its session.
    fn send_on(&mut self, terms: &AcceptTerms, socket: OwnedFd, peer: PeerAddress) {
        let turn = self.next;
        self.next = turn.wrapping_add(1);
        let reach = terms.entrance.reach(&peer);
        let arrival = Arrival { listener: Arc::clone(&terms.entrance.terms), reach, ..Arrival::default() };
        let (transport, accepted) = (socket.into(), clock::now());
        if let Some(handshakes) = &terms.handshakes {
            let entrance = Arc::clone(&terms.entrance);
            return handshakes.send(turn, NewSocket { entrance, transport, peer, accepted, arrival });
        }
        let at = turn % self.batches.len();
        if let Some(batch) = self.batches.get_mut(at) {
            batch.push(Incoming::accepted(transport, peer, accepted, arrival));
        }
    }

    /// Logs connections that are refused before CONNECT: one line a second, with their number.
    fn log_refused(&mut self, why: &str) {
        if let Some(connections) = count_refused(&mut self.refusals, clock::now()) {
            warn!(event = "connection.refused", connections, "connections refused: {why}");
        }
    }

    /// Without a free descriptor, accepts one connection in place of the reserve and closes it.
    fn shed(&mut self) {
        self.reserve = None;
        let mut nobody = Context::from_waker(Waker::noop());
        // The next poll registers its own waker again.
        drop(self.poll_accept(&mut nobody));
        self.reserve = reserve();
    }

    fn hand_out(&mut self) {
        for (shard, batch) in self.shards.iter().zip(&mut self.batches) {
            if !batch.is_empty() {
                shard.do_send(Adopt(std::mem::take(batch)));
            }
        }
    }
}

/// Counts one refused connection. Returns the number of connections since the last line, if a line
/// may be written now.
fn count_refused(refusals: &mut RateLimiter, now: Instant) -> Option<u64> {
    let is_admitted = refusals.admit(LINES, now);
    is_admitted.then(|| refusals.take_refused() + 1)
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Accepts a socket and asks for the address of its peer.
fn accept(listener: &OwnedFd) -> io::Result<(OwnedFd, PeerAddress)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, address) = retry_on_intr(|| acceptfrom_with(listener, flags))?;
    let peer = match address.and_then(|address| SocketAddr::try_from(address).ok()) {
        Some(address) => PeerAddress::ip(address),
        // A client of a Unix socket has no address, but a user.
        None => PeerAddress::unix(socket_peercred(&socket)?.uid.as_raw()),
    };
    Ok((socket, peer))
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;
    use crate::config::Listener;
    use actix::{Actor, Handler};
    use std::io::Read;
    use std::net::TcpStream;
    use tokio::io::AsyncReadExt;

    #[test]
    fn refused_connections_make_one_line_a_second_with_their_number() {
        let mut refusals = RateLimiter::default();
        let lines = [0, 10, 20, 999, 1_000, 2_500]
            .map(|ms| count_refused(&mut refusals, Instant::from_millis(5_000 + ms)));
        assert_eq!(lines, [Some(1), None, None, None, Some(4), Some(1)]);
    }

    #[test]
    fn an_accepted_socket_sends_at_once_and_never_blocks() {
        let (listener, address) = bind::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), 8).expect("a free port");
        let listener = OwnedFd::from(listener);
        let nobody_yet = accept(&listener).expect_err("it does not block");
        assert_eq!(nobody_yet.kind(), io::ErrorKind::WouldBlock);
        let client = TcpStream::connect(address).expect("it listens");
        let (socket, peer) = accept(&listener).expect("a connection");
        let mut socket = TcpStream::from(socket);
        assert_eq!(peer.socket_address(), client.local_addr().ok());
        assert!(socket.nodelay().expect("a TCP socket"));
        let nothing_yet = socket.read(&mut [0]).expect_err("it does not block");
        assert_eq!(nothing_yet.kind(), io::ErrorKind::WouldBlock);
    }

    /// Keeps the sockets that an acceptor hands out.
    #[derive(Clone, Default)]
    struct Adopter(Rc<RefCell<Vec<Incoming>>>);

    impl Actor for Adopter {
        type Context = actix::Context<Adopter>;
    }

    impl Handler<Adopt> for Adopter {
        type Result = ();

        fn handle(&mut self, adopt: Adopt, _: &mut actix::Context<Adopter>) {
            self.0.borrow_mut().extend(adopt.0);
        }
    }

    #[test]
    fn sockets_go_to_the_shards_in_turn_until_the_limit_is_reached() {
        actix_rt::System::new().block_on(async {
            let (listener, address) =
                bind::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), 8).expect("a free port");
            let entrance = Entrance::new("a", &Listener::plain(address), Arc::default(), None);
            let terms = AcceptTerms {
                entrance: Arc::new(entrance),
                handshakes: None,
                connections: usize::MAX,
                rates: ConnectRates::default(),
            };
            let terms = Rc::new(RefCell::new(terms));
            let (socket, at) = (Arc::new(listener.into()), ListenerAddress::Ip(address));
            let listening = ListeningSocket { socket, file: None, address: at };
            let shards = [Adopter::default(), Adopter::default()];
            let ways = shards.iter().map(|shard| shard.clone().start().recipient()).collect();
            let mut config = crate::config::Config::default();
            config.limits.connections = 4;
            let broker = Arc::new(LiveLimits::new(&config));
            let limits = ConnectLimits { broker, addresses: None };
            let statistics = fixture::statistics(&fixture::shared());
            let acceptor = Acceptor::new(listening, terms, ways, statistics, limits).expect("a reactor");
            actix_rt::spawn(acceptor.run());
            let clients: Vec<_> = (0..4).map(|_| TcpStream::connect(address).expect("it listens")).collect();
            let refused = TcpStream::connect(address).expect("it listens");
            refused.set_nonblocking(true).expect("a socket");
            let mut refused = tokio::net::TcpStream::from_std(refused).expect("a reactor");
            assert_eq!(refused.read(&mut [0]).await.expect("no reset"), 0);
            while shards.iter().map(|shard| shard.0.borrow().len()).sum::<usize>() < 4 {
                tokio::task::yield_now().await;
            }
            assert!(shards.iter().all(|shard| shard.0.borrow().len() == 2));
            drop(clients);
        });
    }
}
