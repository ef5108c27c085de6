//! Bans: clients that may not enter, by client identifier, user, address and certificate. Operators
//! ban, and the rule for clients that flap. Failed logins block an address elsewhere
//! (`src/auth/guessing.rs`).
//!
//! A ban may have an end, in milliseconds since 1970. A ban whose end has passed is as if it were
//! not there. Each search costs a constant number of look-ups. Globs are matched one after the
//! other, a bounded number at once: 256 of them look at an identifier of 64 KiB for 30 ms. One
//! automaton for all globs would be faster for most identifiers. But a client could choose an
//! identifier that forces the automaton into a far slower search.

use super::glob::Pattern;
use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// The end of a ban in milliseconds since 1970; `None` for a ban without an end.
pub type BanEnd = Option<u64>;

/// Maximum number of globs of client identifiers. A glob is compiled, and each CONNECT is matched
/// with all of them.
pub const GLOBS: usize = 256;

/// All bans. Immutable once it is in force: a reload makes a new value.
#[derive(Clone, Debug, Default)]
pub struct BanList {
    clients: HashMap<Box<str>, BanEnd>,
    globs: Vec<(Pattern, BanEnd)>,
    users: HashMap<Box<str>, BanEnd>,
    serials: HashMap<Box<str>, BanEnd>,
    networks: HashMap<IpNet, BanEnd>,
    /// The lengths of the prefixes in `networks`.
    prefixes: BTreeSet<u8>,
}

/// The clients of one ban.
#[derive(Clone, Debug, PartialEq)]
pub enum Banned {
    /// A client identifier.
    Client(Box<str>),
    /// The client identifiers that a glob matches.
    Clients(Pattern),
    /// A user name.
    User(Box<str>),
    /// An address or a network. IPv4 in its own form, not in that of IPv6.
    Network(IpNet),
    /// The serial number of a certificate, in upper-case hexadecimal.
    Serial(Box<str>),
}

/// The result of a search in some globs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobSearch {
    /// A glob bans the client identifier.
    Banned,
    /// No glob bans it.
    Free,
    /// No glob before this number bans it, and the others are left.
    Left(usize),
}

/// The ban that holds for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ban {
    /// The client identifier is banned.
    Client,
    /// The user is banned.
    User,
    /// The address is banned.
    Address,
    /// The certificate is banned.
    Serial,
    /// The client connected too often.
    Flapping,
}

impl Ban {
    /// Returns the text for the log.
    pub const fn text(self) -> &'static str {
        match self {
            Ban::Client => "the client id is banned (bans.file)",
            Ban::User => "the user is banned (bans.file)",
            Ban::Address => "the address is banned (bans.file)",
            Ban::Serial => "the certificate is banned (bans.file)",
            Ban::Flapping => "the client connected too often (bans.flapping)",
        }
    }
}

impl BanList {
    /// Adds a ban. If the value is banned already, the later end holds.
    pub fn add(&mut self, banned: Banned, end: BanEnd) {
        match banned {
            Banned::Client(client_id) => longest(self.clients.entry(client_id).or_insert(end), end),
            Banned::Clients(glob) => self.globs.push((glob, end)),
            Banned::User(name) => longest(self.users.entry(name).or_insert(end), end),
            Banned::Serial(serial) => longest(self.serials.entry(serial).or_insert(end), end),
            Banned::Network(network) => {
                self.prefixes.insert(network.prefix_len());
                longest(self.networks.entry(network.trunc()).or_insert(end), end);
            }
        }
    }

    /// Returns true if a client identifier itself is banned at `unix_ms`. [`Self::search_globs`]
    /// tells if a glob bans it.
    pub fn has_client(&self, unix_ms: u64, client_id: &str) -> bool {
        is_in_force(unix_ms, self.clients.get(client_id))
    }

    /// Looks for a glob that bans a client identifier at `unix_ms`, among `most` globs from the
    /// number `from` on. Each glob looks at the whole identifier, at about 2 ns for each byte.
    pub fn search_globs(&self, unix_ms: u64, client_id: &str, from: usize, most: usize) -> GlobSearch {
        let until = from.saturating_add(most).min(self.globs.len());
        let mut globs = self.globs.get(from..until).unwrap_or_default().iter();
        if globs.any(|(glob, end)| is_in_force(unix_ms, Some(end)) && glob.matches(client_id)) {
            return GlobSearch::Banned;
        }
        if until < self.globs.len() { GlobSearch::Left(until) } else { GlobSearch::Free }
    }

