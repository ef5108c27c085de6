//! The frames that a node makes: pieces of its store's groups, and its own signs of life. One is on
//! its way into the log at a time, and is kept until its outcome is known. Knows no engine and no
//! clock.

use super::engine::{EngineError, MAX_FRAME};
use super::tail::{Made, Tail};
use crate::ownership::{AppendId, AppendKind, NextFrame, Position};
use crate::store::Moment;
use crate::store::frame::cluster::FrameKind;
use crate::store::replicated::NextGroup;
use crate::store::sqlite::Mark;
use crate::store::wall::{FileTime, Heartbeat, resume};
use bytes::Bytes;

/// Bytes of a group in one frame.
const PIECE: usize = MAX_FRAME - 1024;

/// See the module.
#[derive(Default)]
pub(super) struct OwnFrames {
    pending: Option<Pending>,
    group: Option<Group>,
    /// The time of the signs, once the node has claimed.
    time: Option<FileTime>,
}

/// A frame whose outcome is not known.
struct Pending {
    id: AppendId,
    position: Position,
    made: Made,
}

/// The group that the store has handed in, and how much of it the log has.
struct Group {
    next: NextGroup,
    piece: usize,
}

impl OwnFrames {
    /// Takes the next group of the owner's store.
    pub(super) fn take_group(&mut self, next: NextGroup) {
        self.group = Some(Group { next, piece: 0 });
    }

    /// Sets the time of the signs.
    pub(super) fn time_runs(&mut self, time: FileTime) {
        self.time = Some(time);
    }

    /// Goes on with the time of the log by the clocks of this node, from the last frame on.
    pub(super) fn claims_behind(&mut self, last: Mark, now: Moment) {
        self.time = Some(resume(Some(last.moment).filter(|_| last.position > 0), now).time);
    }

    /// Makes the next frame behind the tail.
    pub(super) fn make(
        &mut self,
        tail: &Tail,
        (id, position, kind): (AppendId, Position, AppendKind),
        now: Moment,
    ) -> Bytes {
        let sign = |kind| tail.make_sign(kind, self.moment(tail, now));
        let made = match (kind, &self.group) {
            (AppendKind::Group, Some(group)) => tail.make_piece(&group.next, group.piece, PIECE),
            // The store hands in a group before it says so.
            (AppendKind::Group | AppendKind::Beat, _) => sign(FrameKind::Beat),
            (AppendKind::Claim(claim), _) => sign(FrameKind::Claim(claim)),
            (AppendKind::Release, _) => sign(FrameKind::Release),
        };
        let bytes = made.bytes.clone();
        self.pending = Some(Pending { id, position, made });
        bytes
    }

    fn moment(&self, tail: &Tail, now: Moment) -> Heartbeat {
        match self.time {
            Some(time) => Heartbeat::at(now, time),
            None => tail.mark().moment,
        }
    }

    /// Returns the bytes of a frame whose outcome is not known, and its position.
    pub(super) fn pending(&self, id: AppendId) -> Option<(Position, &Bytes)> {
        let own = self.pending.as_ref().filter(|own| own.id == id)?;
        Some((own.position, &own.made.bytes))
    }

    /// Returns what the log holds at the position of an append, of which it has returned `found`.
    pub(super) fn compare(
        &self,
        id: AppendId,
        position: Position,
        found: &Result<Vec<(u64, Bytes)>, EngineError>,
    ) -> NextFrame {
        let own = self.pending(id).map(|(_, bytes)| bytes);
        match found.as_ref().map(|frames| frames.first()) {
            Ok(Some((at, bytes))) if *at == position.0 && Some(bytes) == own => NextFrame::Ours,
            Ok(Some(_)) => NextFrame::Another,
            Ok(None) => NextFrame::Nothing,
            Err(_) => NextFrame::Unknown,
        }
    }

    /// Takes the frame if the log has it: the log is known up to this position.
    pub(super) fn stored(&mut self, up_to: Position) -> Option<Made> {
        self.pending.take_if(|own| own.position <= up_to).map(|own| own.made)
    }

    /// The log has a piece of the group. Returns true if this was the last one; `None` without a group.
    pub(super) fn piece_is_stored(&mut self) -> Option<bool> {
        let Group { next, piece } = self.group.as_mut()?;
        *piece += 1;
        let is_whole = *piece >= next.body.pieces(PIECE);
        if is_whole {
            self.group = None;
        }
        Some(is_whole)
    }

    /// The log does not have the pending frame, and never will.
    pub(super) fn refused(&mut self) {
        self.pending = None;
    }

    /// Another node has the cell.
    pub(super) fn claim_is_lost(&mut self) {
        (self.pending, self.time) = (None, None);
    }
}
