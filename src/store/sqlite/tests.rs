//! What is peculiar to the store in a file.

use super::*;
use crate::mqtt::charge::Charge;
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{PacketId, QoS};
use crate::mqtt::will::Will;
use crate::persistence::records::{
    BodyNumber, DelayedNumber, EntryNumber, Record, RecoveredBody, RetainedRecord, SessionKey, SessionState,
    StoredAccess, StoredDelayed, StoredSession,
};
use crate::store::StoreReader;
use crate::store::sqlite::inspect::StoreInspection;
use crate::store::tests::{body, entry, letter, message, session};
use crate::time::Instant;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::time::UNIX_EPOCH;

const MIB: u64 = 1024 * 1024;

const OPTIONS: SqliteOptions = SqliteOptions { durability: DurabilityLevel::Commit, size_limit: None };

/// A database that takes one group after the other, as if each were a frame of a log.
struct Applied {
    database: Sqlite,
    mark: Mark,
}

impl Applied {
    fn open(path: &Path, options: SqliteOptions) -> Result<Applied, StoreError> {
        let database = Sqlite::open(path, options)?;
        let mark = database.applied()?.1;
        Ok(Applied { database, mark })
    }

    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError> {
        let (recovered, mends) = self.database.recover(now, horizon)?;
        if self.database.heartbeat()?.is_none() {
            self.mark.moment = Heartbeat::at(now, self.database.time());
        }
        self.commit(&mends)?;
        Ok(recovered)
    }

    fn commit(&mut self, group: &CommitGroup) -> Result<(), StoreError> {
        let mark = Mark {
            position: self.mark.position + 1,
            next_number: self.mark.next_number.max(group.highest_number() + 1),
            ..self.mark
        };
        self.database.apply(group, self.database.time(), &mark)?;
        self.mark = mark;
        Ok(())
    }

    fn has_room(&mut self) -> bool {
        self.database.figures().unwrap().has_room
    }

    fn reader(&self) -> Box<dyn StoreReader> {
        self.database.opener(Arc::default())().unwrap()
    }
}

impl Deref for Applied {
    type Target = Sqlite;

    fn deref(&self) -> &Sqlite {
        &self.database
    }
}

impl DerefMut for Applied {
    fn deref_mut(&mut self) -> &mut Sqlite {
        &mut self.database
    }
}

fn open(path: &Path) -> Result<Applied, StoreError> {
    Applied::open(path, OPTIONS)
}

fn why(result: Result<Applied, StoreError>) -> String {
    match result {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    }
}

fn group(records: impl IntoIterator<Item = Record>) -> CommitGroup {
    let mut group = CommitGroup::default();
    records.into_iter().for_each(|record| group.fold(record));
    group.seal();
    group
}

fn commit(store: &mut Applied, records: Vec<Record>) {
    store.commit(&group(records)).unwrap();
}

fn large(number: u64) -> [Record; 2] {
    let message = message("t", Instant::NEVER, &vec![b'x'; MIB as usize]);
    [body(number, message), Record::Entry(Box::new(entry(number, 1, number)))]
}

fn done(number: u64) -> [Record; 2] {
    [Record::EntryDone(EntryNumber(number)), Record::BodyDone(BodyNumber(number))]
}

#[test]
fn a_second_process_on_the_same_directory_is_refused_and_told_who_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let first = open(&path).unwrap();
    let refusal = why(open(&path));
    let expected = format!(
        "the data directory {} is in use by another process (pid {})",
        path.display(),
        std::process::id()
    );
    assert_eq!(refusal, expected);
    drop(first);
    open(&path).unwrap();
}

#[test]
fn the_directory_and_what_is_in_it_is_nobody_elses_to_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let mut store = open(&path).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 5, "{files:?}");
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    assert_eq!(path.join("reserve").metadata().unwrap().len(), RESERVE);
}

#[test]
fn a_directory_that_cannot_be_made_is_refused_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let refusal = why(open(&file.join("data")));
    assert!(refusal.contains("/file/data: "), "{refusal}");
}

