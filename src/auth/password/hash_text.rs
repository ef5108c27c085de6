//! The parts of the text of a password hash, of any kind.

use base64::Engine;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// The largest salt in bytes. mosquitto writes 12, 16 or 64.
const SALT: std::ops::RangeInclusive<usize> = 1..=1_024;

/// The reason why a text is not a hash that can be checked. The reason never contains a part of the
/// text.
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
    fn a_number_has_digits_only() {
        let read = |text| number("iterations", text, 1..=100, "1 to 100");
        assert_eq!((read("1"), read("100")), (Ok(1), Ok(100)));
        for text in ["", "0", "101", "+1", "-1", " 1", "1e2", "99999999999"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
