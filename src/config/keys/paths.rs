//! The path or paths in the value of a key.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns the path of a key of paths; `None` for its word.
pub(super) fn path_of(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// Returns the first directory of a list of systemd, such as STATE_DIRECTORY; `None` for no list
/// and an empty one.
pub(super) fn first_directory(list: Option<&OsStr>) -> Option<&Path> {
    let first = list?.to_str()?.split(':').next()?;
    (!first.is_empty()).then(|| Path::new(first))
}
