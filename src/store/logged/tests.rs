//! The log and the database together: kills between an append and its apply, pages from both, and a
//! database that cannot be written.

use super::*;
use crate::mqtt::packet::PacketId;
use crate::operators::wanted::Wanted;
use crate::persistence::records::{
    BodyNumber, DelayedNumber, EntryNumber, Flight, Record, RetainedRecord, SessionKey, StoredDelayed,
};
use crate::store::StoreReader;
use crate::store::lagging::apply::lock;
use crate::store::lagging::lookup::Lookup;
use crate::store::lagging::unapplied::{Hindrance, Unapplied};
use crate::store::log::log_in;
use crate::store::sqlite::directory::database_in;
use crate::store::sqlite::inspect::StoreInspection;
use crate::store::sqlite::{Figures, schema};
use crate::store::tests::{body, commit, entry, letter, message, rows, session};
use crate::time::Instant;
use rusqlite::Connection;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const OPTIONS: StoreOptions = StoreOptions { durability: DurabilityLevel::Commit, size_limit: None };
/// Files of the log of 1 MiB, so that a test need not fill 32.
const SMALL: StoreOptions = StoreOptions { size_limit: Some(64 * MIB), ..OPTIONS };
const DEADLINE: Duration = Duration::from_secs(20);

fn open(data: &Path) -> LoggedStore {
    LoggedStore::open(data, SMALL).unwrap()
}

/// Opens a store, and recovers what is in it.
fn start(data: &Path) -> (LoggedStore, Recovered) {
    let mut store = open(data);
    let recovered = store.recover(Moment::now(), Duration::ZERO).unwrap();
    (store, recovered)
}

/// A store with a session, and with its applying thread running.
fn started() -> (TempDir, LoggedStore) {
    let data = tempfile::tempdir().unwrap();
    let (mut store, _) = start(data.path());
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c")))]);
    store.lagging.unapplied.await_applied().unwrap();
    (data, store)
}

fn put(number: u64, payload: &[u8]) -> Vec<Record> {
    let message = message("t", Instant::NEVER, payload);
    vec![body(number, message), Record::Entry(Box::new(entry(number, 1, number)))]
}

fn acknowledged(number: u64) -> Vec<Record> {
    vec![Record::EntryAcknowledged(EntryNumber(number)), Record::BodyReleased(BodyNumber(number))]
}

fn wanted(numbers: &[u64]) -> Vec<(EntryNumber, BodyNumber)> {
    numbers.iter().map(|number| (EntryNumber(*number), BodyNumber(*number))).collect()
}

fn page(reader: &mut dyn StoreReader, numbers: &[u64]) -> Vec<(u64, Vec<u8>)> {
    let entries = reader.entries(&wanted(numbers)).unwrap();
    entries.iter().map(|entry| (entry.number.0, entry.message.payload().to_vec())).collect()
}

/// Keeps the applying thread from the database.
fn hold(database: &Mutex<Sqlite>) -> MutexGuard<'_, Sqlite> {
    lock(database)
}

fn copy_database(from: &Path, to: &Path) {
    for name in ["homing.db", "homing.db-wal"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

fn copy_log(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(log_in(to));
    fs::create_dir(log_in(to)).unwrap();
    for file in fs::read_dir(log_in(from)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), log_in(to).join(file.file_name())).unwrap();
    }
}

fn position_of(data: &Path) -> u64 {
    let connection = Connection::open(database_in(data)).unwrap();
    let sql = "SELECT value FROM meta WHERE name = 'position'";
    connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64
}

fn entries_of(recovered: &Recovered) -> Vec<u64> {
    recovered.sessions[0].entries.iter().map(|entry| entry.number.0).collect()
}

