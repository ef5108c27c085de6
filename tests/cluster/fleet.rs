//! Nodes of one cluster by their configurations, which a test starts, stops and asks one by one.

use crate::proxy::Proxy;
use crate::servers::{PASSWORD, Servers, own_address};
use crate::support::process::Process;
use crate::support::{Connect, Message, RawClient, V5, now, shim};
use homing::cluster::engine::Engine;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Time in which a node serves, or shows an alarm, on a busy machine.
const SOON: Duration = Duration::from_secs(180);

/// The exit code of a node that the service manager starts again.
pub const LOST: i32 = 75;

pub struct Fleet {
    pub nodes: Vec<FleetNode>,
    pub directory: TempDir,
    /// The ways to the servers.
    pub doors: Vec<Proxy>,
}

pub struct FleetNode {
    pub name: String,
    pub address: SocketAddr,
    /// Where its HTTP interface listens.
    pub admin: SocketAddr,
    pub data: PathBuf,
    pub configuration: PathBuf,
    pub process: Option<Process>,
}

/// The exit code of a command, and what it printed.
pub type Said = (i32, String);

/// Takes the messages of [`Fleet::publish`], all and in order.
pub fn expect_all(subscriber: &mut RawClient, payloads: std::ops::Range<u32>) {
    for number in payloads {
        let publish = subscriber.expect_publish();
        assert_eq!(String::from_utf8_lossy(&publish.payload), number.to_string());
        subscriber.complete(&publish);
    }
}

/// Returns the position of a node in what `homing cluster status` prints.
pub fn position(status: &str, node: &str) -> Option<u64> {
    let mut rows = status.lines().map(|line| line.split_whitespace());
    // The line "cluster" begins with the name of the node c.
    let mut row = rows.find(|row| row.clone().next() == Some(node))?;
    row.nth(3)?.parse().ok()
}

