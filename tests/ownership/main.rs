//! The ownership of cells in a simulation: three nodes with clocks that differ, a model of the
//! engine with all its faults, clients, and an oracle. All follows from one seed. The driver, the
//! follower, the frames, the committing thread and the store of a node are the broker's own code;
//! only its threads, its sockets and SQLite are not there.
//!
//! `OWNERSHIP_SEED=n` plays one seed, `OWNERSHIP_SEEDS=n` as many, `OWNERSHIP_FIRST=n` from there on.
//!
//! | file | what |
//! |---|---|
//! | `contract` | the model passes the suite that the real engine passes |
//! | `engine` | a model of it: the logs, and what goes wrong on the way to them |
//! | `replicated_log` | the requests of a process to its log, and the answers |
//! | `node` | one process of a node, for one cell |
//! | `driver` | what the threads around the driver of a process do |
//! | `owner` | the store of an owner |
//! | `schedule` | things that happen at a time |
//! | `world` | the order of events, clocks, nodes |
//! | `faults` | what goes wrong |
//! | `numbers` | clients that publish numbers |
//! | `oracle` | what must hold |
//!
//! `tests/cells` plays the same world with real shards in place of `numbers`.

mod contract;
mod driver;
mod engine;
#[path = "../support/engine_contract.rs"]
mod engine_contract;
mod faults;
#[path = "../support/memory_engine.rs"]
#[expect(dead_code, reason = "a test of the library uses its faults")]
mod memory_engine;
#[path = "../support/memory_store.rs"]
#[expect(dead_code, reason = "another simulation looks at its content")]
mod memory_store;
mod node;
mod numbers;
mod oracle;
#[expect(dead_code, reason = "`cells` reads pages")]
mod owner;
mod replicated_log;
#[path = "../simulation/rng.rs"]
mod rng;
mod schedule;
mod world;

use faults::{Fault, begin};
use homing_core::ownership::{Position, Role};
use numbers::Numbers;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use world::{NODES, World};

/// Seeds of every run of the tests, for one cell and for three: 22 s of CPU in a build that is not
/// optimized (8 ms a seed with one cell, 14 ms with three).
const SEEDS: u64 = 2000;

/// Plays a seed: rounds of one or two faults at once, each followed by a calm.
fn play(seed: u64, cells: usize) -> World<Numbers> {
    let mut world = World::<Numbers>::new(seed, cells);
    world.calm();
    for _ in 0..world.rng.between(1, 2) {
        let faults: Vec<Fault> = (0..world.rng.between(1, 2)).map(|_| world.rng.pick(&Fault::ALL)).collect();
        let (claims, drains) = (world.oracle.claims(), world.oracle.drains.len());
        let fail_overs = world.oracle.fail_overs.len();
        let mut end = world.now;
        for fault in &faults {
            let at = world.now + world.rng.below(1500);
            world.run_until(at);
            end = end.max(begin(&mut world, *fault));
        }
        world.run_until(end);
        world.calm();
        if faults == [Fault::Elect] {
            assert_eq!(world.oracle.claims(), claims, "an election of the engine moved a cell");
        }
        if faults == [Fault::Drain] {
            world.check_drains(drains);
        } else {
            world.oracle.drains.truncate(drains);
        }
        if faults.len() > 1 {
            world.oracle.fail_overs.truncate(fail_overs);
        }
    }
    assert!(!world.alarms.contains(&true), "an alarm, and nothing is lost");
    world.check_log();
    world
}

/// Returns the value of a variable that is a number.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Plays many seeds on all cores, and reports those that fail.
fn each_seed(play: impl Fn(u64) + Sync) {
    let (first, seeds) = match number("OWNERSHIP_SEED") {
        Some(seed) => (seed, 1),
        None => (number("OWNERSHIP_FIRST").unwrap_or(0), number("OWNERSHIP_SEEDS").unwrap_or(SEEDS)),
    };
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| play(seed))).is_err() {
                eprintln!("seed {seed} failed");
                failed.lock().expect("no panic").push(seed);
                next.store(first + seeds, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(2, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(run)));
    });
    assert_eq!(failed.into_inner().expect("no panic"), [] as [u64; 0], "seeds that fail");
}

/// Plays a fiftieth of the seeds up to their first calm. `check` has the owner, too.
fn each_calm(check: impl Fn(World<Numbers>, usize) + Sync) {
    each_seed(|seed| {
        if seed % 50 == 0 {
            let mut world = World::<Numbers>::new(seed, 1);
            world.calm();
            let owner = world.owner(0).expect("the calm has checked it");
            check(world, owner);
        }
    });
}

