//! Three nodes of Homing on three servers: what was acknowledged survives whatever happens to one
//! of them, and one of them serves again soon. The clients and the judge are those of `tests/crash`.
//!
//! `NODE_ROUNDS=n` plays as many rounds, and `NODE_SEED=n` repeats the plans (not the scheduler).

use crate::clients::{Clients, await_moment_of_kill};
use crate::plant::{NODES, Plant};
use crate::retained;
use crate::servers::SERVERS;
use crate::support::now;
use crate::support::rng::Rng;
use crate::trial::Trial;
use std::fs;
use std::thread;
use std::time::Duration;

/// Rounds of each run of the tests.
const ROUNDS: u64 = 8;

/// What happens in a round.
#[derive(Clone, Copy, Debug)]
enum Fault {
    OwnerKilled,
    OwnerDrained,
    OwnerStopped,
    OwnerCutOff,
    OwnerAndLeaderKilled,
    LeaderStopped,
    AllServersKilled,
    AllNodesKilled,
    TwoServersKilled,
    StandbyFromNothing,
}

const FAULTS: [Fault; 10] = [
    Fault::OwnerKilled,
    Fault::OwnerDrained,
    Fault::OwnerAndLeaderKilled,
    Fault::OwnerStopped,
    Fault::StandbyFromNothing,
    Fault::OwnerCutOff,
    Fault::AllNodesKilled,
    Fault::AllServersKilled,
    Fault::LeaderStopped,
    Fault::TwoServersKilled,
];

fn play(plant: &mut Plant, fault: Fault, owner: usize) {
    let standby = (owner + 1) % NODES.len();
    match fault {
        Fault::OwnerKilled => plant.kill(owner),
        Fault::OwnerDrained => plant.drain(owner),
        Fault::OwnerStopped => plant.stop_owner(owner),
        Fault::OwnerCutOff => plant.cut_off_owner(owner),
        Fault::OwnerAndLeaderKilled => {
            let leader = plant.leader();
            plant.servers.kill(leader);
            plant.kill(owner);
            plant.servers.restart(leader);
        }
        Fault::LeaderStopped => {
            let leader = plant.leader();
            plant.servers.stop(leader);
            thread::sleep(Duration::from_secs(3));
            plant.kill(owner);
            plant.servers.resume(leader);
        }
        Fault::AllServersKilled => {
            (0..SERVERS).for_each(|number| plant.servers.kill(number));
            (0..SERVERS).for_each(|number| plant.servers.restart(number));
            plant.kill(owner);
        }
        Fault::TwoServersKilled => {
            plant.servers.kill(0);
            plant.servers.kill(1);
            thread::sleep(Duration::from_secs(5));
            plant.servers.restart(0);
            plant.servers.restart(1);
            plant.kill(owner);
        }
        Fault::AllNodesKilled => (0..NODES.len()).for_each(|node| plant.kill(node)),
        Fault::StandbyFromNothing => {
            plant.kill(standby);
            fs::remove_dir_all(&plant.nodes[standby].directory).expect("its data");
            plant.begin(standby);
            plant.kill(owner);
        }
    }
}

pub fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn what_was_acknowledged_survives_any_fault_of_a_machine() {
    let seed = variable("NODE_SEED", u64::from(std::process::id()));
    let rounds = variable("NODE_ROUNDS", ROUNDS);
    println!("NODE_SEED={seed} NODE_ROUNDS={rounds}");
    let mut rng = Rng::new(seed);
    let (trial, mut clients) = (Trial::default(), Clients::new(&mut rng));
    // The wills of a dead owner's clients go out when it has a successor, and the judge does not know it.
    clients.mortals.clear();
    let mut plant = Plant::start("info", "64 MiB");
    plant.begin_all();
    let owner = plant.owner();
    trial.serve(0, plant.nodes[owner].address);
    clients.subscribe_the_fleet(&trial);
    let mut gaps: Vec<Duration> = Vec::new();
    for number in 0..rounds {
        let owner = plant.owner();
        trial.serve(number, plant.nodes[owner].address);
        retained::check(&trial, &clients.publishers);
        clients.draw_plans();
        let fault = FAULTS[number as usize % FAULTS.len()];
        let (from, count) = (trial.acknowledged(), rng.between(10, 400));
        let mut began = now();
        let pending = clients.run(&trial, || {
            await_moment_of_kill(|| trial.acknowledged() >= from + count, Duration::ZERO);
            trial.about_to_kill();
            began = now();
            play(&mut plant, fault, owner);
        });
        if let Fault::AllNodesKilled = fault {
            plant.begin_all();
        }
        let next = plant.owner();
        gaps.push(began.elapsed());
        println!(
            "round {number}: {fault:?} at {} after {} acknowledgements; {} serves after {} ms; pending: {pending}",
            NODES[owner],
            trial.acknowledged() - from,
            NODES[next],
            began.elapsed().as_millis()
        );
        plant.begin_all();
        if trial.has_violations() {
            break;
        }
    }
    if !trial.has_violations() {
        let owner = plant.owner();
        trial.serve(rounds, plant.nodes[owner].address);
        clients.finish(&trial);
        clients.judge(&trial);
    }
    gaps.sort();
    println!("gaps: median {:?}, longest {:?}", gaps[gaps.len() / 2], gaps.last());
    let violations = trial.violations();
    assert!(violations.is_empty(), "NODE_SEED={seed}:\n{}", violations.join("\n"));
    let verified = plant.ask(&["verify"]);
    assert!(verified.contains("frames checked") && !verified.contains("PROBLEM"), "{verified}");
}
