//! `$argon2id$v=19$m=..,t=..,p=..$salt$hash`, as the reference implementation and mosquitto 2.1
//! write it.
//!
//! `m` is the memory in KiB, `t` the number of passes, `p` the number of lanes. A check takes `m`
//! KiB while it runs. mosquitto 2.1 takes m=47104 and t=1; OWASP recommends m=19456 and t=2.

use super::hash_text::{HashError, check_salt, decode_with, number, parts};
use ::argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

const FORM: &str = "$argon2id$v=19$m=..,t=..,p=..$salt$hash";
const MOST_KIB: u32 = 256 * 1024;
const MOST_PASSES: u32 = 16;
const MOST_LANES: u32 = 64;
/// argon2 needs 8 bytes of salt.
const LEAST_SALT: usize = 8;

/// A hash of the kind `$argon2id$`.
#[derive(Clone)]
pub struct Argon2Hash {
    params: Params,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

impl Argon2Hash {
    /// Hashes a password with 19 MiB, 2 passes and 1 lane, as OWASP recommends. Takes 20 ms.
    ///
    /// # Errors
    /// The salt has less than 8 bytes.
    pub fn create(password: &[u8], salt: &[u8]) -> Result<Argon2Hash, HashError> {
        if salt.len() < LEAST_SALT {
            return Err(short_salt(salt.len()));
        }
        let mut hash = Argon2Hash { params: Params::DEFAULT, salt: salt.into(), hash: [0; 32].into() };
        hash.hash = hash.digest(password).ok_or(HashError::Form(FORM))?.as_slice().into();
        Ok(hash)
    }

    /// Reads the text behind `$argon2id$`.
    ///
    /// # Errors
    /// The text does not have the form, or a parameter is out of bounds: 8 KiB to 256 MiB for each
    /// lane at least, 1 to 16 passes, 1 to 64 lanes.
    pub fn parse(text: &str) -> Result<Argon2Hash, HashError> {
        let [version, costs, salt, hash] = parts(text, FORM)?;
        if version != "v=19" {
            return Err(HashError::Parameter { parameter: "version", allowed: "v=19" });
        }
        let costs: Vec<&str> = costs.split(',').collect();
        let [memory, passes, lanes] = costs[..] else { return Err(HashError::Form(FORM)) };
        let value = |text: &'static str, part: &'_ str| -> Result<String, HashError> {
            part.strip_prefix(text).map(str::to_owned).ok_or(HashError::Form(FORM))
        };
        let lanes = number("lanes (p)", &value("p=", lanes)?, 1..=MOST_LANES, "1 to 64")?;
        let passes = number("passes (t)", &value("t=", passes)?, 1..=MOST_PASSES, "1 to 16")?;
        let least = Params::MIN_M_COST.saturating_mul(lanes);
        let memory = number(
            "memory (m)",
            &value("m=", memory)?,
            least..=MOST_KIB,
            "at least 8 KiB for each lane, and at most 262144 KiB",
        )?;
        let salt = check_salt(decode_with(&STANDARD_NO_PAD, "salt", salt)?)?;
        if salt.len() < LEAST_SALT {
            return Err(short_salt(salt.len()));
        }
        let hash = decode_with(&STANDARD_NO_PAD, "digest", hash)?;
        if !(16..=64).contains(&hash.len()) {
            return Err(HashError::Length { part: "digest", bytes: hash.len(), allowed: "16 to 64" });
        }
        let params =
            Params::new(memory, passes, lanes, Some(hash.len())).map_err(|_| HashError::Form(FORM))?;
        Ok(Argon2Hash { params, salt, hash: hash.into() })
    }

    /// Returns true if this is the hash of the password.
    pub fn verify(&self, password: &[u8]) -> bool {
        self.digest(password).is_some_and(|digest| verify_slices_are_equal(&digest, &self.hash).is_ok())
    }

    /// Returns the text for the file.
    pub fn to_text(&self) -> String {
        let (memory, passes, lanes) = (self.params.m_cost(), self.params.t_cost(), self.params.p_cost());
        let [salt, hash] = [&self.salt, &self.hash].map(|bytes| STANDARD_NO_PAD.encode(bytes));
        format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${hash}")
    }

    pub(super) fn estimated_ns(&self) -> u64 {
        // 38 ms for 46 MiB in one pass.
        u64::from(self.params.m_cost()) * u64::from(self.params.t_cost()) * 800
    }

    /// Returns the digest, or `None` where the parameters are refused. `parse` admits none of
    /// these.
    fn digest(&self, password: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut digest = Zeroizing::new(vec![0; self.hash.len()]);
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone());
        argon2.hash_password_into(password, &self.salt, &mut digest).ok()?;
        Some(digest)
    }
}

fn short_salt(bytes: usize) -> HashError {
    HashError::Length { part: "salt", bytes, allowed: "8 to 1,024" }
}
