//! A mosquitto of a test's own, on a free port of 127.0.0.1.

use crate::support::process::Process;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

/// A running mosquitto. It is killed when dropped.
pub struct Mosquitto {
    _process: Process,
    pub address: SocketAddr,
    /// The whole configuration, with the listener.
    pub configuration: String,
}

/// Returns a command for one of mosquitto's programs. Debian has the broker in a directory that is
/// not in everybody's path.
pub fn command(program: &str) -> Command {
    let system = Path::new("/usr/sbin").join(program);
    Command::new(if system.exists() { system } else { program.into() })
}

impl Mosquitto {
    /// Starts mosquitto with these lines of configuration and a listener.
    pub fn start(directory: &Path, configuration: &str) -> Mosquitto {
        // Another program may take the port between the two calls; then mosquitto does not run.
        for _ in 0..10 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let address = free.local_addr().expect("an address");
            drop(free);
            let file = directory.join("mosquitto.conf");
            // As root it would become a user that cannot read the directory of a test.
            let text = format!("user root\nlistener {} 127.0.0.1\n{configuration}", address.port());
            fs::write(&file, &text).expect("a file in a directory of the test");
            let mut process = Process::spawn(command("mosquitto").arg("-c").arg(&file));
            if process.line(" running").is_some() {
                return Mosquitto { _process: process, address, configuration: text };
            }
        }
        panic!("mosquitto does not run; tests/run installs it");
    }
}
