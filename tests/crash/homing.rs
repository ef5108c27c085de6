//! The real binary on a data directory.

use crate::support::PATIENCE;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Killed when dropped, as it is on demand.
pub struct Homing {
    child: Child,
    said: Receiver<String>,
}

impl Homing {
    pub fn spawn(directory: &Path, arbiters: u64) -> Homing {
        let mut child = Command::new(env!("CARGO_BIN_EXE_homing"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn"])
            .args(["--set", &format!("runtime.arbiters={arbiters}")])
            // Nothing may be refused: what is refused was not promised.
            .args(["--set", "limits.queue_messages=1000000", "--set", "limits.queue_bytes=1 GiB"])
            .arg("--data-dir")
            .arg(directory)
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("homing starts");
        let said = said(&mut child);
        Homing { child, said }
    }

    /// Where it listens, once it does.
    pub fn address(&self) -> SocketAddr {
        let mut lines = Vec::new();
        loop {
            let Ok(line) = self.said.recv_timeout(PATIENCE) else {
                panic!("homing does not listen; it said {lines:#?}")
            };
            if let Some(address) = address_in(&line) {
                return address;
            }
            lines.push(line);
        }
    }

    /// `kill -9`; it must not have ended on its own.
    pub fn kill(&mut self) {
        let ended = self.child.try_wait().expect("a child");
        assert!(ended.is_none(), "homing ended on its own: {ended:?}");
        self.child.kill().expect("killed");
        self.child.wait().expect("its end");
    }
}

impl Drop for Homing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(child: &mut Child) -> Receiver<String> {
    let (say, said) = mpsc::channel();
    let stdout: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("a pipe"));
    let stderr: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("a pipe"));
    for (pipe, is_log) in [(stdout, false), (stderr, true)] {
        let say = say.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if is_log {
                    println!("homing: {line}");
                }
                let _ = say.send(line);
            }
        });
    }
    said
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let found = &line[line.find("127.0.0.1:")?..];
    let end = found.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(found.len());
    found[..end].trim_end_matches(['.', ':']).parse().ok().filter(|address: &SocketAddr| address.port() != 0)
}
