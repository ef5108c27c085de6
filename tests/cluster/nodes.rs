//! Three nodes of Homing on three servers: what was acknowledged survives whatever happens to one
//! of them, and one of them serves again soon. The clients and the judge are those of `tests/crash`.
//!
//! `NODE_ROUNDS=n` plays as many rounds of each test, and `NODE_SEED=n` repeats the plans (not the scheduler).

use crate::clients::{Clients, await_moment_of_kill};
use crate::cut_off::CutOff;
use crate::haproxy::Haproxy;
use crate::link::{Came, Link};
use crate::plant::{NODES, Plant};
use crate::retained;
use crate::servers::SERVERS;
use crate::support::rng::Rng;
use crate::support::{Connect, Message, PATIENCE, Packet, V5, now};
use crate::trial::Trial;
use homing::cluster::engine::Engine;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

/// The room of the log, as small as it may be. A snapshot is due at two fifths of it.
const LOG_SIZE: &str = "64 MiB";
/// The bytes to which it is filled, until a snapshot has purged it: more than four fifths. An owner whose
/// group does not fit gives no sign of life, and loses its cell within seconds.
const FILLED: u64 = 56 << 20;
/// The same afterwards: less, so that the frames behind the snapshot before the newest stay.
const FILLED_AGAIN: u64 = 44 << 20;
/// Time in which this is done, on a busy machine. It mostly takes 15 s.
const FILLS: Duration = Duration::from_secs(180);

/// What happens in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    SnapshotDamaged,
    AllRolled,
}

/// Each fault is played once in each run of the tests. Those of nodes and those of servers have a plant
/// of their own, because their rounds mostly wait, and are over in half the time so.
const OF_NODES: [Fault; 7] = [
    Fault::OwnerKilled,
    Fault::OwnerDrained,
    Fault::OwnerStopped,
    Fault::StandbyFromNothing,
    Fault::OwnerCutOff,
    Fault::AllNodesKilled,
    Fault::AllRolled,
];

const OF_SERVERS: [Fault; 5] = [
    Fault::OwnerAndLeaderKilled,
    Fault::AllServersKilled,
    Fault::LeaderStopped,
    Fault::TwoServersKilled,
    Fault::SnapshotDamaged,
];

impl Fault {
    /// Says what is done, for the table.
    fn text(self) -> &'static str {
        match self {
            Fault::OwnerKilled => "`kill -9` of the owner",
            Fault::OwnerDrained => "SIGTERM to the owner",
            Fault::OwnerStopped => "SIGSTOP to the owner until another node serves, then SIGCONT",
            Fault::OwnerCutOff => {
                "the owner's connections to all servers pass nothing for 10 s and more, then everything"
            }
            Fault::OwnerAndLeaderKilled => {
                "`kill -9` of the owner and of the server that leads the log, which starts again at once"
            }
            Fault::LeaderStopped => {
                "SIGSTOP to the server that leads the log; 3 s later `kill -9` of the owner, and SIGCONT"
            }
            Fault::AllServersKilled => "`kill -9` of all servers, which start again, and of the owner",
            Fault::AllNodesKilled => {
                "`kill -9` of all nodes; the two that stood by start again, the owner later"
            }
            Fault::TwoServersKilled => {
                "`kill -9` of two servers; 5 s later they start again, and `kill -9` of the owner"
            }
            Fault::StandbyFromNothing => {
                "a standby loses its data directory and joins again under load; then `kill -9` of both others"
            }
            Fault::SnapshotDamaged => {
                "the same behind a log that was purged, and the newest snapshot is damaged"
            }
            Fault::AllRolled => "each node is ended by SIGTERM and started again, standbys first",
        }
    }
}

/// Does it. Returns what else was seen.
fn play(plant: &mut Plant, fault: Fault, owner: usize) -> String {
    let [standby, other] = [(owner + 1) % NODES.len(), (owner + 2) % NODES.len()];
    match fault {
        Fault::OwnerKilled => plant.kill(owner),
        Fault::OwnerDrained => plant.drain(owner),
        Fault::OwnerStopped => {
            plant.stop_owner(owner);
            return "exit code 75 after SIGCONT".to_owned();
        }
        Fault::OwnerCutOff => {
            let CutOff { last, ended } = plant.cut_off_owner(owner);
            return format!(
                "the last acknowledgement is for a message sent {:.1} s after the cut; clients are disconnected after {:.1} s; exit code 75",
                last.as_secs_f64(),
                ended.as_secs_f64()
            );
        }
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
        Fault::AllNodesKilled => {
            (0..NODES.len()).for_each(|node| plant.kill(node));
            plant.begin(standby);
            plant.begin(other);
        }
        Fault::StandbyFromNothing => {
            plant.start_from_nothing(standby);
            plant.kill(owner);
            plant.kill(other);
        }
        Fault::SnapshotDamaged => {
            let position = damage_snapshot(plant);
            plant.start_from_nothing(standby);
            plant.kill(owner);
            plant.kill(other);
            return format!("it joined by the snapshot before that of frame {position}");
        }
        Fault::AllRolled => {
            plant.restart(standby);
            plant.restart(other);
            plant.drain(owner);
        }
    }
    String::new()
}

/// What a damaged snapshot has.
const NONSENSE: &[u8] = b"no database";

