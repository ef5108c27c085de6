//! Counts of a key's actions within a window of time. A key with too many strikes is blocked.
//!
//! The keys are addresses, networks, or clients. The table is bounded: the oldest key that only
//! counts makes room, and a blocked key only if all are blocked. So a flood of other keys does not
//! free a blocked one.

use crate::mqtt::keyed::Keyed;
use crate::time::Instant;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The rule of a table: so many strikes within the window lead to a block of this length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrikeRule {
    /// The strike of a window at which a key is blocked, from 1.
    pub limit: u32,
    /// The time in which strikes are counted together.
    pub window: Duration,
    /// The time for which a key is blocked.
    pub block: Duration,
}

/// The strikes of all keys. A key takes about 80 B beside itself.
#[derive(Debug)]
pub struct Strikes<K> {
    rule: StrikeRule,
    most: usize,
    entries: HashMap<K, StrikeEntry, Keyed>,
    /// The keys that count, and those that are blocked, each in the order of their ends. An item
    /// whose number differs from that of the entry is stale.
    counting: VecDeque<(K, u64)>,
    blocked: VecDeque<(K, u64)>,
    next: u64,
}

#[derive(Debug)]
struct StrikeEntry {
    count: u32,
    /// The end of the window, or of the block.
    until: Instant,
    is_blocked: bool,
    number: u64,
}

impl<K: Clone + Eq + Hash> Strikes<K> {
    /// Returns an empty table for this number of keys.
    pub fn new(rule: StrikeRule, most: usize) -> Strikes<K> {
        Strikes {
            rule,
            most: most.max(1),
            entries: HashMap::default(),
            counting: VecDeque::new(),
            blocked: VecDeque::new(),
            next: 0,
        }
    }

    /// Returns true if a key is blocked now.
    pub fn is_blocked(&self, now: Instant, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.is_blocked && entry.until > now)
    }

    /// Counts a strike of a key. Returns true if the key is blocked from now on. A strike of a key
    /// that is blocked already does not count. Costs a constant time on average.
    pub fn strike(&mut self, now: Instant, key: K) -> bool {
        self.expire(now);
        if !self.entries.contains_key(&key) {
            self.make_room();
            let until = now + self.rule.window;
            let number = self.number();
            self.entries.insert(key.clone(), StrikeEntry { count: 0, until, is_blocked: false, number });
            self.counting.push_back((key.clone(), number));
        }
        let number = self.number();
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| !entry.is_blocked) else { return false };
        entry.count = entry.count.saturating_add(1);
        if entry.count < self.rule.limit {
            return false;
        }
        (entry.is_blocked, entry.until, entry.number) = (true, now + self.rule.block, number);
        self.blocked.push_back((key, number));
        true
    }

    /// Takes back one strike of a key that is not blocked.
    pub fn forgive(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.is_blocked) {
            entry.count = entry.count.saturating_sub(1);
        }
    }

    /// Returns the number of keys, with those whose time has passed since the last strike.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Drops the keys whose time has passed.
    fn expire(&mut self, now: Instant) {
        let Strikes { entries, counting, blocked, .. } = self;
        for queue in [counting, blocked] {
            while let Some((key, number)) = queue.front() {
                match entries.get(key).filter(|entry| entry.number == *number) {
                    Some(entry) if entry.until > now => break,
                    Some(_) => drop(entries.remove(key)),
                    None => {}
                }
                queue.pop_front();
            }
        }
    }

    /// Drops the oldest key if there is no room for another.
    fn make_room(&mut self) {
        let Strikes { entries, counting, blocked, most, .. } = self;
        for queue in [counting, blocked] {
            while entries.len() >= *most
                && let Some((key, number)) = queue.pop_front()
            {
                if entries.get(&key).is_some_and(|entry| entry.number == number) {
                    entries.remove(&key);
                }
            }
            // Keys that became blocked leave a stale item each.
            if queue.len() > 2 * *most {
                queue.retain(|(key, number)| entries.get(key).is_some_and(|entry| entry.number == *number));
            }
        }
    }
}

/// The strikes of addresses: of each host, and of each /48 with a bound of its own, because one
/// customer of a provider may have that many hosts. Takes at most 14 MiB.
#[derive(Debug)]
pub struct AddressStrikes {
    hosts: Strikes<IpAddr>,
    sites: Strikes<IpAddr>,
}

impl AddressStrikes {
    /// The bound of a /48 as a multiple of that of a host. A /48 may be the network of a company.
    pub const SITE: u32 = 16;

    /// The largest number of hosts, and of sites. The oldest that is not blocked makes room.
    pub const MOST: usize = 65_536;

