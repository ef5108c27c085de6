//! The log: frames in files of one size, `DATA/log/POSITION.log`.
//!
//! A file is made at its full size before its first frame, so a sync writes no size. Once neither the
//! database nor a copy needs its frames, it is used again, or deleted if another one is free:
//! `LoggedStore::free_log` decides, and relies on the database, whose commits are synced
//! (`synchronous` in `sqlite/mod.rs`). One more file, `reserve`, is kept for
//! changes that make room on a full disk.
//!
//! | file | what |
//! |---|---|
//! | `segment` | one file: its header, its frames, its end |
//! | `candidate` | which files a start has to read |
//! | [`recovery`] | what a start finds: the frames behind the database, and where the log goes on |
//! | [`tail`] | reads frames while the log is written |

mod candidate;
pub mod recovery;
mod segment;
pub mod tail;

use super::StoreError;
use super::files::{self, is_want_of_room, preallocate, sync};
use super::frame::Digest;
use crate::clock;
use segment::{END, HEADER, Segment, Tail};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The largest size of a file in bytes. The deletion of larger files holds up all syncs of a disk
/// that is mounted with `discard`. A frame that is larger gets a file of its own.
pub const LARGEST_SEGMENT: u64 = 8 << 20;
/// The smallest size of a file in bytes, for small disks.
pub const SMALLEST_SEGMENT: u64 = 1 << 20;
/// Number of files that one call frees at most, so that the deletion of many takes no time from one
/// commit.
const MOST_FREED: usize = 8;

/// The place that a frame may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The reserve stays.
    Ordinary,
    /// The reserve may be used, because the frame leads to more room.
    WithReserve,
}

/// Returns the bytes of all files in the folder of the log, as far as they can be read: a broker
/// may delete one meanwhile. Counts the same bytes as [`Log::bytes`].
pub fn bytes_in(data: &Path) -> u64 {
    let files = fs::read_dir(log_in(data)).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// The log, open for writing by one thread.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    /// The identifier of the log. Each file has it in its header.
    id: u64,
    segment_size: u64,
    active: Segment,
    /// Files before the active one, with the last position in each, that the database needs still.
    older: VecDeque<Older>,
    /// A file that is not needed any more, and is the next one.
    free: Option<PathBuf>,
    has_reserve: bool,
    position: u64,
    digest: Digest,
    synced: u64,
    /// The disk has no room for new files.
    #[cfg(test)]
    is_disk_full: bool,
}

#[derive(Debug)]
struct Older {
    path: PathBuf,
    last: u64,
    size: u64,
}

impl Log {
    /// Returns the identifier of the log.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the data directory that the log is in.
    pub fn data(&self) -> Option<&Path> {
        self.directory.parent()
    }

    /// Returns the size of an ordinary file.
    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// Returns the position of the last frame; 0 before the first one.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the digest of the last frame.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the last position that was forced to the disk.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Returns the bytes of all files of the log.
    pub fn bytes(&self) -> u64 {
        let free = if self.free.is_some() { self.segment_size } else { 0 };
        let reserve = if self.has_reserve { self.segment_size } else { 0 };
        self.active.size() + self.older_bytes(u64::MAX) + free + reserve
    }

    /// Writes the next frame. Nothing is forced to the disk before [`Log::sync`].
    ///
    /// # Errors
    /// - [`StoreError::Full`]: nothing is written, and another frame can take the place.
    /// - [`StoreError::Failed`]: nobody knows what is written.
    pub fn append(&mut self, frame: &[u8], digest: Digest, room: Room) -> Result<(), StoreError> {
        if !self.active.fits(frame.len()) {
            self.go_on(frame.len() as u64, room)?;
        }
        self.active.append(frame)?;
        self.position += 1;
        self.digest = digest;
        Ok(())
    }