    /// Returns true if a user is banned at `unix_ms`.
    pub fn has_user(&self, unix_ms: u64, name: &str) -> bool {
        is_in_force(unix_ms, self.users.get(name))
    }

    /// Returns true if an address is banned at `unix_ms`. Costs a look-up for each length of a
    /// prefix that some ban has.
    pub fn has_address(&self, unix_ms: u64, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.prefixes.iter().any(|length| {
            IpNet::new(address, *length)
                .is_ok_and(|network| is_in_force(unix_ms, self.networks.get(&network.trunc())))
        })
    }

    /// Returns true if some certificate is banned.
    pub fn has_serials(&self) -> bool {
        !self.serials.is_empty()
    }

    /// Returns true if a certificate is banned at `unix_ms`. The serial number is in upper-case
    /// hexadecimal.
    pub fn has_serial(&self, unix_ms: u64, serial: &str) -> bool {
        is_in_force(unix_ms, self.serials.get(serial))
    }

    /// Returns the number of globs.
    pub fn globs(&self) -> usize {
        self.globs.len()
    }

    /// Returns the number of bans, with those whose end has passed.
    pub fn len(&self) -> usize {
        let BanList { clients, globs, users, serials, networks, .. } = self;
        clients.len() + globs.len() + users.len() + serials.len() + networks.len()
    }

    /// Returns true if there is no ban.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sets the later of two ends.
fn longest(known: &mut BanEnd, end: BanEnd) {
    *known = known.zip(end).map(|(known, end)| known.max(end));
}

/// Returns true if there is a ban that holds at `unix_ms`.
fn is_in_force(unix_ms: u64, ban: Option<&BanEnd>) -> bool {
    ban.is_some_and(|end| end.is_none_or(|end| unix_ms < end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_holds_until_its_end() {
        let mut bans = BanList::default();
        bans.add(Banned::User("ann".into()), Some(1_000));
        bans.add(Banned::User("ann".into()), Some(500));
        bans.add(Banned::Serial("0A1B".into()), None);
        bans.add(Banned::Serial("0A1B".into()), Some(1));
        assert!(bans.has_user(999, "ann") && !bans.has_user(1_000, "ann") && !bans.has_user(0, "bob"));
        assert!(bans.has_serial(u64::MAX, "0A1B") && !bans.has_serial(0, "0A"));
        assert_eq!((bans.len(), bans.is_empty(), bans.has_serials()), (2, false, true));
    }

    #[test]
    fn client_ids_are_banned_by_name_and_by_glob() {
        let mut bans = BanList::default();
        bans.add(Banned::Client("pump".into()), None);
        bans.add(Banned::Clients("test-*".parse().unwrap()), Some(1_000));
        assert!(bans.has_client(0, "pump") && !bans.has_client(0, "pump-1"));
        assert_eq!(bans.search_globs(999, "test-1", 0, 1), GlobSearch::Banned);
        assert_eq!(bans.search_globs(1_000, "test-1", 0, 1), GlobSearch::Free);
        assert_eq!(bans.globs(), 1);
    }

    #[test]
    fn globs_are_searched_a_bounded_number_at_once() {
        let mut bans = BanList::default();
        for glob in ["a*", "b*", "c*", "d*"] {
            bans.add(Banned::Clients(glob.parse().unwrap()), None);
        }
        let search = |client_id, from, most| bans.search_globs(0, client_id, from, most);
        assert_eq!(search("d", 0, 3), GlobSearch::Left(3));
        assert_eq!(search("d", 3, 3), GlobSearch::Banned);
        assert_eq!(search("c", 1, usize::MAX), GlobSearch::Banned);
        assert_eq!([search("x", 2, 2), search("x", 4, 1), search("x", 9, 1)], [GlobSearch::Free; 3]);
    }

    #[test]
    fn an_address_is_banned_with_its_network() {
        let mut bans = BanList::default();
        for network in ["192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32"] {
            bans.add(Banned::Network(network.parse().unwrap()), None);
        }
        for (address, is_banned) in [
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.3.7", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(bans.has_address(0, address.parse().unwrap()), is_banned, "{address}");
        }
    }
}
