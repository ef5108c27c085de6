//! Listening sockets, and the loop that accepts.

use super::StartError;
use super::message::{Adopt, Incoming};
use super::shard::ShardActor;
use super::statistics::Statistics;
use crate::clock;
use crate::time::Instant;
use actix::Addr;
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tracing::warn;

/// Sockets accepted in one go at most, before others on the arbiter have their turn.
const AT_ONCE: usize = 64;

/// Binds and listens; the address that was bound, with the port the system chose for 0.
pub fn bind(address: SocketAddr, backlog: u32) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            // So that 0.0.0.0 and [::] can be listened on side by side.
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from(socket);
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|cause| StartError::Bind { address, cause })
}

/// Accepts for as long as it is polled, spreading sockets over the shards in turn.
pub struct Acceptor {
    listener: tokio::net::TcpListener,
    shards: Vec<Addr<ShardActor>>,
    /// What was accepted in this turn, by shard.
    batches: Vec<Vec<Incoming>>,
    next: usize,
    statistics: Arc<Statistics>,
    limit: usize,
    complaints: Complaints,
    /// A descriptor to give up when there is no other, so that a socket can be accepted and closed: else the listener
    /// stays readable and the loop spins.
    reserve: Option<File>,
}

impl Acceptor {
    /// Registers the listener with the current reactor.
    pub fn new(
        listener: TcpListener,
        shards: Vec<Addr<ShardActor>>,
        statistics: Arc<Statistics>,
        limit: usize,
    ) -> io::Result<Acceptor> {
        Ok(Acceptor {
            listener: tokio::net::TcpListener::from_std(listener)?,
            batches: shards.iter().map(|_| Vec::new()).collect(),
            shards,
            next: 0,
            statistics,
            limit,
            complaints: Complaints::default(),
            reserve: reserve(),
        })
    }

    pub async fn run(mut self) {
        poll_fn(|cx| -> Poll<()> {
            for _ in 0..AT_ONCE {
                match self.listener.poll_accept(cx) {
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

    fn accepted(&mut self, accepted: io::Result<(tokio::net::TcpStream, SocketAddr)>) {
        match accepted.and_then(|(socket, peer)| Ok((prepare(socket)?, peer))) {
            Ok((socket, peer)) => {
                if !self.statistics.open_connection(self.limit) {
                    self.complaints.refused(clock::now(), &format!("limits.connections is reached ({peer})"));
                    return;
                }
                let at = self.next % self.batches.len();
                self.next = self.next.wrapping_add(1);
                if let Some(batch) = self.batches.get_mut(at) {
                    batch.push(Incoming { socket, peer, unread: Vec::new() });
                }
            }
            Err(error) if is_out_of_descriptors(&error) => {
                let what = format!("{error}: raise the descriptor limit (ulimit -n)");
                self.complaints.refused(clock::now(), &what);
                self.shed();
            }
            // The peer is gone again: the next.
            Err(_) => {}
        }
    }

    /// Out of descriptors: accepts one connection in the reserve's place and closes it.
    fn shed(&mut self) {
        self.reserve = None;
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        // Whoever polls next registers its own waker again.
        drop(self.listener.poll_accept(&mut nobody));
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

/// Refusals before a client has said anything: one line a second, with how many there were.
#[derive(Default)]
struct Complaints {
    last: Option<Instant>,
    since: u64,
}

impl Complaints {
    fn refused(&mut self, now: Instant, what: &str) {
        self.since += 1;
        if self.last.is_none_or(|last| now.since(last) >= Duration::from_secs(1)) {
            warn!(connections = self.since, "refused: {what}");
            *self = Complaints { last: Some(now), since: 0 };
        }
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Takes the socket from this reactor; its shard registers it with its own.
fn prepare(socket: tokio::net::TcpStream) -> io::Result<std::net::TcpStream> {
    // Packets are gathered here; the kernel need not wait for more.
    socket.set_nodelay(true)?;
    socket.into_std()
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
