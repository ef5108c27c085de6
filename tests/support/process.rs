//! The real binary, or a test's own, as a child process with its output.

use crate::support::{Connect, PATIENCE, RawClient, now};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// A child process and its output. Killed when dropped.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    /// The standard error and the sender for its lines, until it is read.
    unread: Option<(ChildStderr, Sender<String>)>,
}

/// Returns the command `homing serve` on a free port. The caller adds arguments.
pub fn homing_serve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    // Several brokers run at once, and only one could have the default address.
    command.env("HOMING_ADMIN__ADDRESSES", "off");
    command
}

/// Raises the limit of descriptors of this process, and of those that it starts, as far as it goes.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("room for the sockets");
}

impl Process {
    /// Starts a broker. Returns it with the address where it listens.
    pub fn serve(command: &mut Command) -> (Process, SocketAddr) {
        let mut process = Process::spawn(command);
        let address = process.address().unwrap_or_else(|| panic!("it does not listen: {:#?}", process.said));
        (process, address)
    }

    /// Like [`Self::serve`], but its standard error is not read before [`Self::read_log`].
    pub fn serve_unread(command: &mut Command) -> (Process, SocketAddr) {
        let mut process = Process::spawn_unread(command);
        let address = process.address().expect("it listens");
        (process, address)
    }

    pub fn spawn(command: &mut Command) -> Process {
        let mut process = Process::spawn_unread(command);
        process.read_log();
        process
    }

    /// Reads the standard error from here on.
    pub fn read_log(&mut self) {
        let (stderr, say) = self.unread.take().expect("nobody reads it yet");
        read(stderr, say, true);
    }

    fn spawn_unread(command: &mut Command) -> Process {
        let mut child = command
            // Neither a file nor a directory of whoever runs the tests.
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (say, lines) = mpsc::channel();
        let stderr = child.stderr.take().expect("a pipe");
        read(child.stdout.take().expect("a pipe"), say.clone(), false);
        Process { child, lines, said: Vec::new(), unread: Some((stderr, say)) }
    }

    /// Returns the address where it listens, or None if it ends instead.
    pub fn address(&mut self) -> Option<SocketAddr> {
        let mut found = None;
        self.lines_until("an address", |line| {
            // A line of the log may name another address.
            found = line.contains("listening on").then(|| address_in(line)).flatten();
            found.is_some()
        })?;
        found
    }

    /// Returns the next line with these words, or None if the process ends without it.
    pub fn line(&mut self, words: &str) -> Option<String> {
        self.lines_until(words, |line| line.contains(words))?.pop()
    }

    /// Returns the first line with these words behind the first `heard` lines of the process, also if
    /// another call has read it. `heard` is behind that line then. Returns None if the process ends
    /// without it.
    pub fn line_behind(&mut self, heard: &mut usize, words: &str) -> Option<String> {
        let behind = self.said.iter().skip(*heard);
        if let Some((at, line)) = behind.enumerate().find(|(_, line)| line.contains(words)) {
            *heard += at + 1;
            return Some(line.clone());
        }
        let line = self.line(words);
        *heard = self.said.len();
        line
    }

    /// Returns the next lines up to the first that is `last`, or None if the process ends without
    /// it.
    pub fn lines_until(&mut self, what: &str, mut is_last: impl FnMut(&str) -> bool) -> Option<Vec<String>> {
        let (deadline, from) = (now() + PATIENCE, self.said.len());
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(now())) {
                Ok(line) => {
                    let ends = is_last(&line);
                    self.said.push(line);
                    if ends {
                        return Some(self.said[from..].to_vec());
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("never says {what}: {:#?}", self.said),
            }
        }
    }

    /// Returns the process identifier.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns a figure of `/proc/PID/status` in bytes: `VmRSS` is resident, `VmHWM` the most that
    /// ever was.
    pub fn memory(&self, figure: &str) -> u64 {
        memory_of(self.id(), figure)
    }

    pub fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Kills the process with SIGKILL. It must not have ended on its own.
    pub fn kill(&mut self) {
        let ended = self.child.try_wait().expect("a child");
        assert!(ended.is_none(), "it ended on its own, {ended:?}: {:#?}", self.said);
        self.child.kill().expect("killed");
        self.child.wait().expect("its end");
    }

    /// Returns true if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for the end. Returns the exit code and all output.
    pub fn end(&mut self) -> (Option<i32>, Vec<String>) {
        let deadline = now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child to wait for") {
                break status;
            }
            assert!(now() < deadline, "it does not end: {:#?}", self.said);
            thread::sleep(Duration::from_millis(5));
        };
        self.said.extend(self.lines.iter());
        (status.code(), std::mem::take(&mut self.said))
    }
}

/// A broker that runs the real binary, and where it listens. Killed when dropped.
pub struct Homing {
    pub process: Process,
    pub address: SocketAddr,
}

impl Homing {
    /// Starts `homing serve` with no more arguments than these, and waits until it listens.
    pub fn serve(arguments: &[&str]) -> Homing {
        let (process, address) = Process::serve(homing_serve().args(arguments));
        Homing { process, address }
    }

    pub fn connect(&self, connect: &Connect) -> RawClient {
        RawClient::connect(self.address, connect)
    }

    /// Returns what it prints, to the first line that begins with `last`.
    pub fn says(&mut self, last: &str) -> Vec<String> {
        let lines = self.process.lines_until(last, |line| line.starts_with(last));
        lines.unwrap_or_else(|| panic!("it ended and never said {last}"))
    }

    /// Returns the next line it prints that contains these words.
    pub fn line_with(&mut self, words: &str) -> String {
        self.process.line(words).unwrap_or_else(|| panic!("it ended and never said {words}"))
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for the end of the process, whose orderly stop is bounded.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.process.end().0
    }

    /// Returns a figure of the process: see [`Process::memory`].
    pub fn memory(&self, figure: &str) -> u64 {
        self.process.memory(figure)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a figure of the memory of a process: see [`Process::memory`].
pub fn memory_of(process: u32, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no {figure} in {status}")) << 10
}

/// Reads a pipe to its end, so that the process never blocks on it.
fn read(pipe: impl Read + Send + 'static, say: Sender<String>, is_log: bool) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if is_log {
                println!("homing: {line}");
            }
            let _ = say.send(line);
        }
    });
}

/// Returns the address at 127.0.0.1 in a line of output, unless its port is 0.
pub fn address_in(line: &str) -> Option<SocketAddr> {
    let digits = &line[line.find("127.0.0.1:")?..];
    let end = digits.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(digits.len());
    // Not what was asked for, if it repeats that, but what it got.
    digits[..end].trim_end_matches(['.', ':']).parse().ok().filter(|address: &SocketAddr| address.port() != 0)
}