/// A load with all kinds of changes: messages that come and go, sessions, identifiers.
fn load(n: u64) -> Vec<Record> {
    let mut records = put(10 * n, format!("message {n}").as_bytes());
    let flight = Flight { running: n, transmissions: 1 };
    let packet_id = PacketId::new(1 + (n % 7) as u16).unwrap();
    records.push(Record::Sent { number: EntryNumber(10 * n), flight });
    if n.is_multiple_of(3) {
        records.push(Record::Received(EntryNumber(10 * n)));
        records.push(Record::BodyDone(BodyNumber(10 * n)));
    }
    if n > 5 && n.is_multiple_of(2) && !(n - 4).is_multiple_of(3) {
        records.extend(acknowledged(10 * (n - 4)));
    }
    if n % 14 < 7 {
        records.push(Record::Incoming { session: SessionKey(1), packet_id });
    } else if n != 7 {
        records.push(Record::IncomingDone { session: SessionKey(1), packet_id });
    }
    if n.is_multiple_of(5) {
        records.push(Record::Session(Box::new(session(10 * n + 1, "other"))));
    }
    if n % 5 == 2 && n > 5 {
        records.push(Record::SessionEnded(SessionKey(10 * (n - 2) + 1)));
    }
    let due = Instant::from_millis(1 << 40);
    let message = message("later", Instant::NEVER, b"x");
    let number = DelayedNumber(10 * n + 2);
    records.push(Record::Delayed(Box::new(StoredDelayed { number, due, message, owner: None })));
    if n % 4 == 3 {
        records.push(Record::DelayedDone(DelayedNumber(10 * (n - 1) + 2)));
        records.push(Record::Letter(Arc::new(letter(10 * n + 3))));
    }
    records
}

#[test]
fn an_inspection_names_what_the_database_does_not_have() {
    let (data, mut store) = started();
    let lines = || StoreInspection::open(data.path()).unwrap().log_lines();
    let applied = store.log.position();
    let [position, log_bytes, behind] = lines();
    assert_eq!(position, format!("position           {applied}"));
    assert_eq!(log_bytes, format!("log bytes          {}", store.log.bytes()));
    assert_eq!(behind, "not in database    nothing");
    let held = Arc::clone(&store.lagging.database);
    let held = hold(&held);
    (1..=3).for_each(|n| commit(&mut store, load(n)));
    let bytes = store.lagging.statistics.unapplied_bytes.load(Ordering::Relaxed);
    let (first, last) = (applied + 1, store.log.position());
    assert_eq!(lines()[2], format!("not in database    {bytes} bytes, positions {first} to {last}"));
    drop(held);
    store.lagging.unapplied.await_applied().unwrap();
    assert_eq!(lines()[2], "not in database    nothing");
}

#[test]
fn a_database_of_any_moment_and_the_whole_log_come_to_the_same_rows() {
    let (data, mut store) = started();
    let mut copies = Vec::new();
    for n in 1..120 {
        if n % 20 == 1 {
            let copy = tempfile::tempdir().unwrap();
            let database = Arc::clone(&store.lagging.database);
            let _held = hold(&database);
            copy_database(data.path(), copy.path());
            copies.push(copy);
        }
        let mut group = CommitGroup::default();
        load(n).into_iter().for_each(|record| group.fold(record));
        let topic = format!("topic {}", n % 6);
        if n.is_multiple_of(4) {
            group.retain(RetainedRecord::Removed(topic.as_str().into()));
        } else {
            group.retain(RetainedRecord::Set(message(&topic, Instant::NEVER, b"state").into()));
        }
        group.seal();
        // No tidying: the whole log stays.
        store.commit(&mut group).unwrap();
        if n.is_multiple_of(30) {
            store.lagging.unapplied.await_applied().unwrap();
        }
    }
    store.lagging.unapplied.await_applied().unwrap();
    let expected = rows(data.path());
    assert!(expected.len() > 100);
    for copy in copies {
        copy_log(data.path(), copy.path());
        let before = position_of(copy.path());
        let (store, recovered) = start(copy.path());
        assert!(recovered.next_number > 119 * 10, "{}", recovered.next_number);
        drop(store);
        assert_eq!(rows(copy.path()), expected, "from position {before}");
    }
}

