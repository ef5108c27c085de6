//! Reads messages back: from memory if the database does not have them yet, and else from the
//! database.

use super::lookup::{Lookup, Recent, merge};
use super::unapplied::Unapplied;
use crate::operators::stored::StoredPlace;
use crate::operators::wanted::Wanted;
use crate::persistence::records::{BodyNumber, DelayedNumber, EntryNumber, ReadEntry, StoredDelayed};
use crate::store::wall::FileTime;
use crate::store::{StoreError, StoreReader, ViewedEntry};
use crate::time::Instant;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

/// A reader of the store, for one thread.
pub(in crate::store) struct LoggedReader {
    database: Box<dyn StoreReader>,
    unapplied: Arc<Unapplied>,
    time: FileTime,
}

impl LoggedReader {
    pub(in crate::store) fn new(
        database: Box<dyn StoreReader>,
        unapplied: Arc<Unapplied>,
        time: FileTime,
    ) -> LoggedReader {
        LoggedReader { database, unapplied, time }
    }

    fn viewed<'a>(&self, recent: &'a Recent, now: Instant) -> ViewedEntry<'a> {
        let Recent { entry, recorded_ms, .. } = recent;
        let message = &entry.message;
        ViewedEntry {
            number: entry.number,
            topic: message.topic(),
            publisher: message.publisher(),
            qos: entry.qos,
            retain: entry.retain,
            payload: message.payload().len(),
            expires: message.header().expires,
            age: Duration::from_millis(self.time.reads(now).saturating_sub(*recorded_ms)),
        }
    }
}

impl StoreReader for LoggedReader {
    /// A page mostly has messages that came long ago, or messages that came just now. Neither waits
    /// for the database to be written.
    fn entries(&mut self, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>, StoreError> {
        let Lookup::Found { in_memory, in_database } = self.unapplied.look(wanted) else {
            self.unapplied.await_applied()?;
            return self.database.entries(wanted);
        };
        // After the look: what was not in memory then is in the database now, or gone.
        let left: Vec<_> = in_database.iter().map(|at| wanted[*at]).collect();
        let read = if left.is_empty() { Vec::new() } else { self.database.entries(&left)? };
        Ok(merge(wanted, in_memory, read))
    }

    fn delayed(
        &mut self,
        from: (Instant, DelayedNumber),
        until: Instant,
        most: usize,
    ) -> Result<Vec<StoredDelayed>, StoreError> {
        self.unapplied.await_applied()?;
        self.database.delayed(from, until, most)
    }

    fn view(
        &mut self,
        places: &[StoredPlace],
        now: Instant,
        wanted: &Wanted,
        each: &mut dyn FnMut(ViewedEntry<'_>),
    ) -> Result<(), StoreError> {
        let Lookup::Found { in_memory, in_database } = self.unapplied.look(places) else {
            self.unapplied.await_applied()?;
            return self.database.view(places, now, wanted, each);
        };
        // The order of the places stays: the database is asked for what stands between two
        // deliveries of the memory.
        let mut in_database = in_database.into_iter().peekable();
        let mut run = Vec::new();
        for recent in in_memory {
            run.extend(iter::from_fn(|| in_database.next_if(|at| *at < recent.place)).map(|at| places[at]));
            if !run.is_empty() {
                self.database.view(&run, now, wanted, each)?;
                run.clear();
            }
            each(self.viewed(&recent, now));
        }
        run.extend(in_database.map(|at| places[at]));
        if run.is_empty() { Ok(()) } else { self.database.view(&run, now, wanted, each) }
    }
}
