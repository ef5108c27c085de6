//! Replaces a file at once: a reader sees the old content or the new content, also after a crash.
//!
//! The directory is locked meanwhile, so that two commands do not lose each other's change. A
//! symbolic link is refused, because a link in a directory of another user could lead anywhere.

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, fchown, flock, fstat, fsync, openat,
    renameat, statat, unlinkat,
};
use rustix::fs::{CWD, Gid, Uid};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The reason why a file cannot be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplacementError {
    /// The file is not a plain file.
    #[error("{}: {what}", .file.display())]
    NotAFile {
        /// The path as given.
        file: PathBuf,
        /// The kind of the file.
        what: &'static str,
    },
    /// The file is not the one that was read any more.
    #[error("{}: somebody else changed it meanwhile; nothing is written", .0.display())]
    Changed(PathBuf),
    /// The file has the new content, and the disk did not confirm that it stays.
    #[error("{}: the file is changed, but a power loss may bring the old content back: cannot sync its directory: {cause}", .file.display())]
    NotSynced {
        /// The path as given.
        file: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The system refuses.
    #[error("{}: cannot {action}: {cause}", .file.display())]
    System {
        /// The path as given.
        file: PathBuf,
        /// The step that failed.
        action: &'static str,
        /// The reason.
        cause: io::Error,
    },
}

/// The permissions of a new file.
const OWNER_ONLY: u32 = 0o600;
/// The permission of an existing file that stays: a broker may read the file as member of its
/// group.
const GROUP_READ: u32 = 0o040;

/// A file that is about to be replaced.
pub struct Replacement {
    path: PathBuf,
    name: OsString,
    /// Open and locked until the end.
    directory: OwnedFd,
    present: Option<Present>,
}

struct Present {
    stat: Stat,
    content: Zeroizing<Vec<u8>>,
}

impl Replacement {
    /// Locks the directory of the file, waiting for another command if necessary, and reads the
    /// file if it exists.
    ///
    /// # Errors
    /// The path is not a plain file, or the system refuses.
    pub fn begin(path: &Path) -> Result<Replacement, ReplacementError> {
        let system = |action| move |cause: Errno| failed(path, action, cause);
        let name = path
            .file_name()
            .ok_or(ReplacementError::NotAFile { file: path.to_owned(), what: "not a file" })?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())
            .map_err(system("open the directory"))?;
        flock(&directory, FlockOperation::LockExclusive).map_err(system("lock the directory"))?;
        // NONBLOCK: a pipe in the place of the file must not stop the command.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let present = match openat(&directory, name, flags, Mode::empty()) {
            Ok(file) => Some(Present::read(path, file)?),
            Err(Errno::NOENT) => None,
            Err(Errno::LOOP) => {
                let what = "a symbolic link, which is not followed; name the file itself";
                return Err(ReplacementError::NotAFile { file: path.to_owned(), what });
            }
            Err(cause) => return Err(failed(path, "open it", cause)),
        };
        Ok(Replacement { path: path.to_owned(), name: name.to_owned(), directory, present })
    }

    /// Returns the present content, or `None` if the file does not exist.
    pub fn content(&self) -> Option<&[u8]> {
        self.present.as_ref().map(|present| present.content.as_slice())
    }

    /// Writes the new content, syncs it, and puts it in the place of the file.
    ///
    /// A new file has mode 0600. An existing file keeps its owner, its group and the read
    /// permission of the group.
    ///
    /// # Errors
    /// The system refuses a step. The file is then unchanged, but with
    /// [`ReplacementError::NotSynced`].
    pub fn commit(self, content: &[u8]) -> Result<(), ReplacementError> {
        let mut temporary = OsString::from(".");
        temporary.push(&self.name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let result = self.write(&temporary, content);
        if result.is_err() {
            // The temporary file may not exist.
            let _ = unlinkat(&self.directory, &temporary, AtFlags::empty());
        }
        result
    }

    /// Returns true if nobody has changed the file since it was read. An editor takes no lock.
    fn is_as_read(&self) -> bool {
        let now = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        match (&self.present, now) {
            (None, Err(Errno::NOENT)) => true,
            (Some(Present { stat, .. }), Ok(now)) => {
                let facts = |stat: &Stat| (stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
                facts(stat) == facts(&now)
            }
            _ => false,
        }
    }

    fn write(&self, temporary: &OsString, content: &[u8]) -> Result<(), ReplacementError> {
        let system = |action| move |cause: Errno| failed(&self.path, action, cause);
        // The name has the number of this process, so a file with this name is left of a dead one.
        let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        // Read and write: the tests of a power loss read what is synced through the same
        // descriptor.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, temporary, flags, Mode::from_raw_mode(OWNER_ONLY))
            .map_err(system("create a temporary file beside it"))?;
        let mut mode = OWNER_ONLY;
        if let Some(Present { stat, .. }) = &self.present {
            mode |= stat.st_mode & GROUP_READ;
            let own = fstat(&file).map_err(system("read its owner"))?;
            if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
                let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
                fchown(&file, Some(uid), Some(gid)).map_err(system("keep its owner"))?;
            }
        }
        fchmod(&file, Mode::from_raw_mode(mode)).map_err(system("set its permissions"))?;
        let mut file = File::from(file);
        let written = file.write_all(content).and_then(|()| file.sync_all());
        written.map_err(|cause| ReplacementError::System {
            file: self.path.clone(),
            action: "write a temporary file beside it",
            cause,
        })?;
        if !self.is_as_read() {
            return Err(ReplacementError::Changed(self.path.clone()));
        }
        renameat(&self.directory, temporary, &self.directory, &self.name).map_err(system("replace it"))?;
        fsync(&self.directory).map_err(|cause| not_synced(&self.path, cause))
    }
}

