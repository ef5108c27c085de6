//! One stored password hash, of any kind.

use super::argon2::Argon2Hash;
use super::hash_text::HashError;
use super::pbkdf2::Pbkdf2Hash;
use super::scram::ScramHash;
use super::sha512::Sha512Hash;
use crate::named_enum::named_enum;
use std::fmt;

/// A stored password hash. Its `Debug` has no salt and no hash.
#[derive(Clone)]
pub enum PasswordHash {
    /// `$6$`
    Sha512(Sha512Hash),
    /// `$7$`
    Pbkdf2(Pbkdf2Hash),
    /// `$argon2id$`
    Argon2(Argon2Hash),
    /// `$scram-sha-256$`
    Scram(ScramHash),
}

named_enum! {
    /// The kinds of hash. Their costs differ by four orders of magnitude.
    #[derive(Hash, PartialOrd, Ord)]
    pub enum HashKind {
        /// One SHA-512.
        Sha512 = "sha512",
        /// PBKDF2 with HMAC-SHA-512.
        Pbkdf2 = "pbkdf2",
        /// argon2id.
        Argon2 = "argon2id",
        /// PBKDF2 with HMAC-SHA-256, as SCRAM-SHA-256 wants it.
        Scram = "scram",
    }
}

/// The work of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashCost {
    /// The kind, for an average of measured times.
    pub kind: HashKind,
    /// An estimate in microseconds on one core, from the parameters of the hash. At least 1.
    pub estimated_us: u64,
}

impl PasswordHash {
    /// Parses a hash in the form of the file.
    ///
    /// # Errors
    /// The text is not hashed, or the hash is not one that can be checked at a bounded cost.
    pub fn parse(text: &str) -> Result<PasswordHash, HashError> {
        if let Some(rest) = text.strip_prefix("$7$") {
            return Pbkdf2Hash::parse(rest).map(PasswordHash::Pbkdf2);
        }
        if let Some(rest) = text.strip_prefix("$6$") {
            return Sha512Hash::parse(rest).map(PasswordHash::Sha512);
        }
        if let Some(rest) = text.strip_prefix("$argon2id$") {
            return Argon2Hash::parse(rest).map(PasswordHash::Argon2);
        }
        if let Some(rest) = text.strip_prefix("$scram-sha-256$") {
            return ScramHash::parse(rest).map(PasswordHash::Scram);
        }
        let looks_hashed = text.starts_with('$') && text.matches('$').count() > 1;
        Err(if looks_hashed { HashError::UnknownKind } else { HashError::Plain })
    }

    /// Returns true if this is the hash of the password. Takes the time of [`PasswordHash::cost`],
    /// and the comparison takes the same time for each result. The empty password is never right,
    /// because a client without a password would have it.
    pub fn verify(&self, password: &[u8]) -> bool {
        let fits = match self {
            PasswordHash::Sha512(hash) => hash.verify(password),
            PasswordHash::Pbkdf2(hash) => hash.verify(password),
            PasswordHash::Argon2(hash) => hash.verify(password),
            PasswordHash::Scram(hash) => hash.verify(password),
        };
        fits && !password.is_empty()
    }

    /// Returns the work of one check.
    pub fn cost(&self) -> HashCost {
        let (kind, nanoseconds) = match self {
            PasswordHash::Sha512(_) => (HashKind::Sha512, 1_000),
            PasswordHash::Pbkdf2(hash) => (HashKind::Pbkdf2, hash.estimated_ns()),
            PasswordHash::Argon2(hash) => (HashKind::Argon2, hash.estimated_ns()),
            PasswordHash::Scram(hash) => (HashKind::Scram, hash.estimated_ns()),
        };
        HashCost { kind, estimated_us: nanoseconds.div_ceil(1_000).max(1) }
    }

    /// Returns the text for the file.
    pub fn to_text(&self) -> String {
        match self {
            PasswordHash::Sha512(hash) => hash.to_text(),
            PasswordHash::Pbkdf2(hash) => hash.to_text(),
            PasswordHash::Argon2(hash) => hash.to_text(),
            PasswordHash::Scram(hash) => hash.to_text(),
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash").field("cost", &self.cost()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_password_is_not_taken_for_a_hash() {
        for text in ["secret", "", "$money", "sha512"] {
            assert_eq!(PasswordHash::parse(text).unwrap_err(), HashError::Plain, "{text}");
        }
        for text in ["$5$a$b", "$2b$10$abc", "$argon2i$v=19$m=1,t=1,p=1$a$b"] {
            assert_eq!(PasswordHash::parse(text).unwrap_err(), HashError::UnknownKind, "{text}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let digest = crate::auth::password::hash_text::encode(&[7; 64]);
        let hash = PasswordHash::parse(&format!("$6$AQIDBAUGBwgJCgsM${digest}"));
        let shown = format!("{:?}", hash.unwrap());
        assert_eq!(shown, "PasswordHash { cost: HashCost { kind: Sha512, estimated_us: 1 }, .. }");
    }
}
