//! The file of credentials while the broker runs.

use super::Credentials;
use crate::auth::file_error::FileError;
use crate::auth::file_watch::FileWatch;
use crate::file_thread::{FileThread, NotRead, ReadLimits};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as Turns;
use tracing::warn;

/// Time of a request for a look at the file. With a disk that hangs, the credentials stay as they
/// are.
const LOOK: Duration = Duration::from_secs(1);

/// The file of credentials. A credential that leaves the file is not valid any more.
#[derive(Debug)]
pub(crate) struct CredentialFile {
    file: Arc<WatchedFile>,
    looking: FileThread,
    /// One look at a time. Each request looks for itself, because the file may have changed since
    /// an earlier look began.
    turns: Turns<()>,
}

#[derive(Debug, Default)]
struct WatchedFile {
    /// `None` for no file and no credentials.
    path: ArcSwapOption<PathBuf>,
    known: ArcSwap<Credentials>,
    /// Why the file on the disk is not in force; `None` if it is.
    refused: ArcSwapOption<String>,
    /// The watch, with its path. Locked on the thread that looks, and nowhere else.
    watch: Mutex<(Option<Arc<PathBuf>>, FileWatch)>,
}

impl Default for CredentialFile {
    fn default() -> CredentialFile {
        let looking = FileThread::new("homing-admin-cr", ReadLimits::both(LOOK));
        CredentialFile { file: Arc::default(), looking, turns: Turns::default() }
    }
}

impl CredentialFile {
    /// Reads the file; `None` for no file and no credentials. Errors: as [`Credentials::load`].
    pub(crate) fn load(path: Option<PathBuf>) -> Result<CredentialFile, FileError> {
        let watch = FileWatch::new(&path);
        let credentials = path.as_deref().map(Credentials::load).transpose()?.unwrap_or_default();
        let path = path.map(Arc::new);
        let file = WatchedFile {
            path: ArcSwapOption::new(path.clone()),
            known: ArcSwap::from_pointee(credentials),
            refused: ArcSwapOption::empty(),
            watch: Mutex::new((path, watch)),
        };
        Ok(CredentialFile { file: Arc::new(file), ..CredentialFile::default() })
    }

    /// Returns the credentials as of the last [`Self::look`].
    pub(crate) fn known(&self) -> Arc<Credentials> {
        self.file.known.load_full()
    }

    /// Returns the path of the file; `None` for no file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.file.path.load_full().map(|path| PathBuf::clone(&path))
    }

    /// Returns why the file on the disk is not in force, as of the last [`Self::look`]; `None` if
    /// it is.
    pub(crate) fn refused(&self) -> Option<Arc<String>> {
        self.file.refused.load_full()
    }

    /// Reads the file again if it changed. A file with a mistake, a missing one, and one that is
    /// not read within a second leave the credentials unchanged, and are logged once. Costs a
    /// thread and a `stat`.
    pub(crate) async fn look(&self) {
        if self.file.path.load().is_none() {
            return;
        }
        let _turn = self.turns.lock().await;
        let file = Arc::clone(&self.file);
        match self.looking.run(move || file.look()).await {
            // A read that hangs was logged when it began. A late read is in force once it is done.
            Ok(()) | Err(NotRead::Busy(_)) => {}
            Err(error) => {
                warn!(event = "admin.credentials_refused", %error, "admin.credentials stays as it was")
            }
        }
    }

    /// Has the credentials of another file from the next look on; `None` for no credentials.
    pub(crate) fn follow(&self, path: Option<PathBuf>) {
        let file = &self.file;
        if file.path.load().as_deref() == path.as_ref() {
            return;
        }
        if path.is_none() {
            file.known.store(Arc::default());
            file.refused.store(None);
        }
        file.path.store(path.map(Arc::new));
    }
}

impl WatchedFile {
    /// Reads the file again if it, or its path, changed. Blocks for as long as its disk takes.
    fn look(&self) {
        let Some(path) = self.path.load_full() else { return };
        let mut last = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let (watched, watch) = &mut *last;
        if watched.as_ref().is_none_or(|watched| !Arc::ptr_eq(watched, &path)) {
            *watch = FileWatch::new([&*path]);
            *watched = Some(Arc::clone(&path));
        } else if !watch.has_changed() {
            return;
        }
        match Credentials::load(&path) {
            // The path may be another one meanwhile.
            Ok(new) if self.path.load().as_ref().is_some_and(|now| Arc::ptr_eq(now, &path)) => {
                self.known.store(Arc::new(new));
                self.refused.store(None);
            }
            Ok(_) => {}
            Err(error) => {
                self.refused.store(Some(Arc::new(error.to_string())));
                warn!(event = "admin.credentials_refused", %error, "admin.credentials is not changed, because it has a mistake")
            }
        }
    }
}