    /// Forces all frames to the disk.
    ///
    /// # Errors
    /// [`StoreError::Failed`]: written bytes may be lost.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if self.synced < self.position {
            self.active.sync()?;
            self.synced = self.position;
        }
        Ok(())
    }

    /// Returns the bytes of the files before the active one that have no frame behind a position.
    pub fn older_bytes(&self, up_to: u64) -> u64 {
        self.older.iter().take_while(|older| older.last <= up_to).map(|older| older.size).sum()
    }

    /// Frees files whose frames are not needed, up to this position: some of them, if there are
    /// many. One file stays for later frames.
    ///
    /// # Errors
    /// [`StoreError::Failed`]: a file cannot be deleted.
    pub fn free_up_to(&mut self, position: u64) -> Result<(), StoreError> {
        for _ in 0..MOST_FREED {
            let Some(older) = self.older.pop_front_if(|older| older.last <= position) else { break };
            if self.free.is_none() && older.size == self.segment_size {
                self.free = Some(older.path);
            } else {
                fs::remove_file(&older.path).map_err(|error| failed(&older.path, &error))?;
            }
        }
        Ok(())
    }

    /// Has the reserve again if it was used: from a file that is free, or a new one. Returns false
    /// if the disk has no room for it.
    ///
    /// # Errors
    /// The file cannot be written for another reason than room.
    pub fn restore_reserve(&mut self) -> Result<bool, StoreError> {
        if self.has_reserve {
            return Ok(true);
        }
        let reserve = reserve_in(&self.directory);
        self.has_reserve = match self.free.take() {
            Some(free) => {
                fs::rename(&free, &reserve).map(|()| true).map_err(|error| failed(&free, &error))?
            }
            None => self.create(&reserve, self.segment_size)?,
        };
        Ok(self.has_reserve)
    }

    /// Goes on in the next file, which has room for a frame of `least` bytes. A crash in between
    /// leaves a next file without frames.
    ///
    /// Errors: [`StoreError::Full`] if there is none, and then there is no file of its name either.
    fn go_on(&mut self, least: u64, room: Room) -> Result<(), StoreError> {
        // The frames must be on the disk before a file behind them is.
        self.sync()?;
        let size = self.segment_size.max(HEADER + least.next_multiple_of(8) + END);
        let next = self.position + 1;
        let path = path_of(&self.directory, next);
        if path == self.active.path() {
            return self.replace_active(size, room);
        }
        self.take_file(&path, size, room)?;
        let begun = self.begin_next(&path, size, next);
        if let Err(StoreError::Full(_)) = begun {
            // The name has a position that a smaller frame may get in the present file. The next
            // attempt then has another name, and would leave this file where it is.
            discard(&path)?;
        }
        let segment = begun?;
        let active = std::mem::replace(&mut self.active, segment);
        let (path, size) = (active.path().to_owned(), active.size());
        self.older.push_back(Older { path, last: self.position, size });
        Ok(())
    }

    /// Puts a file of another size in the place of the active one, which has no frame and so the name
    /// of the next one. Made under another name, so that no crash leaves half of it.
    ///
    /// Errors: [`StoreError::Full`] if there is no room. The active file is as it was.
    fn replace_active(&mut self, size: u64, room: Room) -> Result<(), StoreError> {
        let (made, path) = (replacement_in(&self.directory), self.active.path().to_owned());
        self.take_file(&made, size, room)?;
        let next = self.position + 1;
        let begun = Segment::begin(made.clone(), size, self.id, next, self.digest);
        if let Err(StoreError::Full(_)) = begun {
            discard(&made)?;
        }
        begun?;
        fs::rename(&made, &path).map_err(|error| failed(&made, &error))?;
        sync(&self.directory).map_err(|error| failed(&self.directory, &error))?;
        let segment = Segment::open(path, Tail { at: HEADER, size })?;
        // A reader of the log may have the old file open. Its end leads on to the new one.
        std::mem::replace(&mut self.active, segment).end(self.id, next)
    }

    fn create(&self, path: &Path, size: u64) -> Result<bool, StoreError> {
        #[cfg(test)]
        if self.is_disk_full {
            return Ok(false);
        }
        create(path, size)
    }

    fn begin_next(&self, path: &Path, size: u64, next: u64) -> Result<Segment, StoreError> {
        let segment = Segment::begin(path.to_owned(), size, self.id, next, self.digest)?;
        sync(&self.directory).map_err(|error| failed(&self.directory, &error))?;
        self.active.end(self.id, next)?;
        Ok(segment)
    }

    /// Makes a file of this size at `path`: one that is free, a new one, or the reserve.
    fn take_file(&mut self, path: &Path, size: u64, room: Room) -> Result<(), StoreError> {
        let rename = |from: &Path| fs::rename(from, path).map_err(|error| failed(from, &error));
        if size == self.segment_size
            && let Some(free) = self.free.take()
        {
            return rename(&free);
        }
        if self.create(path, size)? {
            return Ok(());
        }
        if room == Room::WithReserve && self.has_reserve && size == self.segment_size {
            self.has_reserve = false;
            return rename(&reserve_in(&self.directory));
        }
        Err(StoreError::Full(format!("{}: no room for the next {size} bytes of the log", path.display())))
    }
}

#[cfg(test)]
impl Log {
    /// Behaves from now on as on a disk without room for new files, or with it.
    pub(super) fn refuse_new_files(&mut self, is_disk_full: bool) {
        self.is_disk_full = is_disk_full;
    }
}

/// Returns an identifier for a new log, or for a directory of a cluster.
pub fn new_id() -> u64 {
    let mut bytes = [0; 8];
    // Without a source of randomness the time has to do: two logs of one database are hours apart.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        bytes = clock::unix_millis().to_le_bytes();
    }
    (u64::from_le_bytes(bytes) >> 1).max(1)
}

/// Returns the directory of the log in a data directory.
pub fn log_in(data: &Path) -> PathBuf {
    data.join("log")
}

fn path_of(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:020}.log"))
}

/// Returns the path of a file that is to replace one without frames. A start deletes it.
fn replacement_in(directory: &Path) -> PathBuf {
    directory.join("replacement")
}

fn reserve_in(directory: &Path) -> PathBuf {
    directory.join("reserve")
}

/// Returns the size of the log's files on a disk, or within a limit, of this many bytes: a 64th,
/// since a log has at most twelve files.
pub fn segment_size(limit: u64) -> u64 {
    (limit / 64).clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT).next_multiple_of(SMALLEST_SEGMENT)
}

/// Creates a file of this size. Returns false if the disk has no room for it.
fn create(path: &Path, size: u64) -> Result<bool, StoreError> {
    match files::create(path).and_then(|file| preallocate(&file, size)) {
        Ok(()) => Ok(true),
        Err(error) if is_want_of_room(&error) => {
            // The beginning of the file takes room.
            discard(path)?;
            Ok(false)
        }
        Err(error) => Err(failed(path, &error)),
    }
}

/// Deletes a file that was made in vain, if it is there, so that it stays deleted after a power
/// loss: a start would have to tell it from a file that is in use.
///
/// Errors: [`StoreError::Failed`]. The file may be there again at the next start.
fn discard(path: &Path) -> Result<(), StoreError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let discarded = files::delete(path).and_then(|()| sync(directory));
    discarded.map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{}: {error}", path.display()))
}

/// Converts the error of a write.
fn refused(path: &Path, error: &io::Error) -> StoreError {
    if is_want_of_room(error) {
        StoreError::Full(format!("{}: {error}", path.display()))
    } else {
        failed(path, error)
    }
}

#[cfg(test)]
mod tests;
