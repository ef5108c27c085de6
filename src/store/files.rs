//! Files of a store: their size, their directory, and a want of room.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

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
pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// True if the file system has no room, a quota is used up, or a file is at its size limit.
pub(super) fn is_want_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
