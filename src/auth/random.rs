//! The randomness of the system.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

/// The bytes of a secret text: 256 bits.
const SECRET: usize = 32;

/// The system has no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system has no randomness")]
pub struct NoRandomness;

/// Returns random bytes.
///
/// # Errors
/// The system has no randomness.
pub fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, NoRandomness> {
    let mut bytes = Zeroizing::new([0; N]);
    aws_lc_rs::rand::fill(bytes.as_mut_slice()).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// Returns 256 random bits as text for a URL: nobody can guess it.
///
/// # Errors
/// The system has no randomness.
pub fn random_text() -> Result<Zeroizing<String>, NoRandomness> {
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(random::<SECRET>()?)))
}
