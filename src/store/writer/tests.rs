use super::*;
use crate::journal::record::{BodyNumber, EntryNumber, Lsn, Move, MoveNumber, Part, Record};
use crate::store::Moment;
use crate::store::memory::Memory;
use crate::store::tests::{body, entry, message, session};
use crate::time::Instant;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

const PATIENCE: Duration = Duration::from_secs(10);

fn start(memory: &Memory) -> (Writer, Receiver<Notice>) {
    let mut store = memory.clone();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (told, notices) = mpsc::channel();
    let writer = Writer::start(Box::new(store), Options::default(), move |n| told.send(n).unwrap()).unwrap();
    (writer, notices)
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

fn wait_for(notices: &Receiver<Notice>, shard: u8, lsn: u64) {
    loop {
        match notices.recv_timeout(PATIENCE).unwrap() {
            Notice::Committed(committed) if committed == (Committed { shard, lsn: Lsn(lsn) }) => return,
            Notice::Committed(_) => {}
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

    let request = PageRequest {
        shard: 3,
        session: SessionToken { slot: 7, generation: 1 },
        wanted: vec![(EntryNumber(2), BodyNumber(2))],
    };
    store.read(request);
    let Notice::Page { shard: 3, session, wanted, entries } = notices.recv_timeout(PATIENCE).unwrap() else {
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
    begun.moves.push(Move { number: MoveNumber(9), parts: 1 });
    writer.to_store().send(begun);
    for n in 2..2000 {
        writer.to_store().send(batch(0, n, vec![Record::Entry(Box::new(entry(n * 2, 1, 2)))]));
    }
    let mut part = batch(1, 1, Vec::new());
    part.parts.push(Part { of: MoveNumber(9), records: message_for(3, 5) });
    writer.to_store().retained(vec![RetainedRecord::Set(message("r", Instant::NEVER, b"x"))]);
    writer.to_store().send(part);
    writer.stop();
    let recovered = Memory::from_image(memory.image()).recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(recovered.sessions.iter().map(|s| s.entries.len()).sum::<usize>(), 2000);
    assert_eq!(recovered.retained.len(), 1);
    let last = notices.try_iter().filter_map(|n| match n {
        Notice::Committed(Committed { shard: 0, lsn }) => Some(lsn.0),
        _ => None,
    });
    assert_eq!(last.max(), Some(1999));
}
