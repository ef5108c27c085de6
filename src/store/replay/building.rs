//! A directory while it is built: beside its place, under another name, so that nothing half made
//! ever stands there.

use super::ReplayError;
use crate::store::files;
use crate::store::sqlite::directory::is_locked;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// See the module. Deleted when it is dropped, unless it was moved to its place.
#[derive(Debug)]
pub(super) struct Building {
    path: PathBuf,
}

impl Building {
    /// Begins a directory for the place `into`, which must be free: nothing, or an empty directory.
    /// What a replay that was killed has left there is deleted.
    ///
    /// # Errors
    /// The place is not free, or the directory cannot be made.
    pub(super) fn begin(into: &Path) -> Result<Building, ReplayError> {
        let bad = |what: &str| Err(ReplayError::Bad(into.to_owned(), what.to_owned()));
        match fs::read_dir(into).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return bad("is there already, and is not empty: a replay makes a new directory"),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ReplayError::Folder(into.to_owned(), error));
            }
            Ok(false) | Err(_) => {}
        }
        let Some(name) = into.file_name() else { return bad("it has no name of its own") };
        let mut name = name.to_owned();
        name.push(".replaying");
        let path = into.with_file_name(name);
        if is_locked(&path) {
            return bad("another replay makes it");
        }
        let cleared = match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let made = cleared.and_then(|()| DirBuilder::new().mode(0o700).create(&path));
        made.map_err(|error| ReplayError::Folder(path.clone(), error))?;
        Ok(Building { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the directory to its place. Nobody has a file of it open.
    ///
    /// # Errors
    /// The place is not free any more.
    pub(super) fn move_to(self, into: &Path) -> Result<(), ReplayError> {
        let moved = files::sync(&self.path).and_then(|()| fs::rename(&self.path, into));
        moved.map_err(|error| ReplayError::Folder(into.to_owned(), error))?;
        let beside = into.parent().filter(|beside| !beside.as_os_str().is_empty());
        let beside = beside.unwrap_or(Path::new("."));
        files::sync(beside).map_err(|error| ReplayError::Folder(beside.to_owned(), error))
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // After the move there is nothing by this name.
        let _ = fs::remove_dir_all(&self.path);
    }
}