/// Fills the log until two snapshots are there and the frames before them are gone, then puts nonsense
/// in place of the newest. Returns its position. The one before it must not be that of an earlier round.
fn damage_snapshot(plant: &Plant) -> u64 {
    let node = plant.servers.node("plant");
    let is_sound = |position| {
        let mut bytes = Vec::new();
        node.engine.get_snapshot(position, &mut bytes).is_ok() && bytes != NONSENSE
    };
    let begun = now();
    loop {
        let snapshots = node.engine.snapshots().unwrap_or_default();
        let (first, bytes) = node.engine.bounds().map_or((0, FILLED), |bounds| (bounds.first, bounds.bytes));
        if let [.., before, newest] = snapshots[..]
            && first > 1
            && before + 1 >= first
            && is_sound(before)
        {
            node.engine.put_snapshot(newest, &mut &*NONSENSE).expect("stored");
            return newest;
        }
        assert!(begun.elapsed() < FILLS, "{snapshots:?} from {first}, {bytes} bytes");
        // Snapshots purge it within 10 s each.
        let limit = if first > 1 { FILLED_AGAIN } else { FILLED };
        if bytes < limit {
            fill(plant);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Adds two megabytes to the log, unless the owner lets its clients go meanwhile: on a machine that is too
/// busy for the engine, it does.
fn fill(plant: &Plant) {
    let message = Message::new("filler", vec![b'x'; 200_000]).qos(1).retained();
    let Some(owner) = plant.serving() else { return };
    let Some(mut link) = Link::open(plant.nodes[owner].address, V5) else { return };
    link.put(&Connect::new(V5, "filler").encode());
    (1..=10).for_each(|id| link.put(&message.encode(V5, id)));
    let (mut left, deadline) = (10, now() + PATIENCE);
    while left > 0 && now() < deadline {
        match link.next() {
            Came::Packet(Packet::Ack(_)) => left -= 1,
            Came::Packet(_) | Came::Nothing => {}
            Came::End => return,
        }
    }
}

pub fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// What was seen of a fault, in all its rounds.
#[derive(Default)]
struct Seen {
    gaps: Vec<Duration>,
    acknowledged: u64,
    pending: u64,
    more: String,
}

/// Prints rows of the table of `docs/cluster-faults.md`.
fn print_table(seen: &BTreeMap<Fault, Seen>) {
    println!(
        "| what was done | rounds | acknowledged before; requests under way | a node serves again after: median, longest | what else was seen |"
    );
    println!("|---|---|---|---|---|");
    for (fault, Seen { gaps, acknowledged, pending, more }) in seen {
        let mut gaps = gaps.clone();
        gaps.sort();
        let [median, longest] = [gaps[gaps.len() / 2], gaps[gaps.len() - 1]].map(|gap| gap.as_secs_f64());
        println!(
            "| {} | {} | {acknowledged}; {pending} | {median:.1} s, {longest:.1} s | {more} |",
            fault.text(),
            gaps.len()
        );
    }
}

#[test]
fn what_was_acknowledged_survives_any_fault_of_a_node() {
    play_rounds(&OF_NODES);
}

#[test]
fn what_was_acknowledged_survives_any_fault_of_a_server() {
    play_rounds(&OF_SERVERS);
}

/// Plays faults in turn, each once unless NODE_ROUNDS says otherwise, under one history of clients, and judges it at the end.
fn play_rounds(faults: &[Fault]) {
    let seed = variable("NODE_SEED", u64::from(std::process::id()));
    let rounds = variable("NODE_ROUNDS", faults.len() as u64);
    println!("NODE_SEED={seed} NODE_ROUNDS={rounds}");
    let mut rng = Rng::new(seed);
    let (trial, mut clients) = (Trial::default(), Clients::new(&mut rng));
    // The wills of a dead owner's clients go out when it has a successor, and the judge does not know it.
    clients.mortals.clear();
    let mut plant = Plant::start("info", LOG_SIZE);
    let balancer = Haproxy::start(&plant);
    plant.begin_all();
    let owner = plant.owner();
    trial.serve(0, plant.nodes[owner].address);
    clients.subscribe_the_fleet(&trial);
    let mut seen: BTreeMap<Fault, Seen> = BTreeMap::new();
    for number in 0..rounds {
        let owner = plant.owner();
        trial.serve(number, plant.nodes[owner].address);
        retained::check(&trial, &clients.publishers);
        clients.draw_plans();
        let fault = faults[number as usize % faults.len()];
        let (from, count) = (trial.acknowledged(), rng.between(10, 400));
        let mut more = String::new();
        let pending = clients.run(&trial, || {
            await_moment_of_kill(|| trial.acknowledged() >= from + count, Duration::ZERO);
            trial.about_to_kill();
            more =
                catch_unwind(AssertUnwindSafe(|| play(&mut plant, fault, owner))).unwrap_or_else(|failure| {
                    // Else the clients would stay for ever.
                    (0..NODES.len()).for_each(|node| plant.kill(node));
                    resume_unwind(failure)
                });
        });
        let next = plant.owner();
        let found = seen.entry(fault).or_default();
        found.gaps.push(plant.gap());
        found.acknowledged += trial.acknowledged() - from;
        found.pending += pending.total();
        found.more = more;
        println!(
            "round {number}: {fault:?} at {} after {} acknowledgements; {} serves after {} ms; pending: {pending}",
            NODES[owner],
            trial.acknowledged() - from,
            NODES[next],
            plant.gap().as_millis()
        );
        balancer.iter().for_each(Haproxy::finds_the_owner);
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
    clients.print_concerned(&trial);
    print_table(&seen);
    let violations = trial.violations();
    if !violations.is_empty() {
        println!("the data of the nodes: {}", plant.keep().display());
        panic!("NODE_SEED={seed}:\n{}", violations.join("\n"));
    }
    let verified = plant.ask(&["verify"]);
    assert!(verified.contains("frames checked") && !verified.contains("PROBLEM"), "{verified}");
}
