//! The real binary on a disk whose system calls fail: `shim.c` preloaded.

use crate::support::client::Event;
use crate::support::process::{Process, homing_serve};
use crate::support::shim::shim;
use crate::support::{Connect, Message, PATIENCE, Packet, RawClient, V5, V311, now};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Taken before the disk fails.
const BEFORE: usize = 20;
/// The least that can be configured: the files of the log are of 1 MiB then.
const SMALL: [&str; 4] = ["--set", "store.size_limit=64 MiB", "--set", "limits.receive_maximum=65535"];

pub struct Disk {
    pub directory: PathBuf,
    control: PathBuf,
    _work: TempDir,
}

impl Disk {
    pub fn new() -> Disk {
        let work = tempfile::tempdir().expect("a directory");
        // As the system names it: the shim compares paths.
        let path = work.path().canonicalize().expect("it is there");
        Disk { directory: path.join("data"), control: path.join("fault"), _work: work }
    }

    pub fn start(&self) -> (Process, SocketAddr) {
        self.start_with(&[])
    }

    fn start_with(&self, settings: &[&str]) -> (Process, SocketAddr) {
        Process::serve(self.homing().args(settings))
    }

    /// The program, to be started on this disk.
    fn homing(&self) -> Command {
        let mut command = homing_serve();
        command
            .arg("--data-dir")
            .arg(&self.directory)
            .env("LD_PRELOAD", shim("failing_store"))
            .env("FAILING_DISK", &self.directory)
            .env("FAILING_DISK_FAULT", &self.control);
        command
    }

    pub fn fail(&self, how: &str) {
        std::fs::write(&self.control, how).expect("written");
    }

    pub fn mend(&self) {
        std::fs::remove_file(&self.control).expect("removed");
    }
}

fn message(n: usize) -> Message {
    Message::new("t", n.to_string()).qos(1)
}

/// A durable session that is away, with messages that were acknowledged; their publisher.
fn with_messages(address: SocketAddr) -> RawClient {
    let mut away = RawClient::connect(address, &Connect::persistent(V5, "away"));
    away.subscribe(&[("t", 1)]);
    away.disconnect();
    let mut publisher = RawClient::connect(address, &Connect::new(V5, "publisher"));
    (0..BEFORE).for_each(|n| assert_eq!(publisher.deliver(&message(n)), 0));
    publisher
}

