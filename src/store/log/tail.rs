//! Reads the frames of a log in their order, on another thread than the one that writes it.
//!
//! The reader asks only for frames that are whole on the disk. A file that the reader is in may be
//! used again, if the writer is told to keep no file for the reader. Each frame is checked against
//! its digest and its predecessor, so the reader notices.

use super::segment::{END, HEADER, end_before, read_header};
use super::{log_in, path_of, recovery};
use crate::store::frame::Digest;
use crate::store::frame_file::FrameFile;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The log does not have the next frame, or not any more. Says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Gone(String);

impl Gone {
    fn new(path: &Path, why: impl std::fmt::Display) -> Gone {
        Gone(format!("{}: {why}", path.display()))
    }
}

/// See the module.
#[derive(Debug)]
pub struct LogTail {
    directory: PathBuf,
    id: u64,
    path: PathBuf,
    file: FrameFile,
    position: u64,
    digest: Digest,
}

impl LogTail {
    /// Opens the log of a data directory behind this position.
    ///
    /// # Errors
    /// The log does not have the frame at the position, and not the next one.
    pub fn open(data: &Path, id: u64, position: u64) -> Result<LogTail, Gone> {
        let directory = log_in(data);
        let files = recovery::segments_in(&directory).map_err(|error| Gone(error.to_string()))?;
        let mut why = Gone::new(&directory, format!("no position {}", position + 1));
        // The newest file may have no header yet: the writer is about to go on there.
        let begun =
            files.into_iter().rev().filter(|(first, _)| *first <= position + 1).find_map(|(first, _)| {
                let opened = LogTail::in_file(directory.clone(), id, first);
                opened.map_err(|gone| why = gone).ok()
            });
        let Some(mut tail) = begun else { return Err(why) };
        while tail.next(position)?.is_some() {}
        Ok(tail)
    }

    fn in_file(directory: PathBuf, id: u64, first: u64) -> Result<LogTail, Gone> {
        let path = path_of(&directory, first);
        let opened = || {
            let (file, mut header) = (File::open(&path)?, [0; HEADER as usize]);
            file.read_exact_at(&mut header, 0)?;
            Ok((file, header))
        };
        let (file, header) = opened().map_err(|error: io::Error| Gone::new(&path, error))?;
        let header = read_header(&header).map_err(|why| Gone::new(&path, why))?;
        if (header.id, header.first) != (id, first) {
            return Err(Gone::new(&path, "the file is of another use"));
        }
        let file = FrameFile::new(file, HEADER);
        Ok(LogTail { directory, id, path, file, position: first - 1, digest: header.predecessor })
    }

    /// Returns the position of the last frame that was read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the digest of that frame.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// From here on frames are read that were written after the last call.
    pub fn forget(&mut self) {
        self.file.forget();
    }

    /// Returns the next frame; `None` behind the position `until`, which must be written.
    ///
    /// # Errors
    /// The log does not have the frame any more.
    pub fn next(&mut self, until: u64) -> Result<Option<&[u8]>, Gone> {
        if self.position >= until {
            return Ok(None);
        }
        let length = loop {
            let gone = |error| Gone::new(&self.path, error);
            let found = self.file.frame(self.id).map_err(gone)?;
            if let Ok((frame, head, digest)) = found
                && (head.position, head.predecessor) == (self.position + 1, self.digest)
            {
                (self.position, self.digest) = (head.position, digest);
                break frame.len();
            }
            let end = end_before(self.id, self.position + 1);
            if self.file.look(END as usize).map_err(gone)? != end {
                return Err(gone(io::Error::other(format!("no position {}", self.position + 1))));
            }
            let next = LogTail::in_file(self.directory.clone(), self.id, self.position + 1)?;
            if next.digest != self.digest {
                return Err(Gone::new(&next.path, "the file does not follow the one before"));
            }
            *self = next;
        };
        self.file.take(length).map(Some).map_err(|error| Gone::new(&self.path, error))
    }
}
