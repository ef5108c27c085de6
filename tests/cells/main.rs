//! A cluster in a simulation: three nodes with real shards, over the model of the engine that the
//! test `ownership` plays. Clients connect to whichever node serves, and stay with one that
//! has lost its cell and does not know. All follows from one seed.
//!
//! `CELLS_SEED=n` plays one seed, `CELLS_SEEDS=n` as many, `CELLS_FIRST=n` from there on.
//!
//! | file | what |
//! |---|---|
//! | `broker` | the shards of an owner, their turns, sockets and peer batches |
//! | `client` | publishers and subscribers |
//! | `promises` | what leaves by an append or a lease, and what clients were promised |
//!
//! The other modules are those of `tests/ownership`.

mod broker;
mod client;
#[path = "../support/core_settings.rs"]
mod core_settings;
#[path = "../ownership/driver.rs"]
mod driver;
#[path = "../ownership/engine.rs"]
#[expect(dead_code, reason = "`ownership` has more tests")]
mod engine;
#[path = "../ownership/faults.rs"]
mod faults;
#[path = "../support/memory_store.rs"]
#[expect(dead_code, reason = "another simulation looks at its content")]
mod memory_store;
#[path = "../ownership/node.rs"]
mod node;
#[path = "../ownership/oracle.rs"]
#[expect(dead_code, reason = "`ownership` has more tests")]
mod oracle;
#[path = "../ownership/owner.rs"]
mod owner;
mod promises;
#[path = "../ownership/replicated_log.rs"]
mod replicated_log;
#[path = "../simulation/rng.rs"]
mod rng;
#[path = "../ownership/schedule.rs"]
mod schedule;
#[path = "../support/shard_io.rs"]
mod shard_io;
#[path = "../ownership/world.rs"]
#[expect(dead_code, reason = "`ownership` has more tests")]
mod world;

use broker::Brokers;
use faults::{Fault, begin};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use world::World;

/// Seeds of every run of the tests with one cell, and a third of them with three: 7 s of CPU in a
/// build that is not optimized (20 ms a seed with one cell, 73 ms with three).
const SEEDS: u64 = 150;

/// After the last fault: time for clients to come back and to be owed nothing.
const SETTLING_MS: u64 = 6_000;

/// Until the first fault: time for a first owner and its clients.
const BEGINNING_MS: u64 = 3_000;

/// Plays a seed: a round of one to three faults at once, and a calm.
fn play(seed: u64, cells: usize) -> World<Brokers> {
    let mut world = World::<Brokers>::new(seed, cells);
    world.run_until(BEGINNING_MS);
    let mut end = world.now;
    for _ in 0..world.rng.between(1, 3) {
        let fault = world.rng.pick(&Fault::ALL);
        let at = world.now + world.rng.below(3_000);
        world.run_until(at);
        // Shown if the seed fails.
        println!("seed {seed}, {at} ms: {}", fault.name());
        end = end.max(begin(&mut world, fault));
    }
    world.run_until(end);
    world.occupant.is_calm = true;
    world.calm();
    let settled = world.now + SETTLING_MS;
    world.run_until(settled);
    assert!(!world.alarms.contains(&true), "an alarm, and nothing is lost");
    world.occupant.check_kept();
    world.occupant.promises.totals.tables_compared = world.tables_compared;
    world
}

/// Returns the value of a variable that is a number.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn what_clients_were_promised_holds_whichever_node_owns_the_cell() {
    play_all(1, SEEDS);
}

#[test]
fn what_clients_of_three_cells_were_promised_holds_as_of_one() {
    play_all(3, SEEDS / 3);
}

fn play_all(cells: usize, seeds: u64) {
    let first = number("CELLS_SEED").or(number("CELLS_FIRST")).unwrap_or(0);
    let seeds = if number("CELLS_SEED").is_some() { 1 } else { number("CELLS_SEEDS").unwrap_or(seeds) };
    let (next, end) = (AtomicU64::new(first), first + seeds);
    let (failed, totals) = (AtomicU64::new(u64::MAX), Default::default());
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| play(seed, cells))) {
                        Ok(world) => world.occupant.promises.add_to(&totals),
                        Err(_) => {
                            eprintln!("seed {seed} failed");
                            failed.fetch_min(seed, Ordering::Relaxed);
                            next.store(end, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let totals = totals.into_inner().expect("no thread panics with it");
    println!("{totals:?}");
    let failed = failed.into_inner();
    assert_eq!(failed, u64::MAX, "seed {failed} failed; CELLS_SEED={failed} plays it again");
    assert!(seeds < 100 || totals.is_complete(), "something never comes about: {totals:?}");
}

#[test]
fn a_seed_does_the_same_each_time() {
    let played = || {
        let world = play(7, 1);
        (world.occupant.promises.totals, world.engine.end(0))
    };
    assert_eq!(played(), played());
}
