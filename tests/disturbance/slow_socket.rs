//! A socket that says nothing, or one byte a second.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time between two bytes.
pub const PACE: Duration = Duration::from_secs(1);

/// A connection that goes on slowly, if at all.
pub struct SlowSocket {
    socket: TcpStream,
    /// What is still to be sent; empty for a socket that says nothing.
    rest: &'static [u8],
}

impl SlowSocket {
    /// Begins to connect. `bytes` are sent one by one; none of them, if there are none.
    pub fn open(address: SocketAddr, bytes: &'static [u8]) -> SlowSocket {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.set_nonblocking(true).expect("a mode");
        // It is under way.
        let _ = socket.connect(&address.into());
        SlowSocket { socket: socket.into(), rest: bytes }
    }

    /// Sends the next byte. Returns false if the broker has closed the connection.
    pub fn go_on(&mut self) -> bool {
        let mut answer = [0; 512];
        loop {
            match self.socket.read(&mut answer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return error.kind() == ErrorKind::NotConnected,
            }
        }
        let Some((byte, rest)) = self.rest.split_first() else { return true };
        match self.socket.write(&[*byte]) {
            Ok(_) => self.rest = rest,
            Err(error) => return [ErrorKind::WouldBlock, ErrorKind::NotConnected].contains(&error.kind()),
        }
        true
    }
}
