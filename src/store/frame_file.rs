//! Reads the frames of a file one after another: of a file of the log, or of a copy of it. Has one
//! window of the file in memory, and never the whole file.

use super::frame::{self, Checked, FrameError};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read at once. A larger frame gets a larger window.
const WINDOW: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct FrameFile {
    file: File,
    /// The offset of the window in the file.
    at: u64,
    window: Vec<u8>,
    /// Bytes of the window, and perhaps behind it, that were taken.
    taken: usize,
}

impl FrameFile {
    /// Reads from this offset on.
    pub(super) fn new(file: File, at: u64) -> FrameFile {
        FrameFile { file, at, window: Vec::new(), taken: 0 }
    }

    /// Returns the offset of the next frame.
    pub(super) fn offset(&self) -> u64 {
        self.at + self.taken as u64
    }

    /// Forgets what was read ahead, because another thread or process writes to the file.
    pub(super) fn forget(&mut self) {
        self.at = self.offset();
        self.window.clear();
        self.taken = 0;
    }

    /// Returns this many bytes from the offset on, or fewer at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn look(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if self.window.len() < self.taken + bytes {
            self.fill(bytes)?;
        }
        let rest = self.window.get(self.taken..).unwrap_or_default();
        Ok(&rest[..bytes.min(rest.len())])
    }

    /// Returns the number of bytes from the offset to the end of the file.
    ///
    /// # Errors
    /// The system does not say.
    pub(super) fn left(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.offset()))
    }

    /// Returns the frame of this log at the offset, as [`frame::check`] does.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn frame(&mut self, log: u64) -> io::Result<Result<Checked<'_>, FrameError>> {
        let Some(length) = frame::length(self.look(frame::HEAD)?) else {
            return Ok(Err(FrameError::Incomplete));
        };
        // The length is not proved yet, and must not take more memory than the file has bytes.
        if self.window.len() < self.taken + length && length as u64 > self.left()? {
            return Ok(Err(FrameError::Incomplete));
        }
        Ok(frame::check(self.look(length)?, log))
    }

    /// Returns true if nothing but a part of a frame of this log follows, or zeros, as after a
    /// crash of the writer or of its machine. Reads the rest of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn is_cut(&mut self, log: u64) -> io::Result<bool> {
        let left = self.left()?;
        let rest = self.look(left as usize)?;
        if frame::length(rest).is_none_or(|length| length <= rest.len()) {
            let is_short = rest.len() < frame::HEAD && frame::may_begin(rest);
            return Ok(is_short || rest.iter().all(|byte| *byte == 0));
        }
        // A length that is damaged is none that was cut off: whole frames follow.
        Ok(!(8..rest.len()).step_by(8).any(|at| frame::check(&rest[at..], log).is_ok()))
    }

    /// Goes on behind a frame of this length that was returned, and returns it again. Each frame
    /// begins at a multiple of 8.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        self.look(length)?;
        let from = self.taken;
        self.taken += length.next_multiple_of(8);
        Ok(&self.window[from..from + length])
    }

    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        self.at = self.offset();
        self.window.drain(..self.taken.min(self.window.len()));
        self.taken = 0;
        let mut filled = self.window.len();
        // A window for one large frame is not kept.
        self.window.shrink_to(WINDOW);
        self.window.resize(bytes.max(WINDOW), 0);
        let read = loop {
            match self.file.read_at(&mut self.window[filled..], self.at + filled as u64) {
                Ok(0) => break Ok(()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.window.truncate(filled);
        read
    }
}