#[test]
fn a_file_of_a_newer_version_or_of_another_program_is_refused_and_left_alone() {
    let newer = tempfile::tempdir().unwrap();
    open(newer.path()).unwrap().connection.pragma_update(None, "user_version", schema::VERSION + 1).unwrap();
    let refusal = why(open(newer.path()));
    assert!(refusal.contains("of version 12, and this program knows version 11"), "{refusal}");

    let foreign = tempfile::tempdir().unwrap();
    let other = Connection::open(directory::database_in(foreign.path())).unwrap();
    other.execute_batch("CREATE TABLE mine (x); PRAGMA user_version = 1").unwrap();
    let refusal = why(open(foreign.path()));
    assert!(refusal.contains("a database of another program"), "{refusal}");
    other.query_row("SELECT count(*) FROM mine", [], |_| Ok(())).unwrap();

    let garbage = tempfile::tempdir().unwrap();
    std::fs::write(directory::database_in(garbage.path()), vec![7; 8192]).unwrap();
    let refusal = why(open(garbage.path()));
    assert!(refusal.contains("not a database"), "{refusal}");
}

#[test]
fn sessions_of_version_2_have_no_owner_and_get_one() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_2.sql")).unwrap();
    drop(old);
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    let mut store = open(directory.path()).unwrap();
    let recovered = store.recover(now, Duration::from_secs(60)).unwrap();
    assert_eq!(recovered.sessions.len(), 2);
    let mut session = recovered.sessions[0].session.clone();
    assert_eq!(session.user_name, None);
    session.user_name = Some("ann".into());
    commit(&mut store, vec![Record::Session(Box::new(session.clone()))]);
    drop(store);
    let recovered = open(directory.path()).unwrap().recover(now, Duration::from_secs(60)).unwrap();
    let owners: Vec<_> = recovered.sessions.iter().map(|s| s.session.user_name.as_deref()).collect();
    assert_eq!(owners, [Some("ann"), None]);
}

#[test]
fn sessions_of_version_3_keep_their_owners_and_have_no_rules() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_3.sql")).unwrap();
    drop(old);
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    let mut store = open(directory.path()).unwrap();
    let recovered = store.recover(now, Duration::from_secs(60)).unwrap();
    let sessions: Vec<_> = recovered.sessions.iter().map(|found| &found.session).collect();
    assert_eq!([&sessions[0].user_name, &sessions[1].user_name], [&Some("ann".into()), &None]);
    assert!(sessions.iter().all(|session| session.access == StoredAccess::default()));
    let access = StoredAccess {
        claimed_name: Some("bob".into()),
        rules: Some("superuser".into()),
        listener: Some("devices".into()),
        mount_point: Some("tenant/".into()),
    };
    let renewed = StoredSession { access: access.clone(), ..sessions[1].clone() };
    commit(&mut store, vec![Record::Session(Box::new(renewed))]);
    drop(store);
    let recovered = open(directory.path()).unwrap().recover(now, Duration::from_secs(60)).unwrap();
    assert_eq!(recovered.sessions[1].session.access, access);
}

#[test]
fn sessions_of_version_4_keep_their_rules_and_have_no_listener() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_4.sql")).unwrap();
    drop(old);
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    let recovered = open(directory.path()).unwrap().recover(now, Duration::from_secs(60)).unwrap();
    let access: Vec<_> = recovered.sessions.iter().map(|found| found.session.access.clone()).collect();
    let rules = StoredAccess { rules: Some("allow read a\n".into()), ..StoredAccess::default() };
    let claimed = StoredAccess { claimed_name: Some("bob".into()), ..StoredAccess::default() };
    assert_eq!(access, [rules, claimed]);
}

#[test]
fn retained_messages_of_version_5_have_no_source() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_5.sql")).unwrap();
    drop(old);
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    let recovered = open(directory.path()).unwrap().recover(now, Duration::from_secs(60)).unwrap();
    let [only] = &recovered.retained[..] else { panic!("{:?}", recovered.retained) };
    assert_eq!((only.message.topic(), only.source.as_deref()), ("grain/price", None));
}

