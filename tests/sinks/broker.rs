//! A broker that keeps its configuration, its address and its store over its ends.

use crate::support::process::{Process, address_in};
use crate::support::shim::shim;
use crate::support::{Connect, RawClient, V5};
use rustix::process::Signal;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

pub struct Broker {
    _directory: tempfile::TempDir,
    file: PathBuf,
    data: PathBuf,
    address: Option<SocketAddr>,
    pub process: Option<Process>,
}

impl Broker {
    /// Starts a broker, and waits until its sink has its subscriptions.
    pub fn start(configuration: &str) -> Broker {
        let mut broker = Broker::configured(configuration);
        broker.start_again();
        broker
    }

    /// Starts a broker, and waits until it listens.
    pub fn start_at_once(configuration: &str) -> Broker {
        let mut broker = Broker::configured(configuration);
        broker.start_until("listening on");
        broker
    }

    fn configured(configuration: &str) -> Broker {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, data) = (directory.path().join("homing.toml"), directory.path().join("data"));
        let broker = Broker { _directory: directory, file, data, address: None, process: None };
        broker.configure(configuration);
        broker
    }

    pub fn configure(&self, text: &str) {
        fs::write(&self.file, text).expect("a file");
    }

    pub fn reload(&mut self, text: &str) {
        self.configure(text);
        self.process.as_mut().expect("it runs").signal(Signal::HUP);
    }

    /// Starts the broker, and waits until its sink has its subscriptions.
    pub fn start_again(&mut self) {
        self.start_until("sink.ready");
    }

    /// Starts the broker, and waits for its address and for a line with these words.
    fn start_until(&mut self, words: &str) {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_homing"));
        // Names that begin with "hangs" are never resolved.
        serve.env("LD_PRELOAD", shim("mosquitto"));
        serve.env("HOMING_ADMIN__ADDRESSES", "off").arg("serve").arg("--config").arg(&self.file);
        serve.arg("--data-dir").arg(&self.data);
        let listen = self.address.map_or("127.0.0.1:0".to_owned(), |address| address.to_string());
        let mut process = Process::spawn(serve.args(["--listen", &listen]));
        let (mut address, mut is_ready) = (None, false);
        // The two lines are on two pipes, so either may come first.
        let lines = process.lines_until(&format!("an address, and {words}"), |line| {
            is_ready |= line.contains(words);
            address = address.or_else(|| line.contains("listening on").then(|| address_in(line)).flatten());
            is_ready && address.is_some()
        });
        assert!(lines.is_some(), "it ends: {:#?}", process.end());
        (self.process, self.address) = (Some(process), address);
    }

    pub fn kill(&mut self) {
        self.process.as_mut().expect("it runs").kill();
    }

    /// Returns the next line of the log with these words.
    pub fn says(&mut self, words: &str) -> String {
        let process = self.process.as_mut().expect("it runs");
        process.line(words).unwrap_or_else(|| panic!("it ends before it says {words}"))
    }

    /// Returns the next lines of the log, up to the first with these words.
    pub fn lines_until(&mut self, words: &str) -> Vec<String> {
        let process = self.process.as_mut().expect("it runs");
        process.lines_until(words, |line| line.contains(words)).expect("it runs")
    }

    /// Returns what another command says about the configuration of the broker, on both outputs.
    pub fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.env("HOMING_ADMIN__ADDRESSES", "off").args(arguments).arg("--config").arg(&self.file);
        let output = command.arg("--data-dir").arg(&self.data).output().expect("it runs");
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8")).concat()
    }

    /// Returns what `homing ctl` says.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let socket = self.data.join("homing.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg("ctl").args(arguments).arg("--socket").arg(socket);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    pub fn address(&self) -> SocketAddr {
        self.address.expect("it was started")
    }

    pub fn client(&self, name: &str) -> RawClient {
        RawClient::connect(self.address(), &Connect::new(V5, name))
    }
}

/// Returns the configuration of a sink of `t/#` that tries again soon.
pub fn sink(url: &str, keys: &str) -> String {
    format!(
        "[[sinks]]\nname = \"s\"\nurl = \"{url}\"\nfilters = [\"t/#\"]\nbackoff = \"50ms\"\n\
         max_backoff = \"200ms\"\n{keys}"
    )
}
