//! `$scram-sha-256$i=..$salt$stored$server`: the keys of SCRAM-SHA-256 (RFC 5802, RFC 7677).
//!
//! The file has no password equivalent: the stored key proves a password, but does not replace it.
//! The line also checks the password of a plain login.

use super::hash_text::{HashError, check_salt, decode, decode_array, encode, number, parts};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive};
use std::num::NonZeroU32;
use zeroize::Zeroizing;

const FORM: &str = "$scram-sha-256$i=..$salt$stored$server";
/// 1 s of one core, at 0.1 us each.
const MOST_ITERATIONS: u32 = 10_000_000;
/// RFC 7677 demands 4096 at least.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).expect("not zero");
pub(super) const KEY: usize = SHA256_OUTPUT_LEN;
/// The salt that `homing passwd` writes, in bytes.
const SALT: usize = 16;

/// The keys of one user.
#[derive(Clone)]
pub struct ScramHash {
    iterations: NonZeroU32,
    salt: Box<[u8]>,
    stored_key: [u8; KEY],
    server_key: [u8; KEY],
}

impl ScramHash {
    /// Makes the keys of a password with 4,096 iterations. Takes 0.4 ms.
    ///
    /// Clients normalise a password that is not ASCII (SASLprep). This function does not, so the
    /// caller passes ASCII only.
    pub fn create(password: &[u8], salt: &[u8]) -> ScramHash {
        ScramHash::with_iterations(password, ITERATIONS, salt)
    }

    fn with_iterations(password: &[u8], iterations: NonZeroU32, salt: &[u8]) -> ScramHash {
        let salted = salted_password(password, iterations, salt);
        ScramHash {
            iterations,
            salt: salt.into(),
            stored_key: stored_key(&salted),
            server_key: keyed(&salted, b"Server Key"),
        }
    }

    /// Makes the keys of a password with so many iterations.
    #[cfg(test)]
    pub(super) fn of_iterations(password: &[u8], iterations: u32) -> ScramHash {
        ScramHash::with_iterations(password, NonZeroU32::new(iterations).unwrap(), &[5; 16])
    }

    /// Reads the text behind `$scram-sha-256$`.
    ///
    /// # Errors
    /// The text does not have the form, or the iterations are not 4,096 to 10,000,000.
    pub fn parse(text: &str) -> Result<ScramHash, HashError> {
        let [iterations, salt, stored_key, server_key] = parts(text, FORM)?;
        let iterations = iterations.strip_prefix("i=").ok_or(HashError::Form(FORM))?;
        let bounds = ITERATIONS.get()..=MOST_ITERATIONS;
        let iterations = number("iterations", iterations, bounds, "4096 to 10,000,000")?;
        Ok(ScramHash {
            iterations: NonZeroU32::new(iterations).unwrap_or(ITERATIONS),
            salt: check_salt(decode("salt", salt)?)?,
            stored_key: decode_array("stored key", stored_key, "32")?,
            server_key: decode_array("server key", server_key, "32")?,
        })
    }

    /// Returns true if these are the keys of the password.
    pub fn verify(&self, password: &[u8]) -> bool {
        let salted = salted_password(password, self.iterations, &self.salt);
        verify_slices_are_equal(&stored_key(&salted), &self.stored_key).is_ok()
    }

    /// Returns the text for the file.
    pub fn to_text(&self) -> String {
        let [salt, stored_key, server_key] = [&self.salt[..], &self.stored_key, &self.server_key].map(encode);
        format!("$scram-sha-256$i={}${salt}${stored_key}${server_key}", self.iterations)
    }

    /// Returns the salt of the password, which clients need to derive the keys.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Returns the number of iterations, which clients need to derive the keys.
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// Returns true if a proof over the messages of an exchange shows that the client has the
    /// password. Compares in constant time. Takes 1 us.
    pub fn proves(&self, messages: &[u8], proof: &[u8; KEY]) -> bool {
        let signature = keyed(&self.stored_key, messages);
        let mut client_key = Zeroizing::new(*proof);
        client_key.iter_mut().zip(signature).for_each(|(byte, with)| *byte ^= with);
        let stored_key = digest(&SHA256, client_key.as_slice());
        verify_slices_are_equal(stored_key.as_ref(), &self.stored_key).is_ok()
    }

