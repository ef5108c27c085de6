//! Faults for hours: `tests/cluster/run --soak MINUTES`. Each two minutes something is killed, stopped
//! or cut off, by turn and by a seed. Each minute a line says what everything takes.

use crate::nodes::variable;
use crate::plant::{NODES, Plant};
use crate::proxy::Passage;
use crate::servers::SERVERS;
use crate::stream::Stream;
use crate::support::now;
use crate::support::process::memory_of;
use crate::support::rng::Rng;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 8;
/// Messages in a second.
const RATE: u64 = 5_000;
const MINUTE: Duration = Duration::from_secs(60);
/// Time after which a process that ended is started again, as a service manager does.
const RESTART: Duration = Duration::from_secs(1);
/// Time for which a server is away.
const AWAY: Duration = Duration::from_secs(5);
/// Time in which messages are acknowledged again. Then the soak says so and goes on.
const HEALED: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Owner,
    Leader,
    Standby,
    Server,
    OwnerAndLeader,
    Drain,
    Stop,
    CutOff,
}

const TURNS: [Fault; 8] = [
    Fault::Owner,
    Fault::Leader,
    Fault::Standby,
    Fault::Server,
    Fault::OwnerAndLeader,
    Fault::Drain,
    Fault::Stop,
    Fault::CutOff,
];

#[test]
#[ignore = "it takes hours: tests/cluster/run --soak MINUTES"]
fn what_was_acknowledged_survives_hours_of_faults() {
    let minutes = variable("SOAK_MINUTES", 10);
    let seed = variable("SOAK_SEED", u64::from(std::process::id()));
    let rate = variable("SOAK_RATE", RATE);
    println!("SOAK_MINUTES={minutes} SOAK_SEED={seed} SOAK_RATE={rate}");
    let mut plant = Plant::start("warn", "1 GiB");
    plant.begin_all();
    plant.owner();
    let nodes = plant.nodes.iter().map(|node| node.address).collect();
    let stream = Stream::new(nodes, WRITERS, rate);
    let mut soak = Soak { plant, rng: Rng::new(seed), began: now(), gaps: Vec::new(), turns: Vec::new() };
    stream.run(|| soak.run(&stream, minutes));
    soak.summarize(&stream);
    println!("{}", soak.plant.ask(&["verify"]));
    println!("{}", soak.plant.ask(&["status"]));
    let violations = stream.violations();
    assert!(violations.is_empty(), "SOAK_SEED={seed}:\n{}", violations.join("\n"));
    println!("the soak has ended: no violation");
}

struct Soak {
    plant: Plant,
    rng: Rng,
    began: Instant,
    /// What happened, and the time without an acknowledgement.
    gaps: Vec<(String, Duration)>,
    /// What happens next, the last first.
    turns: Vec<Fault>,
}

impl Soak {
    fn run(&mut self, stream: &Stream, minutes: u64) {
        for minute in 1..=minutes {
            let until = self.began + MINUTE * minute as u32;
            thread::sleep(until.saturating_duration_since(now()));
            self.record(stream, minute);
            // The last minutes are for what is still under way.
            if minute % 2 == 0 && minute + 2 <= minutes {
                self.play(stream);
            }
            if minute % 10 == 0 {
                self.summarize(stream);
            }
        }
    }

    fn play(&mut self, stream: &Stream) {
        if self.turns.is_empty() {
            self.turns = TURNS.to_vec();
            for at in (1..self.turns.len()).rev() {
                self.turns.swap(at, self.rng.below(at as u64 + 1) as usize);
            }
        }
        let (Some(fault), Some(owner)) = (self.turns.pop(), self.plant.serving()) else {
            return println!("nobody serves: {}", self.plant.ask(&["status"]));
        };
        stream.take_gap();
        let (begun, before) = (now(), stream.acknowledged.load(Ordering::Relaxed));
        let done = catch_unwind(AssertUnwindSafe(|| self.do_to(fault, owner)));
        let what = done.unwrap_or_else(|_| {
            self.plant.nodes.iter().flat_map(|node| &node.doors).for_each(|door| door.set(Passage::Open));
            stream.violated(format!("{fault:?} did not end as it should: see above"));
            format!("{fault:?}, which did not end as it should")
        });
        let healed = |soak: &Soak| {
            soak.plant.serving().is_some() && stream.acknowledged.load(Ordering::Relaxed) > before + 100
        };
        while !healed(self) && begun.elapsed() < HEALED {
            thread::sleep(Duration::from_millis(100));
            self.plant.begin_all();
        }
        self.plant.begin_all();
        // The gap of a standby or a server may come some seconds later.
        thread::sleep(Duration::from_secs(20).saturating_sub(begun.elapsed()));
        let gap = stream.take_gap();
        println!("KILL {what}: {gap:?} without an acknowledgement; {:?} serves", self.serving());
        self.gaps.push((what, gap));
    }

