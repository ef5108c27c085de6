//! Dead letters on a disk that fails or is full while an operator parks and republishes messages.

use crate::disk::Disk;
use crate::support::operated::Operated;
use crate::support::process::Process;
use crate::support::until;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Actions before the disk fails.
const BEFORE: u64 = 20;

/// An operator acts, the disk fails, and `end` sees to it that the broker is gone. On a sound disk
/// each message is in one place then, and where an answer said.
fn is_in_one_place(how: &str, end: impl FnOnce(&mut Process)) {
    let (disk, seed) = (Disk::new(), RandomState::new().hash_one(how));
    let socket = disk.directory.join("homing.sock");
    let (mut homing, address) = disk.start();
    let mut pump = Operated::new("pump", seed);
    pump.fill(address);
    let acted = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| pump.operate(&socket, &acted));
        until("some actions", || (acted.load(Ordering::Relaxed) >= BEFORE).then_some(()));
        disk.fail(how);
        end(&mut homing);
    });
    disk.mend();
    let (_homing, address) = disk.start();
    let wrong = pump.check(address, &socket);
    assert!(wrong.is_empty(), "seed {seed}, {how}:\n{}", wrong.join("\n"));
}

fn ends_by_itself(homing: &mut Process) {
    let (code, said) = homing.end();
    assert_eq!(code, Some(1), "{said:#?}");
}

#[test]
fn a_write_that_fails_while_an_operator_acts_leaves_each_message_in_one_place() {
    is_in_one_place("error", ends_by_itself);
}

#[test]
fn a_sync_that_fails_while_an_operator_acts_leaves_each_message_in_one_place() {
    is_in_one_place("sync", ends_by_itself);
}

#[test]
fn a_broker_that_is_killed_on_a_full_disk_leaves_each_message_in_one_place() {
    is_in_one_place("full", |homing| {
        assert!(homing.line("the store has no room").is_some());
        homing.kill();
    });
}

#[test]
fn on_a_full_disk_an_operator_is_refused_until_there_is_room_again() {
    let (disk, seed) = (Disk::new(), RandomState::new().hash_one("again"));
    let socket = disk.directory.join("homing.sock");
    let (mut homing, address) = disk.start();
    let mut pump = Operated::new("pump", seed);
    pump.fill(address);
    let acted = AtomicU64::new(0);
    let count = || acted.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| pump.operate(&socket, &acted));
        until("some actions", || (count() >= BEFORE).then_some(()));
        disk.fail("full");
        assert!(homing.line("the store has no room").is_some());
        let before = count();
        until("refusals", || (count() >= before + 10).then_some(()));
        disk.mend();
        assert!(homing.line("the store has room again").is_some());
        let before = count();
        until("further actions", || (count() >= before + 10).then_some(()));
        homing.kill();
    });
    assert!(pump.refused() > 0, "seed {seed}: nothing was refused");
    let (_homing, address) = disk.start();
    let wrong = pump.check(address, &socket);
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
}