#[test]
fn what_was_committed_is_there_after_a_kill_that_left_the_database_behind() {
    let (data, mut store) = started();
    let killed = tempfile::tempdir().unwrap();
    let database = Arc::clone(&store.lagging.database);
    let held = hold(&database);
    for number in 10..20 {
        commit(&mut store, put(number, b"x"));
    }
    commit(&mut store, acknowledged(12));
    copy_database(data.path(), killed.path());
    copy_log(data.path(), killed.path());
    drop(held);
    let before = position_of(killed.path());
    let (again, recovered) = start(killed.path());
    assert_eq!(entries_of(&recovered), [10, 11, 13, 14, 15, 16, 17, 18, 19]);
    assert_eq!(again.log.position(), store.log.position());
    assert!(before < again.log.position() && recovered.next_number >= 20);
    let numbers = page(&mut *again.reader().unwrap(), &[10, 12, 19]);
    assert_eq!(numbers.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [10, 19]);
}

#[test]
fn pages_come_from_memory_from_the_database_and_from_both_in_the_order_that_was_asked() {
    let (_data, mut store) = started();
    let mut reader = store.reader().unwrap();
    for number in 10..14 {
        commit(&mut store, put(number, &[number as u8]));
    }
    store.lagging.unapplied.await_applied().unwrap();
    let is = |numbers: &[u64]| numbers.iter().map(|n| (*n, vec![*n as u8])).collect::<Vec<_>>();
    assert_eq!(page(&mut *reader, &[13, 99, 10]), is(&[13, 10]), "from the database");
    let database = Arc::clone(&store.lagging.database);
    let held = hold(&database);
    for number in 20..24 {
        commit(&mut store, put(number, &[number as u8]));
    }
    commit(&mut store, acknowledged(11));
    commit(&mut store, acknowledged(21));
    let number = EntryNumber(12);
    commit(&mut store, vec![Record::Sent { number, flight: Flight { running: 1, transmissions: 1 } }]);
    assert_eq!(page(&mut *reader, &[23, 21, 20]), is(&[23, 20]), "from memory");
    assert_eq!(page(&mut *reader, &[20, 10, 11, 23, 99, 12, 21, 13]), is(&[20, 10, 23, 12, 13]));
    assert!(page(&mut *reader, &[]).is_empty());
    drop(held);
    store.lagging.unapplied.await_applied().unwrap();
    assert_eq!(page(&mut *reader, &[20, 10, 11, 23, 99, 12, 21, 13]), is(&[20, 10, 23, 12, 13]));
}

fn group(records: Vec<Record>) -> CommitGroup {
    let mut group = CommitGroup::default();
    records.into_iter().for_each(|record| group.fold(record));
    group.seal();
    group
}

fn mark(position: u64) -> Mark {
    Mark { position, ..Mark::default() }
}

/// Returns which of these entries are in memory, and which only the database can have.
fn look(unapplied: &Unapplied, numbers: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let Lookup::Found { in_memory, in_database } = unapplied.look(&wanted(numbers)) else {
        panic!("a message is apart")
    };
    let in_memory = in_memory.into_iter().map(|recent| recent.entry.number.0).collect();
    (in_memory, in_database.into_iter().map(|at| numbers[at]).collect())
}

