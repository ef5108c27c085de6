//! Failed logins, counted for each address, so that passwords cannot be guessed by trying.
//!
//! An address with more failures in a minute than allowed is blocked for five minutes. An IPv6
//! address counts as its /64 network, because a subscriber has a whole one. A success does not
//! reset the count, because an attacker may have one password of its own.

use crate::mqtt::keyed::Keyed;
use crate::time::Instant;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The time in which failures are counted together.
const WINDOW: Duration = Duration::from_mins(1);
/// The time for which an address is blocked.
const BLOCK: Duration = Duration::from_mins(5);
/// The largest number of addresses. The oldest makes room.
const ADDRESSES: usize = 65_536;

/// The failures of all addresses. Takes at most 6 MiB.
#[derive(Debug)]
pub struct Guessing {
    allowed: u32,
    addresses: HashMap<IpAddr, Failures, Keyed>,
    /// All addresses in the order of their first failure.
    order: VecDeque<IpAddr>,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    /// The end of the window, or of the block.
    until: Instant,
    is_blocked: bool,
}

impl Guessing {
    /// Returns an empty table. An address is blocked at its failure number `allowed` in a minute.
    pub fn new(allowed: u32) -> Guessing {
        Guessing { allowed, addresses: HashMap::default(), order: VecDeque::new() }
    }

    /// Returns true if logins of this address are refused now.
    pub fn is_blocked(&self, now: Instant, address: IpAddr) -> bool {
        self.addresses
            .get(&network(address))
            .is_some_and(|failures| failures.is_blocked && failures.until > now)
    }

    /// Counts a failed login. Returns true if the address is blocked from now on.
    pub fn failed(&mut self, now: Instant, address: IpAddr) -> bool {
        let network = network(address);
        if !self.addresses.contains_key(&network) {
            self.make_room(now);
            self.order.push_back(network);
        }
        let fresh = || Failures { count: 0, until: now + WINDOW, is_blocked: false };
        let failures = self.addresses.entry(network).or_insert_with(fresh);
        if failures.until <= now {
            *failures = fresh();
        }
        failures.count = failures.count.saturating_add(1);
        let becomes_blocked = !failures.is_blocked && failures.count >= self.allowed;
        if becomes_blocked {
            failures.is_blocked = true;
            failures.until = now + BLOCK;
        }
        becomes_blocked
    }

    /// Returns the number of addresses, with those that are no longer counted.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Returns true if there is no address.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Drops addresses from the front while their time is over, and one more if there is no room.
    fn make_room(&mut self, now: Instant) {
        while let Some(oldest) = self.order.front() {
            let is_over = self.addresses.get(oldest).is_none_or(|failures| failures.until <= now);
            if !is_over && self.addresses.len() < ADDRESSES {
                break;
            }
            self.addresses.remove(oldest);
            self.order.pop_front();
        }
    }
}

/// Returns the address that counts.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_blocked_at_its_last_allowed_failure() {
        let (mut guessing, one) = (Guessing::new(3), address("192.0.2.1"));
        assert!(!guessing.failed(NOW, one) && !guessing.failed(NOW + SECOND, one));
        assert!(!guessing.is_blocked(NOW + SECOND, one));
        assert!(guessing.failed(NOW + SECOND, one), "the third");
        assert!(!guessing.failed(NOW + SECOND, one), "it is blocked already");
        assert!(
            guessing.is_blocked(NOW + BLOCK, one) && !guessing.is_blocked(NOW + BLOCK, address("192.0.2.2"))
        );
        assert!(!guessing.is_blocked(NOW + SECOND + BLOCK, one));
        assert!(!guessing.failed(NOW + SECOND + BLOCK, one), "it counts anew");
    }

    #[test]
    fn failures_of_different_minutes_do_not_add_up() {
        let (mut guessing, one) = (Guessing::new(2), address("192.0.2.1"));
        for minute in 0..10 {
            assert!(!guessing.failed(NOW + WINDOW * minute, one), "minute {minute}");
        }
    }

    #[test]
    fn a_network_counts_as_one_address() {
        let mut guessing = Guessing::new(2);
        assert!(
            !guessing.failed(NOW, address("2001:db8::1")) && guessing.failed(NOW, address("2001:db8::2"))
        );
        assert!(guessing.is_blocked(NOW, address("2001:db8::ffff")));
        assert!(!guessing.is_blocked(NOW, address("2001:db8:0:1::1")));
        assert!(
            !guessing.failed(NOW, address("192.0.2.9")) && guessing.failed(NOW, address("::ffff:192.0.2.9"))
        );
    }

    #[test]
    fn the_table_is_bounded() {
        let mut guessing = Guessing::new(1);
        for n in 0..u32::try_from(ADDRESSES).unwrap() + 10 {
            assert!(guessing.failed(NOW, IpAddr::V4(n.into())));
        }
        assert_eq!((guessing.len(), guessing.order.len()), (ADDRESSES, ADDRESSES));
        assert!(!guessing.is_empty() && !guessing.is_blocked(NOW, address("0.0.0.9")));
        assert!(guessing.is_blocked(NOW, address("0.0.0.10")));
        assert!(guessing.failed(NOW + BLOCK, address("192.0.2.1")));
        assert_eq!(guessing.len(), 1, "those whose time is over are dropped");
    }
}
