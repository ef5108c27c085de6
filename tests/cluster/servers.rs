//! Three real nats-servers on loopback, with a proxy on each way between them.

use crate::proxy::{Passage, Proxy};
use crate::support::now;
use homing::cluster::engine::{Engine, EngineError};
use homing::cluster::nats::{Nats, NatsSettings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

pub const SERVERS: usize = 3;
/// The password of the one user.
pub const PASSWORD: &str = "not-a-secret";
/// Time in which servers elect and answer, on a machine that is busy.
const READY: Duration = Duration::from_secs(90);
/// Clusters at a time, besides those that begin at once. Most of their time is waiting.
const AT_A_TIME: usize = 4;

/// Three servers that form a cluster. Killed when dropped.
pub struct Servers {
    directory: TempDir,
    addresses: [[u8; 4]; SERVERS],
    processes: Mutex<[Option<Child>; SERVERS]>,
    /// The way from one server to another: `routes[from][to]`.
    routes: Vec<Vec<Option<Proxy>>>,
    /// True if they speak TLS, and know their clients by certificates.
    has_tls: bool,
    _turn: Option<Turn>,
}

/// A node of Homing: its engine, and its ways to the servers.
pub struct Node {
    pub engine: Arc<Nats>,
    pub doors: Vec<Proxy>,
}

/// Returns the program, or fails with what to do.
pub fn program() -> PathBuf {
    let path = std::env::var_os("NATS_SERVER").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nats-server/bin/nats-server"),
        PathBuf::from,
    );
    assert!(path.exists(), "{} is missing: run tests/cluster/run, which installs it", path.display());
    path
}

/// Returns an address of loopback that nothing else has. Servers get their ports back after a
/// restart, because outgoing connections come from 127.0.0.1.
pub fn own_address() -> [u8; 4] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let id = std::process::id();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < 250, "too many servers in one run");
    [127, 1 + (id / 250 % 250) as u8, 1 + (id % 250) as u8, number]
}

/// Starts a nats-server with a configuration. It ends with the thread that started it.
pub fn spawn(configuration: &Path, log: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(log).expect("a log");
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(program())
        .arg("--config")
        .arg(configuration)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("setpriv of util-linux starts it")
}

