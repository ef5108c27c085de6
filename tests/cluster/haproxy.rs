//! HAProxy in front of the nodes, with the configuration of `docs/cluster.md`.

use crate::link::{Came, Link};
use crate::plant::{NODES, Plant};
use crate::servers::own_address;
use crate::support::Packet;
use crate::support::{Connect, V5, now};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// Time in which it finds the node that serves, on a busy machine. It looks each second.
const FINDS: Duration = Duration::from_secs(20);

/// The process. Killed when dropped.
pub struct Haproxy {
    process: Child,
    address: SocketAddr,
}

impl Haproxy {
    /// Starts the program that `HAPROXY` names. Without it there is none, and this says so.
    pub fn start(plant: &Plant) -> Option<Haproxy> {
        let Some(program) = std::env::var_os("HAPROXY") else {
            println!("HAPROXY names no program: these rounds are without a balancer");
            return None;
        };
        let page =
            fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cluster.md")).expect("a page");
        let block =
            page.split("```text\n").find(|block| block.starts_with("defaults")).expect("a configuration");
        let block = block.split("```").next().unwrap_or_default();
        let address = SocketAddr::from((own_address(), 1883));
        let mut text = block.replace("bind :18830", &format!("bind {address}"));
        for (name, node) in NODES.iter().zip(&plant.nodes) {
            let line = text
                .lines()
                .find(|line| line.trim().starts_with(&format!("server {name} ")))
                .expect("a server");
            text = text.replace(line, &format!("    server {name} {}", node.address));
        }
        let path = plant.nodes[0].directory.with_file_name("haproxy.cfg");
        fs::write(&path, text).expect("a file");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).arg("-db").arg("-f").arg(path);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Some(Haproxy { process: process.expect("setpriv starts it"), address })
    }

    /// Waits until a client that connects to HAProxy is accepted by the node that serves.
    pub fn finds_the_owner(&self) {
        let begun = now();
        while !self.accepts() {
            assert!(begun.elapsed() < FINDS, "HAProxy does not find the owner");
            thread::sleep(Duration::from_millis(50));
        }
        println!("HAProxy finds the owner after another {:?}", begun.elapsed());
    }

    fn accepts(&self) -> bool {
        let Some(mut link) = Link::open(self.address, V5) else { return false };
        link.put(&Connect::new(V5, "balanced").encode());
        let begun = now();
        while begun.elapsed() < Duration::from_secs(2) {
            match link.next() {
                Came::Packet(Packet::Connack(connack)) => return connack.code == 0,
                Came::Packet(_) | Came::End => return false,
                Came::Nothing => {}
            }
        }
        false
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
