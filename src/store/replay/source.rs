//! The frames of a copy in their order, across its files. The copy may grow meanwhile.

use super::ReplayError;
use crate::store::frame::{self, Digest, Frame, FrameError};
use crate::store::frame_file::FrameFile;
use crate::store::log::recovery::Applied;
use crate::store::ship::names::{self, Contents};
use crate::store::ship::names_in;
use std::fs::File;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    folder: PathBuf,
    log: u64,
    /// The last frame that was returned.
    position: u64,
    digest: Digest,
    file: Option<Reading>,
    /// The end of the file that was read last, where it may have grown.
    end: Option<Place>,
}

/// A place in a file, behind its first frames.
#[derive(Debug)]
struct Place {
    first: u64,
    offset: u64,
    position: u64,
    digest: Option<Digest>,
}

/// A file that is being read.
#[derive(Debug)]
struct Reading {
    first: u64,
    path: PathBuf,
    frames: FrameFile,
    /// The position of the last frame that was read from the file. It may be before the first frame
    /// that is wanted.
    position: u64,
    digest: Option<Digest>,
}

/// Returns what a generation has.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn contents_of(folder: &Path) -> Result<Contents, ReplayError> {
    let names = names_in(folder).map_err(|error| ReplayError::Folder(folder.to_owned(), error))?;
    Ok(Contents::of(names.iter().map(String::as_str)))
}

impl Source {
    /// Begins behind what a database has.
    pub(super) fn behind(folder: PathBuf, log: u64, applied: Applied) -> Source {
        let Applied { position, digest, .. } = applied;
        Source { folder, log, position, digest, file: None, end: None }
    }

    /// Returns the next frame; `None` if there is none yet. After an error the call can be made
    /// again.
    ///
    /// # Errors
    /// A file cannot be read, the frame is missing, or it is not the one that was written.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, ReplayError> {
        let next = self.try_next();
        if !matches!(next, Ok(Some(_))) {
            // The next call sees the files as they are then. At the end of a file it goes on there:
            // a file has up to 64 MiB of frames, and the next frame names the one before.
            self.end = self.file.take().filter(|_| next.is_ok()).map(|file| file.place());
        }
        next
    }

    fn try_next(&mut self) -> Result<Option<Frame>, ReplayError> {
        loop {
            let file = match &mut self.file {
                Some(file) => file,
                None => match self.open_next()? {
                    Some(file) => self.file.insert(file),
                    None => return Ok(None),
                },
            };
            if let Some(frame) = file.next(self.log, self.position, self.digest)? {
                (self.position, self.digest) = (frame.head.position, frame.digest);
                return Ok(Some(frame));
            }
            if !self.leave_file()? {
                return Ok(None);
            }
        }
    }

    /// Opens the file with the next position; `None` if there is none yet.
    fn open_next(&mut self) -> Result<Option<Reading>, ReplayError> {
        // A file that was deleted since is not needed any more.
        if let Some(file) = self.end.take().and_then(|end| Reading::open(&self.folder, end).ok()) {
            return Ok(Some(file));
        }
        let contents = contents_of(&self.folder)?;
        let wanted = self.position + 1;
        let Some(first) = contents.file_with(wanted) else {
            return contents.file_behind(wanted).map_or(Ok(None), |next| Err(self.missing(next)));
        };
        let begin = Place { first, offset: 0, position: first.saturating_sub(1), digest: None };
        Reading::open(&self.folder, begin).map(Some)
    }

    /// Looks behind the last frame of a file. Returns true if there may be a next frame now.
    fn leave_file(&mut self) -> Result<bool, ReplayError> {
        let Some(file) = &mut self.file else { return Ok(true) };
        // The list of files is read before the rest of this file: the writer leaves a file for
        // ever.
        let next = contents_of(&self.folder)?.file_behind(file.first);
        file.frames.forget();
        let io = |error| ReplayError::Folder(file.path.clone(), error);
        if file.frames.frame(self.log).map_err(io)?.is_ok() {
            return Ok(true);
        }
        let is_at_end = file.frames.left().map_err(io)? == 0;
        match next {
            None if file.frames.is_cut(self.log).map_err(io)? => Ok(false),
            Some(next) if is_at_end && next == self.position + 1 => {
                self.file = None;
                Ok(true)
            }
            Some(next) if is_at_end => Err(self.missing(next)),
            _ => Err(file.broken(self.log)),
        }
    }

    /// Looks whether the copy ends here. A follower does not ask: a folder that is synchronised may
    /// get a base before its frames.
    ///
    /// # Errors
    /// A base is of a later position.
    pub(super) fn ends_here(&self) -> Result<(), ReplayError> {
        let base = contents_of(&self.folder)?.base_behind(self.position);
        base.map_or(Ok(()), |base| Err(self.missing(base)))
    }

    fn missing(&self, next: u64) -> ReplayError {
        let what = format!("position {} is missing: the next one that it has is {next}", self.position + 1);
        ReplayError::Bad(self.folder.clone(), what)
    }
}

