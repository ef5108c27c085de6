//! Debts of departed clients to their rates, so that nobody evades a rate by connecting again.
//!
//! A connection keeps its meter itself. When the connection ends in debt, the meter comes here
//! twice:
//!
//! - By *client*: listener, client identifier and user. A client that returns goes on with its own
//!   meter.
//! - By *origin*: listener, verified user, and host. A client that is unknown here begins with the
//!   largest meter that its origin left, but with `NEWCOMER` of debt at most. So a new client
//!   identifier at each connect gains nothing: connections that follow each other are metered as
//!   one. Connections at the same time have a rate each, as different clients have.
//!
//! The bound for newcomers keeps harm from honest neighbours: a client that sends one large packet
//! and leaves delays new clients of its own user and host by ten seconds at most. In turn a host
//! that rotates its client identifiers sends one packet in ten seconds beyond its rate of bytes.
//! The rate of messages has no such gap, because one message never owes more than a second.
//!
//! A meter is dropped when everything is paid for, because it is then as that of a client that has
//! sent nothing. The table is bounded; the meter that is paid for first makes room.

use crate::access::identity::Identity;
use crate::access::meter::TrafficMeter;
use crate::mqtt::charge::Charge;
use crate::mqtt::keyed::Keyed;
use crate::time::Instant;
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest debt with which an unknown client begins.
const NEWCOMER: Duration = Duration::from_secs(10);

/// The largest number of meters.
const MOST: usize = 65_536;

/// Maximum number of meters dropped at once, so that each change takes a bounded time. A change
/// adds fewer.
const DROPPED_AT_ONCE: usize = 8;

/// Bytes of a meter: its place in the table, which is half full at worst, and in the set.
const METER: usize = 160;

/// Stands for a client or an origin: a hash with the key of the process, so that nobody can choose
/// a client identifier that has the key of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct DebtKey([u64; 2]);

impl DebtKey {
    fn new(of: impl Hash) -> DebtKey {
        // The number in front makes two different hashes.
        DebtKey([0_u8, 1].map(|number| Keyed.hash_one((number, &of))))
    }
}

/// The debtor of an ended connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debtor {
    client: DebtKey,
    origin: DebtKey,
}

impl Debtor {
    /// Returns the debtor for a client of the listener with this label. `host` is `None` for a
    /// client that has no address.
    pub(crate) fn new(
        listener: &str,
        client_id: &str,
        user: Option<&Identity>,
        host: Option<IpAddr>,
    ) -> Debtor {
        let verified = user.filter(|user| user.is_verified()).map(Identity::user);
        Debtor {
            client: DebtKey::new((listener, client_id, user.map(Identity::user))),
            origin: DebtKey::new((listener, verified, host)),
        }
    }
}

/// The meters that are not paid for, of all shards. The lock is taken at the end of a connection in
/// debt, and at each CONNACK of a listener with rates.
#[derive(Debug, Default)]
pub struct Debts(Mutex<DebtTable>);

#[derive(Debug, Default)]
struct DebtTable {
    meters: HashMap<DebtKey, TrafficMeter, Keyed>,
    /// The keys of `meters`, by the time at which they are paid for.
    ends: BTreeSet<(Instant, DebtKey)>,
    charge: Charge,
}

impl Debts {
    /// Keeps the meter of a connection that ends. Does nothing if it is paid for.
    pub(crate) fn keep(&self, now: Instant, debtor: Debtor, meter: TrafficMeter) {
        if meter.paid() > now {
            let mut table = self.lock();
            table.keep(now, debtor.client, meter);
            table.keep(now, debtor.origin, meter);
        }
    }

    /// Returns the meter with which a connection begins; `None` if nothing is owed.
    pub(crate) fn of(&self, now: Instant, debtor: Debtor) -> Option<TrafficMeter> {
        let table = self.lock();
        let own = table.meters.get(&debtor.client).copied();
        let of_origin = || table.meters.get(&debtor.origin).map(|meter| meter.paid_by(now + NEWCOMER));
        own.or_else(of_origin).filter(|meter| meter.paid() > now)
    }