#[test]
fn while_an_apply_is_under_way_a_page_sees_what_it_takes_and_what_has_come_since() {
    let unapplied = Unapplied::new(MIB, mark(0), Figures::default());
    unapplied
        .add(&mut group([put(10, b"x"), put(11, b"x"), put(12, b"x")].concat()), mark(1), 9, true)
        .unwrap();
    let portion = unapplied.take().unwrap();
    let flight = Flight { running: 1, transmissions: 1 };
    let changes = vec![
        Record::Sent { number: EntryNumber(10), flight },
        Record::Received(EntryNumber(11)),
        Record::EntryAcknowledged(EntryNumber(12)),
    ];
    unapplied.add(&mut group(changes), mark(2), 9, false).unwrap();
    unapplied.add(&mut group(put(13, b"x")), mark(3), 9, true).unwrap();
    assert_eq!(look(&unapplied, &[10, 11, 12, 13, 14]), (vec![10, 11, 13], vec![14]));
    let (group, _) = unapplied.done(portion, None);
    assert_eq!(group.len(), 6);
    assert_eq!(look(&unapplied, &[10, 11, 12, 13, 14]), (vec![13], vec![10, 11, 14]));
    let portion = unapplied.take().unwrap();
    assert_eq!((portion.mark.position, unapplied.applied()), (3, 1));
    unapplied.done(portion, None);
    assert_eq!((unapplied.applied(), look(&unapplied, &[13])), (3, (vec![], vec![13])));
}

#[test]
fn what_was_refused_takes_along_what_has_come_since_and_a_stop_gives_it_back_at_once() {
    let unapplied = Unapplied::new(MIB, mark(0), Figures { has_room: true, ..Figures::default() });
    let hindrance = |is_full| Hindrance { why: "a reason".into(), is_full };
    unapplied.add(&mut group(put(10, b"x")), mark(1), 5, true).unwrap();
    let portion = unapplied.take().unwrap();
    unapplied.add(&mut group(acknowledged(10)), mark(2), 7, true).unwrap();
    unapplied.hindered(hindrance(true));
    let portion = unapplied.refused(portion, Duration::ZERO).unwrap();
    assert!(portion.group.is_empty() && portion.mark.position == 2);
    assert_eq!(look(&unapplied, &[10]), (vec![], vec![10]), "it never came to the database");
    assert_eq!(unapplied.room(), -12, "both frames wait");
    let why = unapplied.await_applied().unwrap_err();
    assert!(matches!(&why, StoreError::Behind(why) if why == "a reason"), "{why}");
    let why = unapplied.await_room(11, Duration::ZERO).unwrap_err();
    assert!(matches!(why, StoreError::Behind(_)), "{why}");
    unapplied.await_room(12, Duration::ZERO).unwrap();
    unapplied.stop();
    unapplied.hindered(hindrance(false));
    let portion = unapplied.refused(portion, DEADLINE * 100).unwrap();
    unapplied.done(portion, None);
    assert!(unapplied.take().is_none());
    unapplied.await_applied().unwrap();
    unapplied.await_room(0, Duration::ZERO).unwrap();
}

#[test]
fn an_entry_apart_from_its_message_is_read_once_the_database_has_both() {
    let (_data, mut store) = started();
    let mut reader = store.reader().unwrap();
    commit(&mut store, put(10, b"x"));
    store.lagging.unapplied.await_applied().unwrap();
    commit(&mut store, vec![Record::Entry(Box::new(entry(11, 1, 10)))]);
    let pair = (EntryNumber(11), BodyNumber(10));
    assert_eq!(reader.entries(&[pair]).unwrap()[0].message.payload(), b"x");
    assert_eq!(store.lagging.unapplied.applied(), store.log.position());
}

#[test]
fn delayed_messages_and_questions_wait_for_the_database() {
    let (_data, mut store) = started();
    let mut reader = store.reader().unwrap();
    let due = Instant::from_millis(9_000_000);
    let number = DelayedNumber(5);
    let message = message("later", Instant::NEVER, b"x");
    let delayed = Record::Delayed(Box::new(StoredDelayed { number, due, message, owner: None }));
    commit(&mut store, vec![delayed]);
    let found = reader.delayed((Instant::ZERO, DelayedNumber(0)), Instant::NEVER, 9).unwrap();
    assert_eq!(found.len(), 1);
    commit(&mut store, put(10, b"x"));
    let mut viewed = 0;
    reader.view(&wanted(&[10]), Instant::ZERO, &Wanted::default(), &mut |_| viewed += 1).unwrap();
    assert_eq!(viewed, 1);
}

