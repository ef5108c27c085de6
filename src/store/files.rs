//! Files of a store: how they are made and deleted, their size, their directory, and a want of room.
//! Only the owner may read them, because they have the messages.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file for reading and writing, or makes it.
///
/// # Errors
/// Returns the error of the system.
pub(super) fn open(path: &Path) -> io::Result<File> {
    private().create(true).open(path)
}

/// Makes an empty file, in place of one by this name.
///
/// # Errors
/// Returns the error of the system.
pub(super) fn create(path: &Path) -> io::Result<File> {
    private().create(true).truncate(true).open(path)
}

/// Makes a file that is not there.
///
/// # Errors
/// Returns the error of the system: [`io::ErrorKind::AlreadyExists`] if it is there.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    private().create_new(true).open(path)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Writes a small file, in place of one by this name, and forces it to the disk.
///
/// # Errors
/// Returns the error of the system.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Deletes a file, if it is there.
///
/// # Errors
/// Returns the error of the system.
pub(crate) fn delete(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives a file this size, with blocks on the disk.
///
/// # Errors
/// Returns the error of the system.
pub(super) fn preallocate(file: &File, size: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        // Writing zeros has the same effect and is slower.
        Err(Errno::OPNOTSUPP) => {
            let (mut file, zeros) = (file, vec![0; 1024 * 1024]);
            (0..size.div_ceil(zeros.len() as u64)).try_for_each(|_| file.write_all(&zeros))
        }
        other => Ok(other?),
    }
}

/// Syncs a directory, so that new files in it survive a power loss.
///
/// # Errors
/// Returns the error of the system.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// True if the file system has no room, a quota is used up, or a file is at its size limit.
pub(super) fn is_want_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