/// Runs this program with this configuration.
pub fn run(program: impl AsRef<OsStr>, configuration: &Path, arguments: &[&str]) -> Said {
    let mut command = Command::new(program);
    let output = command.args(arguments).arg("--config").arg(configuration).output().expect("it runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code().expect("it ended"), text)
}

/// Asks again while the engine is late.
pub fn until_answered(ask: impl Fn() -> Said) -> Said {
    let begun = now();
    loop {
        let (code, text) = ask();
        let is_late = ["no answer from the engine", "the engine is not available"];
        if !is_late.iter().any(|late| text.contains(late)) || begun.elapsed() > SOON {
            return (code, text);
        }
    }
}

impl Fleet {
    /// Writes the configurations. `cluster` are more lines of `[cluster]`.
    pub fn new(servers: &Servers, name: &str, nodes: &[&str], cluster: &str) -> Fleet {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let doors = servers.doors();
        let password = directory.path().join("password");
        fs::write(&password, PASSWORD).expect("a file");
        let urls: Vec<String> = doors.iter().map(|door| format!("\"{}\"", servers.url(door))).collect();
        let all: Vec<String> = nodes.iter().map(|node| format!("{node:?}")).collect();
        let node = |node: &&str| {
            let (address, admin) =
                (SocketAddr::from((own_address(), 1883)), SocketAddr::from((own_address(), 8080)));
            let data = directory.path().join(node);
            let configuration = directory.path().join(format!("{node}.toml"));
            let text = format!(
                "[log]\nlevel = \"info\"\n[runtime]\nthreads = 1\n[admin]\naddresses = [\"{admin}\"]\n\
                 [store]\npath = {data:?}\n[[listeners]]\nname = \"fleet\"\naddress = \"{address}\"\n\
                 [cluster]\nname = {name:?}\nnode = {node:?}\nnodes = [{}]\nnats = [{}]\nlog_size = \"64 MiB\"\n\
                 nats_user = \"homing\"\nnats_password_file = {password:?}\n{cluster}\n",
                all.join(", "),
                urls.join(", ")
            );
            fs::write(&configuration, text).expect("a file");
            let name = (*node).to_owned();
            FleetNode { name, address, admin, data, configuration, process: None }
        };
        let nodes = nodes.iter().map(node).collect();
        Fleet { nodes, directory, doors }
    }

    /// Runs `homing` with the configuration of a node.
    pub fn run(&self, node: usize, arguments: &[&str]) -> Said {
        run(env!("CARGO_BIN_EXE_homing"), &self.nodes[node].configuration, arguments)
    }

    /// Runs `homing cluster` on a node until it is answered: a busy engine may be late.
    pub fn ask(&self, node: usize, arguments: &[&str]) -> Said {
        until_answered(|| self.run(node, &[&["cluster"], arguments].concat()))
    }

    /// Starts a node.
    pub fn begin(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg("serve").arg("--config").arg(&node.configuration);
        node.process = Some(Process::spawn(&mut command));
    }

    /// Starts a node on a disk that hangs while there is a file.
    pub fn begin_on_disk(&mut self, node: usize, hangs: &Path) {
        let node = &mut self.nodes[node];
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.env("LD_PRELOAD", shim::shim("cluster")).env("CLUSTER_DISK_HANGS", hangs);
        command.arg("serve").arg("--config").arg(&node.configuration);
        node.process = Some(Process::spawn(&mut command));
    }

    /// Runs a node, with some settings of its own, that must end by itself.
    pub fn refused(&self, node: usize, settings: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(["serve", "--config"]).arg(&self.nodes[node].configuration);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        let (code, said) = Process::spawn(&mut command).end();
        (code, said.join("\n"))
    }

    /// Stops a node in order.
    pub fn stop(&mut self, node: usize) {
        let mut process = self.nodes[node].process.take().expect("it runs");
        process.signal(Signal::TERM);
        let (code, said) = process.end();
        assert_eq!(code, Some(0), "{said:#?}");
    }

    /// Starts the nodes that have ended, as the service manager does. Returns their exit codes.
    pub fn begin_ended(&mut self) -> Vec<i32> {
        let mut codes = Vec::new();
        for node in 0..self.nodes.len() {
            let process = &mut self.nodes[node].process;
            if process.as_mut().is_none_or(Process::has_ended) {
                codes.extend(process.take().and_then(|mut process| process.end().0));
                self.begin(node);
            }
        }
        codes
    }

    /// Waits for what a node says or does.
    pub fn await_that(&mut self, what: &str, mut look: impl FnMut(&mut Fleet) -> bool) {
        let begun = now();
        while !look(self) {
            assert!(begun.elapsed() < SOON, "{what}: {}", self.run(0, &["cluster", "status"]).1);
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until each node has every frame that the log has now.
    pub fn await_caught_up(&mut self, engine: &dyn Engine) {
        let last = engine.bounds().expect("both ends").last;
        self.await_that("nodes with all frames", |fleet| {
            let status = fleet.ask(0, &["status"]).1;
            fleet.nodes.iter().all(|node| position(&status, &node.name) >= Some(last))
        });
    }

    /// Returns the node that lets clients in now.
    pub fn serving(&self) -> Option<usize> {
        let listens =
            |node: &FleetNode| TcpStream::connect_timeout(&node.address, Duration::from_millis(200));
        self.nodes.iter().position(|node| listens(node).is_ok())
    }

    /// Waits for the node that serves, and connects to it.
    pub fn connect(&mut self, client: &str) -> RawClient {
        let begun = now();
        loop {
            if let Some(node) = self.serving() {
                return RawClient::connect(self.nodes[node].address, &Connect::persistent(V5, client));
            }
            assert!(begun.elapsed() < SOON, "nobody serves: {}", self.run(0, &["cluster", "status"]).1);
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Publishes messages, each of which is acknowledged.
    pub fn publish(&mut self, payloads: std::ops::Range<u32>) {
        let mut publisher = self.connect("publisher");
        for number in payloads {
            let message = Message::new("plant/pump", number.to_string()).qos(1);
            assert_eq!(publisher.deliver(&message), 0, "{number}");
        }
        publisher.disconnect();
    }

    /// The HTTP status of a path of a node; 0 if nobody answers.
    pub fn http(&self, node: usize, path: &str) -> u16 {
        let get = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.nodes[node].admin)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let host = self.nodes[node].admin;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        get().ok().and_then(|answer| answer.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
    }
}
