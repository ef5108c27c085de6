//! A connection to a broker that may be dead at any moment: what it sent last may be half a packet.

use crate::support::{Packet, Version};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time that a read waits before the client does something else.
const QUIET: Duration = Duration::from_millis(5);
/// Time that a write may take while the broker runs.
const BLOCKED: Duration = Duration::from_secs(10);

pub struct Link {
    version: Version,
    stream: TcpStream,
    unread: Vec<u8>,
    outgoing: Vec<u8>,
}

pub enum Came {
    Packet(Packet),
    /// Nothing for a while.
    Nothing,
    End,
}

impl Link {
    /// None where nobody listens any more.
    pub fn open(address: SocketAddr, version: Version) -> Option<Link> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(QUIET)).expect("a read timeout");
        stream.set_write_timeout(Some(BLOCKED)).expect("a write timeout");
        Some(Link { version, stream, unread: Vec::new(), outgoing: Vec::new() })
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Adds to what leaves with the next [`Self::next`].
    pub fn put(&mut self, packet: &[u8]) {
        self.outgoing.extend_from_slice(packet);
    }

    pub fn flush(&mut self) {
        // A later read finds that the broker is gone.
        let _ = self.stream.write_all(&self.outgoing);
        self.outgoing.clear();
    }

    pub fn next(&mut self) -> Came {
        let mut scratch = [0; 16 * 1024];
        loop {
            if let Some(packet) = Packet::take_first(self.version, &mut self.unread) {
                return Came::Packet(packet);
            }
            if !self.outgoing.is_empty() {
                self.flush();
            }
            match self.stream.read(&mut scratch) {
                Ok(0) => return Came::End,
                Ok(count) => self.unread.extend_from_slice(&scratch[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Came::Nothing;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Came::End,
            }
        }
    }
}
