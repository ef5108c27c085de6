//! The committing thread and the reading thread, with stores that fail on demand.

use super::*;
use crate::mqtt::outcome::Outcome;
use crate::persistence::records::{
    BodyNumber, EntryNumber, Lsn, Participant, Record, Transaction, TransactionNumber,
};
use crate::store::Moment;
use crate::store::faulty_store::{Call, Fault, Faults, Faulty};
use crate::store::memory_store::Memory;
use crate::store::tests::{body, entry, message, session};
use crate::time::Instant;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

const PATIENCE: Duration = Duration::from_secs(10);

fn start(memory: &Memory) -> (Writer, Receiver<WriterNotice>) {
    let mut store = memory.clone();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (told, notices) = mpsc::channel();
    let writer =
        Writer::start(Box::new(store), WriterOptions::default(), budget(), move |n| told.send(n).unwrap())
            .unwrap();
    (writer, notices)
}

/// More than any test holds.
fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(u64::MAX))
}

fn batch(shard: u8, lsn: u64, records: Vec<Record>) -> Batch {
    Batch { shard, lsn: Lsn(lsn), records, ..Batch::default() }
}

fn message_for(session_key: u64, number: u64) -> Vec<Record> {
    vec![
        Record::Session(Box::new(session(session_key, "c"))),
        body(number, message("t", Instant::NEVER, b"x")),
        Record::Entry(Box::new(entry(number, session_key, number))),
    ]
}

