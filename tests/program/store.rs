//! The store as an operator meets it: `homing store ...` on the directory of a broker that runs, or
//! has run.

use homing::config::DurabilityLevel;
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::{ProtocolVersion, QoS};
use homing::mqtt::subscription_ids::SubscriptionIds;
use homing::persistence::records::{
    BodyNumber, DelayedNumber, EntryNumber, Flight, Record, SessionKey, StoredAccess, StoredEntry,
    StoredSession, StoredSubscription,
};
use homing::store::coalesce::CommitGroup;
use homing::store::logged::{LoggedStore, StoreOptions};
use homing::store::ship::ShipOptions;
use homing::store::{Moment, Store};
use homing::time::Instant;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// How a command ended.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn homing_store(directory: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.current_dir(directory).env_clear().env("STATE_DIRECTORY", directory).arg("store").args(arguments);
    let Output { status, stdout, stderr } = command.output().expect("the binary was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Outcome { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

fn session(key: u64, client_id: &str, connected: bool) -> Record {
    Record::Session(Box::new(StoredSession {
        key: SessionKey(key),
        client_id: client_id.into(),
        version: ProtocolVersion::V5,
        expiry: 3600,
        connected,
        ends: Instant::NEVER,
        will: None,
        will_due: Instant::NEVER,
        retry_interval: None,
        ack_timeout: None,
        user_name: None,
        access: StoredAccess::default(),
    }))
}

fn entry(number: u64, flight: Option<Flight>) -> Record {
    Record::Entry(Box::new(StoredEntry {
        number: EntryNumber(number),
        session: SessionKey(1),
        body: BodyNumber(10),
        qos: QoS::AtLeastOnce,
        retain: false,
        ids: SubscriptionIds::None,
        share: None,
        flight,
    }))
}

/// A store with two sessions, of which one has a queue; held open, as by a broker. May have a copy.
pub(crate) fn opened(directory: &Path, copy: Option<ShipOptions>) -> LoggedStore {
    let mut store =
        LoggedStore::open(directory, StoreOptions { durability: DurabilityLevel::Commit, size_limit: None })
            .expect("opened");
    copy.into_iter().for_each(|copy| store.ship(copy).expect("a folder"));
    store.recover(Moment::now(), Duration::ZERO).expect("recovered");
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: Instant::NEVER,
        topic: "loft/feed",
        forwarded: b"",
        payload: b"corn",
    };
    let subscription = StoredSubscription {
        session: SessionKey(1),
        filter: "loft/#".into(),
        options: 1,
        subscription_id: 0,
    };
    let mut group = CommitGroup::default();
    for record in [
        session(1, "pigeon \"1\"", false),
        session(2, "other", true),
        Record::Subscribed(Box::new(subscription)),
        Record::Body { number: BodyNumber(10), message: Message::new(parts, &mut Vec::new()) },
        entry(11, Some(Flight { running: 1, transmissions: 1 })),
        entry(12, None),
        entry(13, None),
    ] {
        group.fold(record);
    }
    store.commit(&mut group).expect("committed");
    // Until the database has it.
    let mut reader = store.reader().expect("opened");
    reader.delayed((Instant::ZERO, DelayedNumber(0)), Instant::ZERO, 0).expect("read");
    store
}

#[test]
fn dump_tells_who_waits_for_what_while_the_store_is_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let _store = opened(directory.path(), None);
    let dump = homing_store(directory.path(), &["dump"]);
    assert_eq!(dump.code, Some(0), "{}", dump.stderr);
    for line in [
        "version            11\n",
        "sessions           2\n",
        "queue entries      3\n",
        "messages           1\n",
        "session \"other\": connected; 0 subscriptions; 0 queued, 0 in flight, 0 awaiting PUBCOMP, 0 incoming\n",
    ] {
        assert!(dump.stdout.contains(line), "{line} is missing:\n{}", dump.stdout);
    }
    let pigeon =
        dump.stdout.lines().find(|line| line.starts_with("session \"pigeon \\\"1\\\"\"")).expect("it");
    assert!(
        pigeon.contains(": away, never expires; 1 subscription; 2 queued, 1 in flight, 0 awaiting"),
        "{pigeon}"
    );
    assert!(pigeon.contains(" s ago, on \"loft/feed\""), "{pigeon}");
}

