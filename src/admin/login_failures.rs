//! Failed logins of people and programs, counted so that passwords cannot be guessed.
//!
//! A password is guessed for one user. So failures count for a user name at an address, and a block
//! concerns only this name from this address: nobody locks others out who share the address, such
//! as that of a proxy. Each check of a password takes 20 ms, so an address that tries many names is
//! blocked as a whole, after [`NAMES`] times as many failures.

use crate::access::strikes::{StrikeRule, Strikes, host};
use crate::auth::guessing::Guessing;
use crate::mqtt::keyed::Keyed;
use crate::time::Instant;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

/// Failed logins in a minute that begin a block. The last of these logins is refused, too.
const FAILURES: u32 = 5;

/// The bound of an address as a multiple of [`FAILURES`].
const NAMES: u32 = 16;

const RULE: StrikeRule =
    StrikeRule { limit: FAILURES, window: Duration::from_mins(1), block: Duration::from_mins(5) };

/// The largest number of names at addresses. The oldest that is not blocked makes room.
const COUNTED: usize = 16_384;

/// The consequence of a failed login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginFailure {
    /// There were few in the last minute.
    Counted,
    /// There were [`FAILURES`] in the last minute. This login and further logins are refused for
    /// five minutes.
    BeginsBlock,
    /// The failed logins are refused.
    Blocked,
}

/// The credential that a failed login has shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shown<'a> {
    /// The password of a user.
    Password(&'a str),
    /// A token or a code. Nobody guesses one, so its failures refuse no password.
    Secret,
}

/// The failed logins by credential, and by address. Takes at most 17 MiB.
#[derive(Debug)]
pub(super) struct LoginFailures {
    names: Strikes<(IpAddr, Option<u64>)>,
    addresses: Guessing,
}

impl Default for LoginFailures {
    fn default() -> LoginFailures {
        LoginFailures { names: Strikes::new(RULE, COUNTED), addresses: Guessing::new(FAILURES * NAMES) }
    }
}

impl LoginFailures {
    /// Returns true if this is refused from this address now.
    pub(super) fn is_blocked(&self, now: Instant, address: IpAddr, shown: Shown<'_>) -> bool {
        let of_address = matches!(shown, Shown::Password(_)) && self.addresses.is_blocked(now, address);
        of_address || self.names.is_blocked(now, &key(address, shown))
    }

    pub(super) fn failed(&mut self, now: Instant, address: IpAddr, shown: Shown<'_>) -> LoginFailure {
        if self.is_blocked(now, address, shown) {
            return LoginFailure::Blocked;
        }
        let by_address = matches!(shown, Shown::Password(_)) && self.addresses.failed(now, address);
        match self.names.strike(now, key(address, shown)) || by_address {
            true => LoginFailure::BeginsBlock,
            false => LoginFailure::Counted,
        }
    }
}

/// Returns the key of a user name at an address. The name is replaced by a hash with the key of the
/// process, so the length of the name does not count.
fn key(address: IpAddr, shown: Shown<'_>) -> (IpAddr, Option<u64>) {
    let name = match shown {
        Shown::Password(user) => Some(Keyed.hash_one(user)),
        Shown::Secret => None,
    };
    (host(address), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1_000);
    const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn failures_until_block(failures: &mut LoginFailures, shown: &dyn Fn(u32) -> String) -> Option<u32> {
        (1..1_000)
            .find(|n| failures.failed(NOW, PROXY, Shown::Password(&shown(*n))) == LoginFailure::BeginsBlock)
    }

    #[test]
    fn wrong_passwords_for_one_user_block_that_user_from_that_address_alone() {
        let mut failures = LoginFailures::default();
        assert_eq!(failures_until_block(&mut failures, &|_| "ann".to_owned()), Some(FAILURES));
        assert!(failures.is_blocked(NOW, PROXY, Shown::Password("ann")));
        assert!(!failures.is_blocked(NOW, PROXY, Shown::Password("bob")), "bob shares the proxy");
        assert!(!failures.is_blocked(NOW, IpAddr::from([10, 0, 0, 2]), Shown::Password("ann")));
    }

    #[test]
    fn an_address_that_tries_many_names_is_blocked_as_a_whole() {
        let mut failures = LoginFailures::default();
        assert_eq!(failures_until_block(&mut failures, &|n| n.to_string()), Some(FAILURES * NAMES));
        assert!(failures.is_blocked(NOW, PROXY, Shown::Password("bob")));
    }

    #[test]
    fn unknown_tokens_refuse_no_password() {
        let mut failures = LoginFailures::default();
        for _ in 0..1_000 {
            failures.failed(NOW, PROXY, Shown::Secret);
        }
        assert_eq!(failures.failed(NOW, PROXY, Shown::Secret), LoginFailure::Blocked);
        assert!(!failures.is_blocked(NOW, PROXY, Shown::Password("ann")));
    }
}
