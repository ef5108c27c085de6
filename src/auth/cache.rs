//! Successful logins, remembered for a time, so that a client that returns costs no hash.
//!
//! The table has no password and no hash. An entry is found by an HMAC-SHA-256, under a key that
//! only this process knows, over the user's line in the password file, the user and the password.
//! So a changed line, a changed password and another user each miss. Failures are not remembered: a
//! wrong password costs its hash each time.
//!
//! Each thread has a cache of its own, because a client always returns to the same thread. A cache
//! is bounded in entries and in bytes, because names and rules may be long.

use super::password::file::Fingerprint;
use crate::access::grant::Grant;
use crate::auth::random::random;
use crate::time::Instant;
use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// The key of an entry: 32 bytes that nobody outside the process can compute.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoginKey([u8; 32]);

/// The secret that makes [`LoginKey`]s. All caches of a process can share it.
#[derive(Clone)]
pub struct CacheSecret(Key);

/// Grants of recent logins.
pub struct LoginCache {
    lifetime: Duration,
    bounds: CacheBounds,
    /// The bytes of all entries.
    bytes: usize,
    entries: HashMap<LoginKey, CachedLogin>,
    /// All entries, the oldest first. All entries live equally long, so the first expires first.
    order: VecDeque<(LoginKey, Instant)>,
}

struct CachedLogin {
    grant: Grant,
    expires: Instant,
    bytes: usize,
}

/// The bounds of a [`LoginCache`].
#[derive(Clone, Copy, Debug)]
pub struct CacheBounds {
    /// The largest number of entries.
    pub entries: usize,
    /// The largest number of bytes of all entries, as far as they can be told.
    pub bytes: usize,
}

/// Bytes of an entry without its texts: both tables and the grant.
const ENTRY: usize = 256;

/// Bytes that rules take in memory for each byte of their text. The shortest rule, `"a",`, has four
/// bytes and takes about 100.
const RULES: usize = 25;

/// Returns the bytes of an entry. `text` is the number of bytes that the login was made of. The
/// rules of a token are a part of them.
fn entry_bytes(grant: &Grant, text: usize) -> usize {
    let rules = if grant.rules.is_some() { text.saturating_mul(RULES) } else { 0 };
    rules.saturating_add(ENTRY + grant.identity.user().len())
}

impl CacheSecret {
    /// Returns a new secret, or `None` if the system has no randomness.
    pub fn new() -> Option<CacheSecret> {
        let key = random::<32>().ok()?;
        Some(CacheSecret(Key::new(HMAC_SHA256, key.as_slice())))
    }

    /// Returns the key of a login. `record` is `None` for an unknown user. No password is not the
    /// same as an empty one. Takes 1 us.
    pub fn key(&self, record: Option<&Fingerprint>, user: &str, password: Option<&[u8]>) -> LoginKey {
        let mut context = Context::with_key(&self.0);
        context.update(record.map_or(&[][..], |record| record.as_bytes()));
        // The length keeps `ab` + `c` apart from `a` + `bc`.
        context.update(&(user.len() as u64).to_le_bytes());
        context.update(user.as_bytes());
        context.update(&[u8::from(password.is_some())]);
        context.update(password.unwrap_or_default());
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        LoginKey(key)
    }
}

impl LoginCache {
    /// Returns an empty cache with these bounds, whose entries live for `lifetime`. At a bound the
    /// oldest entries make room. With 0 for any, nothing is remembered.
    pub fn new(bounds: CacheBounds, lifetime: Duration) -> LoginCache {
        LoginCache { lifetime, bounds, bytes: 0, entries: HashMap::new(), order: VecDeque::new() }
    }

    /// Returns the grant of a login that succeeded less than the lifetime ago, and has not ended.
    pub fn find(&self, now: Instant, key: &LoginKey) -> Option<Grant> {
        let entry = self.entries.get(key).filter(|entry| entry.expires > now)?;
        Some(entry.grant.clone())
    }

