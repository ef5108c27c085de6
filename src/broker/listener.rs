//! Listening sockets, and the task that accepts connections.

use super::connection::PeerAddress;
use super::message::{Adopt, Incoming};
use super::rate_limit::{Rate, RateLimiter};
use super::start_error::StartError;
use super::statistics::BrokerStatistics;
use crate::clock;
use crate::shard::arrival::{Arrival, ListenerNumber, Reach};
use crate::time::Instant;
use actix::Recipient;
use rustix::io::retry_on_intr;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::warn;

/// Maximum number of sockets accepted in one go, before other tasks of the thread run.
const AT_ONCE: usize = 64;

/// The rate of log lines about refused connections.
const LINES: Rate = Rate::per_second(1);

/// Binds a listener. Returns the listener and its address, with the port that the system chose for
/// 0.
///
/// # Errors
/// The system refuses the address: [`StartError::Bind`].
pub(super) fn bind(address: SocketAddr, backlog: u32) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            // 0.0.0.0 and [::] can then be listened on side by side.
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        // The outbox gathers packets, so the kernel need not wait for more. Accepted sockets
        // inherit the option.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|cause| StartError::Bind { address, cause })
}

/// Accepts connections of one listener and spreads them over the shards in turn.
pub(super) struct Acceptor {
    listener: AsyncFd<TcpListener>,
    number: ListenerNumber,
    is_loopback: bool,
    shards: Vec<Recipient<Adopt>>,
    /// The sockets accepted in this turn, by shard.
    batches: Vec<Vec<Incoming>>,
    next: usize,
    statistics: Arc<BrokerStatistics>,
    limit: usize,
    /// Counts the refused connections that no line has reported.
    refusals: RateLimiter,
    /// A descriptor that is closed when there is no other, so that one socket can be accepted and
    /// closed. Without it the listener would stay readable and the loop would spin.
    reserve: Option<File>,
}

impl Acceptor {
    /// Registers the listener with the current reactor. `number` is its place among all
    /// listeners. `limit` is the maximum number of connections of the broker.
    ///
    /// # Errors
    /// The reactor refuses the listener.
    pub(super) fn new(
        listener: TcpListener,
        number: ListenerNumber,
        shards: Vec<Recipient<Adopt>>,
        statistics: Arc<BrokerStatistics>,
        limit: usize,
    ) -> io::Result<Acceptor> {
        let is_loopback = listener.local_addr()?.ip().is_loopback();
        // SAFETY: the listener owns its descriptor. The descriptor is open and the same for as
        // long as the listener lives, and nobody takes the listener out of its place.
        #[expect(
            unsafe_code,
            reason = "half the system calls of tokio's listener, whose sockets come registered with it"
        )]
        let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE)? };
        Ok(Acceptor {
            listener,
            number,
            is_loopback,
            batches: shards.iter().map(|_| Vec::new()).collect(),
            shards,
            next: 0,
            statistics,
            limit,
            refusals: RateLimiter::default(),
            reserve: reserve(),
        })
    }

    /// Accepts until the task is aborted.
    pub(super) async fn run(mut self) {
        poll_fn(|cx| -> Poll<()> {
            for _ in 0..AT_ONCE {
                match self.poll_accept(cx) {
                    Poll::Ready(accepted) => self.accepted(accepted),
                    Poll::Pending => {
                        self.hand_out();
                        return Poll::Pending;
                    }
                }
            }
            self.hand_out();
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Polls for the next socket. The socket is not registered here, because the reactor of its
    /// shard registers it.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        loop {
            let mut ready = ready!(self.listener.poll_read_ready(cx))?;
            if let Ok(accepted) = ready.try_io(|listener| accept(listener.get_ref())) {
                return Poll::Ready(accepted);
            }
        }
    }

    fn accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((socket, peer)) => {
                if !self.statistics.open_connection(self.limit) {
                    let why = format!("limits.connections is reached (the latest came from {peer})");
                    return self.log_refused(&why);
                }
                let at = self.next % self.batches.len();
                self.next = self.next.wrapping_add(1);
                if let Some(batch) = self.batches.get_mut(at) {
                    let peer = PeerAddress::ip(self.number, peer);
                    let reach =
                        if self.is_loopback && peer.is_local() { Reach::Local } else { Reach::Network };
                    let arrival = Arrival { listener: self.number, reach, certificate_user: None };
                    batch.push(Incoming::accepted(socket.into(), peer, clock::now(), arrival));
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

    /// Logs connections that are refused before CONNECT: one line a second, with their number.
    fn log_refused(&mut self, why: &str) {
        if let Some(connections) = count_refused(&mut self.refusals, clock::now()) {
            warn!(connections, "connections refused: {why}");
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

fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, peer) = retry_on_intr(|| acceptfrom_with(listener, flags))?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let peer = peer.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((TcpStream::from(socket), peer))
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;
    use actix::{Actor, Handler};
    use std::cell::RefCell;
    use std::io::Read;
    use std::rc::Rc;
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
        let (listener, address) = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 8).expect("a free port");
        let nobody_yet = accept(&listener).expect_err("it does not block");
        assert_eq!(nobody_yet.kind(), io::ErrorKind::WouldBlock);
        let client = TcpStream::connect(address).expect("it listens");
        let (mut socket, peer) = accept(&listener).expect("a connection");
        assert_eq!(peer, client.local_addr().expect("connected"));
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
            let (listener, address) = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 8).expect("a free port");
            let shards = [Adopter::default(), Adopter::default()];
            let ways = shards.iter().map(|shard| shard.clone().start().recipient()).collect();
            let acceptor =
                Acceptor::new(listener, ListenerNumber(0), ways, fixture::statistics(&fixture::shared()), 4)
                    .expect("a reactor");
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
