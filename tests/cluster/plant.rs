//! Three nodes of Homing, as processes, on three servers.

use crate::cut_off::{CutOff, watch_cut_off};
use crate::fleet::{self, Said, position};
use crate::proxy::{Passage, Proxy};
use crate::servers::{PASSWORD, Servers, own_address};
use crate::support::process::Process;
use crate::support::{now, shim};
use homing::cluster::engine::Engine;
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const NODES: [&str; 3] = ["a", "b", "c"];
/// Time in which a node serves again after any fault, on a busy machine. 6 to 12 s on an idle one.
const SERVES: Duration = Duration::from_secs(90);
/// A week, by which the wall clocks of neighbours differ.
const WEEK: i64 = 7 * 24 * 3600;
/// Messages that a 3.1.1 client withholds come to it again within a round, and nobody is disconnected for
/// what is withheld: a round may take minutes.
const REDELIVERY: &str = "[redelivery]\ninterval = \"3s\"\nattempts = \"unlimited\"\nack_timeout = \"off\"\n";
/// Time in which a node serves that stood by.
const OTHERS: Duration = Duration::from_secs(20);

pub struct NodeProcess {
    pub process: Option<Process>,
    pub address: SocketAddr,
    /// The ways to the servers.
    pub doors: Vec<Proxy>,
    pub directory: PathBuf,
    configuration: PathBuf,
}

/// The servers, and three nodes of one cluster.
pub struct Plant {
    pub servers: Servers,
    pub nodes: Vec<NodeProcess>,
    /// When a node was last ended, stopped or cut off.
    struck: Instant,
    /// When another one was seen to serve after that.
    served: Option<Instant>,
    directory: TempDir,
}

/// Returns the program of the nodes: the one that was built with the tests, or `CLUSTER_PROGRAM`.
fn program() -> PathBuf {
    std::env::var_os("CLUSTER_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_homing").into(), PathBuf::from)
}

