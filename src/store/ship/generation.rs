//! The files of one log in the folder. Everything that is written is forced to the disk before the
//! call returns.

use super::names::{self, Contents};
use super::thread::Refusal;
use crate::store::files::{self, sync};
use crate::store::frame::Digest;
use crate::store::frame_file::FrameFile;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// Bytes of a file of frames from which on the next one begins.
const FILE: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };
/// Bytes of frames behind a base from which on there is a new base.
const BETWEEN_BASES: u64 = if cfg!(test) { 4 << 20 } else { 4 << 30 };

/// The place in a log where its copy ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub position: u64,
    /// The digest of the frame at the position.
    pub digest: Digest,
}

/// A folder of one log, open for writing.
#[derive(Debug)]
pub(super) struct Generation {
    log: u64,
    number: u32,
    path: PathBuf,
    /// Nobody else writes while it is open.
    _lock: File,
    contents: Contents,
    /// The file that grows, and its size; `None` before the next file.
    file: Option<(File, u64)>,
    /// Bytes of frames behind the newest base.
    since_base: u64,
}

/// Returns the refusal of a path that the system does not let us use.
pub(super) fn refused(path: &Path, error: impl std::fmt::Display) -> Refusal {
    Refusal::Blocked(format!("{}: {error}", path.display()))
}

impl Generation {
    /// Opens the newest generation of a log in `to`, or makes the first one.
    ///
    /// # Errors
    /// The folder cannot be used, or another broker ships into it.
    pub(super) fn newest(to: &Path, log: u64) -> Result<Generation, Refusal> {
        let listed = names_in(to).map_err(|error| refused(to, error))?;
        let numbers = listed.iter().filter_map(|name| names::parse_generation(name));
        let newest = numbers.filter(|(of, _)| *of == log).map(|(_, number)| number).max();
        Generation::open(to, log, newest.unwrap_or(1))
    }

    /// Goes on in a new generation: this one is of another past of the log.
    ///
    /// # Errors
    /// As [`Generation::newest`].
    pub(super) fn next(&self) -> Result<Generation, Refusal> {
        let to = self.path.parent().unwrap_or(Path::new("."));
        Generation::open(to, self.log, self.number + 1)
    }

    fn open(to: &Path, log: u64, number: u32) -> Result<Generation, Refusal> {
        let path = to.join(names::generation(log, number));
        let open = || {
            if !path.exists() {
                DirBuilder::new().mode(0o700).create(&path)?;
                sync(to)?;
            }
            let lock = files::open(&path.join("lock"))?;
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another broker ships into this folder"));
                }
                // Not every file system has locks.
                Err(TryLockError::Error(_)) | Ok(()) => {}
            }
            let contents = Contents::of(names_in(&path)?.iter().map(String::as_str));
            let mut since_base = 0;
            for first in
                contents.base_for(None).map(|base| contents.files.range(base + 1..)).into_iter().flatten()
            {
                since_base += fs::metadata(path.join(names::frames(*first)))?.len();
            }
            Ok((lock, contents, since_base))
        };
        let (lock, contents, since_base) = open().map_err(|error| refused(&path, error))?;
        Ok(Generation { log, number, path, _lock: lock, contents, file: None, since_base })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Finds the last whole frame, and goes on behind it. A part of a frame is cut off, and a file
    /// without a frame is deleted. `None` without frames, or behind damage.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub(super) fn go_on(&mut self) -> Result<Option<End>, Refusal> {
        while let Some(first) = self.contents.files.last().copied() {
            let path = self.path.join(names::frames(first));
            let failed = |error| refused(&path, error);
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
            let mut frames = FrameFile::new(file.try_clone().map_err(failed)?, 0);
            let mut end = None;
            while let Ok((frame, head, digest)) = frames.frame(self.log).map_err(failed)? {
                let length = frame.len();
                end = Some(End { position: head.position, digest });
                frames.take(length).map_err(failed)?;
            }
            if !frames.is_cut(self.log).map_err(failed)? {
                return Ok(None);
            }
            let Some(end) = end else {
                fs::remove_file(&path).map_err(failed)?;
                self.contents.files.remove(&first);
                continue;
            };
            let size = frames.offset();
            // Frames of a write whose sync failed count from here on, too.
            file.set_len(size).and_then(|()| file.sync_all()).map_err(failed)?;
            self.file = Some((file, size));
            return Ok(Some(end));
        }
        Ok(None)
    }

    /// Goes on in a new file.
    pub(super) fn leave_file(&mut self) {
        self.file = None;
    }

    /// Appends frames, of which the first one has this position.
    ///
    /// # Errors
    /// The folder cannot be used. A part of the frames may be there.
    pub(super) fn append(&mut self, first: u64, frames: &[u8]) -> Result<(), Refusal> {
        let path = self.path.clone();
        let mut append = || {
            let (file, size) = match self.file.take().filter(|(_, size)| *size < FILE) {
                Some(file) => file,
                None => {
                    let file = files::create(&self.path.join(names::frames(first)))?;
                    sync(&self.path)?;
                    self.contents.files.insert(first);
                    (file, 0)
                }
            };
            file.write_all_at(frames, size)?;
            file.sync_data()?;
            self.file = Some((file, size + frames.len() as u64));
            self.since_base += frames.len() as u64;
            Ok(())
        };
        append().map_err(|error: io::Error| refused(&path, error))
    }

    /// Returns true if there is no whole base, if the one before a gap may not be whole, or if
    /// there are many frames behind the newest base.
    pub(super) fn needs_base(&self) -> bool {
        let Contents { bases, parts, .. } = &self.contents;
        bases.is_empty() || !parts.is_empty() || self.since_base >= BETWEEN_BASES
    }

    /// Makes the file of a base that is being copied. Without the whole base, the next start makes
    /// one at once.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub(super) fn begin_base(&mut self, position: u64) -> Result<File, Refusal> {
        let path = self.path.join(names::part(position));
        let file = files::create(&path).and_then(|file| sync(&self.path).map(|()| file));
        let file = file.map_err(|error| refused(&path, error))?;
        self.contents.parts.insert(position);
        Ok(file)
    }

    /// Gives a copied base its name, with its digest beside it. Then deletes what is not needed any
    /// more.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub(super) fn end_base(&mut self, position: u64, digest: &str) -> Result<(), Refusal> {
        let base = self.path.join(names::base(position));
        let end = || {
            // Whoever sees the base finds its whole digest, so the base gets its name last.
            files::delete(&base)?;
            let sum = format!("{digest}  {}\n", names::base(position));
            files::write(&self.path.join(names::sum(position)), &sum)?;
            fs::rename(self.path.join(names::part(position)), &base)?;
            sync(&self.path)
        };
        end().map_err(|error| refused(&base, error))?;
        self.contents.parts.remove(&position);
        self.contents.bases.insert(position);
        self.since_base = 0;
        self.clean_up().map_err(|error| refused(&self.path, error))
    }

    fn clean_up(&mut self) -> io::Result<()> {
        let parts = std::mem::take(&mut self.contents.parts);
        let parts = parts.into_iter().flat_map(|position| [names::part(position), names::base(position)]);
        for name in self.contents.needless().into_iter().chain(parts) {
            files::delete(&self.path.join(name))?;
        }
        self.contents = Contents::of(names_in(&self.path)?.iter().map(String::as_str));
        Ok(())
    }
}

/// Returns the names in a folder.
///
/// # Errors
/// It cannot be read.
pub(in crate::store) fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string()));
    // Names that are not UTF-8 are not ours.
    names.filter_map(|name: io::Result<_>| name.map(Result::ok).transpose()).collect()
}
