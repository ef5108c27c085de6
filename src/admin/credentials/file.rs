//! The file of credentials while the broker runs.

use super::Credentials;
use crate::auth::file_error::FileError;
use crate::auth::file_watch::FileWatch;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::warn;

/// The file of credentials. A credential that leaves the file is not valid any more.
#[derive(Debug, Default)]
pub(crate) struct CredentialFile {
    path: Option<PathBuf>,
    last: Mutex<(FileWatch, Arc<Credentials>)>,
}

impl CredentialFile {
    /// Reads the file; `None` for no file and no credentials.
    ///
    /// # Errors
    /// As [`Credentials::load`].
    pub(crate) fn load(path: Option<PathBuf>) -> Result<CredentialFile, FileError> {
        let watch = FileWatch::new(&path);
        let credentials = path.as_deref().map(Credentials::load).transpose()?.unwrap_or_default();
        Ok(CredentialFile { path, last: Mutex::new((watch, Arc::new(credentials))) })
    }

    /// Returns the credentials of the file as it is now. A file with a mistake, or a missing one,
    /// leaves the credentials as they were, and is logged once.
    pub(crate) fn now(&self) -> Arc<Credentials> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (watch, credentials) = &mut *last;
        if let Some(path) = self.path.as_deref().filter(|_| watch.has_changed()) {
            match Credentials::load(path) {
                Ok(new) => *credentials = Arc::new(new),
                Err(error) => {
                    warn!(event = "admin.credentials_refused", %error, "admin.credentials is not changed, because it has a mistake")
                }
            }
        }
        Arc::clone(credentials)
    }
}