#[test]
fn a_store_of_version_6_gets_a_table_of_dead_letters_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_6.sql")).unwrap();
    drop(old);
    let mut lines = Vec::new();
    let inspection = StoreInspection::open(directory.path()).unwrap();
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    inspection.dump(now, |line| lines.push(line.to_owned())).unwrap();
    assert!(!lines.iter().any(|line| line.starts_with("dead letters")), "{lines:?}");
    drop(inspection);
    let mut store = open(directory.path()).unwrap();
    let recovered = store.recover(now, Duration::from_secs(60)).unwrap();
    assert_eq!((recovered.letters.len(), recovered.sessions.len(), recovered.delayed.len()), (0, 2, 1));
    assert_eq!(recovered.retained[0].source.as_ref().map(|source| &*source.client_id), Some("farmer"));
    store.commit(&group([Record::Letter(Arc::new(letter(101)))])).unwrap();
    drop(store);
    assert_eq!(open(directory.path()).unwrap().recover(now, Duration::ZERO).unwrap().letters.len(), 1);
}

#[test]
fn messages_of_version_7_count_for_nobody_and_new_ones_for_their_client() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_7.sql")).unwrap();
    drop(old);
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    let mut store = open(directory.path()).unwrap();
    let recovered = store.recover(now, Duration::from_secs(60)).unwrap();
    assert!(recovered.retained.iter().all(|retained| retained.owner.is_none()));
    let [old] = &recovered.delayed[..] else { panic!("{:?}", recovered.delayed) };
    assert!(old.owner.is_none() && recovered.delayed_in_all[0].owner.is_none());
    let owner = Some(Owner::new("farmer", "devices"));
    let new = StoredDelayed { number: DelayedNumber(999), owner: owner.clone(), ..old.clone() };
    store.commit(&group([Record::Delayed(Box::new(new))])).unwrap();
    drop(store);
    let recovered = open(directory.path()).unwrap().recover(now, Duration::from_secs(60)).unwrap();
    assert_eq!(recovered.delayed.iter().map(|d| &d.owner).collect::<Vec<_>>(), [&None, &owner]);
}

#[test]
fn sessions_of_version_8_have_no_mount_point_and_new_ones_have_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_8.sql")).unwrap();
    drop(old);
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    let mut store = open(directory.path()).unwrap();
    let recovered = store.recover(now, Duration::from_secs(60)).unwrap();
    let listeners: Vec<_> = recovered.sessions.iter().map(|s| s.session.access.listener.as_deref()).collect();
    assert_eq!((listeners, recovered.delayed.len()), (vec![None, Some("field")], 1));
    assert!(recovered.sessions.iter().all(|found| found.session.access.mount_point.is_none()));
    assert_eq!(recovered.retained[0].owner, Some(Owner::new("farmer", "field")));
    let mut renewed = recovered.sessions[1].session.clone();
    renewed.access.mount_point = Some("tenant/".into());
    commit(&mut store, vec![Record::Session(Box::new(renewed.clone()))]);
    drop(store);
    let recovered = open(directory.path()).unwrap().recover(now, Duration::from_secs(60)).unwrap();
    assert_eq!(recovered.sessions[1].session.access, renewed.access);
}

#[test]
fn a_store_of_version_9_has_no_log_and_begins_one() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_9.sql")).unwrap();
    drop(old);
    let mut store = open(directory.path()).unwrap();
    assert_eq!((store.applied().unwrap().0.id, store.mark.position, store.mark.next_number), (None, 0, 100));
    store.set_log_id(7).unwrap();
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    assert_eq!(store.recover(now, Duration::ZERO).unwrap().sessions.len(), 2);
    drop(store);
    let store = open(directory.path()).unwrap();
    assert_eq!(
        (store.applied().unwrap().0.id, store.mark.position, store.mark.next_number),
        (Some(7), 1, 100)
    );
}

#[test]
fn rows_of_version_10_get_their_digests_and_keep_their_place_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_10.sql")).unwrap();
    drop(old);
    assert_eq!(StoreInspection::open(directory.path()).unwrap().check().unwrap(), [""; 0]);
    let mut store = open(directory.path()).unwrap();
    assert_eq!((store.applied().unwrap().0.id, store.mark.position, store.mark.next_number), (None, 41, 100));
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis: 1_700_000_010_000, boot: None };
    let recovered = store.recover(now, Duration::from_secs(60)).unwrap();
    assert_eq!((recovered.sessions.len(), recovered.retained.len(), recovered.delayed.len()), (2, 1, 1));
    drop(store);
    assert_eq!(StoreInspection::open(directory.path()).unwrap().check().unwrap(), [""; 0]);
}