#[test]
fn behind_a_lock_of_another_process_commits_go_on_up_to_a_bound_and_a_stop_loses_nothing() {
    let (data, mut store) = started();
    let mut reader = store.reader().unwrap();
    let other = Connection::open(database_in(data.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let large = vec![b'x'; MIB as usize - 4096];
    commit(&mut store, put(10, b"x"));
    let refusal = reader.delayed((Instant::ZERO, DelayedNumber(0)), Instant::NEVER, 9).unwrap_err();
    assert!(matches!(refusal, StoreError::Behind(_)), "{refusal}");
    assert!(store.has_room().unwrap(), "a lock is no want of room");
    assert_eq!(page(&mut *reader, &[10]), [(10, b"x".to_vec())]);
    let mut number = 20;
    let why = loop {
        match store.commit(&mut group(put(number, &large))) {
            Ok(()) => number += 1,
            Err(why) => break why,
        }
    };
    assert!(matches!(&why, StoreError::Behind(why) if why.contains("MiB of the log")), "{why}");
    assert!((27..=30).contains(&number), "{number}: eight files of 1 MiB");
    assert_eq!(page(&mut *reader, &[20]).len(), 1);
    assert!(matches!(store.commit(&mut group(put(number, &large))), Err(StoreError::Behind(_))));
    drop((store, reader));
    let before = position_of(data.path());
    other.execute_batch("ROLLBACK").unwrap();
    let (mut store, recovered) = start(data.path());
    assert_eq!(entries_of(&recovered), [vec![10], (20..number).collect()].concat());
    assert!(store.log.position() > before);
    commit(&mut store, put(number, b"now"));
}

#[test]
fn a_database_that_is_unlocked_takes_what_waited_without_a_word_from_anybody() {
    let (data, mut store) = started();
    let other = Connection::open(database_in(data.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    commit(&mut store, put(10, b"x"));
    assert!(matches!(store.lagging.unapplied.await_applied(), Err(StoreError::Behind(_))));
    other.execute_batch("ROLLBACK").unwrap();
    until(|| store.lagging.unapplied.applied() == store.log.position());
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = clock::now() + DEADLINE;
    while !is_so() {
        assert!(clock::now() < deadline, "it takes too long");
        std::thread::yield_now();
    }
}

#[test]
fn a_full_database_has_no_room_and_acknowledgements_make_room_again() {
    let data = tempfile::tempdir().unwrap();
    // The log may have 12 MiB of these.
    let options = StoreOptions { size_limit: Some(16 * MIB), ..OPTIONS };
    let mut store = LoggedStore::open(data.path(), options).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c")))]);
    let mut number = 10;
    let sixty = vec![b'x'; 60_000];
    // One group in the database at a time, so that nothing cancels out.
    loop {
        commit(&mut store, put(number, &sixty));
        number += 1;
        match store.lagging.unapplied.await_applied() {
            Ok(()) => {}
            Err(StoreError::Behind(_)) => break,
            Err(why) => panic!("{why}"),
        }
    }
    assert!((50..90).contains(&number), "{number}: 4 MiB");
    assert!(!store.has_room().unwrap());
    // A kill in this state: the next start has everything that was acknowledged, and no room.
    let killed = tempfile::tempdir().unwrap();
    {
        let database = Arc::clone(&store.lagging.database);
        let _held = hold(&database);
        copy_database(data.path(), killed.path());
        copy_log(data.path(), killed.path());
    }
    let mut again = LoggedStore::open(killed.path(), options).unwrap();
    let recovered = again.recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(entries_of(&recovered), (10..number).collect::<Vec<_>>());
    assert!(!again.has_room().unwrap() && again.room().unwrap() < 0);
    drop(again);
    // Acknowledgements alone go on, and lead out.
    for gone in 10..number - 5 {
        store.commit_ahead(&group(acknowledged(gone))).unwrap();
    }
    until(|| store.lagging.unapplied.applied() == store.log.position());
    drop(store);
    let mut store = LoggedStore::open(data.path(), options).unwrap();
    let recovered = store.recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(entries_of(&recovered), (number - 5..number).collect::<Vec<_>>());
}

/// The committing thread does not tidy while its commits find no room.
#[test]
fn a_commit_without_room_frees_the_files_that_the_database_has_and_takes_one_of_them() {
    let (data, mut store) = started();
    let large = vec![b'x'; MIB as usize / 3];
    for number in 10..20 {
        commit(&mut store, put(number, &large));
        store.lagging.unapplied.await_applied().unwrap();
    }
    let files = || fs::read_dir(log_in(data.path())).unwrap().count();
    let before = files();
    assert!(before > 4);
    store.log.refuse_new_files(true);
    for number in 20..40 {
        commit(&mut store, put(number, &large));
        store.lagging.unapplied.await_applied().unwrap();
    }
    assert!(files() <= before);
    drop(store);
    assert_eq!(entries_of(&start(data.path()).1).len(), 30);
}

#[test]
fn heartbeats_alone_do_not_reach_the_database_and_the_last_one_counts_at_the_next_start() {
    let data = tempfile::tempdir().unwrap();
    let at = |monotonic, unix_millis| Moment {
        monotonic: Instant::from_millis(monotonic),
        unix_millis,
        boot: None,
    };
    let mut store = open(data.path());
    store.recover(at(0, 1_700_000_000_000), Duration::ZERO).unwrap();
    let begun = position_of(data.path());
    for n in 1..=100 {
        store.heartbeat(at(n * 1_000, 1_700_000_000_000 + n * 1_000)).unwrap();
    }
    assert_eq!(store.lagging.unapplied.applied(), begun);
    store.lagging.unapplied.await_applied().unwrap();
    assert_eq!(
        (store.lagging.unapplied.applied(), position_of(data.path())),
        (begun, begun),
        "nobody needs them"
    );
    let killed = tempfile::tempdir().unwrap();
    copy_database(data.path(), killed.path());
    copy_log(data.path(), killed.path());
    assert_eq!(position_of(killed.path()), begun);
    drop(store);
    for data in [killed, data] {
        let mut store = open(data.path());
        let recovered = store.recover(at(0, 1_700_000_107_000), Duration::ZERO).unwrap();
        assert_eq!(recovered.down, Duration::from_secs(7));
    }
}

#[test]
fn a_start_that_mends_and_copies_and_is_killed_before_the_database_has_it_is_made_again() {
    let (data, mut store) = started();
    let records = [put(10, b"x"), put(11, b"nobody's"), vec![Record::EntryDone(EntryNumber(11))]].concat();
    commit(&mut store, records);
    commit(&mut store, vec![Record::Entry(Box::new(entry(12, 1, 10)))]);
    drop(store);
    let killed = tempfile::tempdir().unwrap();
    let mut store = open(data.path());
    copy_database(data.path(), killed.path());
    let before = position_of(killed.path());
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let copy = BodyCopy { from: BodyNumber(10), to: BodyNumber(13), entries: vec![EntryNumber(12)] };
    // As after a first attempt that found no room in the database.
    store.copy_bodies(std::slice::from_ref(&copy)).unwrap();
    store.copy_bodies(&[copy]).unwrap();
    assert_eq!(store.log.position(), before + 3, "mends and copies have frames");
    let expected = rows(data.path());
    copy_log(data.path(), killed.path());
    let (again, recovered) = start(killed.path());
    assert_eq!(rows(killed.path()), expected);
    assert_eq!((again.log.position(), entries_of(&recovered)), (before + 3, vec![10, 12]));
    assert!(recovered.next_number >= 14);
    let pair = (EntryNumber(12), BodyNumber(13));
    assert_eq!(again.reader().unwrap().entries(&[pair]).unwrap()[0].message.payload(), b"x");
}

#[test]
fn stores_of_every_older_version_begin_a_log_and_lose_nothing() {
    let versions = [
        include_str!("../sqlite/tests/version_1.sql"),
        include_str!("../sqlite/tests/version_2.sql"),
        include_str!("../sqlite/tests/version_3.sql"),
        include_str!("../sqlite/tests/version_4.sql"),
        include_str!("../sqlite/tests/version_5.sql"),
        include_str!("../sqlite/tests/version_6.sql"),
        include_str!("../sqlite/tests/version_7.sql"),
        include_str!("../sqlite/tests/version_8.sql"),
        include_str!("../sqlite/tests/version_9.sql"),
    ];
    for (version, sql) in (1..).zip(versions) {
        let data = tempfile::tempdir().unwrap();
        Connection::open(database_in(data.path())).unwrap().execute_batch(sql).unwrap();
        let (mut store, recovered) = start(data.path());
        assert_eq!((recovered.sessions.len(), store.log.position()), (2, 0), "version {version}");
        assert!(recovered.next_number >= 100, "version {version}");
        commit(&mut store, put(200, b"new"));
        assert_eq!(store.log.position(), 1);
        drop(store);
        let connection = Connection::open(database_in(data.path())).unwrap();
        let now: i32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!((now, position_of(data.path())), (schema::VERSION, 1), "version {version}");
        drop(connection);
        let (_, again) = start(data.path());
        let count = |recovered: &Recovered| recovered.sessions[0].entries.len();
        assert_eq!(count(&again), count(&recovered) + 1, "version {version}");
    }
}

#[test]
fn a_store_that_syncs_in_intervals_syncs_its_log_when_it_is_told() {
    let data = tempfile::tempdir().unwrap();
    let options = StoreOptions { durability: DurabilityLevel::Interval, ..SMALL };
    let mut store = LoggedStore::open(data.path(), options).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c")))]);
    assert!(store.log.synced() < store.log.position());
    store.sync().unwrap();
    assert_eq!(store.log.synced(), store.log.position());
}

#[test]
fn memory_of_changes_that_wait_is_counted_once_and_released_with_their_apply() {
    let (_data, mut store) = started();
    let budget = Arc::new(Budget::new(u64::MAX));
    store.lagging.begin_anew(Unapplied::new(MIB, mark(store.log.position()), Figures::default()));
    store.attach(&budget, &Arc::default());
    budget.report();
    let before = budget.in_use();
    let mut waiting = group(put(10, &[b'x'; 10_000]));
    waiting.take_charge(&crate::mqtt::charge::Charge::new(5_000));
    store.commit(&mut waiting).unwrap();
    waiting.clear();
    let counted = budget.report() - before;
    assert!((15_000..17_000).contains(&counted), "{counted}");
    store.lagging.unapplied.await_applied().unwrap();
    until(|| budget.in_use() <= before);
}

/// Returns all that a start finds and reads, as text; and true if messages were missing, which the
/// log and the counters of drops say.
fn contents(data: &Path) -> Result<(String, bool), StoreError> {
    let mut store = LoggedStore::open(data, SMALL)?;
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 4_000_000_000_000, boot: None };
    let mut recovered = store.recover(now, Duration::from_millis(1 << 41))?;
    // The order of retained messages means nothing.
    recovered.retained.sort_by(|one, other| one.message.topic().cmp(other.message.topic()));
    let entries = recovered.sessions.iter().flat_map(|session| &session.entries);
    let wanted: Vec<_> = entries.filter_map(|entry| Some((entry.number, entry.body?.number))).collect();
    let read = store.reader()?.entries(&wanted)?;
    let messages = read.iter().map(|entry| &entry.message);
    let messages = messages
        .chain(recovered.retained.iter().map(|retained| &retained.message))
        .chain(recovered.delayed.iter().map(|delayed| &delayed.message))
        .chain(recovered.letters.iter().map(|letter| &letter.message));
    let payloads: Vec<_> = messages.map(|message| message.payload().to_vec()).collect();
    let text = format!("{} {recovered:?} {read:?} {payloads:?}", store.log.position());
    Ok((text, read.len() < wanted.len()))
}

/// Each bit that flips is found, or has no effect. `HOMING_FLIPS` is the number of flips.
#[test]
fn a_flip_in_the_log_or_the_database_is_found_or_has_no_effect() {
    let (data, mut store) = started();
    let whole = tempfile::tempdir().unwrap();
    for n in 1..30 {
        commit(&mut store, load(n));
        let mut group = CommitGroup::default();
        let retained = message(&format!("retained/{}", n % 7), Instant::NEVER, &[n as u8; 30]);
        group.retain(RetainedRecord::Set(retained.into()));
        group.seal();
        store.commit(&mut group).unwrap();
        if n == 15 {
            store.lagging.unapplied.await_applied().unwrap();
        }
    }
    {
        let database = Arc::clone(&store.lagging.database);
        let _held = hold(&database);
        copy_database(data.path(), whole.path());
        copy_log(data.path(), whole.path());
    }
    let last = store.log.position();
    drop(store);
    let name = fs::read_dir(log_in(whole.path())).unwrap().map(|file| file.unwrap().file_name());
    let name = name.filter(|name| name.to_string_lossy().ends_with(".log")).max().unwrap();
    let frames = fs::read(log_in(whole.path()).join(&name)).unwrap();
    let frames = frames.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    // The same database after all was written back, too.
    let quiet = tempfile::tempdir().unwrap();
    copy_database(whole.path(), quiet.path());
    copy_log(whole.path(), quiet.path());
    let expected = contents(quiet.path()).unwrap().0;
    let flips = std::env::var("HOMING_FLIPS").map_or(160, |flips| flips.parse().unwrap());
    let (mut same, mut cut, mut found, mut silent, mut seed) = (0, 0, 0, Vec::new(), 7_u64);
    for n in 0..flips {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, file) = match n % 4 {
            0 => (&whole, PathBuf::from("homing.db")),
            1 => (&whole, PathBuf::from("homing.db-wal")),
            2 => (&whole, Path::new("log").join(&name)),
            _ => (&quiet, PathBuf::from("homing.db")),
        };
        let Ok(mut bytes) = fs::read(from.path().join(&file)) else { continue };
        let most = if n % 4 == 2 { frames } else { bytes.len() as u64 };
        if most == 0 {
            continue;
        }
        let broken = tempfile::tempdir().unwrap();
        copy_database(from.path(), broken.path());
        copy_log(from.path(), broken.path());
        let at = ((seed >> 20) % most) as usize;
        bytes[at] ^= 1 << (seed >> 60 & 7);
        fs::write(broken.path().join(&file), bytes).unwrap();
        match contents(broken.path()) {
            Err(why) => {
                assert!(!why.to_string().is_empty());
                found += 1;
            }
            Ok((text, _)) if text == expected => same += 1,
            Ok((_, true)) => found += 1,
            Ok((text, _)) if n % 4 == 2 && text.starts_with(&format!("{} ", last - 1)) => cut += 1,
            Ok((text, _)) => {
                let same = text.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other).count();
                let from = same.saturating_sub(60);
                let excerpt = |text: &str| text.chars().skip(from).take(200).collect::<String>();
                let (is, was) = (excerpt(&text), excerpt(&expected));
                silent.push(format!("{file:?} {}, byte {at}: {is:?}, and it was {was:?}", n % 4));
            }
        }
    }
    println!("{found} found, {same} without effect, {cut} in the last frame, {} silent", silent.len());
    assert!(silent.is_empty(), "{silent:#?}");
    assert!(same > 20 && found > 20, "{found} found, {same} without effect");
}
