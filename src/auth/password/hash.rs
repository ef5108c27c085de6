//! One stored password hash, of any kind.

use super::argon2::Argon2Hash;
use super::pbkdf2::Pbkdf2Hash;
use super::scram::ScramHash;
use super::sha512::Sha512Hash;
use base64::Engine;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use thiserror::Error;

/// The largest salt in bytes. mosquitto writes 12, 16 or 64.
const SALT: std::ops::RangeInclusive<usize> = 1..=1_024;

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

/// The kinds of hash. Their costs differ by four orders of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashKind {
    /// One SHA-512.
    Sha512,
    /// PBKDF2 with HMAC-SHA-512.
    Pbkdf2,
    /// argon2id.
    Argon2,
    /// PBKDF2 with HMAC-SHA-256, as SCRAM-SHA-256 wants it.
    Scram,
}

/// The work of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashCost {
    /// The kind, for an average of measured times.
    pub kind: HashKind,
    /// An estimate in microseconds on one core, from the parameters of the hash. At least 1.
    pub estimated_us: u64,
}

/// The reason why a text is not a hash that can be checked. It never has a part of the text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HashError {
    /// The text does not begin with a known prefix.
    #[error("the password is not hashed; `homing passwd -U FILE` hashes all plain passwords of a file")]
    Plain,
    /// The text begins like a hash of an unknown kind.
    #[error("the kind of hash is unknown; known are $7$, $6$, $argon2id$ and $scram-sha-256$")]
    UnknownKind,
    /// The parts are not those of the format.
    #[error("the hash does not have the form {0}")]
    Form(&'static str),
    /// A part is not base64.
    #[error("the {0} of the hash is not base64")]
    NotBase64(&'static str),
    /// A part has another length.
    #[error("the {part} of the hash has {bytes} bytes; allowed are {allowed}")]
    Length {
        /// The part of the hash.
        part: &'static str,
        /// Its length.
        bytes: usize,
        /// The lengths that are allowed, in words.
        allowed: &'static str,
    },
    /// A cost parameter is out of bounds.
    #[error("the {parameter} of the hash must be {allowed}")]
    Parameter {
        /// The name of the parameter.
        parameter: &'static str,
        /// The values that are allowed, in words.
        allowed: &'static str,
    },
}

impl PasswordHash {
    /// Reads a hash as it stands in the file.
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

/// Splits the text of a hash into its parts.
pub(super) fn parts<'a, const N: usize>(
    text: &'a str,
    form: &'static str,
) -> Result<[&'a str; N], HashError> {
    let parts: Vec<&str> = text.split('$').collect();
    <[&str; N]>::try_from(parts).map_err(|_| HashError::Form(form))
}

/// Decodes a part in base64 with padding.
pub(super) fn decode(part: &'static str, text: &str) -> Result<Vec<u8>, HashError> {
    decode_with(&STANDARD, part, text)
}

pub(super) fn decode_with(
    engine: &GeneralPurpose,
    part: &'static str,
    text: &str,
) -> Result<Vec<u8>, HashError> {
    engine.decode(text).map_err(|_| HashError::NotBase64(part))
}

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a part of a fixed length.
pub(super) fn decode_array<const N: usize>(
    part: &'static str,
    text: &str,
    allowed: &'static str,
) -> Result<[u8; N], HashError> {
    let bytes = decode(part, text)?;
    let length = bytes.len();
    <[u8; N]>::try_from(bytes).map_err(|_| HashError::Length { part, bytes: length, allowed })
}

/// Checks the length of a salt.
pub(super) fn check_salt(salt: Vec<u8>) -> Result<Box<[u8]>, HashError> {
    if SALT.contains(&salt.len()) {
        return Ok(salt.into());
    }
    Err(HashError::Length { part: "salt", bytes: salt.len(), allowed: "1 to 1,024" })
}

/// Reads a decimal number without sign within bounds.
pub(super) fn number(
    parameter: &'static str,
    text: &str,
    bounds: std::ops::RangeInclusive<u32>,
    allowed: &'static str,
) -> Result<u32, HashError> {
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    number.filter(|number| bounds.contains(number)).ok_or(HashError::Parameter { parameter, allowed })
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
    fn a_number_has_digits_only() {
        let read = |text| number("iterations", text, 1..=100, "1 to 100");
        assert_eq!((read("1"), read("100")), (Ok(1), Ok(100)));
        for text in ["", "0", "101", "+1", "-1", " 1", "1e2", "99999999999"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let digest = encode(&[7; 64]);
        let hash = PasswordHash::parse(&format!("$6$AQIDBAUGBwgJCgsM${digest}"));
        let shown = format!("{:?}", hash.unwrap());
        assert_eq!(shown, "PasswordHash { cost: HashCost { kind: Sha512, estimated_us: 1 }, .. }");
    }
}