/// Each kind of row, changed by another hand, with the text that names it.
#[test]
fn a_damaged_row_is_named_and_the_rest_goes_on_without_it() {
    let changes = [
        ("UPDATE session SET expiry_seconds = 1 WHERE number = 1", "session 1"),
        ("UPDATE session SET ends_ms = ends_ms - 1 WHERE number = 1", "session 1"),
        (
            "UPDATE subscription SET options = options + 1 WHERE session = 1",
            "subscription 1, \"$share/loft/grain/#\"",
        ),
        ("UPDATE incoming SET packet_id = 7", "incoming 1, 7"),
        ("UPDATE body SET expires_ms = expires_ms - 1", "body 10"),
        ("UPDATE entry SET transmissions = 3 WHERE number = 20", "entry 20"),
        ("UPDATE entry SET number = 23 WHERE number = 22", "entry 23"),
        ("UPDATE retained SET payload = x'3431'", "retained \"grain/price\""),
        ("UPDATE delayed SET due_ms = due_ms + 1", "delayed 30"),
        ("UPDATE meta SET value = 99 WHERE name = 'heartbeat_ms'", "meta \"heartbeat_ms\""),
    ];
    for (change, named) in changes {
        let directory = tempfile::tempdir().unwrap();
        let database = directory::database_in(directory.path());
        Connection::open(&database).unwrap().execute_batch(include_str!("tests/version_10.sql")).unwrap();
        drop(open(directory.path()).unwrap());
        Connection::open(&database).unwrap().execute_batch(change).unwrap();
        let opened = open(directory.path());
        let recovered = opened.and_then(|mut store| store.recover(Moment::now(), Duration::ZERO));
        let refusal = recovered.unwrap_err().to_string();
        assert!(refusal.contains(named) && refusal.contains("homing.db: a row is damaged"), "{refusal}");
        assert!(refusal.contains("homing store mend"), "{refusal}");
        if named.starts_with("meta") {
            assert!(mend::mend(directory.path()).unwrap_err().to_string().contains("put a backup in place"));
            continue;
        }
        let faults = StoreInspection::open(directory.path()).unwrap().check().unwrap();
        assert!(faults.iter().any(|fault| fault.starts_with(&format!("damaged: {named}"))), "{faults:?}");
        let mended = mend::mend(directory.path()).unwrap();
        assert!(mended.lost.len() == 1 && mended.lost[0].starts_with(named), "{:?}", mended.lost);
        assert!(mended.aside.exists());
        let mut store = open(directory.path()).unwrap();
        store.recover(Moment::now(), Duration::ZERO).unwrap();
        drop(store);
        let left = StoreInspection::open(directory.path()).unwrap().check().unwrap();
        assert!(left.iter().all(|fault| !fault.contains("damaged")), "{change}: {left:?}");
    }
}

/// SQLite takes a damaged frame there for the end, and would mix what is before it with pages that
/// were written back later.
#[test]
fn a_write_ahead_log_that_is_damaged_is_refused_and_the_database_has_all() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path()).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c")))]);
    for number in 10..30 {
        let message = message("t", Instant::NEVER, b"x");
        commit(&mut store, vec![body(number, message), Record::Entry(Box::new(entry(number, 1, number)))]);
    }
    store.write_back("PASSIVE").unwrap();
    let copy = tempfile::tempdir().unwrap();
    for name in ["homing.db", "homing.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let log = copy.path().join("homing.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let refusal = why(open(copy.path()));
    assert!(refusal.contains("homing.db-wal is damaged") && refusal.contains("store mend"), "{refusal}");
    assert_eq!(mend::mend(copy.path()).unwrap().lost, [""; 0]);
    let mut again = open(copy.path()).unwrap();
    assert_eq!(again.mark.position, store.mark.position);
    let recovered = again.recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(recovered.sessions[0].entries.len(), 20);
}

