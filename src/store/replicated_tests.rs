//! The store of an owner, over a log that answers as a test says.

use super::coalesce::CommitGroup;
use super::frame::cluster::LARGEST_GROUP;
use super::replicated::{CellLog, NextGroup, ReplicatedStore, check_size};
use super::sqlite::{Mark, Sqlite, SqliteOptions};
use super::tests::{body, entry, message, rows, session};
use super::wall::FileTime;
use super::writer::{Writer, WriterNotice, WriterOptions};
use super::{Moment, Store, StoreError};
use crate::config::DurabilityLevel;
use crate::mqtt::charge::Budget;
use crate::persistence::records::{Batch, Committed, Lsn, Record, RetainedRecord};
use crate::time::Instant;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// What the log was told, and what it answers.
#[derive(Debug, Default)]
struct Script {
    begun: Vec<NextGroup>,
    is_silent: bool,
    has_lease: bool,
    time_runs: u32,
    /// The size at which the log is full; 0 for none.
    capacity: u64,
    /// Questions for an outcome.
    asked: u32,
}

#[derive(Clone, Debug, Default)]
struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn script<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.0.lock().expect("no panic"))
    }
}

impl CellLog for Scripted {
    fn begin(&mut self, group: NextGroup) {
        self.script(|script| script.begun.push(group));
    }

    fn outcome(&mut self, _: Duration) -> Result<Option<Mark>, StoreError> {
        Ok(self.script(|script| {
            script.asked += 1;
            let position = script.begun.len() as u64;
            let moment = script.begun.last().map(|group| group.moment).unwrap_or_default();
            (!script.is_silent).then_some(Mark { position, moment, ..Mark::default() })
        }))
    }

    fn moment(&self) -> Moment {
        Moment::now()
    }

    fn has_lease(&self) -> bool {
        self.script(|script| script.has_lease)
    }

    fn has_room(&self) -> bool {
        true
    }

    fn capacity(&self) -> u64 {
        self.script(|script| if script.capacity == 0 { u64::MAX } else { script.capacity })
    }

    fn time_runs(&mut self, _: FileTime) {
        self.script(|script| script.time_runs += 1);
    }
}

fn started(data: &Path) -> (ReplicatedStore, Scripted) {
    let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
    let database = Sqlite::open(data, options).expect("a database");
    let log = Scripted::default();
    let mut store = ReplicatedStore::new(database, Mark::default(), Box::new(log.clone()), Duration::ZERO)
        .expect("a store");
    store.recover(Moment::now(), Duration::ZERO).expect("recovered");
    (store, log)
}

fn group() -> CommitGroup {
    let mut group = CommitGroup::default();
    group.fold(Record::Session(Box::new(session(1, "pump"))));
    group.fold(body(10, message("pumps/7", Instant::NEVER, b"on")));
    group.fold(Record::Entry(Box::new(entry(11, 1, 10))));
    group.seal();
    group
}

#[test]
fn a_group_that_the_engine_has_is_committed_and_comes_to_the_database() {
    let data = tempfile::tempdir().expect("a directory");
    let (mut store, log) = started(data.path());
    store.commit(&mut group()).expect("committed");
    assert_eq!(log.script(|script| script.time_runs), 1);
    drop(store);
    assert!(rows(data.path()).iter().any(|row| row.starts_with("entry")));
}

#[test]
fn a_group_without_an_answer_stays_with_the_store_and_is_handed_in_once() {
    let data = tempfile::tempdir().expect("a directory");
    let (mut store, log) = started(data.path());
    let before = log.script(|script| {
        script.is_silent = true;
        script.begun.len()
    });
    let mut undecided = group();
    assert!(matches!(store.commit(&mut undecided), Err(StoreError::Undecided)));
    assert!(undecided.is_empty(), "the store has it");
    assert!(matches!(store.decide(), Err(StoreError::Undecided)));
    log.script(|script| script.is_silent = false);
    store.decide().expect("decided");
    assert_eq!(log.script(|script| script.begun.len()), before + 1);
    drop(store);
    assert!(rows(data.path()).iter().any(|row| row.starts_with("entry")));
}

#[test]
fn what_cancelled_out_leaves_by_the_lease_and_without_one_by_a_frame() {
    let data = tempfile::tempdir().expect("a directory");
    let (mut store, log) = started(data.path());
    let begun = |log: &Scripted| log.script(|script| script.begun.len());
    let before = begun(&log);
    log.script(|script| script.has_lease = true);
    store.confirm().expect("the lease");
    assert_eq!(begun(&log), before);
    log.script(|script| (script.has_lease, script.is_silent) = (false, true));
    assert!(matches!(store.confirm(), Err(StoreError::Undecided)));
    assert_eq!(begun(&log), before + 1);
    log.script(|script| script.is_silent = false);
    store.decide().expect("the frame is stored");
}

fn batch(lsn: u64, number: u64) -> Batch {
    let records = vec![
        body(number, message("pumps/7", Instant::NEVER, b"on")),
        Record::Entry(Box::new(entry(number + 1, 1, number))),
    ];
    Batch { shard: 0, lsn: Lsn(lsn), records, ..Batch::default() }
}

