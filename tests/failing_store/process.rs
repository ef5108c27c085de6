//! A broker as a child process, and what it says.

use crate::support::{PATIENCE, now};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Killed when dropped.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Process {
    /// The real binary on a data directory, which listens.
    pub fn homing(directory: &Path, extra: &[&str]) -> (Process, SocketAddr) {
        Process::homing_with(directory, extra, &[])
    }

    /// The same with an environment.
    pub fn homing_with(
        directory: &Path,
        extra: &[&str],
        environment: &[(&str, &Path)],
    ) -> (Process, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory).args(extra);
        let mut process = Process::spawn(command.envs(environment.iter().copied()));
        let address = process.address().expect("it listens");
        (process, address)
    }

    pub fn spawn(command: &mut Command) -> Process {
        let mut child = command
            // Neither a file nor a directory of whoever runs the tests.
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (say, lines) = mpsc::channel();
        let pipes: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        for pipe in pipes {
            let say = say.clone();
            std::thread::spawn(move || {
                BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| say.send(line))
            });
        }
        Process { child, lines, said: Vec::new() }
    }

    /// Where it listens; None if it ends instead.
    pub fn address(&mut self) -> Option<SocketAddr> {
        self.line("listening on ").and_then(|line| line.rsplit(' ').next()?.parse().ok())
    }

    /// The next line with these words; None if it ends without.
    pub fn line(&mut self, words: &str) -> Option<String> {
        let deadline = now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(now())) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(words) {
                        return Some(line);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("never says {words}: {:#?}", self.said),
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for its end: the exit code and all that it said.
    pub fn end(&mut self) -> (Option<i32>, Vec<String>) {
        let deadline = now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child to wait for") {
                break status;
            }
            assert!(now() < deadline, "it does not end: {:#?}", self.said);
            std::thread::sleep(Duration::from_millis(5));
        };
        self.said.extend(self.lines.iter());
        (status.code(), std::mem::take(&mut self.said))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