impl Plant {
    /// Starts the servers and makes the cluster. The nodes do not run yet.
    pub fn start(level: &str, log_size: &str) -> Plant {
        let servers = Servers::start_at_once();
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
                "[network]\nlisten = [\"{address}\"]\n[log]\nlevel = \"{level}\"\n[runtime]\nthreads = 2\n\
                 [admin]\naddresses = \"off\"\n\
                 {REDELIVERY}[store]\npath = {data:?}\nqueue_messages = 1000000\nqueue_bytes = \"1 GiB\"\n\
                 [cluster]\nname = \"plant\"\nnode = \"{name}\"\nnodes = [\"a\", \"b\", \"c\"]\n\
                 nats = [{}]\nnats_user = \"homing\"\nnats_password_file = {password:?}\nlog_size = \"{log_size}\"\n",
                urls.join(", ")
            );
            fs::write(&configuration, text).expect("a file");
            NodeProcess { process: None, address, doors, directory: data, configuration }
        });
        let plant = Plant { servers, nodes: nodes.into(), struck: now(), served: None, directory };
        let (_, said) = fleet::until_answered(|| plant.run(&["init"]));
        assert!(said.contains("is made") || said.contains("is there already"), "{said}");
        plant
    }

    /// Returns what `homing cluster` prints.
    pub fn ask(&self, arguments: &[&str]) -> String {
        self.run(arguments).1
    }

    fn run(&self, arguments: &[&str]) -> Said {
        fleet::run(program(), &self.nodes[0].configuration, &[&["cluster"], arguments].concat())
    }

    /// Starts a node. It ends with the thread that called this.
    ///
    /// Each node has another boot and another wall clock, as nodes on machines of their own have.
    pub fn begin(&mut self, node: usize) {
        let NodeProcess { process, configuration, .. } = &mut self.nodes[node];
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program()).arg("serve").arg("--config").arg(configuration);
        command.env("LD_PRELOAD", shim::shim("cluster"));
        command.env("CLUSTER_BOOT", format!("0000000{node}-0000-4000-8000-000000000000"));
        command.env("CLUSTER_CLOCK", (WEEK * (node as i64 - 1)).to_string());
        *process = Some(Process::spawn(&mut command));
    }

    /// Starts what does not run.
    pub fn begin_all(&mut self) {
        for node in 0..NODES.len() {
            let process = &mut self.nodes[node].process;
            if process.as_mut().is_none_or(Process::has_ended) {
                *process = None;
                self.begin(node);
            }
        }
    }

    /// Returns the node that serves now: only this one listens.
    pub fn serving(&self) -> Option<usize> {
        let listens = |node: &NodeProcess| {
            TcpStream::connect_timeout(&node.address, Duration::from_millis(200)).is_ok()
        };
        self.nodes.iter().position(listens)
    }

    /// Waits for the node that serves.
    pub fn owner(&mut self) -> usize {
        let begun = now();
        loop {
            if let Some(owner) = self.serving() {
                self.served.get_or_insert_with(now);
                return owner;
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

    pub fn kill(&mut self, node: usize) {
        self.strike();
        if let Some(mut process) = self.nodes[node].process.take() {
            process.kill();
        }
    }

    fn strike(&mut self) {
        (self.struck, self.served) = (now(), None);
    }

    /// Returns the time from the last strike until a node served. It serves now.
    pub fn gap(&self) -> Duration {
        self.served.unwrap_or_else(now) - self.struck
    }

    /// Ends a node in order.
    pub fn drain(&mut self, node: usize) {
        self.strike();
        let mut process = self.nodes[node].process.take().expect("it runs");
        process.signal(Signal::TERM);
        let (code, said) = process.end();
        assert_eq!(code, Some(0), "{said:#?}");
    }

    /// Stops the owner until another node serves. Then it finds that, and ends.
    pub fn stop_owner(&mut self, owner: usize) {
        self.strike();
        let process = self.nodes[owner].process.take().expect("it runs");
        process.signal(Signal::STOP);
        self.served = Some(self.await_other(owner));
        process.signal(Signal::CONT);
        ends_lost(process);
    }

    /// Cuts the owner off from the servers until its clients are disconnected, and another node serves.
    /// Then it finds that, and ends.
    pub fn cut_off_owner(&mut self, owner: usize) -> CutOff {
        self.strike();
        let NodeProcess { doors, address, .. } = &self.nodes[owner];
        let cut = || doors.iter().for_each(|door| door.set(Passage::Hole));
        let (seen, served) = thread::scope(|scope| {
            let watch = scope.spawn(|| watch_cut_off(*address, cut));
            let served = self.await_other(owner);
            (watch.join().expect("what clients see"), served)
        });
        self.served = Some(served);
        self.nodes[owner].doors.iter().for_each(|door| door.set(Passage::Open));
        ends_lost(self.nodes[owner].process.take().expect("it runs"));
        seen
    }

    /// Ends a standby in order, starts it again, and waits until it has caught up.
    pub fn restart(&mut self, standby: usize) {
        self.drain(standby);
        self.begin(standby);
        self.await_caught_up(standby);
    }

    /// Takes everything from a standby and starts it again. Waits until it has caught up.
    pub fn start_from_nothing(&mut self, standby: usize) {
        self.kill(standby);
        fs::remove_dir_all(&self.nodes[standby].directory).expect("its data");
        self.begin(standby);
        self.await_caught_up(standby);
    }

    /// Waits until a node that was just started has every frame that the log has now. Its row says so,
    /// within 2 s. The age of a row says nothing here, where clocks are a week apart.
    ///
    /// A snapshot may purge what the node is about to read. Then it ends, and is started again, as by the
    /// service manager.
    fn await_caught_up(&mut self, node: usize) {
        let reader = self.servers.node("plant");
        let begun = now();
        let mut wanted = None;
        loop {
            // The row of the process before is behind the end of the log by the frames of a second.
            wanted = wanted.or_else(|| reader.engine.bounds().ok().map(|bounds| bounds.last));
            let status = self.ask(&["status"]);
            if self.nodes[node].process.as_mut().is_some_and(Process::has_ended) {
                ends_lost(self.nodes[node].process.take().expect("it ran"));
                self.begin(node);
            }
            if wanted.is_some_and(|wanted| position(&status, NODES[node]) >= Some(wanted)) {
                return;
            }
            assert!(begun.elapsed() < SERVES, "{} does not catch up with {wanted:?}: {status}", NODES[node]);
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Leaves the data directories of the nodes for inspection. Returns where they are.
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    /// Returns the server that leads the log.
    pub fn leader(&self) -> usize {
        self.servers.leader(&self.servers.node("plant"))
    }

    /// Waits until another node than this one serves. Returns when it does.
    fn await_other(&self, owner: usize) -> Instant {
        let begun = now();
        let others: Vec<SocketAddr> =
            (0..NODES.len()).filter(|node| *node != owner).map(|node| self.nodes[node].address).collect();
        while !others.iter().any(|address| TcpStream::connect(address).is_ok()) {
            assert!(begun.elapsed() < SERVES, "no other node serves");
            thread::sleep(Duration::from_millis(50));
        }
        now()
    }
}

/// A node that finds another owner ends so that the service manager starts it again.
fn ends_lost(mut process: Process) {
    let (code, said) = process.end();
    assert_eq!(code, Some(75), "{said:#?}");
}
