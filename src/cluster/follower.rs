//! Frames of the log of a cell on their way into the database of a node that follows.
//!
//! A frame is checked against the end of the log that the node has, folded, and written into the
//! database about once a second. So the database is a prefix of the log at any time, and a new owner
//! needs only the last second.

use super::tail::{Made, Tail, Unfit};
use crate::persistence::ownership::SeenKind;
use crate::store::catch_up::CatchUp;
use crate::store::database::Database;
use crate::store::frame::cluster::{FrameKind, body_of, read_group};
use crate::store::frame::{Digest, Frame, FrameError, Head};
use crate::store::sqlite::{Mark, Sqlite};
use crate::store::wall::Heartbeat;
use crate::store::{Moment, StoreError};
use crate::time::Instant;
use std::time::Duration;

/// The time after which changes are in the database.
const AGE: Duration = Duration::from_secs(1);
/// The same for frames without changes: the position in the database only has to be near the end.
const IDLE_AGE: Duration = Duration::from_secs(5);
/// The largest size of a group in pieces, in bytes. An owner makes none that is larger.
const LARGEST_GROUP: usize = 1 << 30;

/// See the module.
pub(super) struct Follower<D: Database = Sqlite> {
    catch_up: CatchUp<D>,
    /// The operations of a group of which the last piece did not come yet.
    pieces: Vec<u8>,
    /// The time of the first frame that the database does not have; [`Instant::NEVER`] for none.
    since: Instant,
    has_changes: bool,
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
        let catch_up = CatchUp::new(database)?;
        Ok(Follower { catch_up, pieces: Vec::new(), since: Instant::NEVER, has_changes: false, clocks })
    }

    /// Returns the mark of the last frame that was folded. Its moment is by the clocks of this node.
    pub(super) fn mark(&self) -> Mark {
        self.catch_up.mark()
    }

    /// Reads the frame at this position of the engine.
    ///
    /// # Errors
    /// It does not continue the log, or cannot be read.
    pub(super) fn read(&self, tail: &Tail, position: u64, bytes: &[u8]) -> Result<Next, Unfit> {
        let (checked, frame_kind) = tail.check(position, bytes)?;
        let (_, head, digest) = checked;
        let group = match frame_kind {
            FrameKind::Fragment => None,
            FrameKind::Group => Some(read_group(&self.pieces, checked)?),
            FrameKind::Claim(_) | FrameKind::Beat | FrameKind::Release => {
                Some(Frame { head, digest, operations: Vec::new(), retained: Vec::new(), copies: Vec::new() })
            }
        };
        if self.pieces.len() > LARGEST_GROUP {
            return Err(FrameError::Content("more pieces than a group can have").into());
        }
        Ok(Next { kind: frame_kind.seen(), head, digest, frame_kind, group })
    }

    /// Takes the frame that [`Follower::read`] has returned, and moves the tail behind it. `bytes` are
    /// those of the frame.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn take(
        &mut self,
        tail: &mut Tail,
        next: Next,
        bytes: &[u8],
        arrival: Arrival,
        now: Instant,
    ) -> Result<(), StoreError> {
        let Next { mut head, digest, frame_kind, group, .. } = next;
        tail.advance(&head, digest, frame_kind);
        let Some(mut frame) = group else {
            self.pieces.extend_from_slice(body_of(bytes));
            return Ok(());
        };
        if matches!(frame_kind, FrameKind::Group | FrameKind::Claim(_)) {
            self.pieces = Vec::new();
        }
        if !self.pieces.is_empty() {
            // A beat between two pieces: the database must not be at a position behind the first.
            return Ok(());
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
        if let FrameKind::Claim(_) = frame_kind {
            return self.catch_up.take_claim(&frame.head, digest, tail.mark().owner);
        }
        self.has_changes |= !frame.operations.is_empty() || !frame.retained.is_empty();
        self.since = self.since.min(now);
        self.catch_up.owner_is(tail.mark().owner);
        self.catch_up.take(frame)
    }

    /// Writes into the database what is old enough.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn tick(&mut self, now: Instant) -> Result<(), StoreError> {
        let age = if self.has_changes { AGE } else { IDLE_AGE };
        if self.since.is_never() || now.since(self.since) < age {
            return Ok(());
        }
        self.apply()
    }

    /// Returns true if the database has room, so that the node may own the cell.
    ///
    /// # Errors
    /// The database or its disk does not report its room.
    pub(super) fn has_room(&mut self) -> Result<bool, StoreError> {
        match self.catch_up.database.figures() {
            Err(StoreError::Busy(_)) => Ok(true),
            figures => Ok(figures?.has_room),
        }
    }

    fn apply(&mut self) -> Result<(), StoreError> {
        (self.since, self.has_changes) = (Instant::NEVER, false);
        self.catch_up.apply()
    }

    /// Takes the Claim of this node, behind which the tail is. Then writes everything into the
    /// database, and hands it to the owner of the cell with its mark.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn end_with(mut self, tail: &Tail, claim: &Made) -> Result<(D, Mark), StoreError> {
        self.catch_up.take_claim(&claim.head, claim.digest, tail.mark().owner)?;
        self.finish()
    }

    /// Writes everything into the database, and returns it with its mark.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn finish(mut self) -> Result<(D, Mark), StoreError> {
        self.apply()?;
        let mark = self.catch_up.mark();
        Ok((self.catch_up.database, mark))
    }
}
