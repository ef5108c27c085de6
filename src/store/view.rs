//! Looks at stored messages for the questions of operators.
//!
//! Each look has a thread and a read-only connection of its own, and one look is under way at a
//! time. It reads a few rows in each transaction, so no checkpoint waits for it. Nothing that
//! serves clients or commits waits for it either. A disk that hangs holds up one thread, and each
//! caller gets an answer in bounded time.

use super::{OpenReader, StoreError, StoreReader};
use crate::clock;
use crate::file_thread::{FileThread, ReadLimits, opens};
use crate::mqtt::charge::Budget;
use crate::operators::budget::BYTES;
use crate::operators::stored::{StoreLooked, StoreLookup, StoredBody, StoredPlace};
use crate::time::Instant;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Time for one look, and time for which a caller waits for the looks of others.
const LOOK: Duration = Duration::from_secs(2);

/// Time after which a look begins no further transaction.
const BEGINS: Duration = Duration::from_secs(1);

/// Entries that are read in one transaction: so few that a slow disk is noticed in time.
const AT_ONCE: usize = 32;

/// Bytes of messages with their payloads after which a look reads no further one.
const BODIES: usize = 1 << 20;

/// The way of operators to the store. A clone shares the thread.
#[derive(Clone)]
pub struct StoreView {
    open: Arc<OpenReader>,
    /// The file, for the error of a disk that hangs.
    file: PathBuf,
    thread: FileThread,
    turn: Arc<Mutex<()>>,
    budget: Arc<Budget>,
}

impl fmt::Debug for StoreView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreView").field("file", &self.file).finish_non_exhaustive()
    }
}

impl StoreView {
    /// Returns the way to a store that was recovered. `directory` is its directory, if it has one.
    /// Memory that a look charges is added to `budget`.
    pub fn new(open: OpenReader, directory: Option<&Path>, budget: Arc<Budget>) -> StoreView {
        StoreView::with_limit(open, directory, budget, LOOK)
    }

    fn with_limit(
        open: OpenReader,
        directory: Option<&Path>,
        budget: Arc<Budget>,
        limit: Duration,
    ) -> StoreView {
        let file = directory.map(super::sqlite::directory::database_in).unwrap_or_default();
        let thread = FileThread::new("homing-view", ReadLimits::both(limit));
        StoreView { open: Arc::new(open), file, thread, turn: Arc::default(), budget }
    }

    /// Looks for messages. The look is not finished if `until` passes.
    ///
    /// # Errors
    /// The store does not answer in time, or cannot be read. Says why, for the operator.
    pub async fn look(&self, lookup: StoreLookup, until: Instant) -> Result<StoreLooked, String> {
        self.run(move |reader| {
            let until = until.min(clock::now() + BEGINS);
            look(reader, &lookup, clock::now(), || clock::now() < until)
        })
        .await
    }

    /// Returns the messages at these places with their payloads, until they have 1 MiB.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub async fn bodies(&self, places: Vec<StoredPlace>) -> Result<Vec<StoredBody>, String> {
        self.run(move |reader| bodies(reader, &places)).await
    }

    /// Runs `read` on the thread.
    async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn StoreReader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, String> {
        let turn = tokio::time::timeout(LOOK, Arc::clone(&self.turn).lock_owned()).await;
        let turn = turn.map_err(|_| "other questions to the store take too long".to_owned())?;
        let StoreView { open, file, budget, thread, .. } = self.clone();
        let work = move || {
            let _opened = opens(&file);
            let result = open().and_then(|mut reader| read(&mut *reader));
            // Before another thread has the messages.
            budget.report();
            result
        };
        // A task keeps the turn if the caller goes, or the next caller would be told of a disk that
        // hangs.
        let run = tokio::spawn(async move {
            let _turn = turn;
            thread.run(work).await
        });
        let result = run.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        result.map_err(|error| error.to_string())
    }
}

/// Looks for messages, as long as `goes_on` returns true between two transactions.
///
/// # Errors
/// The store cannot be read.
pub fn look(
    reader: &mut dyn StoreReader,
    lookup: &StoreLookup,
    now: Instant,
    goes_on: impl Fn() -> bool,
) -> Result<StoreLooked, StoreError> {
    let StoreLookup { places, wanted, rows } = lookup;
    let (mut looked, mut bytes) = (StoreLooked::default(), 0);
    for some in places.chunks(AT_ONCE) {
        if !goes_on() {
            break;
        }
        let mut unread = some.iter().map(|(number, _)| *number).peekable();
        let StoreLooked { missing, found, rows: listed, .. } = &mut looked;
        reader.view(some, now, wanted, &mut |entry| {
            missing.extend(std::iter::from_fn(|| unread.next_if(|number| *number != entry.number)));
            unread.next();
            if !wanted.is_of(entry.topic, entry.publisher) {
                return;
            }
            // The rows stay the first ones that were found.
            if listed.len() == found.len() && listed.len() < *rows && bytes < BYTES {
                bytes += entry.topic.len();
                listed.push((entry.number, entry.to_message()));
            }
            found.push(entry.number);
        })?;
        missing.extend(unread);
        looked.numbers.extend(some.iter().map(|(number, _)| *number));
    }
    Ok(looked)
}

