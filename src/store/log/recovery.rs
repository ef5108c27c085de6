//! What a start finds in the log.
//!
//! The frames behind the position of the database are read in their order, each checked against its
//! digest and its predecessor. The log ends at the first bytes that are not a frame. A crash leaves
//! such bytes of frames that were not forced to the disk. The start overwrites them. A line of the
//! log names torn frames that differ from bytes of an earlier use of the file: their head is that
//! of the frame that is due, or a sound frame is behind them. If a later frame proves that the
//! bytes were forced to the disk, they are damaged, and the start is refused: an acknowledged
//! message would be missing. A file that is shorter than it was made refuses the start as well.
//! Damage in frames of the database is ignored. A next file without frames proves nothing about the
//! file before it: `candidate`.

use super::candidate::{self, Candidate};
use super::segment::{HEADER, Segment, SegmentHeader, Tail, end_before, read_header};
use super::{Log, Older, create, failed, log_in, path_of, replacement_in, reserve_in, sync};
use crate::store::StoreError;
use crate::store::files;
use crate::store::frame::{Digest, Frame, FrameError, Head, begins, check, read};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tracing::warn;

/// The place in the log up to which the database has everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The identifier of the log; `None` if the database has none yet.
    pub id: Option<u64>,
    /// The position of the last frame that the database has; 0 for none.
    pub position: u64,
    /// The digest of that frame.
    pub digest: Digest,
}

/// A log that was read, and is not written to yet.
#[derive(Debug)]
pub struct Scan {
    directory: PathBuf,
    applied: Applied,
    /// The files of the log, in order.
    files: Vec<Found>,
    position: u64,
    digest: Digest,
    /// Bytes of the frames that were read.
    bytes: u64,
    /// Where the last file goes on.
    tail: Tail,
    /// What is behind the end of the last file and must not be taken for frames later.
    torn: Option<Torn>,
}

/// The bytes behind the last frame of a log.
#[derive(Clone, Copy, Debug)]
struct Torn {
    /// The offset in the last file.
    at: usize,
    /// Number of frames that begin there.
    frames: u32,
}

#[derive(Debug)]
struct Found {
    path: PathBuf,
    /// The last position in the file.
    last: u64,
    size: u64,
}

/// A file that is being read.
struct File<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    header: SegmentHeader,
    /// The files behind it.
    later: &'a [Candidate],
}

/// Reads the frames of a data directory behind the database, and calls `each` with each of them in
/// order. With `until`, reads no frame behind that position, whatever is there. Changes nothing.
///
/// # Errors
/// A frame or a file is missing or broken. The text names file and offset, and the command that
/// goes on without the rest. Or `each` failed.
pub fn scan(
    data: &Path,
    applied: Applied,
    until: Option<u64>,
    mut each: impl FnMut(Frame) -> Result<(), StoreError>,
) -> Result<Scan, StoreError> {
    let paths = segments_in(&log_in(data))?;
    let mut scan = Scan::nothing(data, applied);
    let Some(id) = applied.id else {
        paths.iter().try_for_each(|(_, path)| scan.refuse_frames(path))?;
        return Ok(scan);
    };
    let needed = scan.pass_over(paths, id)?;
    // True if the file before has an end, so that another file must follow.
    let mut is_ended = false;
    for (at, candidate) in needed.iter().enumerate() {
        let Candidate { first, path, .. } = candidate;
        if at > 0 && candidate.is_left_over(scan.end(), applied.position, is_ended) {
            continue;
        }
        let bytes = fs::read(path).map_err(|error| failed(path, &error))?;
        let header = match read_header(&bytes) {
            Ok(header) if header.first == *first => header,
            Ok(_) => return Err(scan.broken(path, 0, "its header names another position", *first)),
            Err(why) => return Err(scan.broken(path, 0, &why, *first)),
        };
        if header.id != id {
            return Err(scan.of_another_database());
        }
        if header.size != bytes.len() as u64 {
            let what = format!("the file ends here, and it was made with {} bytes", header.size);
            return Err(scan.broken(path, bytes.len(), &what, *first));
        }
        let later = &needed[at + 1..];
        is_ended = scan.read_file(&File { path, bytes: &bytes, header, later }, until, &mut each)?;
        if until == Some(scan.position) {
            return Ok(scan);
        }
    }
    if let Some(until) = until {
        return Err(StoreError::Failed(format!(
            "{}: the log has no position {until}: it ends with {}",
            scan.directory.display(),
            scan.position
        )));
    }
    scan.check_end(is_ended)?;
    Ok(scan)
}