    /// Returns empty tables for hosts and for sites, each with its rule.
    pub fn new(of_hosts: StrikeRule, of_sites: StrikeRule) -> AddressStrikes {
        let [hosts, sites] = [of_hosts, of_sites].map(|rule| Strikes::new(rule, AddressStrikes::MOST));
        AddressStrikes { hosts, sites }
    }

    /// Returns true if the host of an address is blocked now.
    pub fn is_host_blocked(&self, now: Instant, address: IpAddr) -> bool {
        self.hosts.is_blocked(now, &host(address))
    }

    /// Returns true if the site of an address is blocked now. IPv4 has none.
    pub fn is_site_blocked(&self, now: Instant, address: IpAddr) -> bool {
        site(address).is_some_and(|site| self.sites.is_blocked(now, &site))
    }

    /// Counts a strike of a host. Returns true if the host is blocked from now on.
    pub fn strike_host(&mut self, now: Instant, address: IpAddr) -> bool {
        self.hosts.strike(now, host(address))
    }

    /// Counts a strike of a site. Returns true if the site is blocked from now on.
    pub fn strike_site(&mut self, now: Instant, address: IpAddr) -> bool {
        site(address).is_some_and(|site| self.sites.strike(now, site))
    }
}

/// Returns the first `bits` bits of an IPv6 address; an IPv4 address as it is.
fn prefix(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// Returns the address that counts as one host. An IPv6 host has all addresses of a /64.
pub fn host(address: IpAddr) -> IpAddr {
    prefix(address, 64)
}

/// Returns the /48 of an IPv6 address, which one customer of a provider may have; `None` for IPv4.
fn site(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(_) => Some(prefix(address, 48)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);
    const MINUTE: Duration = Duration::from_mins(1);
    const RULE: StrikeRule = StrikeRule { limit: 3, window: MINUTE, block: Duration::from_mins(5) };

    #[test]
    fn a_key_is_blocked_at_the_last_strike_and_counts_anew_after_the_block() {
        let mut strikes = Strikes::new(RULE, 10);
        assert!(!strikes.strike(NOW, 1) && !strikes.strike(NOW, 1) && !strikes.is_blocked(NOW, &1));
        assert!(strikes.strike(NOW, 1) && strikes.is_blocked(NOW, &1) && !strikes.is_blocked(NOW, &2));
        assert!(!strikes.strike(NOW, 1), "it is blocked already");
        let after = NOW + RULE.block;
        assert!(!strikes.is_blocked(after, &1) && !strikes.strike(after, 1));
    }

    #[test]
    fn strikes_of_different_windows_do_not_add_up_and_a_forgiven_one_does_not_count() {
        let mut strikes = Strikes::new(RULE, 10);
        for minute in 0..10 {
            assert!(!strikes.strike(NOW + MINUTE * minute, 1));
        }
        for _ in 0..10 {
            assert!(!strikes.strike(NOW + MINUTE * 20, 1));
            strikes.forgive(&1);
        }
    }

    #[test]
    fn a_flood_of_other_keys_does_not_free_a_blocked_one() {
        let mut strikes = Strikes::new(RULE, 10);
        for _ in 0..3 {
            strikes.strike(NOW, 0);
        }
        for key in 1..10_000 {
            strikes.strike(NOW, key);
            assert!(strikes.len() <= 10 && strikes.counting.len() <= 20 && strikes.blocked.len() <= 20);
        }
        assert!(strikes.is_blocked(NOW, &0));
    }

    #[test]
    fn a_flood_of_hosts_takes_no_more_room() {
        let mut strikes = AddressStrikes::new(RULE, RULE);
        for n in 0..u32::try_from(AddressStrikes::MOST).unwrap() + 10 {
            strikes.strike_host(NOW, IpAddr::V4(n.into()));
        }
        assert_eq!(strikes.hosts.len(), AddressStrikes::MOST);
    }

    #[test]
    fn if_all_are_blocked_the_oldest_makes_room() {
        let mut strikes = Strikes::new(StrikeRule { limit: 1, ..RULE }, 10);
        for key in 0..1_000 {
            assert!(strikes.strike(NOW, key));
            assert!(strikes.len() <= 10 && strikes.counting.len() <= 20 && strikes.blocked.len() <= 20);
        }
        assert!(strikes.is_blocked(NOW, &990) && !strikes.is_blocked(NOW, &989));
        strikes.strike(NOW + RULE.block, 0);
        assert_eq!((strikes.len(), strikes.is_empty()), (1, false));
    }

    #[test]
    fn an_ipv6_host_has_a_64_and_a_site_a_48() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(host(address("2001:db8:1:2:3::4")), address("2001:db8:1:2::"));
        assert_eq!(site(address("2001:db8:1:2:3::4")), Some(address("2001:db8:1::")));
        assert_eq!(host(address("::ffff:192.0.2.9")), address("192.0.2.9"));
        assert_eq!(site(address("::ffff:192.0.2.9")), None);
    }
}
