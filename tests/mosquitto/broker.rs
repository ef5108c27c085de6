//! A mosquitto of a test's own, on free ports of 127.0.0.1.

use crate::support::process::Process;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

/// A running mosquitto. It is killed when dropped.
pub struct Mosquitto {
    _process: Process,
    /// The address of the first listener.
    pub address: SocketAddr,
    /// The addresses of all listeners.
    pub addresses: Vec<SocketAddr>,
    /// The whole configuration, with the listeners.
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
        Mosquitto::start_listeners(directory, &[""], configuration)
    }

    /// Starts mosquitto with a listener for each of these texts, which has the options in it, and
    /// with these lines of configuration.
    pub fn start_listeners(directory: &Path, listeners: &[&str], configuration: &str) -> Mosquitto {
        Mosquitto::start_with(directory, "", listeners, configuration)
    }

    /// The same, with lines that stand before the listeners.
    pub fn start_with(directory: &Path, before: &str, listeners: &[&str], configuration: &str) -> Mosquitto {
        // Another program may take a port between the two calls; then mosquitto does not run.
        for _ in 0..10 {
            let free: Vec<TcpListener> = listeners
                .iter()
                .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"))
                .collect();
            let addresses: Vec<SocketAddr> =
                free.iter().map(|free| free.local_addr().expect("an address")).collect();
            drop(free);
            let file = directory.join("mosquitto.conf");
            // As root it would become a user that cannot read the directory of a test.
            let mut text = format!("user root\n{before}");
            for (address, options) in addresses.iter().zip(listeners) {
                text += &format!("listener {} 127.0.0.1\n{options}", address.port());
            }
            text += configuration;
            fs::write(&file, &text).expect("a file in a directory of the test");
            let mut process = Process::spawn(command("mosquitto").arg("-c").arg(&file));
            if process.line(" running").is_some() {
                let address = addresses[0];
                return Mosquitto { _process: process, address, addresses, configuration: text };
            }
        }
        panic!("mosquitto does not run; tests/run installs it");
    }
}
