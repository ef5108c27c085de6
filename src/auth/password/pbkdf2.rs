//! `$7$iterations$salt$hash`, which mosquitto 2.0 and later write: PBKDF2 with HMAC-SHA-512.
//!
//! mosquitto 2.0 takes 101 iterations and 12 bytes of salt; 2.1 takes 1,000 iterations and 64
//! bytes.

use super::hash_text::{HashError, check_salt, decode, decode_array, encode, number, parts};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA512, derive};
use std::num::NonZeroU32;
use zeroize::Zeroizing;

/// 3.7 s of one core, at 0.37 us each.
const MOST_ITERATIONS: u32 = 10_000_000;
const HASH: usize = 64;

/// A hash of the kind `$7$`.
#[derive(Clone)]
pub struct Pbkdf2Hash {
    iterations: NonZeroU32,
    salt: Box<[u8]>,
    hash: [u8; HASH],
}

impl Pbkdf2Hash {
    /// Hashes a password. At least 1 iteration is made.
    pub fn create(password: &[u8], iterations: u32, salt: &[u8]) -> Pbkdf2Hash {
        let iterations = NonZeroU32::new(iterations.min(MOST_ITERATIONS)).unwrap_or(NonZeroU32::MIN);
        let mut hash = [0; HASH];
        derive(PBKDF2_HMAC_SHA512, iterations, salt, password, &mut hash);
        Pbkdf2Hash { iterations, salt: salt.into(), hash }
    }

    /// Reads the text behind `$7$`.
    ///
    /// # Errors
    /// The text does not have the form `iterations$salt$hash`, both in base64, with 64 bytes of
    /// hash; or the iterations are not 1 to 10,000,000.
    pub fn parse(text: &str) -> Result<Pbkdf2Hash, HashError> {
        let [iterations, salt, hash] = parts(text, "$7$iterations$salt$hash")?;
        let iterations = number("iterations", iterations, 1..=MOST_ITERATIONS, "1 to 10,000,000")?;
        Ok(Pbkdf2Hash {
            iterations: NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN),
            salt: check_salt(decode("salt", salt)?)?,
            hash: decode_array("digest", hash, "64")?,
        })
    }

    /// Returns true if this is the hash of the password.
    pub fn verify(&self, password: &[u8]) -> bool {
        let mut hash = Zeroizing::new([0; HASH]);
        derive(PBKDF2_HMAC_SHA512, self.iterations, &self.salt, password, hash.as_mut_slice());
        verify_slices_are_equal(hash.as_slice(), &self.hash).is_ok()
    }

    /// Returns the text for the file.
    pub fn to_text(&self) -> String {
        format!("$7${}${}${}", self.iterations, encode(&self.salt), encode(&self.hash))
    }

    pub(super) fn estimated_ns(&self) -> u64 {
        u64::from(self.iterations.get()) * 370
    }
}
