//! Brings a database up to the frames of a log that were read: folds them, and applies the fold in
//! portions.

use super::StoreError;
use super::coalesce::CommitGroup;
use super::database::Database;
use super::frame::{Digest, Frame, Head};
use super::log::LARGEST_SEGMENT;
use super::sqlite::owner::OwnerMark;
use super::sqlite::{Mark, Sqlite};
use super::wall::FileTime;

/// See the module.
pub(crate) struct CatchUp<D: Database = Sqlite> {
    pub database: D,
    group: CommitGroup,
    mark: Mark,
    /// The position that the database has.
    applied: u64,
}

impl<D: Database> CatchUp<D> {
    /// Begins at the position of the database.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn new(database: D) -> Result<CatchUp<D>, StoreError> {
        let mark = database.mark()?;
        Ok(CatchUp { database, group: CommitGroup::default(), mark, applied: mark.position })
    }

    /// Returns the mark of the last frame.
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Sets the last Claim up to the next frame.
    pub(crate) fn owner_is(&mut self, owner: Option<OwnerMark>) {
        self.mark.owner = owner;
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn take(&mut self, frame: Frame) -> Result<(), StoreError> {
        let Frame { head, digest, operations, retained, copies } = frame;
        if !copies.is_empty() {
            self.apply()?;
        }
        self.mark = self.mark.behind(&head, digest);
        if !copies.is_empty() {
            twice(|| self.database.apply_copies(&copies, &self.mark))?;
            self.applied = self.mark.position;
            return Ok(());
        }
        self.group.absorb_all(operations, retained, head.moment.file_millis);
        if self.group.bytes() as u64 + 64 * self.group.recorded() > LARGEST_SEGMENT {
            self.apply()?;
        }
        Ok(())
    }

    /// Takes a Claim: the sessions of the owner before are not connected any more. One change of the
    /// table, so that a new owner has none of them to record.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn take_claim(
        &mut self,
        head: &Head,
        digest: Digest,
        owner: Option<OwnerMark>,
    ) -> Result<(), StoreError> {
        self.apply()?;
        let ended_ms = self.mark.moment.file_millis;
        self.mark = Mark { owner, ..self.mark.behind(head, digest) };
        twice(|| self.database.disconnect(ended_ms, &self.mark))?;
        self.applied = self.mark.position;
        Ok(())
    }

    /// Applies what was folded.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn apply(&mut self) -> Result<(), StoreError> {
        if self.applied == self.mark.position {
            return Ok(());
        }
        self.group.seal();
        // The times of frames are file times already.
        let applied = twice(|| self.database.apply(&self.group, FileTime::default(), &self.mark));
        applied.map_err(|error| match error {
            StoreError::Full(why) => {
                StoreError::Full(format!("for what the log has and the database does not: {why}"))
            }
            other => other,
        })?;
        self.database.tidy()?;
        self.group.clear();
        self.applied = self.mark.position;
        Ok(())
    }
}

/// Makes two attempts: the first one opens the reserve on a full disk.
pub(super) fn twice(mut attempt: impl FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
    match attempt() {
        Err(StoreError::Full(_)) => attempt(),
        other => other,
    }
}
