//! `$6$salt$hash`, which mosquitto 1.x wrote: one SHA-512 over the password and the salt.
//!
//! This kind is not the `$6$` of crypt(3), which has 5,000 rounds. One hash protects a password
//! badly if the file is stolen, so Homing reads this kind and writes none.

use super::hash_text::{HashError, check_salt, decode, decode_array, encode, parts};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA512, SHA512_OUTPUT_LEN};

/// A hash of the kind `$6$`.
#[derive(Clone)]
pub struct Sha512Hash {
    salt: Box<[u8]>,
    hash: [u8; SHA512_OUTPUT_LEN],
}

impl Sha512Hash {
    /// Reads the text behind `$6$`.
    ///
    /// # Errors
    /// The text does not have the form `salt$hash`, both in base64, with 64 bytes of hash.
    pub fn parse(text: &str) -> Result<Sha512Hash, HashError> {
        let [salt, hash] = parts(text, "$6$salt$hash")?;
        Ok(Sha512Hash { salt: check_salt(decode("salt", salt)?)?, hash: decode_array("digest", hash, "64")? })
    }

    /// Returns true if this is the hash of the password.
    pub fn verify(&self, password: &[u8]) -> bool {
        let mut digest = Context::new(&SHA512);
        digest.update(password);
        digest.update(&self.salt);
        verify_slices_are_equal(digest.finish().as_ref(), &self.hash).is_ok()
    }

    /// Returns the text for the file.
    pub fn to_text(&self) -> String {
        format!("$6${}${}", encode(&self.salt), encode(&self.hash))
    }
}
