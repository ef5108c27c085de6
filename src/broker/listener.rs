//! Listening sockets, and the loop that accepts.

use super::StartError;
use super::message::{Adopt, Incoming};
use super::shard::ShardActor;
use super::statistics::Statistics;
use crate::clock;
use crate::time::Instant;
use actix::Addr;
use rustix::io::retry_on_intr;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
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
        // Packets are gathered here; the kernel need not wait for more. What is accepted has it of the listener.
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

/// Accepts for as long as it is polled, spreading sockets over the shards in turn.
pub struct Acceptor {
    listener: AsyncFd<TcpListener>,
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
        // SAFETY: the listener owns its descriptor, which is open and the same for as long as it lives, and nobody takes the
        // listener out of where it is put here.
        #[expect(
            unsafe_code,
            reason = "half the system calls of tokio's listener, whose sockets come registered with it"
        )]
        let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE)? };
        Ok(Acceptor {
            listener,
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

    /// The next socket, which no reactor has seen: its shard registers it, and this one would only have to forget it again.
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
        let mut nobody = Context::from_waker(Waker::noop());
        // Whoever polls next registers its own waker again.
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
    use std::io::Read;

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
}
