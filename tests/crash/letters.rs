//! `kill -9` while operators skip, park, republish and delete messages.

use crate::support::operated::Operated;
use crate::support::rng::Rng;
use crate::support::until;
use crate::{any_seed, spawn, variable};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const ROUNDS: u64 = 12;
/// Receivers in a round. Each has an operator of its own.
const RECEIVERS: u64 = 3;

/// Fills queues, lets operators act until the broker is killed, and checks all messages after a
/// start with another number of threads. Returns what is wrong, and the number of doubts.
fn round(number: u64, directory: &Path, rng: &mut Rng) -> (Vec<String>, usize) {
    let socket = directory.join("homing.sock");
    let mut operated: Vec<Operated> =
        (0..RECEIVERS).map(|n| Operated::new(&format!("r{number}-{n}"), rng.next())).collect();
    let mut homing = spawn(directory, 1 + number % 3);
    let address = homing.address().expect("it listens");
    operated.iter().for_each(|one| one.fill(address));
    let (acted, count) = (AtomicU64::new(0), rng.between(5, 150));
    thread::scope(|scope| {
        for one in &mut operated {
            scope.spawn(|| one.operate(&socket, &acted));
        }
        // The other operators are anywhere between a request and its answer then.
        until("so many actions", || (acted.load(Ordering::Relaxed) >= count).then_some(()));
        homing.kill();
    });
    let mut homing = spawn(directory, 1 + (number + 1) % 3);
    let address = homing.address().expect("it listens");
    let doubts = operated.iter().map(Operated::doubtful).sum();
    (operated.iter().flat_map(|one| one.check(address, &socket)).collect(), doubts)
}

#[test]
fn a_message_is_in_its_queue_or_a_letter_exactly_one_over_kill_9() {
    let seed = variable("CRASH_SEED").unwrap_or_else(any_seed);
    println!("CRASH_SEED={seed}");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (mut rng, mut doubts) = (Rng::new(seed), 0);
    for number in 0..ROUNDS {
        let (wrong, doubtful) = round(number, directory.path(), &mut rng);
        assert!(wrong.is_empty(), "CRASH_SEED={seed}, round {number}:\n{}", wrong.join("\n"));
        doubts += doubtful;
    }
    println!("{doubts} actions were under way at {ROUNDS} kills");
    assert!(doubts > 0, "some kills have to fall between a request and its answer");
}
