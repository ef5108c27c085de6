//! A TCP proxy for one direction of connecting, which can be closed, slow, or a black hole.

use crate::support::now;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What happens to bytes and connections on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Open,
    /// Each portion of bytes takes this much longer.
    Slow(Duration),
    /// Connections are open, and nothing arrives. What was sent arrives when the passage opens, as
    /// the system would send it again.
    Hole,
    /// Connections end, and new ones end at once.
    Closed,
}

/// The proxy. Its connections end with it.
pub struct Proxy {
    pub address: SocketAddr,
    gate: Arc<Gate>,
}

struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    passage: Passage,
    has_ended: bool,
    open: Vec<TcpStream>,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = GateState { passage: Passage::Open, has_ended: false, open: Vec::new() };
        let gate = Arc::new(Gate { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&gate);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if accepting.lock().has_ended {
                    break;
                }
                let gate = Arc::clone(&accepting);
                thread::spawn(move || gate.join(client, target));
            }
        });
        Proxy { address, gate }
    }

    pub fn set(&self, passage: Passage) {
        let mut state = self.gate.lock();
        state.passage = passage;
        if passage == Passage::Closed {
            end_all(&mut state);
        }
        self.gate.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.has_ended = true;
        end_all(&mut state);
        self.gate.changed.notify_all();
        drop(state);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn end_all(state: &mut GateState) {
    for stream in state.open.drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a connection with one to the target, until either ends.
    fn join(&self, client: TcpStream, target: SocketAddr) {
        if !self.pass() {
            return;
        }
        let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(5)) else { return };
        {
            let mut state = self.lock();
            if state.has_ended || state.passage == Passage::Closed {
                return;
            }
            for stream in [&client, &server] {
                let _ = stream.set_nodelay(true);
                state.open.extend(stream.try_clone());
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| self.pump(&client, &server));
            scope.spawn(|| self.pump(&server, &client));
        });
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 64 * 1024];
        loop {
            let count = match from.read(&mut bytes) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            // An end passes as bytes do.
            if !self.pass() || count == 0 || to.write_all(&bytes[..count]).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    /// Waits until bytes may pass. Returns false if they never will.
    fn pass(&self) -> bool {
        let begun = now();
        let mut state = self.lock();
        loop {
            let wait = match state.passage {
                _ if state.has_ended => return false,
                Passage::Closed => return false,
                Passage::Open => return true,
                Passage::Hole => Duration::from_secs(3600),
                Passage::Slow(time) => match time.saturating_sub(begun.elapsed()) {
                    Duration::ZERO => return true,
                    left => left,
                },
            };
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
