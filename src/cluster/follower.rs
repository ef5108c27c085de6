//! Frames of the log of a cell on their way into the database of a node that follows.
//!
//! A frame is checked against the end of the log that the node has, folded, and written into the
//! database about once a second (`writes`). So the database is a prefix of the log at any time, and a
//! new owner needs only the last second.

use super::tail::{Made, Tail, Unfit};
use super::writes::Writes;
use crate::ownership::SeenKind;
use crate::store::database::Database;
use crate::store::frame::cluster::{FrameKind, LARGEST_GROUP, body_of, read_group};
use crate::store::frame::{Digest, Frame, FrameError, Head};
use crate::store::sqlite::{Mark, Sqlite};
use crate::store::wall::Heartbeat;
use crate::store::{Moment, StoreError};
use crate::time::Instant;

/// See the module.
pub(super) struct Follower<D: Database = Sqlite> {
    writes: Writes<D>,
    /// The operations of a group of which the last piece did not come yet.
    pieces: Vec<u8>,
    /// The largest size of a group, in bytes.
    largest_group: usize,
    /// The moment of the last frame by the clocks of this node; `None` if it never had a frame as it
    /// was made: its database is new, or came from another node.
    clocks: Option<Heartbeat>,
}

/// A frame that continues the log.
#[derive(Debug)]
pub(super) struct Next {
    pub kind: SeenKind,
    head: Head,
    digest: Digest,
    frame_kind: FrameKind,
    /// The operations; `None` for a piece.
    group: Option<Frame>,
}

/// When a frame came, by the node's own clocks: those of another machine may be days apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    /// It is older than the node's look at the log. The node's clocks when it had an earlier frame, and
    /// the file time since then, say when it was made. Without such a frame nobody knows, and it counts as
    /// made now: sessions then live longer, instead of ending early.
    Late(Moment),
    /// The node had all frames before it when it came, so it was made now.
    Now(Moment),
}

impl<D: Database> Follower<D> {
    /// Begins with the database of a node.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) fn new(database: D) -> Result<Follower<D>, StoreError> {
        let clocks = database.heartbeat()?.filter(|heartbeat| heartbeat.has_clocks());
        let (writes, pieces) = (Writes::new(database)?, Vec::new());
        Ok(Follower { writes, pieces, largest_group: LARGEST_GROUP, clocks })
    }

    /// Takes groups of at most this many bytes from now on.
    #[cfg(test)]
    pub(super) fn bound_groups(&mut self, most: usize) {
        self.largest_group = most;
    }

    /// Returns the mark of the last frame that was folded. Its moment is by the clocks of this node.
    pub(super) fn mark(&self) -> Mark {
        self.writes.mark()
    }

    /// Returns the position of the last frame that the database has.
    pub(super) fn written(&self) -> u64 {
        self.writes.written()
    }

    /// Returns what the database does not have yet.
    pub(super) fn writes(&mut self) -> &mut Writes<D> {
        &mut self.writes
    }

    /// Writes what is due by then, and waits for the disk.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn write_due(&mut self, now: Instant) -> Result<(), StoreError> {
        if let Some(write) = self.writes.next(now) {
            self.writes.done(write.run()?);
        }
        Ok(())
    }

    /// Reads the frame at this position of the engine.
    ///
    /// # Errors
    /// It does not continue the log, or cannot be read.
    pub(super) fn read(&self, tail: &Tail, position: u64, bytes: &[u8]) -> Result<Next, Unfit> {
        let (checked, frame_kind) = tail.check(position, bytes)?;
        let (_, head, digest) = checked;
        let is_piece = matches!(frame_kind, FrameKind::Fragment | FrameKind::Group);
        if is_piece && self.pieces.len() + body_of(bytes).len() > self.largest_group {
            return Err(FrameError::Content("more pieces than a group can have").into());
        }
        let group = match frame_kind {
            FrameKind::Fragment => None,
            FrameKind::Group => Some(read_group(&self.pieces, checked)?),
            FrameKind::Claim(_) | FrameKind::Beat | FrameKind::Release => {
                Some(Frame { head, digest, operations: Vec::new(), retained: Vec::new(), copies: Vec::new() })
            }
        };
        Ok(Next { kind: frame_kind.seen(), head, digest, frame_kind, group })
    }

    /// Takes the frame that [`Follower::read`] has returned, and moves the tail behind it. `bytes` are
    /// those of the frame.
    pub(super) fn take(&mut self, tail: &mut Tail, next: Next, bytes: &[u8], arrival: Arrival, now: Instant) {
        let Next { mut head, digest, frame_kind, group, .. } = next;
        tail.advance(&head, digest, frame_kind);
        let Some(mut frame) = group else {
            self.pieces.extend_from_slice(body_of(bytes));
            return;
        };
        if matches!(frame_kind, FrameKind::Group | FrameKind::Claim(_)) {
            self.pieces = Vec::new();
        }
        if !self.pieces.is_empty() {
            // A beat between two pieces: the database must not be at a position behind the first.
            return;
        }
        let file_millis = head.moment.file_millis;
        let by_clocks = |Moment { unix_millis, boot, .. }| Heartbeat { file_millis, unix_millis, boot };
        self.clocks = match arrival {
            Arrival::Late(_) => self.clocks.map(|clocks| clocks.moved_to(file_millis)),
            Arrival::Now(now) => Some(by_clocks(now)),
        };
        let (Arrival::Late(read) | Arrival::Now(read)) = arrival;
        head.moment = self.clocks.unwrap_or(by_clocks(read));
        frame.head = head;
        let owner = tail.mark().owner;
        if let FrameKind::Claim(_) = frame_kind {
            self.writes.take_claim(&frame.head, digest, owner, now);
        } else {
            self.writes.take(frame, owner, now);
        }
    }

    /// Takes the Claim of this node, behind which the tail is. Then writes everything into the
    /// database, and hands it to the owner of the cell with its mark. No write may be under way.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn end_with(
        mut self,
        tail: &Tail,
        claim: &Made,
        now: Instant,
    ) -> Result<(D, Mark), StoreError> {
        self.writes.take_claim(&claim.head, claim.digest, tail.mark().owner, now);
        self.writes.finish()
    }

    /// Writes everything into the database, and returns it with its mark. No write may be under way.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn finish(self) -> Result<(D, Mark), StoreError> {
        self.writes.finish()
    }
}
