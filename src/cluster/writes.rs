//! What a node that follows has read and its database does not have yet: when it is written, and how
//! much of it there may be. Knows no thread and no clock.
//!
//! A write takes the database along to the thread that waits for the disk (`workers`), and brings it
//! back. So one write is under way at a time, writes have the order of the log, and nobody uses the
//! database meanwhile. The node goes on reading.

use crate::ownership::Fitness;
use crate::store::StoreError;
use crate::store::database::Database;
use crate::store::fold::{FrameFold, Parts};
use crate::store::frame::{Digest, Frame, Head};
use crate::store::sqlite::owner::OwnerMark;
use crate::store::sqlite::{Mark, Sqlite};
use crate::time::Instant;
use std::time::Duration;

/// The time after which changes are in the database, if the disk keeps up.
const AGE: Duration = Duration::from_secs(1);
/// The same for frames without changes: the position in the database only has to be near the end.
const IDLE_AGE: Duration = Duration::from_secs(5);
/// Bytes of frames from which on they are written before their time. What a new owner has to write
/// before it recovers is about as much.
const MANY: u64 = 8 << 20;
/// Bytes of frames that are read and not written, at most: those in the write under way count, too.
/// Behind it the node reads nothing until the write has ended. One read and the pieces of a group
/// come on top. It is 1.5 s of 100,000 messages a second of 256 B.
const MOST: u64 = 64 << 20;

/// A database and what it is to have next.
#[derive(Debug)]
pub struct DatabaseWrite<D = Sqlite> {
    database: D,
    parts: Parts,
}

impl<D: Database> DatabaseWrite<D> {
    /// Writes everything, and returns the database. Waits for the disk.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn run(mut self) -> Result<D, StoreError> {
        while self.step()? {}
        Ok(self.database)
    }

    /// Writes the next part, in a transaction of its own. Returns false if there is none.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn step(&mut self) -> Result<bool, StoreError> {
        self.parts.write_next(&mut self.database)
    }
}

/// See the module.
pub(super) struct Writes<D: Database = Sqlite> {
    /// `None` while a write is under way.
    database: Option<D>,
    /// The position of the last frame that the database has.
    written: u64,
    /// The same after the write under way.
    writing: u64,
    /// Bytes of the frames in the write under way.
    under_way: u64,
    fold: FrameFold,
    /// The time of the first frame in the fold; [`Instant::NEVER`] for none.
    since: Instant,
    has_changes: bool,
}

