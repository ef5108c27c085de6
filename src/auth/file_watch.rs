//! Files of the operator that are watched by `stat`, so that a change needs no signal.

use crate::file_thread;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The watched files, with the last seen state of each.
#[derive(Clone, Debug, Default)]
pub struct FileWatch {
    seen: Vec<(PathBuf, Option<FileStamp>)>,
}

/// The identity of a file's content: device, inode, size, and the time of the last change in
/// nanoseconds, also of its owner or permissions.
pub(crate) type FileStamp = (u64, u64, u64, i64, i64);

impl FileWatch {
    /// Begins to watch these files. Call this before the files are read, so that a change during
    /// the read is seen.
    pub fn new<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> FileWatch {
        let mut files: Vec<&PathBuf> = files.into_iter().collect();
        files.sort();
        files.dedup();
        FileWatch { seen: files.into_iter().map(|file| (file.clone(), stamp(file))).collect() }
    }

    /// Returns true if a file changed, appeared or vanished since the last call. A change is
    /// reported once, so a broken file gives one log line and not one for each look.
    ///
    /// Costs one `stat` for each file.
    pub fn has_changed(&mut self) -> bool {
        let mut changed = false;
        for (file, seen) in &mut self.seen {
            let now = stamp(file);
            changed |= *seen != now;
            *seen = now;
        }
        changed
    }

    /// Watches the files of another watch, too.
    pub fn join(&mut self, other: FileWatch) {
        self.seen.extend(other.seen);
    }

    /// Reports a change at the next look, because the read content is not in force.
    pub fn forget(&mut self) {
        self.seen.iter_mut().for_each(|(_, seen)| *seen = None);
    }
}

/// Returns the identity of a file's content; `None` for no file.
pub(crate) fn stamp(file: &Path) -> Option<FileStamp> {
    let _opened = file_thread::opens(file);
    let found = fs::metadata(file).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}