/// What many seeds came to.
#[derive(Default)]
struct Totals {
    fail_overs: Vec<u64>,
    drains: Vec<u64>,
    acknowledged: u64,
    promises: u64,
    tables_compared: u64,
}

fn play_all(cells: usize) {
    let totals = Mutex::new(Totals::default());
    each_seed(|seed| {
        let World { oracle, occupant, tables_compared, .. } = play(seed, cells);
        let mut totals = totals.lock().expect("no panic");
        totals.fail_overs.extend(oracle.fail_overs);
        totals.drains.extend(oracle.drains);
        totals.acknowledged += occupant.acknowledged;
        totals.promises += oracle.promises;
        totals.tables_compared += tables_compared;
    });
    let Totals { mut fail_overs, drains, acknowledged, promises, tables_compared } =
        totals.into_inner().expect("no panic");
    fail_overs.sort_unstable();
    let (median, most) = (fail_overs.get(fail_overs.len() / 2), fail_overs.last());
    println!("{} crashes of owners: {median:?} ms in the median, {most:?} at most", fail_overs.len());
    println!("{} drains: {:?} ms at most", drains.len(), drains.iter().max());
    println!("{acknowledged} acknowledged, {promises} promises, {tables_compared} tables compared");
    assert!(acknowledged > 0 && promises > 0 && tables_compared > 0, "something came about");
}

#[test]
fn a_cell_has_one_owner_and_loses_nothing() {
    play_all(1);
}

#[test]
fn each_of_three_cells_is_as_if_it_were_alone() {
    play_all(3);
}

/// The disk of a new owner hangs while it reads its store: another node gets the cell.
#[test]
fn a_recovery_that_hangs_moves_the_cell() {
    each_calm(|mut world, owner| {
        world.stop(owner, world.now + 200_000);
        let recovers =
            |world: &World<Numbers>| (0..NODES).find(|node| world.role(*node, 0) == Some(Role::Recovering));
        let mut new = None;
        while new.is_none() {
            assert!(world.now < 100_000, "nobody claims");
            let soon = world.now + 20;
            world.run_until(soon);
            new = recovers(&world);
        }
        let new = new.expect("somebody recovers");
        world.hang(new, world.now + 150_000);
        let later = world.now + 10_000 + 13_000;
        world.run_until(later);
        assert!(world.owner(0).is_some_and(|now| now != new), "a disk that hangs keeps the cell");
    });
}

/// The engine loses frames that it had reported as stored: everybody stops, and nobody claims.
#[test]
fn lost_frames_stop_the_cell() {
    each_calm(|mut world, owner| {
        // One standby has all that is left, and could take the loss for the end. The rows of the
        // others say more, but it has read them just before it was cut off.
        let standby = (owner + 1) % NODES;
        world.look_at_rows(standby, 0);
        let cut = world.rng.between(5000, 10_000);
        world.engine.links[standby].cut_until = world.now + cut;
        let left = world.engine.end(0);
        world.run_until(world.now + cut);
        let claims = world.oracle.claims();
        (0..NODES).filter(|node| *node != standby).for_each(|node| world.look_at_rows(node, 0));
        world.engine.lose(0, (world.engine.end(0).0 - left.0) as usize);
        world.run_until(world.now + 40_000);
        assert_eq!(world.oracle.claims(), claims, "a claim over a loss");
        assert!(world.alarms[0], "no alarm after frames were lost");
        assert!(!world.is_anybody_serving(0), "somebody serves after an alarm");
    });
}

/// The engine changes a frame before a standby reads it. The chain of digests shows it.
#[test]
fn a_changed_frame_stops_the_cell() {
    each_calm(|mut world, owner| {
        world.engine.links[(owner + 1) % NODES].cut_until = world.now + 3000;
        let seen = world.engine.end(0);
        world.run_until(world.now + 2500);
        let changed = Position(world.rng.between(seen.0 + 1, world.engine.end(0).0 - 1));
        let other = world.another_frame(0, changed);
        world.engine.change(0, changed, other);
        world.run_until(world.now + 5000);
        assert!(world.alarms[0], "no alarm after a frame was changed");
        assert!(!world.is_anybody_serving(0), "somebody serves after an alarm");
    });
}