#[test]
fn a_damaged_message_is_left_out_and_counted_and_the_others_of_its_page_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path()).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let put = |number: u64| {
        [body(number, message("t", Instant::NEVER, b"x")), Record::Entry(Box::new(entry(number, 1, number)))]
    };
    let records = (10..13).flat_map(put);
    commit(&mut store, [Record::Session(Box::new(session(1, "c")))].into_iter().chain(records).collect());
    store.connection.execute("UPDATE body SET payload = 'y' WHERE number = 11", []).unwrap_err();
    store.connection.execute("UPDATE body SET payload = x'79' WHERE number = 11", []).unwrap();
    let statistics = Arc::new(StoreStatistics::default());
    let mut reader = store.opener(Arc::clone(&statistics))().unwrap();
    let wanted: Vec<_> = (10..13).map(|number| (EntryNumber(number), BodyNumber(number))).collect();
    let read = reader.entries(&wanted).unwrap();
    assert_eq!(read.iter().map(|entry| entry.number.0).collect::<Vec<_>>(), [10, 12]);
    assert_eq!(statistics.damaged.load(Ordering::Relaxed), 1);
}

/// The broker that is out of room tries the group again later, with more folded into it.
#[test]
fn an_identifier_that_comes_back_after_its_deletion_went_ahead_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path()).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let (key, packet_id) = (SessionKey(1), PacketId::new(9).unwrap());
    let begun = Record::Incoming { session: key, packet_id };
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c"))), begun.clone()]);
    let mut refused = group([Record::IncomingDone { session: key, packet_id }]);
    let time = store.time();
    store.apply_ahead(&refused, time).unwrap();
    refused.absorb(&mut group([begun]), 1);
    store.commit(&refused).unwrap();
    let recovered = store.recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(recovered.sessions[0].incoming, [packet_id]);
}

#[test]
fn bodies_that_are_copied_twice_are_copied_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path()).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let records = [body(3, message("t", Instant::NEVER, b"x")), Record::Entry(Box::new(entry(4, 1, 3)))];
    commit(&mut store, [Record::Session(Box::new(session(1, "c")))].into_iter().chain(records).collect());
    let copy = BodyCopy { from: BodyNumber(3), to: BodyNumber(6), entries: vec![EntryNumber(4)] };
    let mark = store.mark;
    for _ in 0..2 {
        store.apply_copies(std::slice::from_ref(&copy), &mark).unwrap();
    }
    let read = store.reader().entries(&[(EntryNumber(4), BodyNumber(6))]).unwrap();
    assert_eq!(read[0].message.payload(), b"x");
}

#[test]
fn a_store_of_version_1_opens_with_all_that_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let old = Connection::open(directory::database_in(directory.path())).unwrap();
    old.execute_batch(include_str!("tests/version_1.sql")).unwrap();
    drop(old);
    // The clock was ten days behind when the broker started, and was set then: the heartbeats of
    // version 1 did not follow.
    let ten_days = Duration::from_secs(10 * 24 * 60 * 60);
    let heartbeat = UNIX_EPOCH + Duration::from_millis(1_700_000_000_000);
    let file = std::fs::File::options().write(true).open(directory::database_in(directory.path())).unwrap();
    file.set_modified(heartbeat + ten_days).unwrap();
    let mut store = open(directory.path()).unwrap();
    let unix_millis = 1_700_000_010_000 + ten_days.as_millis() as u64;
    let now = Moment { monotonic: Instant::from_millis(5), unix_millis, boot: None };
    let recovered = store.recover(now, Duration::from_secs(60)).unwrap();
    assert_eq!((recovered.next_number, recovered.down), (100, Duration::from_secs(10)));
    let [pigeon, old] = &recovered.sessions[..] else { panic!("{:?}", recovered.sessions) };
    let will = pigeon.session.will.as_ref().unwrap();
    assert_eq!((&*will.topic, will.qos, will.message_expiry), ("loft/lost", QoS::AtLeastOnce, Some(60)));
    assert_eq!(pigeon.session.ack_timeout, Some(Duration::from_millis(1500)));
    assert_eq!((pigeon.subscriptions.len(), pigeon.incoming.len(), pigeon.entries.len()), (1, 1, 1));
    assert_eq!(old.session.ends, Instant::from_millis(590_005));
    let expected = RecoveredBody { number: BodyNumber(10), size: 120, expires: Instant::from_millis(50_005) };
    assert_eq!(old.entries[0].body, Some(expected));
    assert_eq!((old.entries[1].body, old.entries[1].flight.unwrap().running), (None, 1));
    assert_eq!(recovered.retained[0].message.payload(), b"42");
    assert_eq!(recovered.delayed[0].due, Instant::from_millis(20_005));
    let read = store.reader().entries(&[(EntryNumber(20), BodyNumber(10))]).unwrap();
    assert_eq!(read[0].ids.as_slice(), [7, 9]);
}

