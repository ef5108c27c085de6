//! Frames: the commit groups of a store as bytes. A frame says everything that its group changes,
//! so the frames behind a state of the database lead to every later state.
//!
//! This module knows no file and no clock.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `HFRM` |
//! | 1, 1, 2 | version, kind, cell |
//! | 4, 4 | bytes of the frame, number of operations |
//! | 8, 8, 8 | epoch, identifier of the log, position |
//! | 8, 8, 8, 8 | file time, wall clock, identifier of the boot, time since the boot |
//! | 8, 8 | next free number, last position that was forced to the disk before |
//! | 16 | digest of the frame before |
//! | any | the operations (`operations`) |
//! | 16 | digest of everything before |
//!
//! Numbers are little-endian, and times are in milliseconds. Cell and epoch are those of a cluster;
//! a broker by itself is in cell 0 and epoch 0, and has groups alone. [`cluster`] has the other
//! kinds. Each frame has one moment by all clocks, so each
//! frame is a heartbeat.
//!
//! The identifier of the log is random, and no client knows it. So no payload can be made that is
//! taken for a frame where a start looks through bytes that a crash left, or that makes it compute
//! digests for hours.

mod bytes;
pub mod cluster;
mod operations;

use super::Boot;
use super::coalesce::CommitGroup;
use super::operation::Operation;
use super::wall::{FileTime, Heartbeat};
use crate::persistence::records::{BodyCopy, RetainedRecord};
use aws_lc_rs::digest::{SHA256, digest};
use bytes::{Malformed, Reader};
use std::fmt;

/// The first bytes of each frame.
const MAGIC: [u8; 4] = *b"HFRM";
/// The version of the format. A reader refuses every other version.
const VERSION: u8 = 1;
/// Bytes before the operations.
pub(super) const HEAD: usize = 104;
/// Bytes of a digest.
const DIGEST: usize = 16;
/// Bytes of the smallest frame.
const LEAST: usize = HEAD + DIGEST;

/// The kinds that frames of a cluster and of a broker by itself have in common, and those that the
/// encoding of a group in pieces needs.
const CLAIM: u8 = 1;
const GROUP: u8 = 2;
const FRAGMENT: u8 = 3;

/// A digest of a frame: the first 16 bytes of SHA-256. It proves that the frame is whole. The next
/// frame names it, so no frame between them can be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest([u8; DIGEST]);

impl Digest {
    /// Returns the digest of some bytes.
    pub(super) fn of(bytes: &[u8]) -> Digest {
        let whole = digest(&SHA256, bytes);
        let mut first = [0; DIGEST];
        first.copy_from_slice(&whole.as_ref()[..DIGEST]);
        Digest(first)
    }

    /// Returns the bytes.
    pub(super) fn bytes(self) -> [u8; DIGEST] {
        self.0
    }

    /// Returns the digest with these bytes.
    pub(super) fn from_bytes(bytes: [u8; DIGEST]) -> Digest {
        Digest(bytes)
    }

    /// Returns the digest as two numbers, for columns of a database.
    pub(crate) fn halves(self) -> [u64; 2] {
        let number = u128::from_le_bytes(self.0);
        [number as u64, (number >> 64) as u64]
    }

    /// Returns the digest of [`Digest::halves`].
    pub(super) fn from_halves([low, high]: [u64; 2]) -> Digest {
        Digest((u128::from(low) | u128::from(high) << 64).to_le_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The fields of a frame beside its operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of the cell; 0 without a cluster.
    pub cell: u16,
    /// The number of the owner's Claim; 0 without a cluster.
    pub epoch: u64,
    /// The identifier of the log.
    pub log: u64,
    /// The number of the frame in its log. The first frame has 1.
    pub position: u64,
    /// The moment of the frame.
    pub moment: Heartbeat,
    /// A number above every number that was given to a row up to this frame.
    pub next_number: u64,
    /// The last position that was forced to the disk before this frame was written.
    pub synced: u64,
    /// The digest of the frame before.
    pub predecessor: Digest,
}

/// A frame that was read.
#[derive(Debug)]
pub struct Frame {
    /// The fields beside the operations.
    pub head: Head,
    /// The digest of the frame.
    pub digest: Digest,
    /// The operations on rows, in order. Their times are file times.
    pub operations: Vec<Operation>,
    /// The changes of retained messages, in order.
    pub retained: Vec<RetainedRecord>,
    /// The copies of bodies. Such a frame has nothing else.
    pub copies: Vec<BodyCopy>,
}

/// The reason why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// There is no frame, or only a part of one.
    #[error("there is no whole frame")]
    Incomplete,
    /// The bytes are not those that were written.
    #[error("its digest does not fit its bytes")]
    Digest,
    /// A newer program wrote the frame.
    #[error(
        "it is of version {0}, and this program knows version {VERSION}: run the program that wrote it, or a newer one"
    )]
    Version(u8),
    /// The digest fits, and the content has no meaning.
    #[error("it has {0}")]
    Content(&'static str),
}

impl From<Malformed> for FrameError {
    fn from(Malformed(what): Malformed) -> FrameError {
        FrameError::Content(what)
    }
}

/// Appends a frame with the operations of a sealed group to `to`. `time` maps the times of the
/// group to file times. Returns the digest of the frame.
pub fn encode(to: &mut Vec<u8>, head: &Head, group: &CommitGroup, time: FileTime) -> Digest {
    let retained = group.retained().iter();
    encode_with(to, head, GROUP, |to| operations::put_all(to, group.operations(), retained, time))
}