impl Scan {
    /// Returns a log without files that goes on from the database.
    pub fn nothing(data: &Path, applied: Applied) -> Scan {
        Scan {
            directory: log_in(data),
            applied,
            files: Vec::new(),
            position: applied.position,
            digest: applied.digest,
            bytes: 0,
            tail: Tail { at: HEADER, size: 0 },
            torn: None,
        }
    }

    /// Returns the position of the last frame.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the bytes of the frames behind the database.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes the files of which the database has everything, unread, and returns the others in
    /// order. So nothing in the first ones matters.
    fn pass_over(&mut self, paths: Vec<(u64, PathBuf)>, id: u64) -> Result<Vec<Candidate>, StoreError> {
        let (passed, needed) = candidate::needed(paths, self.applied.position, id)?;
        for (path, next) in passed {
            let size = fs::metadata(&path).map_err(|error| failed(&path, &error))?.len();
            self.files.push(Found { path, last: next - 1, size });
        }
        Ok(needed)
    }

    /// Returns the last position of the files so far; that of the database before the first one.
    fn end(&self) -> u64 {
        self.files.last().map_or(self.applied.position, |file| file.last)
    }

    /// Reads the frames of a file. Returns true if it has an end, so that there must be a next one.
    fn read_file(
        &mut self,
        file: &File<'_>,
        until: Option<u64>,
        each: &mut impl FnMut(Frame) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let File { path, bytes, header, .. } = *file;
        self.check_first(path, &header)?;
        let (mut at, mut last, mut digest) = (HEADER as usize, header.first - 1, header.predecessor);
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            if until.is_some_and(|until| until <= last) {
                self.ends_at(file, at, last);
                return Ok(false);
            }
            let found = check(rest, header.id);
            match found {
                Ok(whole @ (frame, head, own)) if head.position == last + 1 => {
                    if head.predecessor != digest {
                        let what = "the frame does not follow the one before";
                        return Err(self.broken(path, at, what, last + 1));
                    }
                    (last, digest) = (head.position, own);
                    if last == self.applied.position && digest != self.applied.digest {
                        return Err(self.of_another_database());
                    }
                    if last > self.applied.position {
                        let why = |error: FrameError| self.broken(path, at, &error.to_string(), last);
                        each(read(whole).map_err(why)?)?;
                        (self.position, self.digest) = (last, digest);
                        self.bytes += frame.len() as u64;
                    }
                    at += frame.len().next_multiple_of(8);
                    continue;
                }
                Err(error @ (FrameError::Version(_) | FrameError::Content(_))) => {
                    return Err(self.broken(path, at, &error.to_string(), last + 1));
                }
                _ => {}
            }
            let is_ended = rest.starts_with(&end_before(header.id, last + 1));
            if last < self.applied.position
                && !is_ended
                && let Some(sound) = self.first_that_counts(bytes, at, header.id)
            {
                // The database has the frames that are broken.
                (at, last, digest) = (sound, self.applied.position, self.applied.digest);
                continue;
            }
            self.ends_at(file, at, last);
            if !is_ended {
                self.look_behind(file, at, last + 1)?;
            }
            return Ok(is_ended);
        }
    }

    /// Notes that the frames of a file end at this offset, with the position `last`.
    fn ends_at(&mut self, file: &File<'_>, at: usize, last: u64) {
        let size = file.bytes.len() as u64;
        self.files.push(Found { path: file.path.to_owned(), last, size });
        self.tail = Tail { at: at as u64, size };
    }

    /// Returns the offset behind the last frame that the database has, if that one or the next one
    /// is sound.
    fn first_that_counts(&self, bytes: &[u8], from: usize, id: u64) -> Option<usize> {
        let Applied { position, digest, .. } = self.applied;
        frames_behind(bytes, from, id).find_map(|(at, length, head, own)| {
            if head.position == position && own == digest {
                return Some(at + length.next_multiple_of(8));
            }
            (head.position == position + 1 && head.predecessor == digest).then_some(at)
        })
    }

    /// Checks that a file begins where the one before it ended, or not behind the database.
    fn check_first(&self, path: &Path, header: &SegmentHeader) -> Result<(), StoreError> {
        let (first, end) = (header.first, self.end());
        if first == self.position + 1 && header.predecessor != self.digest {
            if self.position == self.applied.position {
                return Err(self.of_another_database());
            }
            return Err(self.broken(path, 0, "the file does not follow the one before", first));
        }
        // The database has what a damage in the file before hides.
        let is_behind_damage = first > end && first <= self.applied.position + 1;
        if first == end + 1 || is_behind_damage || self.files.is_empty() && first <= end {
            return Ok(());
        }
        let end = end.max(self.applied.position);
        let directory = self.directory.display();
        Err(StoreError::Failed(format!(
            "{directory}: the file with position {} is missing, and {} comes next; bring it back from a copy, or go on \
             without it and all that follows: homing store cut --at {end}",
            end + 1,
            path.display(),
        )))
    }

    /// Looks at what is behind the last frame of a file that has no end.
    fn look_behind(&mut self, file: &File<'_>, at: usize, expected: u64) -> Result<(), StoreError> {
        let File { path, bytes, header, later } = *file;
        let applied = self.applied.position;
        let follows = |next: &&Candidate| !next.is_left_over(expected - 1, applied, false);
        let next = later.iter().find(follows).map(|next| next.first);
        // Damage in front of the next file is none of what the log needs, if the database has it.
        if let Some(next) = next.filter(|next| *next != expected && *next > applied + 1) {
            let what = format!("a frame is broken, and the next file begins with position {next}");
            return Err(self.broken(path, at, &what, expected));
        }
        let is_begun = bytes.get(at..).and_then(|rest| begins(rest, header.id)) == Some(expected);
        let mut later = 0;
        let first_that_counts = expected.max(self.applied.position) + 1;
        for (place, _, head, _) in frames_behind(bytes, at, header.id) {
            if head.position < first_that_counts {
                continue;
            }
            if head.synced >= expected {
                let what = format!("a frame is broken, and a sound one is behind it at byte {place}");
                return Err(self.broken(path, at, &what, expected));
            }
            later += 1;
        }
        let frames = later + u32::from(is_begun);
        self.torn = Some(Torn { at, frames }).filter(|_| next.is_none() && frames > 0);
        Ok(())
    }

    /// Checks that nothing is missing at the end of the log.
    fn check_end(&self, is_ended: bool) -> Result<(), StoreError> {
        let directory = self.directory.display();
        let (what, end) = match self.files.last() {
            None => ("it has no file, and the database needs its log".to_owned(), self.applied.position),
            Some(last) if is_ended => {
                (format!("the file that follows {} is missing", last.path.display()), last.last)
            }
            Some(_) => return Ok(()),
        };
        Err(StoreError::Failed(format!(
            "{directory}: {what}; bring it back from a copy, or go on without it: homing store cut --at {end}"
        )))
    }

    /// Checks that a file beside a database without a log has nothing but a header. The first start
    /// makes such a file, and a crash may come before the database knows of it.
    fn refuse_frames(&self, path: &Path) -> Result<(), StoreError> {
        let bytes = fs::read(path).map_err(|error| failed(path, &error))?;
        let frames = bytes.get(HEADER as usize..).unwrap_or_default();
        if frames.iter().any(|byte| *byte != 0) { Err(self.of_another_database()) } else { Ok(()) }
    }

    /// Returns the refusal to start with a broken frame or file. `position` is that of the first
    /// frame that is not sound.
    fn broken(&self, path: &Path, at: usize, what: &str, position: u64) -> StoreError {
        // Frames that the database has are not lost.
        let end = position.saturating_sub(1).max(self.applied.position);
        StoreError::Failed(format!(
            "{}: byte {at}: {what}; bring the file back from a copy, or go on without position {} and all that follows: \
             homing store cut --at {end}",
            path.display(),
            end + 1,
        ))
    }

    fn of_another_database(&self) -> StoreError {
        StoreError::Failed(format!(
            "{} is the log of another database: move it away if the database is a backup, or bring back the database that \
             was beside it",
            self.directory.display()
        ))
    }

    /// Moves everything behind the last frame that was read aside, into files with the name of
    /// their file and `.cut`. Returns their paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn cut(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut aside = Vec::new();
        for (_, path) in segments_in(&self.directory)? {
            let mut cut = path.clone().into_os_string();
            cut.push(".cut");
            let cut = PathBuf::from(cut);
            match self.files.iter().position(|file| file.path == path) {
                None => fs::rename(&path, &cut).map_err(|error| failed(&path, &error))?,
                Some(at) if at + 1 == self.files.len() => {
                    fs::copy(&path, &cut).map_err(|error| failed(&cut, &error))?;
                    Segment::open(path, self.tail)?.wipe_rest()?;
                }
                Some(_) => continue,
            }
            aside.push(cut);
        }
        sync(&self.directory).map_err(|error| failed(&self.directory, &error))?;
        Ok(aside)
    }

    /// Opens the log for writing. `new_id` is its identifier if the database has none yet.
    ///
    /// # Errors
    /// - [`StoreError::Full`]: the disk has no room for the first file.
    /// - [`StoreError::Failed`]: a file cannot be written.
    pub fn open(self, segment_size: u64, new_id: u64) -> Result<Log, StoreError> {
        let Scan { directory, applied, mut files, position, digest, tail, torn, .. } = self;
        if !directory.exists() {
            let made = DirBuilder::new().mode(0o700).create(&directory);
            made.map_err(|error| failed(&directory, &error))?;
            let data = directory.parent().unwrap_or(Path::new("."));
            sync(data).map_err(|error| failed(data, &error))?;
        }
        // A log that ends before the database begins anew: the database has everything.
        let last = files.pop_if(|last| last.last == position);
        for (_, path) in segments_in(&directory)? {
            let is_it = |file: &Found| file.path == path;
            if !files.iter().any(is_it) && !last.as_ref().is_some_and(is_it) {
                // A crash or a want of room left a file without frames.
                fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
            }
        }
        let replacement = replacement_in(&directory);
        files::delete(&replacement).map_err(|error| failed(&replacement, &error))?;
        let id = applied.id.unwrap_or(new_id);
        let active = match last {
            Some(last) => continue_segment(last.path, tail, torn)?,
            None => {
                let segment = begin_segment(&directory, segment_size, id, position + 1, digest)?;
                for Found { path, .. } in files.drain(..) {
                    fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
                }
                segment
            }
        };
        let older = |file: Found| Older { path: file.path, last: file.last, size: file.size };
        let older = files.into_iter().map(older).collect();
        let reserve = reserve_in(&directory);
        let has_reserve = fs::metadata(&reserve).is_ok_and(|file| file.len() == segment_size);
        let mut log = Log {
            directory,
            id,
            segment_size,
            active,
            older,
            free: None,
            has_reserve,
            position,
            digest,
            synced: position,
            #[cfg(test)]
            is_disk_full: false,
        };
        log.restore_reserve()?;
        sync(&log.directory).map_err(|error| failed(&log.directory, &error))?;
        Ok(log)
    }
}

