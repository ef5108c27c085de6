//! The limit on sockets in their handshakes, and the choice of the socket to evict.

use crate::clock;
use crate::time::Instant;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Sockets that one host may have in its handshakes, even if the limit is reached.
const FAIR: usize = 8;

/// Limit for one IPv6 /48, which may be one customer of a provider.
const FAIR_SITE: usize = 64;

/// The age from which a socket may go if every host has its fair share. A handshake takes less, so
/// at the limit the sockets that make no progress go first, whoever they come from.
const GRACE: Duration = Duration::from_secs(2);

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

#[derive(Debug)]
struct WaitingSocket {
    number: u64,
    since: Instant,
    eviction: Eviction,
}

/// The call to a socket to make room. The handshake thread waits for it beside the handshakes, so
/// that the end of the socket is counted and logged. An abort of its task would do neither.
#[derive(Clone, Debug, Default)]
pub(crate) struct Eviction(Arc<Notify>);

impl Eviction {
    /// Waits until the socket has to make room. A call before is not lost.
    pub(crate) async fn comes(&self) {
        self.0.notified().await;
    }
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

/// The place of one socket in the table. The socket gives the place back when it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
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

    /// Waits until there is room for a socket. At the limit, one of the present sockets is evicted:
    ///
    /// 1. the oldest one of the host with the most, if that host has more than [`FAIR`];
    /// 2. else the oldest one of the /48 with the most, if that has more than [`FAIR_SITE`];
    /// 3. else the oldest one of all, if it is older than [`GRACE`].
    ///
    /// So the limit is never held shut for longer than [`GRACE`], from whatever number of hosts.
    pub(crate) async fn room(&self) {
        loop {
            let left = self.left.notified();
            let wait = {
                let table = self.table();
                if table.count < self.most {
                    return;
                }
                // The evicted socket gives its place back.
                table.evict_one(clock::now())
            };
            // The time is over when the oldest socket may go.
            let _ = tokio::time::timeout(wait, left).await;
        }
    }

    /// Adds a socket. The limit may be exceeded by the sockets that were accepted at once.
    pub(crate) fn enter(&self, host: Host) -> (Seat, Eviction) {
        self.enter_at(clock::now(), host)
    }

    fn enter_at(&self, now: Instant, host: Host) -> (Seat, Eviction) {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.count += 1;
        let eviction = Eviction::default();
        let socket = WaitingSocket { number, since: now, eviction: eviction.clone() };
        table.hosts.entry(host).or_default().push_back(socket);
        (Seat { host, number }, eviction)
    }

    /// Removes a socket whose handshakes are done, or that is closed.
    pub(crate) fn leave(&self, seat: Seat) {
        let mut table = self.table();
        let Some(places) = table.hosts.get_mut(&seat.host) else { return };
        let before = places.len();
        places.retain(|place| place.number != seat.number);
        let removed = before - places.len();
        if places.is_empty() {
            table.hosts.remove(&seat.host);
        }
        table.count -= removed;
        drop(table);
        self.left.notify_waiters();
    }
}

impl Table {
    /// Evicts one socket, as [`HandshakeLimit::room`] says. Returns the time after which another
    /// socket may be evicted. Costs a look at each host, which are as many as the limit at most.
    fn evict_one(&self, now: Instant) -> Duration {
        let unfair = self.oldest_of_largest_host().or_else(|| self.oldest_of_largest_site());
        let oldest = self.hosts.values().filter_map(VecDeque::front).min_by_key(|place| place.number);
        let old = oldest.filter(|place| now.since(place.since) >= GRACE);
        if let Some(socket) = unfair.or(old) {
            socket.eviction.0.notify_one();
            // The place is free when its task has ended, which it reports.
            return GRACE;
        }
        let age = oldest.map_or(Duration::ZERO, |place| now.since(place.since));
        GRACE.saturating_sub(age).max(Duration::from_millis(10))
    }

    fn oldest_of_largest_host(&self) -> Option<&WaitingSocket> {
        let largest = self.hosts.values().max_by_key(|places| places.len());
        largest.filter(|places| places.len() > FAIR).and_then(VecDeque::front)
    }

    fn oldest_of_largest_site(&self) -> Option<&WaitingSocket> {
        let mut sites: HashMap<u64, (usize, Option<&WaitingSocket>)> = HashMap::new();
        for (host, places) in &self.hosts {
            let Host::V6(bits) = host else { continue };
            let (count, oldest) = sites.entry(bits >> 16).or_default();
            *count += places.len();
            let front = places.front().into_iter().chain(*oldest).min_by_key(|place| place.number);
            *oldest = front;
        }
        let (count, oldest) = sites.into_values().max_by_key(|(count, _)| *count)?;
        oldest.filter(|_| count > FAIR_SITE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinHandle, LocalSet};

    fn host(last: u8) -> Host {
        Host::of(Some(IpAddr::from([10, 0, 0, last])))
    }

    /// A socket whose handshake never ends.
    fn enter(limit: &Arc<HandshakeLimit>, host: Host) -> JoinHandle<()> {
        enter_at(limit, clock::now(), host)
    }

    fn enter_at(limit: &Arc<HandshakeLimit>, now: Instant, host: Host) -> JoinHandle<()> {
        struct Leave(Arc<HandshakeLimit>, Seat);
        impl Drop for Leave {
            fn drop(&mut self) {
                self.0.leave(self.1);
            }
        }
        let (seat, eviction) = limit.enter_at(now, host);
        let leave = Leave(Arc::clone(limit), seat);
        tokio::task::spawn_local(async move {
            let _leave = leave;
            eviction.comes().await;
        })
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
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
    fn many_networks_of_one_site_do_not_hold_the_limit() {
        run(async {
            let limit = Arc::new(HandshakeLimit::new(80));
            let fair = enter(&limit, host(1));
            let network = |n: u64| Host::V6(0x2001_0db8_0001_0000 + n);
            let other = enter(&limit, Host::V6(0x2001_0db8_0002_0000));
            let site: Vec<_> = (0..78).map(|n| enter(&limit, network(n))).collect();
            limit.room().await;
            let gone: Vec<bool> = site.iter().map(JoinHandle::is_finished).collect();
            assert!(gone[0] && gone[1..].iter().all(|gone| !gone), "{gone:?}");
            assert!(!fair.is_finished() && !other.is_finished());
        });
    }

    #[test]
    fn old_sockets_of_many_hosts_do_not_hold_the_limit() {
        run(async {
            let (limit, now) = (Arc::new(HandshakeLimit::new(16)), clock::now());
            let sockets: Vec<_> = (0..16).map(|n| enter_at(&limit, now, host(n))).collect();
            let left = limit.table().evict_one(now + GRACE / 2);
            tokio::task::yield_now().await;
            assert!(left == GRACE / 2 && !sockets[0].is_finished(), "it is young");
            limit.table().evict_one(now + GRACE);
            limit.room().await;
            assert!(sockets[0].is_finished() && !sockets[1].is_finished(), "the first that came");
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