/// Returns the numbers of the messages that wait in the queue.
fn queue(address: SocketAddr) -> Vec<usize> {
    let mut publisher = RawClient::connect(address, &Connect::new(V5, "marker"));
    assert_eq!(publisher.deliver(&Message::new("t", "last").qos(1)), 0);
    let mut away = RawClient::connect(address, &Connect::persistent(V5, "away"));
    assert!(away.session_present());
    let mut numbers = Vec::new();
    loop {
        let publish = away.expect_publish();
        away.complete(&publish);
        if publish.text() == "last" {
            return numbers;
        }
        let text = publish.text();
        numbers.push(text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number"));
    }
}

/// The disk fails, and the process ends without an acknowledgement. `why` is in its last words.
fn ends_loudly(how: &str, why: &str) {
    let disk = Disk::new();
    let (mut homing, address) = disk.start();
    let mut publisher = with_messages(address);
    disk.fail(how);
    publisher.publish(&message(BEFORE));
    // Neither an acknowledgement nor DISCONNECT: nothing can be promised any more.
    assert_eq!(publisher.expect_closed(), None);
    has_failed(&mut homing, why);

    disk.mend();
    let (_homing, address) = disk.start();
    // Of the one that was under way nobody knows.
    let kept: Vec<usize> = queue(address).into_iter().filter(|n| *n != BEFORE).collect();
    assert_eq!(kept, (0..BEFORE).collect::<Vec<_>>());
}

fn has_failed(homing: &mut Process, why: &str) {
    let (code, said) = homing.end();
    assert_eq!(code, Some(1), "{said:#?}");
    let line = said.iter().find(|line| line.contains("ERROR") && line.contains("the store failed"));
    assert!(line.is_some_and(|line| line.contains(why)), "{said:#?}");
}

#[test]
fn a_write_that_fails_ends_the_process_unacknowledged_and_loses_nothing() {
    ends_loudly("error log", ".log: Input/output error");
}

#[test]
fn a_sync_that_fails_ends_the_process_unacknowledged_and_loses_nothing() {
    ends_loudly("sync log", "a sync of");
}

/// Publishes messages of 64 KiB with these numbers at once. Returns those that were acknowledged
/// before the connection ends, and true if none was refused.
fn publish_many(address: SocketAddr, numbers: std::ops::Range<usize>) -> (Vec<usize>, bool) {
    let mut publisher = RawClient::connect(address, &Connect::new(V5, "many"));
    let (mut taken, mut all) = (Vec::new(), true);
    let mut ids = BTreeMap::new();
    for n in numbers {
        let mut payload = format!("{n} ").into_bytes();
        payload.resize(64 << 10, b'x');
        ids.insert(publisher.publish(&Message::new("t", payload).qos(1)), n);
    }
    let deadline = now() + PATIENCE;
    while !ids.is_empty() {
        let Event::Packet(Packet::Ack(ack)) = publisher.next(deadline) else { break };
        let n = ids.remove(&ack.id).expect("it was published");
        match ack.code {
            0 => taken.push(n),
            code => {
                assert_eq!(code, 0x97);
                all = false;
            }
        }
    }
    (taken, all && ids.is_empty())
}

/// A database that cannot be written ends the process with the next commit after its failure. What
/// was acknowledged until then is in the log.
fn ends_after_the_database(how: &str) {
    let disk = Disk::new();
    let (mut homing, address) = disk.start();
    let mut publisher = with_messages(address);
    disk.fail(how);
    let mut sent = BEFORE;
    let deadline = now() + PATIENCE;
    loop {
        publisher.publish(&message(sent));
        match publisher.next(deadline) {
            Event::Packet(Packet::Ack(ack)) if ack.code == 0 => sent += 1,
            Event::Closed => break,
            other => panic!("{other:?}"),
        }
    }
    has_failed(&mut homing, "SQLite: disk I/O error");
    assert!(sent > BEFORE, "the log alone acknowledges");
    disk.mend();
    let (_homing, address) = disk.start();
    let kept: Vec<usize> = queue(address).into_iter().filter(|n| *n != sent).collect();
    assert_eq!(kept, (0..sent).collect::<Vec<_>>());
}

#[test]
fn a_write_of_the_database_that_fails_ends_the_process_and_loses_nothing() {
    ends_after_the_database("error database");
}

#[test]
fn a_sync_of_the_database_that_fails_ends_the_process_and_loses_nothing() {
    ends_after_the_database("sync database");
}

#[test]
fn a_file_of_the_log_that_cannot_be_used_again_ends_the_process_and_loses_nothing() {
    let disk = Disk::new();
    let (mut homing, address) = disk.start_with(&SMALL);
    with_messages(address);
    disk.fail("rename log");
    let mut taken = Vec::new();
    loop {
        let first = BEFORE + taken.len();
        // Less than a file at a time, so that the database follows in between.
        let (some, all) = publish_many(address, first..first + 12);
        taken.extend(some);
        if !all {
            break;
        }
    }
    has_failed(&mut homing, ".log: Input/output error");
    disk.mend();
    let (_homing, address) = disk.start_with(&SMALL);
    let kept = queue(address);
    assert!((0..BEFORE).chain(taken).all(|n| kept.contains(&n)), "{kept:?}");
}

/// The database takes what is in the log, so a file of the log is free again before long.
#[test]
fn a_log_without_room_waits_for_the_database_and_goes_on_by_itself() {
    const MANY: usize = 200;
    let disk = Disk::new();
    let (mut homing, address) = disk.start_with(&SMALL);
    with_messages(address);
    disk.fail("full log");
    // Each time less than a file: a larger group needs a larger file.
    let parts = (BEFORE..BEFORE + MANY).step_by(10);
    let taken: Vec<usize> = parts.flat_map(|first| publish_many(address, first..first + 10).0).collect();
    // A disk that is busy with other tests takes seconds for a sync.
    let deadline = now() + 3 * PATIENCE;
    let mut publisher = RawClient::connect(address, &Connect::new(V5, "publisher"));
    while publisher.deliver(&message(BEFORE + MANY)) != 0 {
        assert!(now() < deadline, "it never has room again");
    }
    homing.kill();
    disk.mend();
    let (_homing, address) = disk.start_with(&SMALL);
    let kept = queue(address);
    let promised = (0..BEFORE).chain(taken).chain([BEFORE + MANY]);
    assert_eq!(kept, promised.collect::<Vec<_>>());
}

#[test]
fn a_full_disk_is_waited_for() {
    let disk = Disk::new();
    let (mut homing, address) = disk.start();
    let mut publisher = with_messages(address);
    disk.fail("full");
    // The log has its room already, and the database does not.
    assert_eq!(publisher.deliver(&message(BEFORE)), 0);
    assert!(homing.line("the database has no room").is_some_and(|line| line.contains("WARN")));
    let mut last = BEFORE + 1;
    assert_eq!(publisher.deliver(&message(last)), 0);
    assert!(homing.line("the store has no room").is_some_and(|line| line.contains("WARN")));
    // The shards hear of it a moment after the log says so.
    while publisher.deliver(&message(last + 1)) == 0 {
        last += 1;
    }
    let mut other = RawClient::connect(address, &Connect::new(V5, "other"));
    assert_eq!(other.deliver(&message(1000)), 0x97);
    let mut older = RawClient::connect(address, &Connect::new(V311, "older"));
    older.publish(&message(1000));
    assert_eq!(older.expect_closed(), None);
    // Nothing that the store is needed for.
    other.subscribe(&[("t", 0)]);
    other.publish(&Message::new("t", "news"));
    assert_eq!(other.expect_publish().text(), "news");

    disk.mend();
    assert!(homing.line("the store has room again").is_some());
    let deadline = now() + PATIENCE;
    last += 1;
    while publisher.deliver(&message(last)) != 0 {
        assert!(now() < deadline, "it never has room again");
    }
    assert_eq!(queue(address), (0..=last).collect::<Vec<_>>());
}

#[test]
fn a_broker_on_a_full_disk_says_so_and_ends_with_exit_code_1() {
    let disk = Disk::new();
    let (homing, address) = disk.start();
    with_messages(address);
    drop(homing);
    disk.fail("full");
    let (code, said) = Process::spawn(&mut disk.homing()).end();
    assert_eq!(code, Some(1), "{said:#?}");
    assert!(said.iter().any(|line| line.starts_with("homing: ") && line.contains("no room")), "{said:#?}");
    disk.mend();
    let (_homing, address) = disk.start();
    assert_eq!(queue(address).len(), BEFORE);
}
