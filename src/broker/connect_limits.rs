//! Limits on new connections before anything is read from them: connects a second, of the whole
//! broker and of one listener, and connects of one address.
//!
//! The rates delay: sockets beyond them stay in the kernel's backlog. The limit of an address
//! refuses: its sockets are closed and counted.

use super::statistics::BrokerStatistics;
use crate::access::meter::{MeteredRate, RateMeter};
use crate::access::strikes::{AddressStrikes, StrikeRule};
use crate::clock;
use crate::config::Config;
use crate::time::{Instant, millis};
use rustix::process::{Resource, getrlimit};
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Descriptors that are no connections: listeners, event loops, log, reserve.
pub(crate) const OTHER_DESCRIPTORS: u64 = 64;

/// The span of connects that may come at once. The span is longer than [`NAP`], so that a rate is
/// reached though the acceptor sleeps.
const BURST: Duration = Duration::from_millis(100);

/// The shortest sleep of an acceptor, so that it wakes a hundred times a second at most.
const NAP: Duration = Duration::from_millis(10);

/// A rate with its meter. All acceptors run on one thread, so they may share the meter.
#[derive(Clone, Debug)]
pub(super) struct ConnectRate {
    /// `None` without a limit. A reload changes it.
    rate: Rc<Cell<Option<MeteredRate>>>,
    meter: Rc<Cell<RateMeter>>,
}

impl ConnectRate {
    /// Returns the rate of so many connects a second; 0 means no limit.
    pub(super) fn new(per_second: u32) -> ConnectRate {
        let rate =
            ConnectRate { rate: Rc::default(), meter: Rc::new(Cell::new(RateMeter::new(clock::now()))) };
        rate.set(per_second);
        rate
    }

    /// Changes the rate, for all who share it.
    pub(super) fn set(&self, per_second: u32) {
        self.rate.set(MeteredRate::new(per_second.into(), BURST));
    }

    /// Returns the earliest time of the next connect; [`Instant::ZERO`] without a limit.
    fn due(&self) -> Instant {
        self.rate.get().map_or(Instant::ZERO, |rate| self.meter.get().due(rate))
    }

    /// Counts one connect.
    fn meter(&self, now: Instant) {
        if let Some(rate) = self.rate.get() {
            let mut meter = self.meter.get();
            meter.meter(now, rate, 1);
            self.meter.set(meter);
        }
    }
}

/// The bounds of new connections that may change while the broker runs. Acceptors and handshake
/// threads share them.
#[derive(Debug)]
pub(crate) struct LiveLimits {
    connections: AtomicUsize,
    connect_timeout_ms: AtomicU64,
}

impl LiveLimits {
    pub(crate) fn new(config: &Config) -> LiveLimits {
        let limits = LiveLimits { connections: AtomicUsize::new(0), connect_timeout_ms: AtomicU64::new(0) };
        limits.set(config);
        limits
    }

    /// Sets the limits to those of a configuration.
    pub(crate) fn set(&self, config: &Config) {
        self.connections.store(connection_limit(config.limits.connections), Ordering::Relaxed);
        let timeout = millis(config.network.connect_timeout);
        self.connect_timeout_ms.store(timeout, Ordering::Relaxed);
    }

    /// Returns the maximum number of connections of the broker.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the maximum time from the accept to the end of CONNECT.
    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms.load(Ordering::Relaxed))
    }
}

/// Returns the configured limit of connections, or the number that the descriptor limit allows if
/// none is configured.
fn connection_limit(configured: u32) -> usize {
    if configured > 0 {
        return configured as usize;
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX)
}

/// The rates of one acceptor: the broker's and its listener's.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectRates(Vec<ConnectRate>);

impl ConnectRates {
    /// Returns these rates together.
    pub(super) fn new(rates: impl IntoIterator<Item = ConnectRate>) -> ConnectRates {
        ConnectRates(rates.into_iter().collect())
    }

    /// Returns true if a socket may be accepted now. Reads no clock without rates.
    pub(super) fn have_room(&self) -> bool {
        let due = self.due();
        due == Instant::ZERO || due <= clock::now()
    }

    /// Counts one accepted socket.
    pub(super) fn meter(&self) {
        if self.0.iter().any(|rate| rate.rate.get().is_some()) {
            let now = clock::now();
            self.0.iter().for_each(|rate| rate.meter(now));
        }
    }

