//! The real binary on a disk whose system calls fail: `shim.c` preloaded.

use crate::support::process::{Process, homing_serve};
use crate::support::shim::shim;
use crate::support::{Connect, Kind, Message, PATIENCE, RawClient, V5, V311, now};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Taken before the disk fails.
const BEFORE: usize = 20;

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
        Process::serve(&mut self.homing())
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
        numbers.push(publish.text().parse().expect("a number"));
    }
}

fn ends_loudly(how: &str) {
    let disk = Disk::new();
    let (mut homing, address) = disk.start();
    let mut publisher = with_messages(address);
    disk.fail(how);
    publisher.publish(&message(BEFORE));
    // Neither an acknowledgement nor DISCONNECT: nothing can be promised any more.
    assert_eq!(publisher.expect_closed(), None);
    let (code, said) = homing.end();
    assert_eq!(code, Some(1), "{said:#?}");
    let line = said.iter().find(|line| line.contains("ERROR") && line.contains("the store failed"));
    assert!(line.is_some_and(|line| line.contains("SQLite: disk I/O error")), "{said:#?}");

    disk.mend();
    let (_homing, address) = disk.start();
    // Of the one that was under way nobody knows.
    let kept: Vec<usize> = queue(address).into_iter().filter(|n| *n != BEFORE).collect();
    assert_eq!(kept, (0..BEFORE).collect::<Vec<_>>());
}

#[test]
fn a_write_that_fails_ends_the_process_unacknowledged_and_loses_nothing() {
    ends_loudly("error");
}

#[test]
fn a_sync_that_fails_ends_the_process_unacknowledged_and_loses_nothing() {
    ends_loudly("sync");
}

#[test]
fn a_full_disk_is_waited_for() {
    let disk = Disk::new();
    let (mut homing, address) = disk.start();
    let mut publisher = with_messages(address);
    disk.fail("full");
    let id = publisher.publish(&message(BEFORE));
    assert!(homing.line("the store has no room").is_some_and(|line| line.contains("WARN")));
    let mut other = RawClient::connect(address, &Connect::new(V5, "other"));
    assert_eq!(other.deliver(&message(1000)), 0x97);
    let mut older = RawClient::connect(address, &Connect::new(V311, "older"));
    older.publish(&message(1000));
    assert_eq!(older.expect_closed(), None);
    // Nothing that the store is needed for.
    other.subscribe(&[("t", 0)]);
    other.publish(&Message::new("t", "news"));
    assert_eq!(other.expect_publish().text(), "news");
    // The first message still waits for its acknowledgement.
    publisher.settle();

    disk.mend();
    assert_eq!(publisher.expect_ack(Kind::Puback, id).code, 0);
    assert!(homing.line("the store has room again").is_some());
    let deadline = now() + PATIENCE;
    while publisher.deliver(&message(BEFORE + 1)) != 0 {
        assert!(now() < deadline, "it never has room again");
    }
    assert_eq!(queue(address), (0..BEFORE + 2).collect::<Vec<_>>());
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
