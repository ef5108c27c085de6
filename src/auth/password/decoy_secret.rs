//! The secret behind the salts of names that a password file does not have.
//!
//! The secret is kept in the data directory. Otherwise the salts of unknown names would change
//! while those of users stay, and would tell which names exist.

use super::scram::{KEY, keyed};
use crate::auth::random::random;
use crate::auth::replacement::Replacement;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use zeroize::Zeroizing;

/// The file in the data directory.
const FILE: &str = "scram.secret";

/// The secret of one installation.
#[derive(Clone)]
pub struct DecoySecret(Zeroizing<[u8; KEY]>);

impl DecoySecret {
    /// Returns the secret of a data directory, and creates a missing one.
    ///
    /// # Errors
    /// The file cannot be read or written, is not of this program, or the system has no randomness.
    pub fn of_directory(directory: &Path) -> io::Result<DecoySecret> {
        let file = directory.join(FILE);
        match fs::read(&file) {
            Ok(bytes) => DecoySecret::read(&Zeroizing::new(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => DecoySecret::create(&file),
            Err(error) => Err(error),
        }
    }

    /// Keeps a secret of 32 bytes in a data directory, in place of another one.
    ///
    /// # Errors
    /// The file cannot be written, or the secret has another length.
    pub fn keep(directory: &Path, secret: &[u8]) -> io::Result<()> {
        DecoySecret::read(secret)?;
        let new = Replacement::begin(&directory.join(FILE)).map_err(io::Error::other)?;
        if new.content() == Some(secret) {
            return Ok(());
        }
        new.commit(secret).map_err(io::Error::other)
    }

    /// Returns the secret for a password file of a listener's own, which depends on its path. With
    /// one secret for all files, an unknown name would have one salt in all of them. A user of two
    /// files has two.
    pub fn of_file(&self, file: &Path) -> DecoySecret {
        DecoySecret(Zeroizing::new(keyed(&self.0, file.as_os_str().as_bytes())))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }

    fn read(bytes: &[u8]) -> io::Result<DecoySecret> {
        let bytes = bytes.try_into().map_err(|_| io::Error::other("the file does not have 32 bytes"))?;
        Ok(DecoySecret(Zeroizing::new(bytes)))
    }

    /// Writes a new secret, unless another process has written one meanwhile.
    fn create(file: &Path) -> io::Result<DecoySecret> {
        let new = Replacement::begin(file).map_err(io::Error::other)?;
        if let Some(present) = new.content() {
            return DecoySecret::read(present);
        }
        let bytes = random::<KEY>().map_err(io::Error::other)?;
        new.commit(bytes.as_slice()).map_err(io::Error::other)?;
        Ok(DecoySecret(bytes))
    }
}

impl fmt::Debug for DecoySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecoySecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_has_one_secret_for_ever() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let secret = DecoySecret::of_directory(one.path()).unwrap();
        assert_eq!(DecoySecret::of_directory(one.path()).unwrap().bytes(), secret.bytes());
        assert_ne!(DecoySecret::of_directory(other.path()).unwrap().bytes(), secret.bytes());
        let mode = fs::metadata(one.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(format!("{secret:?}"), "DecoySecret(..)");
    }

    #[test]
    fn a_file_of_another_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), b"short").unwrap();
        let error = DecoySecret::of_directory(directory.path()).unwrap_err();
        assert_eq!(error.to_string(), "the file does not have 32 bytes");
    }
}
