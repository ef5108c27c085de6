//! Brings a database up to the frames of a log that were read.

use super::StoreError;
use super::database::Database;
use super::fold::FrameFold;
use super::frame::Frame;
use super::log::LARGEST_SEGMENT;
use super::sqlite::{Mark, Sqlite};

/// See the module. After an error the database has a prefix of the frames, and takes no more.
pub(crate) struct CatchUp<D: Database = Sqlite> {
    pub database: D,
    fold: FrameFold,
}

impl<D: Database> CatchUp<D> {
    /// Begins at the position of the database.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn new(database: D) -> Result<CatchUp<D>, StoreError> {
        let fold = FrameFold::behind(database.mark()?);
        Ok(CatchUp { database, fold })
    }

    /// Returns the mark of the last frame.
    pub(crate) fn mark(&self) -> Mark {
        self.fold.mark()
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn take(&mut self, frame: Frame) -> Result<(), StoreError> {
        self.fold.take(frame);
        if self.fold.bytes() > LARGEST_SEGMENT { self.apply() } else { Ok(()) }
    }

    /// Applies what was folded.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn apply(&mut self) -> Result<(), StoreError> {
        self.fold.take_parts().write(&mut self.database)
    }
}