/// As [`encode`], for the operations of [`CommitGroup::ahead`] and the deletions of retained
/// messages.
pub fn encode_ahead(to: &mut Vec<u8>, head: &Head, group: &CommitGroup, time: FileTime) -> Digest {
    encode_with(to, head, GROUP, |to| operations::put_all(to, group.ahead(), group.retained_removed(), time))
}

/// As [`encode`], for copies of bodies.
pub fn encode_copies(to: &mut Vec<u8>, head: &Head, copies: &[BodyCopy]) -> Digest {
    encode_with(to, head, GROUP, |to| operations::put_copies(to, copies))
}

fn encode_with(to: &mut Vec<u8>, head: &Head, kind: u8, put: impl FnOnce(&mut Vec<u8>) -> u32) -> Digest {
    let from = to.len();
    let Head { cell, epoch, log, position, moment, next_number, synced, predecessor } = *head;
    let boot = moment.boot.unwrap_or(Boot { id: 0, millis: 0 });
    to.extend(MAGIC);
    to.extend([VERSION, kind]);
    to.extend(cell.to_le_bytes());
    to.extend([0; 8]);
    for number in [epoch, log, position, moment.file_millis, moment.unix_millis] {
        to.extend(number.to_le_bytes());
    }
    for number in [boot.id, boot.millis, next_number, synced] {
        to.extend(number.to_le_bytes());
    }
    to.extend(predecessor.0);
    let count = put(to);
    let length = (to.len() - from + DIGEST) as u32;
    to[from + 8..from + 12].copy_from_slice(&length.to_le_bytes());
    to[from + 12..from + 16].copy_from_slice(&count.to_le_bytes());
    let digest = Digest::of(&to[from..]);
    to.extend(digest.0);
    digest
}

/// Returns the position of the frame of this log that begins here, as its first bytes say, whole or
/// not; `None` if none begins here. Costs two comparisons.
pub fn begins(bytes: &[u8], log: u64) -> Option<u64> {
    let head = bytes.get(..HEAD).filter(|head| head[..4] == MAGIC && number(head, 1) == log)?;
    Some(number(head, 2))
}

/// Returns a number of a head, by its place among them.
fn number(head: &[u8], place: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[16 + 8 * place..24 + 8 * place]);
    u64::from_le_bytes(bytes)
}

/// Returns the length that the beginning of a frame claims, whatever log it is of; `None` if none
/// begins here.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..HEAD).filter(|head| head[..4] == MAGIC)?;
    Some(u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize)
}

/// Returns true if these few bytes may be the first ones of a frame.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    bytes.iter().zip(MAGIC).all(|(byte, of_magic)| *byte == of_magic)
}

/// Returns the identifier of the log that a frame says it is of.
pub(super) fn log_of(bytes: &[u8]) -> Option<u64> {
    length(bytes).map(|_| number(bytes, 1))
}

/// The bytes of a whole frame, its fields and its digest.
pub type Checked<'a> = (&'a [u8], Head, Digest);

/// Returns the whole frame of this log at the beginning of `bytes`, checked against its digest.
/// Does not read its operations.
///
/// # Errors
/// There is no such frame.
pub fn check(bytes: &[u8], log: u64) -> Result<Checked<'_>, FrameError> {
    let checked = check_any(bytes, log)?;
    if checked.0[5] != GROUP {
        return Err(FrameError::Content("a kind that only the log of a cluster has"));
    }
    Ok(checked)
}

/// As [`check`], for a frame of any kind.
fn check_any(bytes: &[u8], log: u64) -> Result<Checked<'_>, FrameError> {
    // Before the digest, which costs a look at each byte of the length that is claimed.
    begins(bytes, log).ok_or(FrameError::Incomplete)?;
    let (head, length) = (&bytes[..HEAD], length(bytes).unwrap_or(0));
    let frame = bytes.get(..length).filter(|_| length >= LEAST).ok_or(FrameError::Incomplete)?;
    let (content, own) = frame.split_at(length - DIGEST);
    let digest = Digest::of(content);
    if digest.0 != own {
        return Err(FrameError::Digest);
    }
    if head[4] != VERSION {
        return Err(FrameError::Version(head[4]));
    }
    let number = |place| number(head, place);
    let mut predecessor = [0; DIGEST];
    predecessor.copy_from_slice(&head[HEAD - DIGEST..]);
    let boot = Boot { id: number(5), millis: number(6) };
    let moment = Heartbeat {
        file_millis: number(3),
        unix_millis: number(4),
        boot: Some(boot).filter(|boot| boot.id != 0),
    };
    let head = Head {
        cell: u16::from_le_bytes([head[6], head[7]]),
        epoch: number(0),
        log,
        position: number(2),
        moment,
        next_number: number(7),
        synced: number(8),
        predecessor: Digest(predecessor),
    };
    Ok((frame, head, digest))
}

/// Reads a frame that [`check`] has returned, with its operations.
///
/// # Errors
/// Its content has no meaning.
pub fn read((frame, head, digest): Checked<'_>) -> Result<Frame, FrameError> {
    read_body(cluster::body_of(frame), frame, head, digest)
}

fn read_body(body: &[u8], frame: &[u8], head: Head, digest: Digest) -> Result<Frame, FrameError> {
    let count = u32::from_le_bytes([frame[12], frame[13], frame[14], frame[15]]);
    let mut reader = Reader::new(body);
    let found = operations::read_all(&mut reader, count, head.moment.file_millis)?;
    let operations::Found { operations, retained, copies } = found;
    Ok(Frame { head, digest, operations, retained, copies })
}

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod tests;