    /// Returns the signature over the messages of an exchange, which shows the client that the
    /// server has its keys.
    pub fn server_signature(&self, messages: &[u8]) -> [u8; KEY] {
        keyed(&self.server_key, messages)
    }

    pub(super) fn estimated_ns(&self) -> u64 {
        u64::from(self.iterations.get()) * 105
    }
}

/// Makes up keys for names that the file does not have, so that an exchange does not show which
/// names exist.
pub(super) struct DecoyKeys {
    secret: Key,
    iterations: NonZeroU32,
    salt: usize,
}

impl DecoyKeys {
    /// Returns decoys that look like `common`: with its iterations and a salt of its length.
    /// Without such a hash, decoys look like hashes that this program writes.
    pub(super) fn new(secret: &[u8; KEY], common: Option<&ScramHash>) -> DecoyKeys {
        DecoyKeys {
            secret: Key::new(HMAC_SHA256, secret),
            iterations: common.map_or(ITERATIONS, |hash| hash.iterations),
            salt: common.map_or(SALT, |hash| hash.salt.len()),
        }
    }

    /// Makes the keys of names from another secret.
    pub(super) fn rekey(&mut self, secret: &[u8; KEY]) {
        self.secret = Key::new(HMAC_SHA256, secret);
    }

    /// Returns the keys of a name: always the same salt, and keys that no password has.
    pub(super) fn of(&self, name: &str) -> ScramHash {
        let part = |number: u32| {
            let mut text = number.to_be_bytes().to_vec();
            text.extend_from_slice(name.as_bytes());
            array(sign(&self.secret, &text).as_ref())
        };
        let mut salt: Vec<u8> = (2..).take(self.salt.div_ceil(KEY)).flat_map(part).collect();
        salt.truncate(self.salt);
        ScramHash { iterations: self.iterations, salt: salt.into(), stored_key: part(0), server_key: part(1) }
    }
}

fn salted_password(password: &[u8], iterations: NonZeroU32, salt: &[u8]) -> Zeroizing<[u8; KEY]> {
    let mut salted = Zeroizing::new([0; KEY]);
    derive(PBKDF2_HMAC_SHA256, iterations, salt, password, salted.as_mut_slice());
    salted
}

fn stored_key(salted: &[u8; KEY]) -> [u8; KEY] {
    let client_key = Zeroizing::new(keyed(salted, b"Client Key"));
    array(digest(&SHA256, client_key.as_slice()).as_ref())
}

/// Returns the HMAC-SHA-256 of a text.
pub(super) fn keyed(key: &[u8; KEY], text: &[u8]) -> [u8; KEY] {
    array(sign(&Key::new(HMAC_SHA256, key), text).as_ref())
}

fn array(bytes: &[u8]) -> [u8; KEY] {
    let mut array = [0; KEY];
    // Both lengths are those of SHA-256.
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoy_looks_like_a_line_of_the_file_and_is_always_the_same() {
        let plain = DecoyKeys::new(&[1; KEY], None);
        assert_eq!((plain.of("ann").iterations(), plain.of("ann").salt().len()), (4_096, 16));
        let common = ScramHash::with_iterations(b"x", NonZeroU32::new(5_000).unwrap(), &[7; 70]);
        let decoys = DecoyKeys::new(&[1; KEY], Some(&common));
        let [ann, again, bob] = ["ann", "ann", "bob"].map(|name| decoys.of(name));
        assert_eq!((ann.iterations(), ann.salt().len(), ann.to_text()), (5_000, 70, again.to_text()));
        assert_ne!(ann.salt(), bob.salt());
        assert_ne!(ann.salt()[..32], ann.salt()[32..64]);
        assert_ne!(DecoyKeys::new(&[2; KEY], Some(&common)).of("ann").salt(), ann.salt());
    }
}