#[test]
fn a_database_that_another_process_has_locked_is_busy_and_not_broken() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path()).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let other = Connection::open(store.directory.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let records = group([Record::Session(Box::new(session(1, "c")))]);
    let why = store.commit(&records).unwrap_err();
    assert!(matches!(why, StoreError::Busy(_)), "{why}");
    assert!(why.to_string().starts_with("another process has the database locked: "), "{why}");
    store.tidy().unwrap();
    store.figures().unwrap();
    // Nor does a start take it for broken; it waits a while.
    drop(store);
    let mut store = open(directory.path()).unwrap();
    assert!(matches!(store.recover(Moment::now(), Duration::ZERO), Err(StoreError::Busy(_))));
    other.execute_batch("ROLLBACK").unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    store.commit(&records).unwrap();
}

#[test]
fn an_empty_database_is_a_new_store_only_where_there_was_none() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory::database_in(directory.path());
    // Made by hand, or by a broker that crashed before it had made the tables.
    std::fs::write(&database, "").unwrap();
    std::fs::write(directory.path().join("homing.lock"), "pid 7\nbegins a new store\n").unwrap();
    drop(open(directory.path()).unwrap());
    let lock = directory.path().join("homing.lock");
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), format!("pid {}\n", std::process::id()));
    for left in ["homing.lock", "reserve"] {
        std::fs::write(&database, "").unwrap();
        let refusal = why(open(directory.path()));
        assert!(refusal.contains("homing.db is empty, and there was a store in it"), "{refusal}");
        assert!(refusal.contains("Put a backup in its place, or delete it"), "{refusal}");
        assert_eq!(database.metadata().unwrap().len(), 0, "it is as it was, beside {left}");
        std::fs::remove_file(directory.path().join(left)).unwrap();
    }
    // Whoever deletes it wants a new one.
    std::fs::remove_file(&database).unwrap();
    drop(open(directory.path()).unwrap());
}

#[test]
fn a_value_that_no_broker_wrote_is_refused_by_its_column() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path()).unwrap();
    let mut group = CommitGroup::default();
    group.retain(RetainedRecord::Set(message("t", Instant::NEVER, b"").into()));
    store.commit(&group).unwrap();
    let digest = digest::RETAINED.digest("");
    let sql = format!("UPDATE retained SET qos = 9; UPDATE retained SET digest = {digest}");
    store.connection.execute_batch(&sql).unwrap();
    drop(store);
    let refusal =
        open(directory.path()).unwrap().recover(Moment::now(), Duration::ZERO).unwrap_err().to_string();
    assert!(refusal.contains("index: 2") && refusal.contains("9 is no lawful value"), "{refusal}");
}

#[test]
fn what_is_full_says_so_frees_its_reserve_and_has_room_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { size_limit: Some(RESERVE + 8 * MIB), ..OPTIONS };
    let mut store = Applied::open(directory.path(), options).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c")))]);
    let mut number = 1;
    while store.has_room() {
        number += 1;
        commit(&mut store, large(number).into());
    }
    assert!((7..=9).contains(&number), "{number}: what is left is for what was on its way");
    let refused = loop {
        number += 1;
        if let Err(error) = store.commit(&group(large(number))) {
            break error;
        }
    };
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(!directory.path().join("reserve").exists());
    assert!(!store.has_room());
    // What frees room goes through, also with what did not.
    commit(&mut store, large(number).into_iter().chain(done(2)).chain(done(number)).collect());
    for gone in 3..number {
        commit(&mut store, done(gone).into());
        store.tidy().unwrap();
    }
    assert!(store.has_room());
    commit(&mut store, large(number + 1).into());
    drop(store);
    let mut store = Applied::open(directory.path(), options).unwrap();
    let recovered = store.recover(Moment::now(), Duration::ZERO).unwrap();
    assert_eq!(recovered.sessions[0].entries.len(), 1);
    assert!(directory.path().join("reserve").exists());
}

