//! A broker as a child process, and its figures from `/proc`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running broker. Dropping the value ends the process.
pub struct Broker {
    child: Child,
    pub address: SocketAddr,
}

impl Broker {
    /// Starts a broker with one thread, because the tables show the cost of a message and not its
    /// spread over cores.
    pub fn start() -> Broker {
        Broker::start_with("--ephemeral", Path::new(""))
    }

    /// Starts the same broker with a store in this folder.
    pub fn start_in(folder: &Path) -> Broker {
        Broker::start_with("--data-dir {data}", folder)
    }

    fn start_with(keeps: &str, folder: &Path) -> Broker {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|l| l.local_addr())
            .expect("a free port")
            .port();
        let homing = env!("CARGO_BIN_EXE_homing");
        let own = format!("{homing} serve {keeps} --set runtime.threads=1 --listen 127.0.0.1:{{port}}");
        let command = std::env::var("HOMING_BENCH_COMMAND").unwrap_or(own);
        let command =
            command.replace("{port}", &port.to_string()).replace("{data}", &folder.display().to_string());
        let mut words = command.split_whitespace();
        let child = Command::new(words.next().expect("a program"))
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the broker starts");
        let broker = Broker { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) };
        let mut tries = 0..200;
        while TcpStream::connect(broker.address).is_err() {
            assert!(tries.next().is_some(), "the broker listens within ten seconds");
            std::thread::sleep(Duration::from_millis(50));
        }
        broker
    }

    /// Returns the CPU time of all threads of the broker in nanoseconds, by the clock of the
    /// scheduler.
    pub fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let of_task = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.flatten().filter_map(of_task).sum()
    }

    pub fn rss_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says so");
        line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).expect("a number") / 1024.0
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