#[test]
fn nothing_is_reported_before_the_engine_has_answered_and_later_batches_share_a_group() {
    let data = tempfile::tempdir().expect("a directory");
    let (store, log) = started(data.path());
    let begun = |log: &Scripted| log.script(|script| script.begun.len());
    let before = log.script(|script| {
        script.is_silent = true;
        script.begun.len()
    });
    let (told, notices) = mpsc::channel();
    let on = move |notice| drop(told.send(notice));
    let budget = Arc::new(Budget::new(u64::MAX));
    let writer = Writer::start(Box::new(store), WriterOptions::default(), budget, on).expect("a writer");
    let to_store = writer.to_store();
    to_store.send(batch(1, 10));
    until("the first group", || (begun(&log) > before).then_some(()));
    to_store.send(batch(2, 20));
    to_store.send(batch(3, 30));
    until("a second look for the outcome", || log.script(|script| script.asked > 3).then_some(()));
    let early = notices.try_iter().any(|notice| matches!(notice, WriterNotice::Committed(_)));
    assert!(!early && begun(&log) == before + 1);
    log.script(|script| script.is_silent = false);
    let mut committed = Vec::new();
    // One report is for all batches of a shard up to it.
    while committed.last() != Some(&3) {
        let notice = notices.recv_timeout(Duration::from_secs(30)).expect("a report");
        if let WriterNotice::Committed(Committed { lsn, .. }) = notice {
            committed.push(lsn.0);
        }
    }
    assert_eq!((committed.first(), begun(&log)), (Some(&1), before + 2));
    writer.stop();
}

#[test]
fn an_owner_hands_in_no_group_that_a_follower_refuses() {
    check_size(LARGEST_GROUP).expect("a follower takes it");
    assert!(matches!(check_size(LARGEST_GROUP + 1), Err(StoreError::Failed(_))));
}

#[test]
fn a_group_takes_an_eighth_of_the_log_and_no_more_than_a_standby_should_hold() {
    let data = tempfile::tempdir().expect("a directory");
    let (store, log) = started(data.path());
    for (capacity, most) in [(64 << 20, 8 << 20), (8 << 30, 256 << 20), (0, 256 << 20)] {
        log.script(|script| script.capacity = capacity);
        assert_eq!(store.largest_group(), most, "{capacity}");
    }
}

/// The size of the messages that wait for a small log.
const LARGE: usize = 4 << 10;

/// A batch with a message and its own number, of this size.
fn large(lsn: u64, number: u64) -> Batch {
    let records = vec![
        body(number, message("pumps/7", Instant::NEVER, &vec![7; LARGE])),
        Record::Entry(Box::new(entry(number + 1, 1, number))),
    ];
    Batch { shard: 0, lsn: Lsn(lsn), records, ..Batch::default() }
}

fn retained(n: u64) -> RetainedRecord {
    RetainedRecord::Set(message(&format!("kept/{n}"), Instant::NEVER, &vec![7; LARGE]).into())
}

/// What waits for an undecided group would fill the log, and the engine could free none of it.
#[test]
fn what_waits_behind_an_undecided_group_goes_into_groups_that_are_small_beside_the_log() {
    let data = tempfile::tempdir().expect("a directory");
    let (store, log) = started(data.path());
    let before = log.script(|script| {
        (script.is_silent, script.capacity) = (true, 8 * 16 * LARGE as u64);
        script.begun.len()
    });
    let (told, notices) = mpsc::channel();
    let on = move |notice| drop(told.send(notice));
    let budget = Arc::new(Budget::new(u64::MAX));
    let writer = Writer::start(Box::new(store), WriterOptions::default(), budget, on).expect("a writer");
    let to_store = writer.to_store();
    to_store.send(batch(1, 10));
    until("the first group", || log.script(|script| script.begun.len() > before).then_some(()));
    to_store.retained((0..100).map(retained).collect());
    // The last change of a topic counts, and has no part of its own.
    to_store.retained((0..100).map(retained).collect());
    (2..=100).for_each(|n| to_store.send(large(n, 1000 * n)));
    // One batch is larger than a group is to be.
    let records = vec![body(999_000, message("pumps/7", Instant::NEVER, &vec![7; 20 * LARGE]))];
    to_store.send(Batch { shard: 0, lsn: Lsn(101), records, ..Batch::default() });
    let pending = || writer.statistics().pending_records.load(Ordering::Relaxed);
    until("all that was sent", || (pending() > 200 + 2 * 99).then_some(()));
    log.script(|script| script.is_silent = false);
    until("the last batch", || {
        let is_last = |notice| matches!(notice, WriterNotice::Committed(Committed { lsn: Lsn(101), .. }));
        notices.try_iter().any(is_last).then_some(())
    });
    writer.stop();
    let groups: Vec<(usize, u64)> = log.script(|script| {
        script.begun[before + 1..].iter().map(|group| (group.body.len(), group.next_number)).collect()
    });
    let small = 18 * LARGE;
    let (last, others) = groups.split_last().expect("groups");
    assert!(others.iter().all(|(bytes, _)| *bytes < small), "{groups:?}");
    assert!(last.0 > 20 * LARGE && last.0 < 20 * LARGE + small, "{groups:?}");
    // The changes of retained messages came first.
    let of_batches = groups.iter().position(|(_, next)| *next > 1000).expect("batches");
    let bytes_before: usize = groups[..of_batches + 1].iter().map(|(bytes, _)| bytes).sum();
    assert!(of_batches >= 5 && bytes_before >= 100 * LARGE, "{groups:?}");
    let rows = rows(data.path());
    let count = |table: &str| rows.iter().filter(|row| row.starts_with(table)).count();
    assert_eq!((count("retained"), count("body")), (100, 101), "{:?}", rows.first());
}

fn until(what: &str, mut is_there: impl FnMut() -> Option<()>) {
    for _ in 0..3_000 {
        if is_there().is_some() {
            return;
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("{what} did not come");
}