#[test]
fn the_write_ahead_log_is_written_back_and_begins_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { durability: DurabilityLevel::Os, ..OPTIONS };
    let mut store = Applied::open(directory.path(), options).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c")))]);
    for number in 2..102 {
        commit(&mut store, large(number).into());
        commit(&mut store, done(number).into());
        store.tidy().unwrap();
    }
    let log = store.directory.write_ahead_log().metadata().unwrap().len();
    assert!(log < 40 * MIB, "{log}");
    assert!(store.figures().unwrap().bytes < 8 * MIB, "{}", store.figures().unwrap().bytes);
}

/// A file at its limit: messages of 60 kB as many as fit.
fn full() -> (tempfile::TempDir, Applied, u64) {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { size_limit: Some(4 * MIB), ..OPTIONS };
    let mut store = Applied::open(directory.path(), options).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    commit(
        &mut store,
        vec![Record::Session(Box::new(StoredSession { will: Some(will(1)), ..session(1, "c") }))],
    );
    for number in 10.. {
        match store.commit(&group(sixty(number))) {
            Ok(()) => {}
            Err(StoreError::Full(_)) => return (directory, store, number),
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("it is full some time")
}

fn will(fill: u8) -> Arc<Will> {
    let (topic, forwarded) = ("w".into(), Box::default());
    let payload = vec![fill; MIB as usize].into();
    Arc::new(Will {
        charge: Charge::default(),
        topic,
        qos: QoS::AtMostOnce,
        retain: false,
        payload,
        forwarded,
        delay: Duration::ZERO,
        message_expiry: None,
    })
}

fn sixty(number: u64) -> [Record; 2] {
    let message = message("t", Instant::NEVER, &[b'x'; 60_000]);
    [body(number, message), Record::Entry(Box::new(entry(number, 1, number)))]
}

#[test]
fn in_a_full_file_what_is_deleted_makes_room_for_the_rest_of_its_group() {
    let (_directory, mut store, next) = full();
    let retained = message("r", Instant::NEVER, &vec![b'x'; 500_000]);
    let mut both = group((10..next).flat_map(done).chain(sixty(next)));
    both.retain(RetainedRecord::Set(retained.into()));
    store.commit(&both).expect("it ends with less than was there before");
    assert_eq!(store.recover(Moment::now(), Duration::ZERO).unwrap().retained.len(), 1);
}

#[test]
fn in_a_full_file_a_session_comes_and_goes_though_its_will_fills_pages() {
    let (_directory, mut store, next) = full();
    // Not a byte of what is there goes.
    let _ = next;
    for n in 0..20 {
        let ends = if n % 2 == 0 { Instant::NEVER } else { Instant::from_millis(1_000_000 + n) };
        let state = SessionState { key: SessionKey(1), connected: n % 2 == 0, ends, will_due: ends };
        store.commit(&group([Record::SessionState(state)])).expect("it needs no room");
        let session = &store.recover(Moment::now(), Duration::ZERO).unwrap().sessions[0].session;
        assert_eq!((session.connected, session.ends.is_never()), (n % 2 == 0, n % 2 == 0));
    }
    let renewed = Record::Session(Box::new(StoredSession { will: Some(will(2)), ..session(1, "c") }));
    store.commit(&group([renewed])).expect("a will in the place of one as large");
}

#[test]
fn in_a_full_file_acknowledgements_go_ahead_of_a_group_that_does_not_fit() {
    let (_directory, mut store, next) = full();
    let acknowledged = |n| [Record::EntryAcknowledged(EntryNumber(n)), Record::BodyReleased(BodyNumber(n))];
    let mut stuck = group((next..next + 40).flat_map(sixty).chain((10..30).flat_map(acknowledged)));
    assert!(matches!(store.commit(&stuck), Err(StoreError::Full(_))));
    let time = store.time();
    store.apply_ahead(&stuck, time).expect("it needs no room");
    let kept = |store: &mut Applied| {
        store.recover(Moment::now(), Duration::ZERO).unwrap().sessions[0].entries.len() as u64
    };
    assert_eq!(kept(&mut store), next - 30, "twenty are gone, and none has come");
    stuck.went_ahead();
    assert!(!stuck.has_ahead() && stuck.len() == 80);
    store.apply_ahead(&group((30..next).flat_map(acknowledged)), time).expect("it needs no room");
    store.commit(&stuck).expect("now it fits");
    assert_eq!(kept(&mut store), 40);
}

#[test]
fn room_is_what_is_left_below_the_limit_and_the_reserve() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { size_limit: Some(64 * MIB), ..OPTIONS };
    let mut store = Applied::open(directory.path(), options).unwrap();
    store.recover(Moment::now(), Duration::ZERO).unwrap();
    let empty = store.figures().unwrap().room;
    assert!((47 * MIB as i64..=48 * MIB as i64).contains(&empty), "{empty}");
    commit(&mut store, vec![Record::Session(Box::new(session(1, "c")))]);
    for number in 0..50 {
        let records = large(2 + number);
        let weight: u64 = records.iter().map(Record::weight).sum();
        let before = store.figures().unwrap().room;
        commit(&mut store, records.into());
        let taken = (before - store.figures().unwrap().room) as u64;
        assert!((MIB..=weight).contains(&taken), "{taken} of {weight}");
        assert_eq!(store.figures().unwrap().room >= 0, store.has_room());
    }
    assert!(store.figures().unwrap().room < 0);
}

#[test]
fn a_new_limit_holds_at_once_and_one_below_the_size_loses_nothing() {
    let (_directory, mut store, next) = full();
    let kept = |store: &mut Applied| {
        store.recover(Moment::now(), Duration::ZERO).unwrap().sessions[0].entries.len() as u64
    };
    let before = kept(&mut store);
    store.limit_size(Some(64 * MIB)).unwrap();
    assert!(store.has_room());
    (next..next + 60).for_each(|number| store.commit(&group(sixty(number))).expect("it has room"));
    store.limit_size(Some(4 * MIB)).unwrap();
    assert!(!store.has_room() && store.figures().unwrap().room < 0);
    assert!(matches!(store.commit(&group(sixty(next + 60))), Err(StoreError::Full(_))));
    assert_eq!(kept(&mut store), before + 60);
    store.limit_size(None).unwrap();
    store.commit(&group(sixty(next + 60))).expect("it has room");
    assert_eq!(kept(&mut store), before + 61);
}

/// A Claim of a cluster: one change of the table in place of a record for each session.
#[test]
fn sessions_of_an_owner_that_is_gone_expire_from_its_last_frame_on() {
    let data = tempfile::tempdir().expect("a directory");
    let mut store = Applied::open(data.path(), OPTIONS).unwrap();
    let second = |seconds: u64| Instant::from_millis(1000 * seconds);
    let at = |seconds| Moment { monotonic: second(seconds), unix_millis: 1_800_000_000_000, boot: None };
    store.recover(at(0), Duration::ZERO).unwrap();
    let time = store.database.time();
    let delayed = Arc::into_inner(will(1)).map(|will| Will { delay: Duration::from_secs(60), ..will });
    let delayed = delayed.map(Arc::new);
    let one = |number: u64, change: &dyn Fn(&mut StoredSession)| {
        let mut one = session(number, &format!("pump{number}"));
        change(&mut one);
        Record::Session(Box::new(one))
    };
    let mut group = CommitGroup::default();
    group.fold(one(1, &|one| one.will.clone_from(&delayed)));
    group.fold(one(2, &|one| one.expiry = u32::MAX));
    group.fold(one(3, &|one| (one.connected, one.ends) = (false, second(5))));
    group.fold(one(4, &|one| (one.expiry, one.will) = (10, delayed.clone())));
    group.seal();
    store.commit(&group).unwrap();
    let mark = Mark { position: store.mark.position + 1, moment: Heartbeat::at(at(200), time), ..store.mark };
    store.database.disconnect(time.to_file(second(100)), &mark).unwrap();
    let (recovered, _) = store.database.recover(at(200), Duration::ZERO).unwrap();
    let now = store.database.time();
    let shown = |at: Instant| if at.is_never() { at } else { now.instant(time.to_file(at)) };
    let sessions = recovered.sessions.into_iter().map(|recovered| recovered.session);
    let found: Vec<_> = sessions.map(|one| (one.key.0, one.connected, one.ends, one.will_due)).collect();
    let expected = [
        (1, false, second(3_700), second(260)),
        (2, false, Instant::NEVER, Instant::NEVER),
        (3, false, second(5), Instant::NEVER),
        (4, false, second(110), second(210)),
    ];
    assert_eq!(found, expected.map(|(key, is, ends, due)| (key, is, shown(ends), shown(due))));
}
