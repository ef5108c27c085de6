//! Listening sockets, and the loop that accepts.

use super::StartError;
use super::message::{Adopt, Incoming};
use super::shard::ShardActor;
use super::statistics::Statistics;
use actix::Addr;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
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
    next: usize,
    statistics: Arc<Statistics>,
    limit: usize,
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
        let listener = AsyncFd::register(listener)?;
        Ok(Acceptor { listener, shards, next: 0, statistics, limit, reserve: File::open("/dev/null").ok() })
    }

    pub async fn run(mut self) {
        loop {
            let Ok(mut ready) = self.listener.readable().await else { return };
            let mut batches: Vec<Vec<Incoming>> = self.shards.iter().map(|_| Vec::new()).collect();
            let mut emptied = false;
            for _ in 0..AT_ONCE {
                match ready.get_inner().accept() {
                    Ok((socket, peer)) => {
                        if !self.statistics.open_connection(self.limit) {
                            warn!(%peer, "refused: limits.connections is reached");
                            continue;
                        }
                        if prepare(&socket).is_err() {
                            self.statistics.connection_closed();
                            continue;
                        }
                        let at = self.next % batches.len();
                        self.next = self.next.wrapping_add(1);
                        if let Some(batch) = batches.get_mut(at) {
                            batch.push(Incoming { socket, peer, unread: Vec::new() });
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        emptied = true;
                        break;
                    }
                    Err(error) if is_out_of_descriptors(&error) => {
                        self.reserve = None;
                        drop(ready.get_inner().accept());
                        self.reserve = File::open("/dev/null").ok();
                        warn!(%error, "a connection was closed: raise the descriptor limit (ulimit -n)");
                    }
                    // The peer is gone again: the next.
                    Err(_) => {}
                }
            }
            if emptied {
                ready.clear_ready();
            }
            drop(ready);
            for (shard, batch) in self.shards.iter().zip(batches) {
                if !batch.is_empty() {
                    shard.do_send(Adopt(batch));
                }
            }
            if !emptied {
                tokio::task::yield_now().await;
            }
        }
    }
}

fn prepare(socket: &std::net::TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Packets are gathered here; the kernel need not wait for more.
    SockRef::from(socket).set_tcp_nodelay(true)
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