    fn do_to(&mut self, fault: Fault, owner: usize) -> String {
        let plant = &mut self.plant;
        let leader = plant.leader();
        let standby = (owner + 1 + self.rng.below(2) as usize) % NODES.len();
        let server = (leader + 1 + self.rng.below(2) as usize) % SERVERS;
        match fault {
            Fault::Owner => plant.kill(owner),
            Fault::Standby => plant.kill(standby),
            Fault::Leader => away(plant, leader),
            Fault::Server => away(plant, server),
            Fault::OwnerAndLeader => {
                plant.kill(owner);
                away(plant, leader);
            }
            Fault::Drain => plant.drain(owner),
            Fault::Stop => plant.stop_owner(owner),
            Fault::CutOff => println!("{:?}", plant.cut_off_owner(owner)),
        }
        thread::sleep(RESTART);
        // After a kill the owner would claim its cell again at once; every other time another does.
        if !matches!(fault, Fault::Owner | Fault::OwnerAndLeader) || self.rng.percent(50) {
            plant.begin_all();
        } else {
            thread::sleep(2 * AWAY);
        }
        format!("{fault:?} (owner {}, leader n{leader})", NODES[owner])
    }

    fn serving(&self) -> Option<&str> {
        self.plant.serving().map(|node| NODES[node])
    }

    fn record(&self, stream: &Stream, minute: u64) {
        let plant = &self.plant;
        let of_nodes = plant.nodes.iter().map(|node| {
            let memory = node.process.as_ref().map_or(0, |process| memory_of(process.id(), "VmRSS"));
            format!("{}+{}", memory >> 20, size(&node.directory) >> 20)
        });
        let of_servers = (0..SERVERS).map(|number| {
            let memory = plant.servers.id(number).map_or(0, |id| memory_of(id, "VmRSS"));
            format!("{}+{}", memory >> 20, size(&plant.servers.store(number)) >> 20)
        });
        let [acknowledged, delivered, repeated, connections] =
            [&stream.acknowledged, &stream.delivered, &stream.repeated, &stream.connections]
                .map(|count| count.load(Ordering::Relaxed));
        println!(
            "minute {minute}: {acknowledged} acknowledged, {delivered} delivered, {repeated} again, \
             {connections} connections; MiB of memory+files: nodes {}; servers {}",
            of_nodes.collect::<Vec<_>>().join(" "),
            of_servers.collect::<Vec<_>>().join(" ")
        );
        let status = plant.ask(&["status"]);
        let lines = status.lines().filter(|line| !line.is_empty() && !line.starts_with("node "));
        lines.for_each(|line| println!("    {line}"));
    }

    fn summarize(&self, stream: &Stream) {
        println!(
            "SUMMARY after {} minutes: {} faults, {} messages acknowledged, {} delivered, {} again, {} violations",
            self.began.elapsed().as_secs() / 60,
            self.gaps.len(),
            stream.acknowledged.load(Ordering::Relaxed),
            stream.delivered.load(Ordering::Relaxed),
            stream.repeated.load(Ordering::Relaxed),
            stream.violations().len()
        );
        let mut gaps = self.gaps.clone();
        gaps.sort_by_key(|(_, gap)| *gap);
        gaps.iter().for_each(|(what, gap)| println!("    {:>6} ms  {what}", gap.as_millis()));
    }
}

fn away(plant: &Plant, server: usize) {
    plant.servers.kill(server);
    thread::sleep(AWAY);
    plant.servers.restart(server);
}

/// Returns the bytes of all files in a directory. Files may go meanwhile.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
