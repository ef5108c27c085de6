//! The real binary on a data directory.

use crate::support::process::{Process, homing_serve};
use std::net::SocketAddr;
use std::path::Path;

/// Killed when dropped, as it is on demand.
pub struct Homing(Process);

impl Homing {
    pub fn spawn(directory: &Path, arbiters: u64) -> Homing {
        let mut command = homing_serve();
        command
            .args(["--log-level", "warn", "--set", &format!("runtime.threads={arbiters}")])
            // Nothing may be refused: what is refused was not promised.
            .args(["--set", "store.queue_messages=1000000", "--set", "store.queue_bytes=1 GiB"])
            .arg("--data-dir")
            .arg(directory);
        Homing(Process::spawn(&mut command))
    }

    /// Where it listens, once it does.
    pub fn address(&mut self) -> SocketAddr {
        self.0.address().expect("it listens")
    }

    /// `kill -9`; it must not have ended on its own.
    pub fn kill(&mut self) {
        self.0.kill();
    }
}