fn wait_for(notices: &Receiver<WriterNotice>, shard: u8, lsn: u64) {
    loop {
        match notices.recv_timeout(PATIENCE).unwrap() {
            WriterNotice::Committed(committed) if committed == (Committed { shard, lsn: Lsn(lsn) }) => return,
            WriterNotice::Committed(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_batch_is_kept_by_the_time_its_shard_is_told() {
    let memory = Memory::default();
    let (writer, notices) = start(&memory);
    let store = writer.to_store();
    store.send(batch(3, 1, message_for(1, 2)));
    wait_for(&notices, 3, 1);
    let recovered = Memory::from_image(memory.image()).recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(recovered.sessions[0].entries.len(), 1);

    let request = StorePageRequest {
        shard: 3,
        session: SessionToken { slot: 7, generation: 1 },
        wanted: vec![(EntryNumber(2), BodyNumber(2))],
    };
    store.read(request);
    let WriterNotice::Page { shard: 3, session, wanted, entries } = notices.recv_timeout(PATIENCE).unwrap()
    else {
        panic!("a page")
    };
    assert_eq!((session.slot, wanted.len(), entries[0].message.payload()), (7, 1, &b"x"[..]));
    writer.stop();
}

#[test]
fn what_cancels_out_releases_its_waiters_without_a_transaction() {
    let (writer, notices) = start(&Memory::default());
    let records = vec![
        body(1, message("t", Instant::NEVER, b"x")),
        Record::Entry(Box::new(entry(2, 1, 1))),
        Record::EntryDone(EntryNumber(2)),
        Record::BodyDone(BodyNumber(1)),
    ];
    let statistics = writer.statistics();
    writer.to_store().send(batch(0, 1, records));
    wait_for(&notices, 0, 1);
    assert_eq!(statistics.commits.load(Ordering::Relaxed), 0);
    assert_eq!(statistics.cancelled.load(Ordering::Relaxed), 4);
    // A batch of nothing is committed too: someone may wait for it.
    writer.to_store().send(batch(0, 2, Vec::new()));
    wait_for(&notices, 0, 2);
    writer.stop();
}

#[test]
fn a_stop_commits_all_that_was_sent() {
    let memory = Memory::default();
    let (writer, notices) = start(&memory);
    let mut begun = batch(0, 1, message_for(1, 2));
    begun.transactions.push(Transaction {
        number: TransactionNumber(9),
        participants: 1,
        outcome: Outcome::Taken,
        incoming: None,
    });
    writer.to_store().send(begun);
    for n in 2..2000 {
        writer.to_store().send(batch(0, n, vec![Record::Entry(Box::new(entry(n * 2, 1, 2)))]));
    }
    let mut participant = batch(1, 1, Vec::new());
    participant.participants.push(Participant {
        of: TransactionNumber(9),
        records: message_for(3, 5),
        more: 0,
        outcome: Outcome::Taken,
    });
    writer.to_store().retained(vec![RetainedRecord::Set(message("r", Instant::NEVER, b"x").into())]);
    writer.to_store().send(participant);
    writer.stop();
    let recovered = Memory::from_image(memory.image()).recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(recovered.sessions.iter().map(|s| s.entries.len()).sum::<usize>(), 2000);
    assert_eq!(recovered.retained.len(), 1);
    let last = notices.try_iter().filter_map(|n| match n {
        WriterNotice::Committed(Committed { shard: 0, lsn }) => Some(lsn.0),
        _ => None,
    });
    assert_eq!(last.max(), Some(1999));
}

/// A session and then ten messages for it, of which the first are acknowledged: a batch for each,
/// committed one by one. Answers what was said, and how many batches the writer took.
fn ten_messages(memory: &Memory, faults: &Faults) -> Result<Vec<WriterNotice>, StoreError> {
    let mut store = Faulty::new(Box::new(memory.clone()), faults.clone());
    store.recover(Moment::now(), Duration::ZERO)?;
    let (told, notices) = mpsc::channel();
    let options = WriterOptions { sync: Some(PATIENCE), ..WriterOptions::default() };
    let writer = Writer::start(Box::new(store), options, budget(), move |n| told.send(n).unwrap())?;
    let mut said = Vec::new();
    for lsn in 1..=10 {
        let number = 2 * lsn;
        let mut records = message_for(1, number);
        if lsn > 5 {
            let old = number - 10;
            records.extend([Record::EntryDone(EntryNumber(old)), Record::BodyDone(BodyNumber(old))]);
        }
        writer.to_store().send(batch(0, lsn, records));
        if !wait_or_end(&notices, lsn, &mut said, faults) {
            break;
        }
    }
    writer.stop();
    said.extend(notices.try_iter());
    Ok(said)
}

/// Until the batch is committed; false if nothing will be any more.
fn wait_or_end(
    notices: &Receiver<WriterNotice>,
    lsn: u64,
    said: &mut Vec<WriterNotice>,
    faults: &Faults,
) -> bool {
    loop {
        let notice = notices.recv_timeout(PATIENCE).unwrap();
        let goes_on = match &notice {
            WriterNotice::Committed(to) => (to.lsn.0 == lsn).then_some(true),
            WriterNotice::Failed(_) => Some(false),
            WriterNotice::Full(true) => {
                faults.make_room();
                None
            }
            _ => None,
        };
        said.push(notice);
        if let Some(goes_on) = goes_on {
            return goes_on;
        }
    }
}

/// The highest batch that was said to be committed.
fn promised(said: &[WriterNotice]) -> u64 {
    let lsns =
        said.iter().filter_map(|n| if let WriterNotice::Committed(to) = n { Some(to.lsn.0) } else { None });
    lsns.max().unwrap_or(0)
}

/// The entries that are kept: those of the last batches, none of those acknowledged in a batch up
/// to this.
fn kept(memory: &Memory) -> Vec<u64> {
    let recovered = Memory::from_image(memory.image()).recover(Moment::now(), Duration::ZERO).unwrap();
    recovered.sessions.iter().flat_map(|s| &s.entries).map(|e| e.number.0).collect()
}

fn expected(lsn: u64) -> Vec<u64> {
    (1..=lsn).map(|n| 2 * n).filter(|number| lsn <= 5 || *number > 2 * lsn - 10).collect()
}

#[test]
fn whichever_call_fails_what_was_promised_is_kept_and_the_end_is_loud() {
    let all_well = Faults::default();
    let said = ten_messages(&Memory::default(), &all_well).unwrap();
    assert_eq!(promised(&said), 10);
    let calls = all_well.calls();
    assert!(calls.len() >= 7 && calls.contains(&(Call::Commit, 10)), "{calls:?}");
    let each = calls.iter().flat_map(|(call, count)| (0..*count).map(|nth| (*call, nth)));
    for (at, fault) in each.flat_map(|at| [(at, Fault::Failed), (at, Fault::FailedAfter)]) {
        let (memory, faults) = (Memory::default(), Faults::default());
        faults.plan(at.0, at.1, fault);
        let Ok(said) = ten_messages(&memory, &faults) else { continue };
        assert!(matches!(said.last(), Some(WriterNotice::Failed(_))), "{at:?}: {said:?}");
        let (promised, kept) = (promised(&said), kept(&memory));
        // The batch that was under way is kept or not.
        let may_be = [expected(promised), expected(promised + 1)];
        assert!(may_be.contains(&kept), "{at:?}: {promised} promised, {kept:?} kept");
    }
}

#[test]
fn whichever_commit_finds_no_room_all_is_committed_once_there_is_some() {
    let all_well = Faults::default();
    ten_messages(&Memory::default(), &all_well).unwrap();
    for nth in 0..all_well.count(Call::Commit) {
        let (memory, faults) = (Memory::default(), Faults::default());
        // The reserve is opened by the first, and is not enough: the third goes through.
        faults.plan(Call::Commit, nth, Fault::Full);
        faults.plan(Call::Commit, nth + 1, Fault::Full);
        let said = ten_messages(&memory, &faults).unwrap();
        assert_eq!((promised(&said), kept(&memory)), (10, expected(10)), "{nth}");
        let full = said.iter().filter(|n| matches!(n, WriterNotice::Full(true))).count();
        assert_eq!(full, 1, "{nth}: said once, {said:?}");
    }
}

#[test]
fn a_store_that_was_full_says_when_it_has_room_again() {
    let (memory, faults) = (Memory::default(), Faults::default());
    let mut store = Faulty::new(Box::new(memory.clone()), faults.clone());
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (told, notices) = mpsc::channel();
    let writer =
        Writer::start(Box::new(store), WriterOptions::default(), budget(), move |n| told.send(n).unwrap())
            .unwrap();
    writer.to_store().send(batch(0, 1, message_for(1, 2)));
    wait_for(&notices, 0, 1);
    faults.plan_next(Call::Commit, Fault::Full);
    writer.to_store().send(batch(0, 2, message_for(1, 4)));
    let mut was_full = false;
    loop {
        match notices.recv_timeout(PATIENCE).unwrap() {
            WriterNotice::Full(true) => was_full = true,
            WriterNotice::Full(false) => break,
            WriterNotice::Committed(_) => faults.make_room(),
            WriterNotice::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert!(was_full);
    writer.stop();
    assert_eq!(kept(&memory), [2, 4]);
}

#[test]
fn a_store_that_another_process_has_locked_is_waited_for_and_nothing_is_acknowledged() {
    let (memory, faults) = (Memory::default(), Faults::default());
    let mut store = Faulty::new(Box::new(memory.clone()), faults.clone());
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (told, notices) = mpsc::channel();
    let writer =
        Writer::start(Box::new(store), WriterOptions::default(), budget(), move |n| told.send(n).unwrap())
            .unwrap();
    writer.to_store().send(batch(0, 1, message_for(1, 2)));
    wait_for(&notices, 0, 1);
    faults.plan_next(Call::Commit, Fault::Busy);
    faults.plan_next(Call::ReadEntries, Fault::Busy);
    faults.plan(Call::Commit, 2, Fault::Stopped);
    writer.to_store().send(batch(0, 2, message_for(1, 4)));
    assert!(faults.wait_until_stopped(PATIENCE));
    assert!(notices.try_recv().is_err(), "nothing is promised, and nothing has failed");
    assert_eq!(kept(&memory), [2]);
    faults.release();
    wait_for(&notices, 0, 2);
    let wanted = vec![(EntryNumber(4), BodyNumber(4))];
    writer.to_store().read(StorePageRequest {
        shard: 0,
        session: SessionToken { slot: 0, generation: 0 },
        wanted,
    });
    match notices.recv_timeout(PATIENCE).unwrap() {
        WriterNotice::Page { entries, .. } => assert_eq!(entries.len(), 1),
        other => panic!("{other:?}"),
    }
    writer.stop();
    assert_eq!(kept(&memory), [2, 4]);
}

/// Returns a writer on a new store with these faults, and its notices.
fn writer_with(faults: &Faults) -> (Writer, Receiver<WriterNotice>) {
    let mut store = Faulty::new(Box::new(Memory::default()), faults.clone());
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (told, notices) = mpsc::channel();
    let writer =
        Writer::start(Box::new(store), WriterOptions::default(), budget(), move |n| told.send(n).unwrap())
            .unwrap();
    (writer, notices)
}

/// Returns the statistics of a writer after a batch whose commit meets a fault, once the commit was
/// attempted, with a time an hour later.
fn after_a_commit_that_meets(fault: Fault) -> (Writer, Faults, Receiver<WriterNotice>, Instant) {
    let faults = Faults::default();
    let (writer, notices) = writer_with(&faults);
    writer.to_store().send(batch(0, 1, message_for(1, 2)));
    wait_for(&notices, 0, 1);
    (1..1_000).for_each(|nth| faults.plan(Call::Commit, nth, fault));
    writer.to_store().send(batch(0, 2, message_for(1, 4)));
    let deadline = crate::clock::now() + PATIENCE;
    while faults.count(Call::Commit) < 2 {
        assert!(crate::clock::now() < deadline, "the commit is attempted");
        std::thread::yield_now();
    }
    (writer, faults, notices, deadline + Duration::from_hours(1))
}

#[test]
fn a_batch_that_is_not_committed_is_counted_and_grows_old_while_the_commit_hangs_or_meets_a_lock() {
    for fault in [Fault::Stopped, Fault::Busy] {
        let (writer, faults, notices, later) = after_a_commit_that_meets(fault);
        let statistics = writer.statistics();
        assert_eq!(statistics.pending_records.load(Ordering::Relaxed), 3, "{fault:?}");
        assert!(statistics.oldest_uncommitted(later) >= Duration::from_hours(1), "{fault:?}");
        // A later batch does not make it younger.
        writer.to_store().send(batch(0, 3, message_for(1, 6)));
        faults.unplan();
        faults.release();
        wait_for(&notices, 0, 3);
        let statistics = writer.statistics();
        writer.stop();
        assert_eq!(statistics.pending_records.load(Ordering::Relaxed), 0, "{fault:?}");
        assert_eq!(statistics.oldest_uncommitted(later), Duration::ZERO, "{fault:?}");
    }
}

/// Starts a writer that syncs at this interval. Its first sync hangs until the faults release it.
fn whose_first_sync_hangs(interval: Duration) -> (Writer, Faults) {
    let faults = Faults::default();
    faults.plan(Call::Sync, 0, Fault::Stopped);
    let mut store = Faulty::new(Box::new(Memory::default()), faults.clone());
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let options = WriterOptions { sync: Some(interval), ..WriterOptions::default() };
    let writer = Writer::start(Box::new(store), options, budget(), |_| ()).unwrap();
    (writer, faults)
}

#[test]
fn a_new_sync_interval_holds_at_once() {
    let (writer, faults) = whose_first_sync_hangs(Duration::from_hours(1));
    writer.to_store().sync_every(Some(Duration::from_millis(1)));
    assert!(faults.wait_until_stopped(PATIENCE), "it syncs long before the hour is over");
    faults.release();
    writer.stop();
}

/// The batches that come meanwhile stay in the channel, so the writer cannot count them.
#[test]
fn a_call_to_the_disk_that_hangs_counts_as_a_change_that_is_not_committed() {
    let (writer, faults) = whose_first_sync_hangs(Duration::from_millis(1));
    assert!(faults.wait_until_stopped(PATIENCE));
    let later = crate::clock::now() + Duration::from_hours(1);
    assert!(writer.statistics().oldest_uncommitted(later) >= Duration::from_hours(1));
    faults.release();
    writer.stop();
}

#[test]
fn what_arrives_while_a_commit_is_under_way_is_the_next_one() {
    let (memory, faults) = (Memory::default(), Faults::default());
    let mut store = Faulty::new(Box::new(memory.clone()), faults.clone());
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (told, notices) = mpsc::channel();
    let writer =
        Writer::start(Box::new(store), WriterOptions::default(), budget(), move |n| told.send(n).unwrap())
            .unwrap();
    writer.to_store().send(batch(0, 1, message_for(1, 2)));
    wait_for(&notices, 0, 1);
    faults.plan_next(Call::Commit, Fault::Stopped);
    writer.to_store().send(batch(0, 2, message_for(1, 4)));
    assert!(faults.wait_until_stopped(PATIENCE));
    (3..100).for_each(|lsn| writer.to_store().send(batch(0, lsn, message_for(1, 2 * lsn))));
    assert!(notices.try_recv().is_err(), "nothing is promised meanwhile");
    faults.release();
    wait_for(&notices, 0, 99);
    assert_eq!(faults.count(Call::Commit), 3, "one for all that came while one was under way");
    writer.stop();
}

#[test]
fn acknowledgements_are_kept_though_the_group_that_they_are_in_never_fits() {
    let (memory, faults) = (Memory::default(), Faults::default());
    let mut store = Faulty::new(Box::new(memory.clone()), faults.clone());
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (told, notices) = mpsc::channel();
    let writer =
        Writer::start(Box::new(store), WriterOptions::default(), budget(), move |n| told.send(n).unwrap())
            .unwrap();
    writer.to_store().send(batch(0, 1, message_for(1, 2)));
    wait_for(&notices, 0, 1);
    let next = faults.count(Call::Commit);
    (next..next + 1000).for_each(|nth| faults.plan(Call::Commit, nth, Fault::Full));
    let mut records = message_for(1, 4);
    records.extend([Record::EntryAcknowledged(EntryNumber(2)), Record::BodyReleased(BodyNumber(2))]);
    writer.to_store().send(batch(0, 2, records));
    let deadline = crate::clock::now() + PATIENCE;
    while !kept(&memory).is_empty() {
        assert!(crate::clock::now() < deadline, "the message is still there, and the new one is not");
        std::thread::yield_now();
    }
    writer.stop();
}

#[test]
fn a_stop_does_not_wait_for_a_page_that_another_process_keeps_locked() {
    let faults = Faults::default();
    let (writer, notices) = writer_with(&faults);
    // More often than the reading thread can ask before the stop.
    (0..1_000_000).for_each(|nth| faults.plan(Call::ReadEntries, nth, Fault::Busy));
    let session = SessionToken { slot: 0, generation: 0 };
    writer.to_store().read(StorePageRequest {
        shard: 0,
        session,
        wanted: vec![(EntryNumber(2), BodyNumber(2))],
    });
    while faults.count(Call::ReadEntries) == 0 {
        std::thread::yield_now();
    }
    writer.stop();
    let is_bad =
        |notice: &WriterNotice| matches!(notice, WriterNotice::Failed(_) | WriterNotice::Page { .. });
    assert!(!notices.try_iter().any(|notice| is_bad(&notice)));
}
