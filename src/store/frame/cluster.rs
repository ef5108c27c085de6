//! The frames of a cluster. The log of a cell has groups as the log of a broker by itself, and
//! besides the frames with which its owner begins, lives and ends.
//!
//! | kind | what |
//! |---|---|
//! | 1, Claim | the first frame of an owner, with its node, directory and boot, its epoch and its lease |
//! | 2, Group | a commit group, or the last piece of one |
//! | 3, Fragment | a piece of a commit group that is too large for one message of the engine |
//! | 4, Beat | a sign of life |
//! | 5, Release | the last frame of an owner that leaves |
//!
//! A group may come in pieces: its operations are those of the fragments before it, followed by its
//! own. Only with the last piece they count. A Claim ends pieces that have no last one, because
//! their owner is gone.

use super::bytes::{Malformed, Reader, put_number};
use super::operations;
use super::{
    CLAIM, Checked, DIGEST, Digest, FRAGMENT, Frame, FrameError, GROUP, HEAD, Head, check_any, encode_with,
};
use crate::ownership::{Claim, SeenKind};
use crate::persistence::records::BodyCopy;
use crate::store::coalesce::CommitGroup;
use crate::store::wall::FileTime;
use std::time::Duration;

const BEAT: u8 = 4;
const RELEASE: u8 = 5;

/// The largest size of a group in bytes, all its pieces together. An owner hands in none that is
/// larger, so a follower may refuse one: it is the work of another program. An owner ends a group at
/// 256 MiB at most, and lets the batch that passes this bound go with it. The rest is for that batch: a
/// message has 256 MiB at most, and may be in it twice, as a retained one.
pub const LARGEST_GROUP: usize = 2 << 30;

/// The longest lease that a Claim can say.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The first frame of an owner.
    Claim(Claim),
    /// A commit group, or its last piece.
    Group,
    /// A piece of a commit group, and not its last one.
    Fragment,
    /// A sign of life.
    Beat,
    /// The last frame of an owner.
    Release,
}

impl FrameKind {
    fn byte(self) -> u8 {
        match self {
            FrameKind::Claim(_) => CLAIM,
            FrameKind::Group => GROUP,
            FrameKind::Fragment => FRAGMENT,
            FrameKind::Beat => BEAT,
            FrameKind::Release => RELEASE,
        }
    }

    /// Returns what the ownership of the cell sees of it.
    pub fn seen(self) -> SeenKind {
        match self {
            FrameKind::Claim(claim) => SeenKind::Claim(claim),
            FrameKind::Release => SeenKind::Release,
            FrameKind::Group | FrameKind::Fragment | FrameKind::Beat => SeenKind::Other,
        }
    }
}

/// The operations of a group as bytes, before the group has a place in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupBody {
    bytes: Vec<u8>,
    count: u32,
}

impl GroupBody {
    /// Returns the operations of a sealed group. `time` maps its times to file times.
    pub fn of(group: &CommitGroup, time: FileTime) -> GroupBody {
        let mut bytes = Vec::new();
        let count = operations::put_all(&mut bytes, group.operations(), group.retained().iter(), time);
        GroupBody { bytes, count }
    }

    /// As [`GroupBody::of`], for copies of bodies.
    pub fn of_copies(copies: &[BodyCopy]) -> GroupBody {
        let mut bytes = Vec::new();
        let count = operations::put_copies(&mut bytes, copies);
        GroupBody { bytes, count }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of frames that it needs, with at most this many bytes of it in each.
    pub fn pieces(&self, piece: usize) -> usize {
        self.bytes.len().div_ceil(piece).max(1)
    }

    /// Appends the frame of the piece with this number, from 0, and returns its digest.
    pub fn put_piece(&self, to: &mut Vec<u8>, head: &Head, number: usize, piece: usize) -> Digest {
        let from = (number * piece).min(self.bytes.len());
        let until = (from + piece).min(self.bytes.len());
        let kind = if until == self.bytes.len() { GROUP } else { FRAGMENT };
        let count = if kind == GROUP { self.count } else { 0 };
        encode_with(to, head, kind, |to| {
            to.extend_from_slice(&self.bytes[from..until]);
            count
        })
    }
}

/// Appends a frame that has no group: a Claim, a Beat or a Release. Returns its digest.
pub fn put_sign(to: &mut Vec<u8>, head: &Head, kind: FrameKind) -> Digest {
    encode_with(to, head, kind.byte(), |to| {
        if let FrameKind::Claim(Claim { node, directory, boot, epoch, lease }) = kind {
            let lease = lease.min(LONGEST_LEASE).as_millis() as u64;
            [u64::from(node), directory, boot, epoch, lease].into_iter().for_each(|of| put_number(to, of));
        }
        0
    })
}

/// Returns the frame at the beginning of `bytes`, checked against its digest, and its kind. The log
/// that it is of is whichever it says.
///
/// # Errors
/// There is no whole frame, or one of a newer version.
pub fn check_sign(bytes: &[u8]) -> Result<(Checked<'_>, FrameKind), FrameError> {
    let log = super::log_of(bytes).ok_or(FrameError::Incomplete)?;
    let checked = check_any(bytes, log)?;
    let (frame, ..) = checked;
    if frame.len() != bytes.len() {
        return Err(FrameError::Content("bytes behind its end"));
    }
    let kind = match frame[5] {
        CLAIM => FrameKind::Claim(claim_of(body_of(frame))?),
        GROUP => FrameKind::Group,
        FRAGMENT => FrameKind::Fragment,
        BEAT => FrameKind::Beat,
        RELEASE => FrameKind::Release,
        _ => return Err(FrameError::Content("a kind that this program does not know")),
    };
    Ok((checked, kind))
}

/// Returns the bytes of the operations of a whole frame.
pub fn body_of(frame: &[u8]) -> &[u8] {
    &frame[HEAD..frame.len() - DIGEST]
}

/// Reads a group whose last piece is this frame. `before` has the bytes of the fragments before it.
///
/// # Errors
/// Its content has no meaning.
pub fn read_group(before: &[u8], (frame, head, digest): Checked<'_>) -> Result<Frame, FrameError> {
    let whole;
    let body = if before.is_empty() {
        body_of(frame)
    } else {
        whole = [before, body_of(frame)].concat();
        &whole
    };
    super::read_body(body, frame, head, digest)
}

fn claim_of(body: &[u8]) -> Result<Claim, FrameError> {
    let mut reader = Reader::new(body);
    let node = reader.number()?.try_into().map_err(|_| FrameError::Content("a node above 65,535"))?;
    let (directory, boot, epoch) = (reader.number()?, reader.number()?, reader.number()?);
    let lease = Duration::from_millis(reader.number()?);
    if lease > LONGEST_LEASE || !reader.is_empty() {
        return Err(Malformed("a Claim that no node has written").into());
    }
    Ok(Claim { node, directory, boot, epoch, lease })
}
