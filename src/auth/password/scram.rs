//! `$scram-sha-256$i=..$salt$stored$server`: the keys of SCRAM-SHA-256 (RFC 5802, RFC 7677).
//!
//! The file has no password equivalent: the stored key proves a password, but does not replace it.
//! The line also checks the password of a plain login.

use super::hash::{HashError, check_salt, decode, decode_array, encode, number, parts};
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
const KEY: usize = SHA256_OUTPUT_LEN;

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

    pub(super) fn estimated_ns(&self) -> u64 {
        u64::from(self.iterations.get()) * 105
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

fn keyed(salted: &[u8; KEY], text: &[u8]) -> [u8; KEY] {
    array(sign(&Key::new(HMAC_SHA256, salted), text).as_ref())
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
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    /// The example of RFC 7677, section 3: the proof of the client, and the signature of the
    /// server.
    #[test]
    fn the_keys_are_those_of_the_rfc() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let hash = ScramHash::create(b"pencil", &salt);
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let message = format!(
            "n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
        );
        let signature = keyed(&hash.server_key, message.as_bytes());
        assert_eq!(encode(&signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let client_signature = keyed(&hash.stored_key, message.as_bytes());
        let client_key: Vec<u8> =
            proof.iter().zip(client_signature).map(|(proof, signature)| proof ^ signature).collect();
        assert_eq!(digest(&SHA256, &client_key).as_ref(), hash.stored_key);
    }
}