    /// Returns the bytes charged for the table.
    pub fn charged(&self) -> usize {
        self.lock().charge.bytes()
    }

    fn lock(&self) -> MutexGuard<'_, DebtTable> {
        // A panic is fatal in this process, so a poisoned lock is never met outside tests.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DebtTable {
    fn keep(&mut self, now: Instant, key: DebtKey, meter: TrafficMeter) {
        for _ in 0..DROPPED_AT_ONCE {
            match self.ends.first() {
                Some((paid, _)) if *paid <= now || self.ends.len() >= MOST => self.drop_first(),
                _ => break,
            }
        }
        let before = self.meters.get(&key).copied();
        if let Some(before) = before {
            self.ends.remove(&(before.paid(), key));
        }
        let meter = before.map_or(meter, |before| before.or_more(meter));
        self.meters.insert(key, meter);
        self.ends.insert((meter.paid(), key));
        self.charge.set(self.ends.len() * METER);
    }

    fn drop_first(&mut self) {
        if let Some((_, key)) = self.ends.pop_first() {
            self.meters.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::identity::IdentitySource;
    use crate::access::meter::{MeteredRate, TrafficRates};

    const NOW: Instant = Instant::from_millis(1_000);

    fn rates() -> TrafficRates {
        TrafficRates { messages: MeteredRate::new(10, Duration::ZERO), bytes: None }
    }

    fn after(messages: u64) -> TrafficMeter {
        let mut meter = TrafficMeter::new(NOW);
        meter.meter(NOW, rates(), messages, 0);
        meter
    }

    fn debtor(client_id: &str, user: Option<&str>, host: u8) -> Debtor {
        let user = user.map(|user| Identity::new(user, IdentitySource::Password));
        Debtor::new("a", client_id, user.as_ref(), Some(IpAddr::from([192, 0, 2, host])))
    }

    #[test]
    fn a_client_goes_on_with_its_own_meter_and_a_new_one_with_that_of_its_origin() {
        let debts = Debts::default();
        debts.keep(NOW, debtor("a", None, 1), after(20));
        debts.keep(NOW, debtor("b", None, 1), after(50));
        assert_eq!(debts.of(NOW, debtor("a", None, 1)), Some(after(20)));
        assert_eq!(debts.of(NOW, debtor("new", None, 1)), Some(after(50)));
        for other in [debtor("new", None, 2), debtor("a", Some("ann"), 1), debtor("new", Some("ann"), 1)] {
            assert_eq!(debts.of(NOW, other), None, "another origin owes nothing");
        }
    }

    #[test]
    fn a_new_client_waits_for_no_more_than_ten_seconds_for_its_neighbours() {
        let debts = Debts::default();
        debts.keep(NOW, debtor("a", None, 1), after(1_000));
        let due = |client_id| debts.of(NOW, debtor(client_id, None, 1)).map(TrafficMeter::paid);
        assert_eq!(due("new"), Some(NOW + NEWCOMER));
        assert_eq!(due("a"), Some(NOW + Duration::from_secs(100)));
    }

    #[test]
    fn a_meter_that_is_paid_for_is_dropped_and_the_table_is_bounded() {
        let debts = Debts::default();
        debts.keep(NOW, debtor("a", None, 1), after(10));
        assert_eq!(debts.of(NOW + Duration::from_secs(1), debtor("a", None, 1)), None);
        let later = NOW + Duration::from_secs(1);
        let mut meter = TrafficMeter::new(later);
        meter.meter(later, rates(), 100, 0);
        debts.keep(later, debtor("b", None, 2), meter);
        assert_eq!(debts.lock().meters.len(), 2, "those of the first client are gone");
        for n in 0..40_000 {
            debts.keep(later, debtor(&n.to_string(), None, 3), after(20 + n));
            let table = debts.lock();
            assert!(table.meters.len() <= MOST && table.meters.len() == table.ends.len());
        }
        let table = debts.lock();
        assert_eq!(table.charge.bytes(), table.ends.len() * METER);
    }
}