impl<D: Database> Writes<D> {
    /// Begins with a database.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) fn new(database: D) -> Result<Writes<D>, StoreError> {
        let fold = FrameFold::behind(database.mark()?);
        let written = fold.mark().position;
        Ok(Writes {
            database: Some(database),
            written,
            writing: written,
            under_way: 0,
            fold,
            since: Instant::NEVER,
            has_changes: false,
        })
    }

    /// Returns the mark of the last frame that was taken.
    pub(super) fn mark(&self) -> Mark {
        self.fold.mark()
    }

    /// Returns the position of the last frame that the database has.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Takes the next frame. `owner` is that of the last Claim up to there.
    pub(super) fn take(&mut self, frame: Frame, owner: Option<OwnerMark>, now: Instant) {
        self.has_changes |= !frame.operations.is_empty() || !frame.retained.is_empty();
        self.since = self.since.min(now);
        self.fold.owner_is(owner);
        self.fold.take(frame);
    }

    /// Takes the Claim of this owner.
    pub(super) fn take_claim(&mut self, head: &Head, digest: Digest, owner: Option<OwnerMark>, now: Instant) {
        self.has_changes = true;
        self.since = self.since.min(now);
        self.fold.take_claim(head, digest, owner);
    }

    /// Returns the next write, if one is due and none is under way.
    pub(super) fn next(&mut self, now: Instant) -> Option<DatabaseWrite<D>> {
        let age = if self.has_changes { AGE } else { IDLE_AGE };
        let is_old = !self.since.is_never() && now.since(self.since) >= age;
        if !is_old && self.fold.bytes() <= MANY {
            return None;
        }
        let database = self.database.take()?;
        (self.under_way, self.writing) = (self.fold.bytes(), self.fold.mark().position);
        (self.since, self.has_changes) = (Instant::NEVER, false);
        Some(DatabaseWrite { database, parts: self.fold.take_parts() })
    }

    /// The write that was under way has brought the database back.
    pub(super) fn done(&mut self, database: D) {
        (self.database, self.under_way, self.written) = (Some(database), 0, self.writing);
    }

    /// Returns true while a write is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.database.is_none()
    }

    /// Returns true if no more may be read until the write under way has ended.
    pub(super) fn is_full(&self) -> bool {
        self.is_under_way() && self.under_way + self.fold.bytes() > MOST
    }

    /// Returns whether the node may own the cell. It may not without room, and not while a write is
    /// under way: a new owner needs its database at once, and this disk may hang.
    ///
    /// # Errors
    /// The database or its disk does not report its room.
    pub(super) fn fitness(&mut self) -> Result<Fitness, StoreError> {
        let Some(database) = &mut self.database else { return Ok(Fitness::Unfit) };
        match database.figures() {
            Err(StoreError::Busy(_)) => Ok(Fitness::Fit),
            figures => Ok(if figures?.has_room { Fitness::Fit } else { Fitness::Unfit }),
        }
    }

    /// Writes what is left, and returns the database with its mark. No write may be under way.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(super) fn finish(mut self) -> Result<(D, Mark), StoreError> {
        let Some(database) = self.database.take() else {
            return Err(StoreError::Failed("a write of the database is under way".to_owned()));
        };
        let database = DatabaseWrite { database, parts: self.fold.take_parts() }.run()?;
        Ok((database, self.fold.mark()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::follower_tests::{directories, open};
    use crate::persistence::records::{BodyNumber, Record};
    use crate::store::tests::message;

    /// A frame with a message of this size.
    fn frame(position: u64, bytes: u64) -> Frame {
        let message = message("pumps/7", Instant::NEVER, &vec![0; bytes as usize]);
        let body = Record::Body { number: BodyNumber(position), message };
        let head = Head { position, ..Head::default() };
        let (retained, copies) = (Vec::new(), Vec::new());
        Frame { head, digest: Digest::default(), operations: vec![body.into()], retained, copies }
    }

    #[test]
    fn many_bytes_are_written_before_their_time_and_reading_stops_at_the_bound() {
        let [data] = directories();
        let mut writes = Writes::new(open(data.path())).expect("a database");
        let now = Instant::from_millis(1);
        writes.take(frame(1, MANY), None, now);
        let write = writes.next(now).expect("it is due");
        writes.take(frame(2, MOST - MANY - 4096), None, now);
        assert!(!writes.is_full(), "nearly");
        assert_eq!((writes.written(), writes.mark().position), (0, 2), "a disk may hang");
        writes.take(frame(3, 4096), None, now);
        assert!(writes.is_full());
        writes.done(write.run().expect("written"));
        assert_eq!(writes.written(), 1);
        assert!(!writes.is_full());
        let write = writes.next(now).expect("it is due");
        assert!(!writes.is_full(), "the write under way is as large as the bound, less the first one");
        drop(write);
    }

    #[test]
    fn changes_are_written_after_a_second_and_a_position_after_five() {
        let [data] = directories();
        let mut writes = Writes::new(open(data.path())).expect("a database");
        assert!(writes.next(Instant::from_millis(60_000)).is_none(), "there is nothing");
        let sign = Frame { operations: Vec::new(), ..frame(1, 0) };
        writes.take(sign, None, Instant::from_millis(1_000));
        assert!(writes.next(Instant::from_millis(5_999)).is_none());
        let write = writes.next(Instant::from_millis(6_000)).expect("it is due");
        writes.done(write.run().expect("written"));
        writes.take(frame(2, 1), None, Instant::from_millis(7_000));
        assert!(writes.next(Instant::from_millis(7_999)).is_none());
        assert!(writes.next(Instant::from_millis(8_000)).is_some());
    }
}