    /// Remembers a login that succeeded now. Drops expired entries, and the oldest ones while there
    /// is no room. A grant is forgotten at its end, too. A login that is remembered already keeps
    /// its time, so that its hash is computed again after the lifetime. A login that would take
    /// more than an eighth of the bytes is not remembered, and takes no room from others.
    ///
    /// `text` is the number of bytes that the client sent: names, and password or token.
    pub fn remember(&mut self, now: Instant, key: LoginKey, grant: Grant, text: usize) {
        let CacheBounds { entries, bytes: most } = self.bounds;
        let bytes = entry_bytes(&grant, text);
        while self.order.front().is_some_and(|(_, expires)| *expires <= now) {
            self.drop_oldest();
        }
        if entries == 0 || bytes > most / 8 || self.lifetime.is_zero() || self.entries.contains_key(&key) {
            return;
        }
        while self.order.len() >= entries || self.bytes + bytes > most {
            self.drop_oldest();
        }
        let expires = now + self.lifetime;
        let forgotten = expires.min(grant.ends);
        self.bytes += bytes;
        self.entries.insert(key, CachedLogin { grant, expires: forgotten, bytes });
        self.order.push_back((key, expires));
    }

    fn drop_oldest(&mut self) {
        let oldest = self.order.pop_front().and_then(|(oldest, _)| self.entries.remove(&oldest));
        self.bytes -= oldest.map_or(0, |dropped| dropped.bytes);
    }

    /// Returns the number of entries, with expired ones that were not dropped yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Debug for LoginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginKey(..)")
    }
}

impl fmt::Debug for CacheSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheSecret(..)")
    }
}

