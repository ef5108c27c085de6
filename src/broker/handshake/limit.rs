//! The limit on sockets that are in their handshakes, and the choice of the one that goes.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Sockets that one host may have in its handshakes, even if the limit is reached.
const FAIR: usize = 8;

/// The sockets in their handshakes, by host. All handshake threads and acceptors share it.
#[derive(Debug)]
pub(crate) struct HandshakeLimit {
    most: usize,
    table: Mutex<Table>,
    /// Notified when a socket leaves.
    left: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// The sockets of each host, the oldest first.
    hosts: HashMap<Host, VecDeque<WaitingSocket>>,
    count: usize,
    next: u64,
}

/// One socket of a host.
#[derive(Debug)]
struct WaitingSocket {
    number: u64,
    /// `None` until its task runs.
    task: Option<AbortHandle>,
}

/// A host: an IPv4 address, or the first half of an IPv6 address, because a host has all addresses
/// of a /64. All clients of Unix sockets count as one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    V4(u32),
    V6(u64),
    Unix,
}

impl Host {
    /// Returns the host of an address; `None` is a Unix socket.
    pub(crate) fn of(address: Option<IpAddr>) -> Host {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(v4)) => Host::V4(v4.to_bits()),
            Some(IpAddr::V6(v6)) => Host::V6((v6.to_bits() >> 64) as u64),
            None => Host::Unix,
        }
    }
}

/// The place of one socket in the table. The socket gives it back when it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    host: Host,
    number: u64,
}

impl HandshakeLimit {
    /// Returns an empty table for this number of sockets.
    pub(crate) fn new(most: usize) -> HandshakeLimit {
        HandshakeLimit { most, table: Mutex::default(), left: Notify::new() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a socket. If there is none, aborts the oldest socket of the
    /// host with the most, if that host has more than [`FAIR`].
    pub(crate) async fn room(&self) {
        loop {
            let left = self.left.notified();
            {
                let mut table = self.table();
                if table.count < self.most {
                    return;
                }
                // The aborted task gives its place back.
                table.abort_oldest_of_largest();
            }
            left.await;
        }
    }

    /// Adds a socket. The limit may be exceeded by the sockets that were accepted at once.
    pub(crate) fn enter(&self, host: Host) -> Ticket {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.count += 1;
        table.hosts.entry(host).or_default().push_back(WaitingSocket { number, task: None });
        Ticket { host, number }
    }

    /// Sets the task of a socket, which an abort ends.
    pub(crate) fn set_task(&self, ticket: Ticket, task: AbortHandle) {
        if let Some(place) = self.table().find(ticket) {
            place.task = Some(task);
        }
    }

    /// Removes a socket whose handshakes are done, or that is closed.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let mut table = self.table();
        let Some(places) = table.hosts.get_mut(&ticket.host) else { return };
        let before = places.len();
        places.retain(|place| place.number != ticket.number);
        let removed = before - places.len();
        if places.is_empty() {
            table.hosts.remove(&ticket.host);
        }
        table.count -= removed;
        drop(table);
        self.left.notify_waiters();
    }
}

impl Table {
    fn find(&mut self, ticket: Ticket) -> Option<&mut WaitingSocket> {
        self.hosts.get_mut(&ticket.host)?.iter_mut().find(|place| place.number == ticket.number)
    }

    /// Costs a look at each host, which are as many as the limit at most.
    fn abort_oldest_of_largest(&mut self) {
        let largest = self.hosts.values().max_by_key(|places| places.len());
        let oldest = largest.filter(|places| places.len() > FAIR).and_then(VecDeque::front);
        if let Some(task) = oldest.and_then(|place| place.task.as_ref()) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::Arc;
    use tokio::task::{JoinHandle, LocalSet};

    fn host(last: u8) -> Host {
        Host::of(Some(IpAddr::from([10, 0, 0, last])))
    }

    /// A socket whose handshake never ends.
    fn enter(limit: &Arc<HandshakeLimit>, host: Host) -> JoinHandle<()> {
        struct Leave(Arc<HandshakeLimit>, Ticket);
        impl Drop for Leave {
            fn drop(&mut self) {
                self.0.leave(self.1);
            }
        }
        let ticket = limit.enter(host);
        let leave = Leave(Arc::clone(limit), ticket);
        let task = tokio::task::spawn_local(async move {
            let _leave = leave;
            pending::<()>().await;
        });
        limit.set_task(ticket, task.abort_handle());
        task
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn at_the_limit_the_oldest_socket_of_the_largest_host_goes() {
        run(async {
            let limit = Arc::new(HandshakeLimit::new(12));
            let fair = enter(&limit, host(1));
            let large: Vec<_> = (0..11).map(|_| enter(&limit, host(2))).collect();
            limit.room().await;
            let gone: Vec<bool> = large.iter().map(JoinHandle::is_finished).collect();
            assert!(gone[0] && gone[1..].iter().all(|gone| !gone), "{gone:?}");
            assert!(!fair.is_finished());
        });
    }

    #[test]
    fn hosts_with_few_sockets_keep_them_and_the_next_one_waits() {
        run(async {
            let limit = Arc::new(HandshakeLimit::new(16));
            let sockets: Vec<_> = (0..16).map(|n| enter(&limit, host(n / 8))).collect();
            let waiting = Arc::clone(&limit);
            let waiting = tokio::task::spawn_local(async move { waiting.room().await });
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert!(!waiting.is_finished() && sockets.iter().all(|socket| !socket.is_finished()));
            sockets[3].abort();
            waiting.await.unwrap();
        });
    }

    #[test]
    fn addresses_of_one_network_are_one_host() {
        let v6 = |text: &str| Host::of(Some(text.parse().unwrap()));
        assert_eq!(v6("2001:db8::1"), v6("2001:db8::ffff:1"));
        assert_ne!(v6("2001:db8::1"), v6("2001:db8:0:1::1"));
        assert_eq!(v6("::ffff:10.0.0.1"), host(1));
        assert_ne!(host(1), host(2));
    }
}
