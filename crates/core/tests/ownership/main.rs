//! The ownership of cells in a simulation: three nodes with clocks that differ, a model of the
//! engine with all its faults, clients, and an oracle. All follows from one seed.
//!
//! `OWNERSHIP_SEED=n` plays one seed, `OWNERSHIP_SEEDS=n` as many, `OWNERSHIP_FIRST=n` from there on.
//!
//! | file | what |
//! |---|---|
//! | `contract` | what every log of a cluster does |
//! | `engine` | a model of it: the logs, and what goes wrong on the way to them |
//! | `replicated_log` | the requests of a process to its log, and the answers |
//! | `frame` | frames as numbers |
//! | `node` | one process of a node, for one cell |
//! | `driver` | what a process does with the outputs of its machine |
//! | `schedule` | things that happen at a time |
//! | `world` | the order of events, clocks, nodes |
//! | `faults` | what goes wrong |
//! | `numbers` | clients that publish numbers |
//! | `oracle` | what must hold |
//!
//! `tests/cells` of the package `homing` plays the same world with real shards in place of `numbers`.

mod contract;
mod driver;
mod engine;
mod faults;
mod frame;
mod node;
mod numbers;
mod oracle;
mod replicated_log;
#[path = "../../../../tests/simulation/rng.rs"]
mod rng;
mod schedule;
mod world;

use engine::Engine;
use faults::{Fault, begin};
use frame::Frame;
use homing_core::persistence::ownership::Position;
use numbers::Numbers;
use replicated_log::{LogRequestNumber, ReplicatedLog};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{NODES, World};

/// Seeds of every run of the tests: 3 s of CPU in a build that is not optimized. Each night plays
/// 200,000 others.
const SEEDS: u64 = 300;

/// Plays a seed: rounds of one or two faults at once, each followed by a calm.
fn play(seed: u64) -> World<Numbers> {
    let cells = if seed % 4 == 3 { 3 } else { 1 };
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
    world.occupant.check_log(&world.engine);
    world
}

/// Returns the value of a variable that is a number.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Plays many seeds, and reports those that fail.
fn each_seed(play: impl Fn(u64)) {
    let seeds = match number("OWNERSHIP_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("OWNERSHIP_FIRST").unwrap_or(0);
            first..first + number("OWNERSHIP_SEEDS").unwrap_or(SEEDS)
        }
    };
    let failed = seeds.filter(|seed| {
        let is_failed = catch_unwind(AssertUnwindSafe(|| play(*seed))).is_err();
        if is_failed {
            eprintln!("seed {seed} failed");
        }
        is_failed
    });
    assert_eq!(failed.take(3).collect::<Vec<_>>(), [] as [u64; 0], "seeds that fail");
}

/// Plays a tenth of the seeds up to their first calm. `check` has the owner, too.
fn each_calm(check: impl Fn(World<Numbers>, usize)) {
    each_seed(|seed| {
        if seed % 10 == 0 {
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
}

#[test]
fn a_cell_has_one_owner_and_loses_nothing() {
    let totals = RefCell::new(Totals::default());
    each_seed(|seed| {
        let World { oracle, occupant, .. } = play(seed);
        let mut totals = totals.borrow_mut();
        totals.fail_overs.extend(oracle.fail_overs);
        totals.drains.extend(oracle.drains);
        totals.acknowledged += occupant.acknowledged;
        totals.promises += oracle.promises;
    });
    let Totals { mut fail_overs, drains, acknowledged, promises } = totals.into_inner();
    fail_overs.sort_unstable();
    let (median, most) = (fail_overs.get(fail_overs.len() / 2), fail_overs.last());
    println!("{} crashes of owners: {median:?} ms in the median, {most:?} at most", fail_overs.len());
    println!("{} drains: {:?} ms at most", drains.len(), drains.iter().max());
    println!("{acknowledged} acknowledged, {promises} promises");
    assert!(acknowledged > 0 && promises > 0, "something was promised");
}

/// The engine loses frames that it had reported as stored: everybody stops, and nobody claims.
#[test]
fn lost_frames_stop_the_cell() {
    each_calm(|mut world, owner| {
        // One standby has all that is left, and could take the loss for the end. The rows say more.
        let cut = world.rng.between(5000, 10_000);
        world.engine.links[(owner + 1) % NODES].cut_until = world.now + cut;
        let left = world.engine.end(0);
        world.run_until(world.now + cut);
        let claims = world.oracle.claims();
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
        let mut frame = Frame::read(world.engine.frame(0, changed));
        frame.content = [&frame.content[..], &[0; 8]].concat().into();
        world.engine.change(0, changed, frame.bytes());
        world.run_until(world.now + 5000);
        assert!(world.alarms[0], "no alarm after a frame was changed");
        assert!(!world.is_anybody_serving(0), "somebody serves after an alarm");
    });
}

#[test]
fn the_model_keeps_the_contract_of_a_log() {
    let mut engine = Engine::new(2, 1, 0);
    let mut requests = 0;
    contract::check(|node, request| {
        requests += 1;
        engine.log(node, 0).request(LogRequestNumber(requests), request);
        while engine.run_next().is_none() {}
        let (number, answer) = engine.log(node, 0).next_answer().expect("it has come");
        assert_eq!(number, LogRequestNumber(requests));
        answer
    });
}