/// Makes an authority, `ca.pem`, and certificates that it signs, each with its key.
pub fn certificates(directory: &Path, hosts: &[&str], names: &[&str]) {
    let file = |name: &str| directory.join(name);
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    let authority_certificate = authority.self_signed(&authority_key).expect("a certificate");
    fs::write(file("ca.pem"), authority_certificate.pem()).expect("a file");
    let issuer = Issuer::new(authority, authority_key);
    for name in names {
        let key = KeyPair::generate().expect("a key");
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let certificate = CertificateParams::new(hosts).expect("names").signed_by(&key, &issuer);
        fs::write(file(&format!("{name}.pem")), certificate.expect("a certificate").pem()).expect("a file");
        fs::write(file(&format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
}

impl Servers {
    pub fn start() -> Servers {
        Servers::start_with(false, Some(Turn::wait()))
    }

    /// Starts servers for a test that takes longest, which waits for no other: all end sooner so.
    pub fn start_at_once() -> Servers {
        Servers::start_with(false, None)
    }

    /// Starts servers that speak TLS with their clients, and not with each other. Clients are known by their
    /// certificates.
    pub fn start_with_tls() -> Servers {
        Servers::start_with(true, Some(Turn::wait()))
    }

    fn start_with(has_tls: bool, turn: Option<Turn>) -> Servers {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        if has_tls {
            // The proxies are there, and the servers behind them.
            certificates(directory.path(), &["127.0.0.1"], &["server", "node"]);
        }
        let addresses = [(); SERVERS].map(|()| own_address());
        let route =
            |from: usize, to: usize| (from != to).then(|| Proxy::to(SocketAddr::from((addresses[to], 6222))));
        let routes = (0..SERVERS)
            .map(|from| (0..SERVERS).map(|to| route(from, to)).collect())
            .collect::<Vec<Vec<_>>>();
        let processes = Mutex::new([const { None }; SERVERS]);
        let servers = Servers { directory, addresses, processes, routes, has_tls, _turn: turn };
        (0..SERVERS).for_each(|number| servers.configure(number));
        (0..SERVERS).for_each(|number| servers.restart(number));
        let node = servers.node("ready");
        let begun = now();
        // All three must be known to their leader, which may be one of two for a moment.
        while let Err(error) = node.engine.init(1024 * 1024) {
            assert!(begun.elapsed() < READY, "not ready: {error}");
            let is_early = matches!(error, EngineError::Unavailable(_) | EngineError::TimedOut(_));
            assert!(is_early, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("three servers were ready after {:?}", begun.elapsed());
        servers
    }

    /// Returns the process of a server, if it runs.
    pub fn id(&self, number: usize) -> Option<u32> {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes[number].as_ref().map(Child::id)
    }

    /// Returns the directory of the log of a server.
    pub fn store(&self, number: usize) -> PathBuf {
        self.file(number, "")
    }

    fn file(&self, number: usize, name: &str) -> PathBuf {
        self.directory.path().join(format!("n{number}{name}"))
    }

    fn configure(&self, number: usize) {
        let [a, b, c, d] = self.addresses[number];
        let host = format!("{a}.{b}.{c}.{d}");
        let routes = self.routes[number].iter().flatten();
        let routes: Vec<String> = routes.map(|route| format!("\"nats://{}\"", route.address)).collect();
        let store = self.file(number, "").display().to_string();
        let path = |name: &str| self.path(name).display().to_string();
        // Clients are known by certificates, or by passwords: the reader may not append.
        let clients = match self.has_tls {
            true => format!(
                "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
                path("server.pem"),
                path("server.key"),
                path("ca.pem")
            ),
            false => format!(
                "authorization {{ users: [ {{ user: homing, password: \"{PASSWORD}\" }}, {{ user: reader, password: \
                 \"{PASSWORD}\", permissions: {{ publish: {{ deny: [\"homing.*.*.log\"] }} }} }} ] }}"
            ),
        };
        let text = format!(
            "server_name: n{number}\nlisten: \"{host}:4222\"\nhttp: \"{host}:8222\"\n\
             {clients}\n\
             jetstream {{ store_dir: \"{store}\", sync_interval: always }}\n\
             cluster {{ name: test, listen: \"{host}:6222\", no_advertise: true, pool_size: -1, routes: [{}] }}\n",
            routes.join(", ")
        );
        fs::write(self.file(number, ".conf"), text).expect("a configuration");
    }

    /// Returns the path of a file beside those of the servers.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Keeps a copy of all that the servers have, which are stopped for it.
    pub fn keep(&self) {
        self.move_disks(|own, kept| {
            let copied = Command::new("cp").arg("-a").arg(own).arg(kept).status();
            assert!(copied.expect("cp runs").success());
        });
    }

    /// Puts the copy in the place of what the servers have, as if their disks went back.
    pub fn go_back(&self) {
        self.move_disks(|own, kept| {
            fs::remove_dir_all(own).expect("removed");
            fs::rename(kept, own).expect("renamed");
        });
    }

    fn move_disks(&self, act: impl Fn(&Path, &Path)) {
        (0..SERVERS).for_each(|number| self.kill(number));
        (0..SERVERS).for_each(|number| act(&self.file(number, ""), &self.file(number, ".kept")));
        (0..SERVERS).for_each(|number| self.restart(number));
    }

    /// Starts a server, also one that was killed.
    pub fn restart(&self, number: usize) {
        let child = spawn(&self.file(number, ".conf"), &self.file(number, ".log"));
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(processes[number].replace(child).is_none(), "n{number} runs already");
    }

    pub fn kill(&self, number: usize) {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = processes[number].take().expect("it runs");
        child.kill().expect("killed");
        child.wait().expect("its end");
    }

    /// Stops a server, so that it is there and does nothing.
    pub fn stop(&self, number: usize) {
        self.signal(number, Signal::STOP);
    }

    pub fn resume(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    fn signal(&self, number: usize, signal: Signal) {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let child = processes[number].as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("a signal");
    }

    /// Sets the ways between a server and the others, in both directions.
    pub fn isolate(&self, number: usize, passage: Passage) {
        for (from, routes) in self.routes.iter().enumerate() {
            for (to, route) in routes.iter().enumerate().filter(|(to, _)| from == number || *to == number) {
                assert_eq!(route.is_some(), from != to);
                route.iter().for_each(|route| route.set(passage));
            }
        }
    }

    /// Returns the address of the monitor of a server.
    pub fn monitor(&self, number: usize) -> String {
        format!("http://{}", SocketAddr::from((self.addresses[number], 8222)))
    }

    /// Returns a node of a cluster, with ways of its own to the servers.
    pub fn node(&self, cluster: &str) -> Node {
        self.node_with(NatsSettings { cluster: cluster.to_owned(), ..NatsSettings::default() })
    }

    /// Returns new ways to the servers.
    pub fn doors(&self) -> Vec<Proxy> {
        let target = |address: &[u8; 4]| Proxy::to(SocketAddr::from((*address, 4222)));
        self.addresses.iter().map(target).collect()
    }

    /// Returns the address of a server behind a door, as `cluster.nats` has it.
    pub fn url(&self, door: &Proxy) -> String {
        format!("{}://{}", if self.has_tls { "tls" } else { "nats" }, door.address)
    }

    /// Returns a node with some settings of its own.
    pub fn node_with(&self, mut settings: NatsSettings) -> Node {
        let doors = self.doors();
        let servers = doors.iter().map(|door| self.url(door)).collect();
        if self.has_tls {
            settings.ca = Some(self.path("ca.pem"));
            settings.certificate = Some((self.path("node.pem"), self.path("node.key")));
        } else if settings.user.is_none() {
            settings.user = Some(("homing".to_owned(), PASSWORD.to_owned().into()));
        }
        let node = "test".to_owned();
        let engine = Nats::open(NatsSettings { servers, node, ..settings }).expect("settings");
        Node { engine: Arc::new(engine), doors }
    }

    /// Returns the number of the server that leads the log of a node.
    pub fn leader(&self, node: &Node) -> usize {
        let begun = now();
        loop {
            let leader = node.engine.bounds().ok().and_then(|bounds| bounds.leader);
            if let Some(number) = leader.and_then(|name| name.strip_prefix('n')?.parse().ok()) {
                return number;
            }
            assert!(begun.elapsed() < READY, "no leader: {:?}", node.engine.bounds());
        }
    }

    /// Returns a node whose cluster was initialized.
    pub fn initialized(&self, cluster: &str) -> Node {
        let node = self.node(cluster);
        node.engine.init(256 * 1024 * 1024).expect("made");
        node
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in self.processes.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for number in (0..SERVERS).filter(|_| std::thread::panicking()) {
            let log = fs::read_to_string(self.file(number, ".log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("n{number}: {:#?}", &lines[lines.len().saturating_sub(12)..]);
        }
    }
}

static TURNS: Mutex<usize> = Mutex::new(AT_A_TIME);
static RETURNED: Condvar = Condvar::new();

/// The right of one cluster to run.
struct Turn;

impl Turn {
    fn wait() -> Turn {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        while *turns == 0 {
            turns = RETURNED.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        *turns -= 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        RETURNED.notify_one();
    }
}