impl Present {
    fn read(path: &Path, file: OwnedFd) -> Result<Present, ReplacementError> {
        let stat = fstat(&file).map_err(|cause| failed(path, "read its owner", cause))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(ReplacementError::NotAFile { file: path.to_owned(), what: "not a plain file" });
        }
        let mut content = Zeroizing::new(Vec::new());
        let read = File::from(file).read_to_end(&mut content);
        read.map_err(|cause| ReplacementError::System { file: path.to_owned(), action: "read it", cause })?;
        Ok(Present { stat, content })
    }
}

fn not_synced(path: &Path, cause: Errno) -> ReplacementError {
    ReplacementError::NotSynced { file: path.to_owned(), cause: cause.into() }
}

fn failed(path: &Path, action: &'static str, cause: Errno) -> ReplacementError {
    ReplacementError::System { file: path.to_owned(), action, cause: cause.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_created_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwd");
        let new = Replacement::begin(&path).unwrap();
        assert_eq!(new.content(), None);
        new.commit(b"one").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"one".to_vec(), 0o600));
        let inode = fs::metadata(&path).unwrap().ino();
        let old = Replacement::begin(&path).unwrap();
        assert_eq!(old.content(), Some(&b"one"[..]));
        old.commit(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_ne!(fs::metadata(&path).unwrap().ino(), inode, "a reader of the old file still sees it whole");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_keeps_what_its_group_may_read_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwd");
        for (before, after) in [(0o640, 0o640), (0o666, 0o640), (0o400, 0o600)] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
            Replacement::begin(&path).unwrap().commit(b"x").unwrap();
            assert_eq!(mode(&path), after, "{before:o}");
        }
    }

    #[test]
    fn links_and_other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "one").unwrap();
        symlink(&target, &link).unwrap();
        let error = Replacement::begin(&link).err().unwrap().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert_eq!(fs::read(&target).unwrap(), b"one");
        symlink(directory.path().join("missing"), directory.path().join("dangling")).unwrap();
        assert!(Replacement::begin(&directory.path().join("dangling")).is_err());
        assert!(Replacement::begin(directory.path()).is_err());
        assert!(Replacement::begin(&directory.path().join("no/such")).is_err());
    }

    #[test]
    fn a_directory_that_is_not_synced_leaves_a_changed_file_and_the_error_says_so() {
        let error = not_synced(Path::new("/etc/homing/passwd"), Errno::IO).to_string();
        assert!(
            error.starts_with("/etc/homing/passwd: the file is changed, but a power loss may"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_an_editor_changed_meanwhile_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwd");
        fs::write(&path, "one").unwrap();
        let old = Replacement::begin(&path).unwrap();
        fs::write(&path, "edited").unwrap();
        assert!(matches!(old.commit(b"two"), Err(ReplacementError::Changed(_))));
        assert_eq!(fs::read(&path).unwrap(), b"edited");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_second_command_waits_for_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwd");
        let first = Replacement::begin(&path).unwrap();
        let second = std::thread::spawn({
            let path = path.clone();
            move || Replacement::begin(&path).unwrap().content().map(<[u8]>::to_vec)
        });
        first.commit(b"first").unwrap();
        assert_eq!(second.join().unwrap(), Some(b"first".to_vec()));
    }
}
