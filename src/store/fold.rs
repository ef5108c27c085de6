//! Frames of a log on their way into a database: folded as far as their order allows, and then
//! written in parts. Each part is one transaction, with the mark of its last frame. So the database
//! is a prefix of the log at any time.

use super::StoreError;
use super::coalesce::CommitGroup;
use super::database::Database;
use super::frame::{Digest, Frame, Head};
use super::sqlite::Mark;
use super::sqlite::owner::OwnerMark;
use super::wall::FileTime;
use crate::persistence::records::BodyCopy;
use std::collections::VecDeque;

/// What frames change, and a database does not have yet.
#[derive(Debug)]
pub(crate) struct FrameFold {
    parts: VecDeque<Part>,
    /// Bytes of the frames in `parts`.
    bytes: u64,
    /// The last position in `parts`, or of the database.
    closed: u64,
    /// The part that grows.
    group: CommitGroup,
    /// The last frame that was taken.
    mark: Mark,
}

/// The changes of one transaction, and the last frame whose changes they are.
#[derive(Debug)]
struct Part {
    changes: Changes,
    mark: Mark,
}

#[derive(Debug)]
enum Changes {
    Group(CommitGroup),
    Copies(Vec<BodyCopy>),
    /// A Claim: no session is connected from this file time on.
    Disconnect(u64),
}

impl FrameFold {
    /// Begins behind the last frame of a database.
    pub(crate) fn behind(mark: Mark) -> FrameFold {
        let (parts, group) = (VecDeque::new(), CommitGroup::default());
        FrameFold { parts, bytes: 0, closed: mark.position, group, mark }
    }

    /// Returns the mark of the last frame.
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Returns the bytes of the frames, about: those that cancelled out included, and 64 for each
    /// record.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + bytes_of(&self.group)
    }

    /// Sets the last Claim up to the next frame.
    pub(crate) fn owner_is(&mut self, owner: Option<OwnerMark>) {
        self.mark.owner = owner;
    }

    /// Takes the next frame.
    pub(crate) fn take(&mut self, frame: Frame) {
        let Frame { head, digest, operations, retained, copies } = frame;
        if copies.is_empty() {
            self.mark = self.mark.behind(&head, digest);
            self.group.absorb_all(operations, retained, head.moment.file_millis);
        } else {
            // A copy needs the body as the frames before it have left it.
            self.close();
            self.mark = self.mark.behind(&head, digest);
            self.add(Changes::Copies(copies));
        }
    }

    /// Takes a Claim: the sessions of the owner before are not connected any more. One change of the
    /// table, so that a new owner has none of them to record.
    pub(crate) fn take_claim(&mut self, head: &Head, digest: Digest, owner: Option<OwnerMark>) {
        self.close();
        let ended_ms = self.mark.moment.file_millis;
        self.mark = Mark { owner, ..self.mark.behind(head, digest) };
        self.add(Changes::Disconnect(ended_ms));
    }

    /// Takes the parts that a database is to have next.
    pub(crate) fn take_parts(&mut self) -> Parts {
        self.close();
        self.bytes = 0;
        Parts(std::mem::take(&mut self.parts))
    }

    /// Ends the part that grows.
    fn close(&mut self) {
        if self.closed < self.mark.position {
            let group = std::mem::take(&mut self.group);
            self.bytes += bytes_of(&group);
            self.add(Changes::Group(group));
        }
    }

    fn add(&mut self, changes: Changes) {
        self.parts.push_back(Part { changes, mark: self.mark });
        self.closed = self.mark.position;
    }
}

fn bytes_of(group: &CommitGroup) -> u64 {
    group.bytes() as u64 + 64 * group.recorded()
}

/// Changes for a database, in the order of the log.
#[derive(Debug)]
pub(crate) struct Parts(VecDeque<Part>);

impl Parts {
    /// Writes all parts.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn write<D: Database>(mut self, database: &mut D) -> Result<(), StoreError> {
        while self.write_next(database)? {}
        Ok(())
    }

    /// Writes the next part. Returns false if there is none.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn write_next<D: Database>(&mut self, database: &mut D) -> Result<bool, StoreError> {
        let Some(Part { changes, mark }) = self.0.pop_front() else { return Ok(false) };
        match changes {
            Changes::Group(group) => write_group(database, group, &mark)?,
            Changes::Copies(copies) => twice(|| database.apply_copies(&copies, &mark))?,
            Changes::Disconnect(ended_ms) => twice(|| database.disconnect(ended_ms, &mark))?,
        }
        Ok(true)
    }
}

fn write_group<D: Database>(database: &mut D, mut group: CommitGroup, mark: &Mark) -> Result<(), StoreError> {
    group.seal();
    // The times of frames are file times already.
    let applied = twice(|| database.apply(&group, FileTime::default(), mark));
    applied.map_err(|error| match error {
        StoreError::Full(why) => {
            StoreError::Full(format!("for what the log has and the database does not: {why}"))
        }
        other => other,
    })?;
    database.tidy()
}

/// Makes two attempts: the first one opens the reserve on a full disk.
pub(super) fn twice(mut attempt: impl FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
    match attempt() {
        Err(StoreError::Full(_)) => attempt(),
        other => other,
    }
}
