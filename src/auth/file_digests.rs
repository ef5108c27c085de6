//! Digests of the files that were read. A reload compares them to find changed files.

use super::file_error::FileError;
use super::password::file::Fingerprint;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The digests of the files of one reading, by path. A file takes 32 bytes and its path.
#[derive(Clone, Default)]
pub struct FileDigests(RefCell<BTreeMap<PathBuf, Fingerprint>>);

impl FileDigests {
    /// Returns the content of a file, and notes its digest.
    ///
    /// # Errors
    /// The system refuses the file.
    pub fn read(&self, file: &Path) -> Result<Vec<u8>, FileError> {
        let content = FileError::read(file)?;
        self.note(file, Fingerprint::of_bytes(&content));
        Ok(content)
    }

    /// Notes the digest of a file that was read elsewhere.
    pub fn note(&self, file: &Path, digest: Fingerprint) {
        self.0.borrow_mut().insert(file.to_owned(), digest);
    }

    /// Returns true if a file had this digest when it was read.
    pub fn has(&self, file: &Path, digest: Fingerprint) -> bool {
        self.0.borrow().get(file) == Some(&digest)
    }

    /// Returns true if a file has another content than in the reading `before`, or is not in it.
    pub fn has_changed(&self, file: &Path, before: &FileDigests) -> bool {
        self.0.borrow().get(file) != before.0.borrow().get(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_changed_if_its_content_has_or_if_it_was_not_read_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("f");
        let read = |content: &str| {
            std::fs::write(&file, content).expect("a writable directory");
            let digests = FileDigests::default();
            digests.read(&file).expect("a file");
            digests
        };
        let (first, same, other) = (read("a"), read("a"), read("b"));
        assert!(!same.has_changed(&file, &first));
        assert!(other.has_changed(&file, &first));
        assert!(first.has_changed(&file, &FileDigests::default()));
    }
}
