//! Which files of a log a start has to read.
//!
//! The name of a file says where its frames begin, and so where those of the file before end. That
//! holds only once the file has a frame. A log that goes on in a next file makes it first and may
//! give it up again for want of room. The next frames then go into the file before, and the deletion
//! of the next one may not have reached the disk. So a file without frames of its own is no proof
//! that the database has everything of the file before.

use super::failed;
use super::recovery::frames_behind;
use super::segment::{HEADER, read_header};
use crate::store::StoreError;
use crate::store::frame;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file that a start may have to read.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The position that its name has.
    pub first: u64,
    pub path: PathBuf,
    state: State,
}

/// What a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No header for its name, and no frame. It may have the bytes of an earlier use.
    Unbegun,
    /// A header and no frame.
    Empty,
    /// Frames, or something else that a start has to look at.
    Used,
}

impl Candidate {
    /// Returns true if nothing follows from this file: it was made and not used, and the frames
    /// before it go up to `last`. `is_ended` says that the file before has its end, which is written
    /// only behind the header of the next one.
    pub(super) fn is_left_over(&self, last: u64, applied: u64, is_ended: bool) -> bool {
        match self.state {
            // The frames before a file are forced to the disk before it is made. If one is missing
            // that the database does not have either, it is damaged, and the start is refused.
            State::Unbegun => self.first <= last || !is_ended && self.first <= last.max(applied) + 1,
            // If it is the next one, a crash came before its first frame.
            State::Empty => self.first <= last,
            State::Used => false,
        }
    }
}

/// Files to pass over, each with the first position of the next one.
type Passed = Vec<(PathBuf, u64)>;

/// Splits the files of a log into those of which the database has everything up to `applied`, and
/// those to read. Of each of the latter but the first, reads the header and a frame, and the whole
/// file if these are not sound.
pub(super) fn needed(
    paths: Vec<(u64, PathBuf)>,
    applied: u64,
    id: u64,
) -> Result<(Passed, Vec<Candidate>), StoreError> {
    let mut paths = paths;
    let mut needed = Vec::new();
    while let Some((first, path)) = paths.pop() {
        // Nothing is before the first file that it could hide.
        let state = if paths.is_empty() { State::Used } else { state_of(&path, first, id)? };
        needed.push(Candidate { first, path, state });
        if state == State::Used && first <= applied + 1 {
            break;
        }
    }
    needed.reverse();
    let after = needed.first().map_or(0, |candidate| candidate.first);
    let nexts: Vec<u64> = paths.iter().skip(1).map(|(first, _)| *first).chain([after]).collect();
    let passed = paths.into_iter().zip(nexts).map(|((_, path), next)| (path, next)).collect();
    Ok((passed, needed))
}

fn state_of(path: &Path, first: u64, id: u64) -> Result<State, StoreError> {
    let look = || {
        let file = File::open(path)?;
        let header = read_at(&file, 0, HEADER as usize)?.and_then(|bytes| read_header(&bytes).ok());
        let header = header.filter(|header| header.first == first);
        let has_frames = has_first(&file, first, id)? || has_frames(&fs::read(path)?, first, id);
        Ok(match header {
            // The file of another log is refused, and not left out.
            Some(header) if has_frames || header.id != id => State::Used,
            Some(_) => State::Empty,
            None if has_frames => State::Used,
            None => State::Unbegun,
        })
    };
    look().map_err(|error: io::Error| failed(path, &error))
}

/// Returns true if a file begins with the sound frame of this position. Reads no more than that.
fn has_first(file: &File, first: u64, id: u64) -> io::Result<bool> {
    let Some(head) = read_at(file, HEADER, frame::HEAD)? else { return Ok(false) };
    let Some(length) = frame::length(&head) else { return Ok(false) };
    let Some(frame) = read_at(file, HEADER, length)? else { return Ok(false) };
    Ok(frame::check(&frame, id).is_ok_and(|(_, head, _)| head.position == first))
}

/// Returns this many bytes of a file; `None` if it has fewer. So a length that is not proved yet
/// takes no more memory than the file has bytes.
fn read_at(file: &File, at: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
    if at + length as u64 > file.metadata()?.len() {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Some(bytes))
}

/// Returns true if a file has a sound frame from this position on.
fn has_frames(bytes: &[u8], first: u64, id: u64) -> bool {
    frames_behind(bytes, HEADER as usize, id).any(|(_, _, head, _)| head.position >= first)
}
