//! Failed logins, counted for each address, so that passwords cannot be guessed by trying.
//!
//! An address with more failures in a minute than allowed is blocked for five minutes. An IPv6
//! address counts as its /64 network, because a subscriber has a whole one. Its /48 counts too,
//! with 16 times the bound, because some subscribers have one. A success does not reset the
//! count, because an attacker may have one password of its own.

use crate::access::strikes::{AddressStrikes, StrikeRule};
use crate::time::Instant;
use std::net::IpAddr;
use std::time::Duration;

/// The time in which failures are counted together.
const WINDOW: Duration = Duration::from_mins(1);
/// The time for which an address is blocked.
const BLOCK: Duration = Duration::from_mins(5);

/// The failures of all addresses. Takes at most 14 MiB.
#[derive(Debug)]
pub struct Guessing(AddressStrikes);

impl Guessing {
    /// Returns an empty table. An address is blocked at its failure number `allowed` in a minute.
    pub fn new(allowed: u32) -> Guessing {
        let rule = StrikeRule { limit: allowed, window: WINDOW, block: BLOCK };
        let of_sites = StrikeRule { limit: allowed.saturating_mul(AddressStrikes::SITE), ..rule };
        Guessing(AddressStrikes::new(rule, of_sites))
    }

    /// Returns true if logins of this address are refused now.
    pub fn is_blocked(&self, now: Instant, address: IpAddr) -> bool {
        self.0.is_host_blocked(now, address) || self.0.is_site_blocked(now, address)
    }

    /// Counts a failed login. Returns true if the address is blocked from now on.
    pub fn failed(&mut self, now: Instant, address: IpAddr) -> bool {
        if self.is_blocked(now, address) {
            return false;
        }
        let by_site = self.0.strike_site(now, address);
        self.0.strike_host(now, address) || by_site
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
    fn a_site_with_many_networks_is_blocked_too() {
        let mut guessing = Guessing::new(4);
        let network = |n: u16| IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 1));
        let blocked = (0..100).position(|n| guessing.failed(NOW, network(n)));
        assert_eq!(blocked, Some(63));
        assert!(
            guessing.is_blocked(NOW, network(999)) && !guessing.is_blocked(NOW, address("2001:db8:2::1"))
        );
    }

    #[test]
    fn a_flood_of_addresses_does_not_free_a_blocked_one() {
        let (mut guessing, one) = (Guessing::new(2), address("192.0.2.1"));
        assert!(!guessing.failed(NOW, one) && guessing.failed(NOW, one));
        for n in 0..u32::try_from(AddressStrikes::MOST).unwrap() + 10 {
            guessing.failed(NOW, IpAddr::V4(n.into()));
        }
        assert!(guessing.is_blocked(NOW, one));
    }
}