impl Reading {
    fn open(folder: &Path, from: Place) -> Result<Reading, ReplayError> {
        let Place { first, offset, position, digest } = from;
        let path = folder.join(names::frames(first));
        match File::open(&path) {
            Ok(file) => Ok(Reading { first, path, frames: FrameFile::new(file, offset), position, digest }),
            Err(error) => Err(ReplayError::Folder(path, error)),
        }
    }

    /// Returns the place behind the last frame that was read.
    fn place(&self) -> Place {
        let Reading { first, position, digest, .. } = *self;
        Place { first, offset: self.frames.offset(), position, digest }
    }

    /// Returns the frame behind this position; `None` if the file has no whole frame more.
    fn next(&mut self, log: u64, position: u64, digest: Digest) -> Result<Option<Frame>, ReplayError> {
        loop {
            let (offset, expected) = (self.frames.offset(), self.position + 1);
            let path = self.path.clone();
            let bad = |what: &str| Err(bad_frame(&path, offset, expected, what));
            let found = self.frames.frame(log).map_err(|error| ReplayError::Folder(path.clone(), error))?;
            let Ok(checked) = found else { return Ok(None) };
            let (frame, head, own) = checked;
            if head.position != expected {
                return bad(&format!("the frame has position {}", head.position));
            }
            let before = if expected == position + 1 { Some(digest) } else { self.digest };
            if before.is_some_and(|before| before != head.predecessor) {
                return bad("the frame does not follow the one before");
            }
            if expected == position && own != digest {
                return bad("the frame is not the one that the database has");
            }
            let (length, wanted) = (frame.len(), expected > position);
            let frame = match wanted.then(|| frame::read(checked)).transpose() {
                Ok(frame) => frame,
                Err(why) => return bad(&why.to_string()),
            };
            self.frames.take(length).map_err(|error| ReplayError::Folder(self.path.clone(), error))?;
            (self.position, self.digest) = (expected, Some(own));
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }

    /// Says what is wrong with the bytes behind the last frame.
    fn broken(&mut self, log: u64) -> ReplayError {
        let (offset, expected) = (self.frames.offset(), self.position + 1);
        let of = self.frames.look(frame::HEAD).ok().and_then(frame::log_of);
        let what = match self.frames.frame(log) {
            _ if of.is_some_and(|of| of != log) => "the frame is of another log".to_owned(),
            Ok(Err(FrameError::Incomplete)) | Ok(Ok(_)) => "there is no frame".to_owned(),
            Ok(Err(why)) => why.to_string(),
            Err(error) => error.to_string(),
        };
        bad_frame(&self.path, offset, expected, &what)
    }
}

fn bad_frame(path: &Path, offset: u64, position: u64, what: &str) -> ReplayError {
    ReplayError::Bad(path.to_owned(), format!("byte {offset}, position {position}: {what}"))
}
