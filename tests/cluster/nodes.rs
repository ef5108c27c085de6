//! Three nodes of Homing on three servers: what was acknowledged survives whatever happens to one
//! of them, and one of them serves again soon. The clients and the judge are those of `tests/crash`.
//!
//! `NODE_ROUNDS=n` plays as many rounds, and `NODE_SEED=n` repeats the plans (not the scheduler).

use crate::clients::{Clients, await_moment_of_kill};
use crate::proxy::{Passage, Proxy};
use crate::retained;
use crate::servers::{PASSWORD, SERVERS, Servers, own_address};
use crate::support::now;
use crate::support::process::Process;
use crate::support::rng::Rng;
use crate::trial::Trial;
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const NODES: [&str; 3] = ["a", "b", "c"];
/// Rounds of each run of the tests.
const ROUNDS: u64 = 8;
/// Time in which a node serves again after any fault, on a busy machine. 6 to 12 s on an idle one.
const SERVES: Duration = Duration::from_secs(90);

/// Time in which a node serves that stood by.
const OTHERS: Duration = Duration::from_secs(20);

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

struct NodeProcess {
    process: Option<Process>,
    address: SocketAddr,
    /// The ways to the servers.
    doors: Vec<Proxy>,
    directory: PathBuf,
    configuration: PathBuf,
}

/// The servers, and three nodes of one cluster.
struct Plant {
    servers: Servers,
    nodes: Vec<NodeProcess>,
    _directory: TempDir,
}

impl Plant {
    fn start() -> Plant {
        let servers = Servers::start();
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let password = directory.path().join("password");
        fs::write(&password, PASSWORD).expect("a file");
        let nodes = NODES.map(|name| {
            let doors = servers.doors();
            let urls: Vec<String> = doors.iter().map(|door| format!("\"nats://{}\"", door.address)).collect();
            let address = SocketAddr::from((own_address(), 1883));
            let data = directory.path().join(name);
            let configuration = directory.path().join(format!("{name}.toml"));
            let text = format!(
                "[network]\nlisten = [\"{address}\"]\n[log]\nlevel = \"info\"\n[runtime]\nthreads = 2\n\
                 [admin]\naddresses = \"off\"\n\
                 [store]\npath = {data:?}\nqueue_messages = 1000000\nqueue_bytes = \"1 GiB\"\n\
                 [cluster]\nname = \"plant\"\nnode = \"{name}\"\nnodes = [\"a\", \"b\", \"c\"]\n\
                 nats = [{}]\nnats_user = \"homing\"\nnats_password_file = {password:?}\nlog_size = \"64 MiB\"\n",
                urls.join(", ")
            );
            fs::write(&configuration, text).expect("a file");
            NodeProcess { process: None, address, doors, directory: data, configuration }
        });
        let plant = Plant { servers, nodes: nodes.into(), _directory: directory };
        let said = plant.ask(&["init"]);
        assert!(said.contains("is made"), "{said}");
        plant
    }

    /// Returns what `homing cluster` prints.
    fn ask(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg("cluster").args(arguments).arg("--config").arg(&self.nodes[0].configuration);
        let output = command.output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn begin(&mut self, node: usize) {
        let NodeProcess { process, configuration, .. } = &mut self.nodes[node];
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg("serve").arg("--config").arg(configuration);
        *process = Some(Process::spawn(&mut command));
    }

    /// Starts what does not run.
    fn begin_all(&mut self) {
        for node in 0..NODES.len() {
            let process = &mut self.nodes[node].process;
            if process.as_mut().is_none_or(Process::has_ended) {
                *process = None;
                self.begin(node);
            }
        }
    }

    /// Waits for the node that serves.
    fn owner(&mut self) -> usize {
        let begun = now();
        loop {
            for (number, node) in self.nodes.iter().enumerate() {
                if TcpStream::connect_timeout(&node.address, Duration::from_millis(200)).is_ok() {
                    return number;
                }
            }
            assert!(begun.elapsed() < SERVES, "nobody serves: {}", self.ask(&["status"]));
            // The service manager starts a node again that has ended. Here only if no other serves, so
            // that others do.
            if begun.elapsed() > OTHERS {
                self.begin_all();
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(&mut self, node: usize) {
        if let Some(mut process) = self.nodes[node].process.take() {
            process.kill();
        }
    }

    fn play(&mut self, fault: Fault, owner: usize) {
        let standby = (owner + 1) % NODES.len();
        match fault {
            Fault::OwnerKilled => self.kill(owner),
            Fault::OwnerDrained => {
                let mut process = self.nodes[owner].process.take().expect("it runs");
                process.signal(Signal::TERM);
                let (code, said) = process.end();
                assert_eq!(code, Some(0), "{said:#?}");
            }
            Fault::OwnerStopped => {
                let process = self.nodes[owner].process.take().expect("it runs");
                process.signal(Signal::STOP);
                self.await_other(owner);
                process.signal(Signal::CONT);
                self.ends_lost(process);
            }
            Fault::OwnerCutOff => {
                self.nodes[owner].doors.iter().for_each(|door| door.set(Passage::Hole));
                self.await_other(owner);
                self.nodes[owner].doors.iter().for_each(|door| door.set(Passage::Open));
                let process = self.nodes[owner].process.take().expect("it runs");
                self.ends_lost(process);
            }
            Fault::OwnerAndLeaderKilled => {
                let leader = self.leader();
                self.servers.kill(leader);
                self.kill(owner);
                self.servers.restart(leader);
            }
            Fault::LeaderStopped => {
                let leader = self.leader();
                self.servers.stop(leader);
                thread::sleep(Duration::from_secs(3));
                self.kill(owner);
                self.servers.resume(leader);
            }
            Fault::AllServersKilled => {
                (0..SERVERS).for_each(|number| self.servers.kill(number));
                (0..SERVERS).for_each(|number| self.servers.restart(number));
                self.kill(owner);
            }
            Fault::TwoServersKilled => {
                self.servers.kill(0);
                self.servers.kill(1);
                thread::sleep(Duration::from_secs(5));
                self.servers.restart(0);
                self.servers.restart(1);
                self.kill(owner);
            }
            Fault::AllNodesKilled => (0..NODES.len()).for_each(|node| self.kill(node)),
            Fault::StandbyFromNothing => {
                self.kill(standby);
                fs::remove_dir_all(&self.nodes[standby].directory).expect("its data");
                self.begin(standby);
                self.kill(owner);
            }
        }
    }

    fn leader(&self) -> usize {
        self.servers.leader(&self.servers.node("plant"))
    }

    /// Waits until another node than this one serves.
    fn await_other(&mut self, owner: usize) {
        let begun = now();
        let others: Vec<SocketAddr> =
            (0..NODES.len()).filter(|node| *node != owner).map(|node| self.nodes[node].address).collect();
        while !others.iter().any(|address| TcpStream::connect(address).is_ok()) {
            assert!(begun.elapsed() < SERVES, "no other node serves");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// A node that finds another owner ends so that the service manager starts it again.
    fn ends_lost(&self, mut process: Process) {
        let (code, said) = process.end();
        assert_eq!(code, Some(75), "{said:#?}");
    }
}

fn variable(name: &str, default: u64) -> u64 {
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
    let mut plant = Plant::start();
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
            plant.play(fault, owner);
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