/// Reads messages one after the other, and stops once their bytes reach the bound.
fn bodies(reader: &mut dyn StoreReader, places: &[StoredPlace]) -> Result<Vec<StoredBody>, StoreError> {
    let (mut read, mut bytes) = (Vec::new(), 0);
    for place in places {
        if bytes >= BODIES {
            break;
        }
        for entry in reader.entries(&[*place])? {
            bytes += entry.message.size();
            read.push((entry.number, entry.message));
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::wanted::{Wanted, WantedTopic};
    use crate::persistence::records::{BodyNumber, EntryNumber, Record};
    use crate::store::faulty_store::{Call, Fault, Faults, Faulty};
    use crate::store::memory_store::Memory;
    use crate::store::tests::{body, commit, entry, message, session};
    use crate::store::{Moment, Store};
    use std::cell::Cell;

    /// Returns a store with messages 1 to `count` for one session, on these topics in turn.
    fn filled(count: u64, topics: &[&str]) -> Memory {
        let mut store = Memory::default();
        store.recover(Moment::now(), Duration::ZERO).unwrap();
        let mut records = vec![Record::Session(Box::new(session(1, "c")))];
        for (number, topic) in (1..=count).zip(topics.iter().cycle()) {
            records.push(body(number, message(topic, Instant::NEVER, b"payload")));
            records.push(Record::Entry(Box::new(entry(number, 1, number))));
        }
        commit(&mut store, records);
        store
    }

    fn lookup(places: std::ops::RangeInclusive<u64>, topic: &str) -> StoreLookup {
        let places = places.map(|number| (EntryNumber(number), BodyNumber(number))).collect();
        let wanted = Wanted { topic: WantedTopic::read(topic).ok(), ..Wanted::default() };
        StoreLookup { places, wanted, rows: 3 }
    }

    fn numbers(of: &[EntryNumber]) -> Vec<u64> {
        of.iter().map(|number| number.0).collect()
    }

    #[test]
    fn a_look_finds_what_is_wanted_and_names_what_is_not_there() {
        let mut store = filled(70, &["a", "b", "c", "d", "e", "f", "g"]);
        let looked = look(&mut store, &lookup(1..=72, "c"), Instant::ZERO, || true).unwrap();
        assert_eq!(numbers(&looked.found), [3, 10, 17, 24, 31, 38, 45, 52, 59, 66]);
        assert_eq!(numbers(&looked.missing), [71, 72]);
        let rows: Vec<_> =
            looked.rows.iter().map(|(of, row)| (of.0, &*row.message.topic, row.message.payload)).collect();
        assert_eq!(rows, [(3, "c", 7), (10, "c", 7), (17, "c", 7)], "there is room for three");
        assert_eq!(looked.numbers.len(), 72);
    }

    #[test]
    fn a_look_whose_time_is_over_says_how_far_it_came() {
        let (mut store, left) = (filled(100, &["t"]), Cell::new(2));
        let goes_on = || left.replace(left.get() - 1) > 0;
        let looked = look(&mut store, &lookup(1..=100, "t"), Instant::ZERO, goes_on).unwrap();
        assert_eq!((looked.numbers.len(), looked.found.len()), (2 * AT_ONCE, 2 * AT_ONCE));
    }

    #[test]
    fn rows_with_long_topics_are_fewer_and_all_are_found() {
        let long = "t".repeat(60_000);
        let mut store = filled(10, &[&long]);
        let lookup = StoreLookup { rows: 10, ..lookup(1..=10, "#") };
        let looked = look(&mut store, &lookup, Instant::ZERO, || true).unwrap();
        assert_eq!((looked.rows.len(), looked.found.len()), (BYTES / 60_000 + 1, 10));
    }

    #[test]
    fn a_store_that_hangs_is_told_of_in_time_holds_up_no_commit_and_answers_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let faults = Faults::default();
        let mut store = Faulty::new(Box::new(filled(3, &["t"])), faults.clone());
        let directory = Path::new("/net/data");
        let budget = Arc::new(Budget::new(u64::MAX));
        // Long enough for a busy machine to begin the read.
        let limit = Duration::from_millis(500);
        let view = StoreView::with_limit(store.opener(), Some(directory), budget, limit);
        let look = || runtime.block_on(view.look(lookup(1..=3, "t"), Instant::NEVER));
        faults.plan_next(Call::View, Fault::Stopped);
        let refused = look().unwrap_err();
        assert!(refused.starts_with("/net/data/homing.db was not read within"), "{refused}");
        let refused = look().unwrap_err();
        assert!(refused.starts_with("an earlier read of /net/data/homing.db"), "{refused}");
        commit(&mut store, vec![body(9, message("t", Instant::NEVER, b"x"))]);
        faults.release();
        let looked = std::iter::repeat_with(look).find_map(Result::ok).unwrap();
        assert_eq!(numbers(&looked.found), [1, 2, 3]);
        let place = (EntryNumber(2), BodyNumber(2));
        let bodies =
            std::iter::repeat_with(|| runtime.block_on(view.bodies(vec![place]))).find_map(Result::ok);
        assert_eq!(bodies.unwrap()[0].1.payload(), b"payload");
    }

    #[test]
    fn a_question_whose_caller_goes_makes_the_next_one_wait_and_is_no_disk_that_hangs() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let faults = Faults::default();
        let store = Faulty::new(Box::new(filled(3, &["t"])), faults.clone());
        let budget = Arc::new(Budget::new(u64::MAX));
        let view = StoreView::with_limit(store.opener(), None, budget, Duration::from_secs(60));
        faults.plan_next(Call::View, Fault::Stopped);
        let look = || view.look(lookup(1..=3, "t"), Instant::NEVER);
        let looked = runtime.block_on(async {
            assert!(tokio::time::timeout(Duration::ZERO, look()).await.is_err());
            tokio::task::yield_now().await;
            assert!(faults.wait_until_stopped(Duration::from_secs(10)));
            let mut next = Box::pin(look());
            assert!(tokio::time::timeout(Duration::ZERO, &mut next).await.is_err());
            faults.release();
            next.await
        });
        assert_eq!(numbers(&looked.unwrap().found), [1, 2, 3]);
    }
}