#[test]
fn check_finds_a_sound_store_sound_and_names_what_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = opened(directory.path(), None);
    let sound = homing_store(directory.path(), &["check"]);
    assert_eq!((sound.code, sound.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = sound.stdout.lines().collect();
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace().last()).collect();
    let [position, log_bytes, unapplied, "sound"] = words[..] else { panic!("{}", sound.stdout) };
    assert!(
        lines[0].starts_with("position") && position.parse::<u64>().is_ok_and(|last| last > 0),
        "{position}"
    );
    assert!(
        lines[1].starts_with("log bytes") && log_bytes.parse::<u64>().is_ok_and(|all| all > 1 << 20),
        "{log_bytes}"
    );
    assert!(lines[2].starts_with("not in database"), "{unapplied}");
    assert_eq!(lines[3], format!("the store in {} is sound", directory.path().display()));
    drop(store);
    let database = rusqlite::Connection::open(directory.path().join("homing.db")).expect("opened");
    database.execute_batch("DELETE FROM session WHERE number = 1; DELETE FROM body").expect("deleted");
    let faults = homing_store(directory.path(), &["check"]);
    assert!(faults.code == Some(1) && !faults.stdout.contains("sound"), "{}", faults.stdout);
    for fault in [
        "1 subscriptions of no session",
        "1 entries in flight of no session",
        "3 queue entries whose message is missing",
    ] {
        assert!(faults.stderr.contains(&format!("homing: {fault}\n")), "{}", faults.stderr);
    }
}

#[test]
fn backup_copies_a_store_in_use_into_a_new_file_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let _store = opened(directory.path(), None);
    let copied = homing_store(directory.path(), &["backup", "copy.db"]);
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    let mode = std::fs::metadata(directory.path().join("copy.db")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the copy has the messages");
    let again = homing_store(directory.path(), &["backup", "copy.db"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.starts_with("homing: copy.db: is there already"), "{}", again.stderr);

    let restored = tempfile::tempdir().expect("a directory");
    std::fs::copy(directory.path().join("copy.db"), restored.path().join("homing.db")).expect("copied");
    let mut store = LoggedStore::open(
        restored.path(),
        StoreOptions { durability: DurabilityLevel::Commit, size_limit: None },
    )
    .expect("opened");
    let recovered = store.recover(Moment::now(), Duration::ZERO).expect("recovered");
    assert_eq!(recovered.sessions[0].entries.len(), 3);
}

#[test]
fn a_directory_without_a_store_is_one_line_and_exit_code_1() {
    let directory = tempfile::tempdir().expect("a directory");
    for question in ["check", "dump"] {
        let outcome = homing_store(directory.path(), &[question]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
        assert_eq!(outcome.stderr, format!("homing: there is no store in {}\n", directory.path().display()));
    }
    assert_eq!(std::fs::read_dir(directory.path()).expect("a folder").count(), 0, "nothing was made");
    let none = homing_store(directory.path(), &["check", "--ephemeral"]);
    assert!(none.code == Some(1) && none.stderr.contains("name one with --data-dir"), "{}", none.stderr);
}

#[test]
fn a_second_broker_on_the_same_directory_is_one_line_and_exit_code_1() {
    let directory = tempfile::tempdir().expect("a directory");
    let _store = opened(directory.path(), None);
    // What the first broker has besides: its socket, and the address of its interface.
    let _socket = UnixListener::bind(directory.path().join("homing.sock")).expect("a socket");
    let interface = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = interface.local_addr().expect("bound").to_string();
    let mut second = Command::new(env!("CARGO_BIN_EXE_homing"));
    second.env_clear().env("HOMING_ADMIN__ADDRESSES", address).current_dir(directory.path());
    second.args(["--listen", "127.0.0.1:0", "--data-dir", "."]);
    let output = second.output().expect("the binary was built");
    let line = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), output.stdout.len(), line.lines().count()), (Some(1), 0, 1), "{line}");
    assert!(line.starts_with("homing: the data directory . is in use by another process (pid "), "{line}");
}