impl fmt::Debug for LoginCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginCache").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::grant::SessionRules;
    use crate::access::identity::{Identity, IdentitySource};
    use crate::auth::password::PasswordFile;
    use crate::auth::password::pbkdf2::Pbkdf2Hash;
    use std::path::Path;
    use std::sync::Arc;

    const LIFETIME: Duration = Duration::from_mins(10);
    const NOW: Instant = Instant::from_millis(1_000);

    fn record(salt: &[u8]) -> Fingerprint {
        let text = format!("ann:{}\n", Pbkdf2Hash::create(b"secret", 1, salt).to_text());
        PasswordFile::parse(Path::new("passwd"), text.as_bytes()).unwrap().fingerprint("ann").unwrap()
    }

    fn cache_of(entries: usize, lifetime: Duration) -> LoginCache {
        LoginCache::new(CacheBounds { entries, bytes: 1 << 20 }, lifetime)
    }

    fn ann() -> Grant {
        Grant::from(Arc::new(Identity::new("ann", IdentitySource::Password)))
    }

    #[test]
    fn a_login_is_forgotten_when_its_grant_ends() {
        let key = LoginKey([1; 32]);
        let mut cache = cache_of(2, LIFETIME);
        let ends = NOW + Duration::from_secs(5);
        cache.remember(NOW, key, Grant { ends, ..ann() }, 9);
        assert!(cache.find(NOW + Duration::from_secs(4), &key).is_some_and(|grant| grant.ends == ends));
        assert!(cache.find(ends, &key).is_none());
    }

    #[test]
    fn a_login_is_found_with_the_same_line_user_and_password_only() {
        let (secret, record_one, record_two) = (CacheSecret::new().unwrap(), record(b"one"), record(b"two"));
        let mut cache = cache_of(2, LIFETIME);
        let key = secret.key(Some(&record_one), "ann", Some(b"secret"));
        cache.remember(NOW, key, ann(), 9);
        let found = cache.find(NOW, &secret.key(Some(&record_one), "ann", Some(b"secret"))).unwrap();
        assert_eq!(found.identity.user(), "ann");
        for other in [
            secret.key(Some(&record_two), "ann", Some(b"secret")),
            secret.key(None, "ann", Some(b"secret")),
            secret.key(Some(&record_one), "bob", Some(b"secret")),
            secret.key(Some(&record_one), "ann", Some(b"Secret")),
            secret.key(Some(&record_one), "anns", Some(b"ecret")),
            secret.key(Some(&record_one), "ann", None),
            secret.key(Some(&record_one), "ann", Some(b"")),
            CacheSecret::new().unwrap().key(Some(&record_one), "ann", Some(b"secret")),
        ] {
            assert!(cache.find(NOW, &other).is_none());
        }
    }

    #[test]
    fn a_login_is_forgotten_after_its_lifetime() {
        let secret = CacheSecret::new().unwrap();
        let mut cache = cache_of(2, LIFETIME);
        let key = secret.key(Some(&record(b"one")), "ann", Some(b"secret"));
        cache.remember(NOW, key, ann(), 9);
        // A login before the end does not extend it.
        cache.remember(NOW + LIFETIME / 2, key, ann(), 9);
        assert!(cache.find(NOW + LIFETIME - Duration::from_millis(1), &key).is_some());
        assert!(cache.find(NOW + LIFETIME, &key).is_none());
        cache.remember(NOW + LIFETIME, key, ann(), 9);
        assert!(cache.find(NOW + LIFETIME, &key).is_some());
        assert_eq!((cache.len(), cache.order.len()), (1, 1));
    }

    #[test]
    fn the_oldest_login_makes_room() {
        let [one, two, three] = [LoginKey([1; 32]), LoginKey([2; 32]), LoginKey([3; 32])];
        let mut cache = cache_of(2, LIFETIME);
        for key in [one, two, three] {
            cache.remember(NOW, key, ann(), 9);
        }
        assert_eq!((cache.len(), cache.order.len()), (2, 2));
        assert!(cache.find(NOW, &one).is_none() && cache.find(NOW, &two).is_some());
        for mut off in [cache_of(0, LIFETIME), cache_of(2, Duration::ZERO)] {
            off.remember(NOW, one, ann(), 9);
            assert!(off.is_empty());
        }
    }

    #[test]
    fn long_names_and_rules_do_not_fill_the_memory() {
        let bounds = CacheBounds { entries: 65_536, bytes: 1 << 20 };
        let mut cache = LoginCache::new(bounds, LIFETIME);
        let named = |name: &str| Grant::from(Arc::new(Identity::new(name, IdentitySource::Password)));
        let key = |number: u16| {
            let mut key = [0; 32];
            key[..2].copy_from_slice(&number.to_le_bytes());
            LoginKey(key)
        };
        for number in 0..1_000 {
            cache.remember(NOW, key(number), named(&"n".repeat(60_000)), 60_000);
            assert!(cache.bytes <= bounds.bytes);
        }
        assert_eq!(cache.len(), 17, "the newest of them");
        assert!(cache.find(NOW, &key(999)).is_some() && cache.find(NOW, &key(0)).is_none());
        let with_rules = Grant { rules: Some(SessionRules::Superuser), ..named("ann") };
        cache.remember(NOW, key(1_000), with_rules, 16 << 10);
        assert!(cache.find(NOW, &key(1_000)).is_none(), "its rules may take too much");
        cache.remember(NOW, key(999), named(&"n".repeat(60_000)), 60_000);
        assert_eq!(cache.len(), 17, "neither a login that is too large nor one that is known takes room");
        cache.remember(NOW + LIFETIME, key(1_001), ann(), 9);
        assert_eq!((cache.len(), cache.bytes), (1, ENTRY + 3));
    }

    #[test]
    fn debug_shows_no_secret() {
        let secret = CacheSecret::new().unwrap();
        let key = secret.key(Some(&record(b"one")), "ann", Some(b"secret"));
        let cache = cache_of(2, LIFETIME);
        assert_eq!(
            format!("{secret:?} {key:?} {cache:?}"),
            "CacheSecret(..) LoginKey(..) LoginCache { entries: 0, .. }"
        );
    }
}