    /// Waits until a socket may be accepted.
    pub(super) async fn room(&self) {
        while !self.have_room() {
            tokio::time::sleep(self.due().since(clock::now()).max(NAP)).await;
        }
    }

    fn due(&self) -> Instant {
        self.0.iter().map(ConnectRate::due).max().unwrap_or(Instant::ZERO)
    }
}

/// The connects of each address, for acceptors and handshake threads. An IPv6 address counts as its
/// /64, and its /48 counts too, because one customer may have that many. Takes at most 14 MiB.
#[derive(Clone, Debug)]
pub(crate) struct AddressLimit {
    strikes: Arc<Mutex<AddressStrikes>>,
    statistics: Arc<BrokerStatistics>,
}

impl AddressLimit {
    /// Returns the limit. The rule has the number of connects that are accepted.
    pub(crate) fn new(rule: StrikeRule, statistics: Arc<BrokerStatistics>) -> AddressLimit {
        // The connect after the last accepted one begins the block.
        let of = |limit: u32| StrikeRule { limit: limit.saturating_add(1), ..rule };
        let of_sites = of(rule.limit.saturating_mul(AddressStrikes::SITE));
        let strikes = AddressStrikes::new(of(rule.limit), of_sites);
        AddressLimit { strikes: Arc::new(Mutex::new(strikes)), statistics }
    }

    /// Counts a connect of an address. Returns false if it is refused, and counts that, too.
    pub(crate) fn admits(&self, now: Instant, address: IpAddr) -> bool {
        let mut strikes = self.strikes.lock().unwrap_or_else(PoisonError::into_inner);
        // Connects that the host's own bound refuses do not count for its site.
        let is_refused = strikes.is_host_blocked(now, address)
            || strikes.strike_host(now, address)
            || strikes.is_site_blocked(now, address)
            || strikes.strike_site(now, address);
        drop(strikes);
        if is_refused {
            self.statistics.address_refused();
        }
        !is_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;

    #[test]
    fn without_rates_there_is_always_room() {
        for rates in [ConnectRates::default(), ConnectRates::new([ConnectRate::new(0)])] {
            (0..1_000).for_each(|_| rates.meter());
            assert!(rates.have_room());
        }
    }

    #[test]
    fn acceptors_share_the_rate_of_the_broker() {
        let broker = ConnectRate::new(100);
        let (one, other) = (ConnectRates::new([broker.clone()]), ConnectRates::new([broker.clone()]));
        assert!(other.have_room());
        (0..50).for_each(|_| one.meter());
        assert!(!other.have_room() && !one.have_room());
        broker.set(0);
        assert!(other.have_room() && one.have_room(), "the rate was taken away");
    }

    #[test]
    fn an_address_beyond_its_limit_is_refused_for_a_while_and_counted() {
        let second = Duration::from_secs(1);
        let statistics = fixture::statistics(&fixture::shared());
        let rule = StrikeRule { limit: 2, window: second, block: second };
        let limit = AddressLimit::new(rule, Arc::clone(&statistics));
        let [one, neighbour, other] =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|text| text.parse().unwrap());
        let now = Instant::from_millis(5_000);
        let admitted = [now, now, now, now + second].map(|now| limit.admits(now, one));
        assert_eq!(admitted, [true, true, false, true]);
        let later = now + second;
        assert!(limit.admits(later, neighbour) && !limit.admits(later, one), "they count as one address");
        assert!(limit.admits(later, other));
        assert_eq!(statistics.refused_addresses(), 2);
    }
    #[test]
    fn a_site_of_many_networks_may_open_sixteen_times_as_many_connections_together() {
        let second = Duration::from_secs(1);
        let statistics = fixture::statistics(&fixture::shared());
        let limit = AddressLimit::new(StrikeRule { limit: 2, window: second, block: second }, statistics);
        let network = |n: u16| IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 1));
        let now = Instant::from_millis(5_000);
        assert_eq!((0..1_000).filter(|n| limit.admits(now, network(*n))).count(), 32);
        assert!(limit.admits(now, "2001:db8:2::1".parse().unwrap()), "another site");
        assert!(limit.admits(now + second, network(999)), "the block is over");
    }
}