/// Opens the file that has the last frames, and wipes what is left of a frame behind them.
///
/// # Errors
/// [`StoreError::Failed`]: the file cannot be written.
fn continue_segment(path: PathBuf, tail: Tail, torn: Option<Torn>) -> Result<Segment, StoreError> {
    let segment = Segment::open(path, tail)?;
    if let Some(Torn { at, frames }) = torn {
        warn!(
            event = "store.log_cut",
            file = %segment.path().display(),
            offset = at,
            frames,
            "the log ends in a part of a frame, as after a crash, and the part is cut off; with store.durability \
             = \"commit\" nobody got an acknowledgement for it"
        );
        segment.wipe_rest()?;
    }
    // Frames that the last process left to the system count as synced from here on.
    segment.sync()?;
    Ok(segment)
}

/// Makes the file for the frames from `first` on.
///
/// # Errors
/// - [`StoreError::Full`]: the disk has no room for the file.
/// - [`StoreError::Failed`]: the file cannot be written.
fn begin_segment(
    directory: &Path,
    segment_size: u64,
    id: u64,
    first: u64,
    digest: Digest,
) -> Result<Segment, StoreError> {
    let path = path_of(directory, first);
    if !create(&path, segment_size)? {
        return Err(StoreError::Full(format!("{}: no room for the log", path.display())));
    }
    let segment = Segment::begin(path, segment_size, id, first, digest)?;
    sync(directory).map_err(|error| failed(directory, &error))?;
    Ok(segment)
}

/// Returns the files of the log in the order of their first positions.
pub(super) fn segments_in(directory: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(directory, &error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(directory, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let first = name.strip_suffix(".log").and_then(|first| first.parse().ok());
        if let Some(first) = first.filter(|first| *path == path_of(directory, *first)) {
            paths.push((first, path));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns the sound frames of a log in a file, wherever they begin from an offset on: offset,
/// length, fields and digest.
pub(super) fn frames_behind(
    bytes: &[u8],
    from: usize,
    id: u64,
) -> impl Iterator<Item = (usize, usize, Head, Digest)> + '_ {
    (from..bytes.len()).step_by(8).filter_map(move |at| {
        let (frame, head, digest) = check(&bytes[at..], id).ok()?;
        Some((at, frame.len(), head, digest))
    })
}
