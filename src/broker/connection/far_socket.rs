//! The socket to another broker, to which a bridge passes the bytes of a connection on.
//!
//! The shard writes to one end of a pair of Unix sockets. The bridge reads the other end, makes
//! packets for the other broker of what it reads, and writes them to TCP. So the kernel's facts
//! about the pair say nothing about the other broker: its socket may be full while the pair is
//! empty. The bridge notes here how far it is, and the shard's thread asks the kernel about the
//! socket to the other broker, at a deadline or for an operator.

use super::kernel_view;
use crate::session::outbound::stall::{FarSide, SocketView};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Marks that are kept: 4 KiB. Older ones are thinned out, which places a packet later than it is.
const MARKS: usize = 256;

/// Plain bytes that the codecs of a stream may hold: the bound of rustls, and a frame of WebSocket.
const CODECS: u64 = 128 << 10;

/// How far a bridge is, in bytes since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarProgress {
    /// Bytes of the shard that the bridge has handled.
    pub handled: u64,
    /// Bytes for the other broker that its stream took.
    pub written: u64,
    /// The part of these that has left the codecs of the stream for certain.
    pub flushed: u64,
    /// Bytes for the other broker that its stream has not taken.
    pub pending: usize,
}

/// The layers of a stream between the bridge and its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarCodecs {
    /// What the stream takes is in the socket.
    None,
    /// The stream may hold bytes that it took.
    Some,
}

/// The socket to another broker. The bridge writes, and the thread of the shard reads.
#[derive(Debug)]
pub struct FarSocket {
    codecs: FarCodecs,
    state: Mutex<FarState>,
}

#[derive(Debug)]
struct FarState {
    /// A descriptor of its own; `None` once the connection has ended.
    socket: Option<OwnedFd>,
    progress: FarProgress,
    marks: Marks,
}

/// Which bytes for the other broker end what the shard wrote up to a place.
#[derive(Debug, Default)]
struct Marks {
    /// Places in the bytes of the shard, each with the place in the bytes for the other broker.
    ahead: VecDeque<(u64, u64)>,
    /// The place up to which the other broker's kernel has the bytes of the shard.
    reached: u64,
}

impl Marks {
    fn push(&mut self, handled: u64, made: u64) {
        if self.ahead.len() >= MARKS {
            let mut drops = false;
            self.ahead.retain(|_| {
                drops = !drops;
                !drops
            });
        }
        self.ahead.push_back((handled, made));
    }

    /// Returns the place in the bytes of the shard, if the other broker's kernel has this many of
    /// the bytes that were made for it.
    fn reach(&mut self, has: u64) -> u64 {
        while let Some((handled, _)) = self.ahead.pop_front_if(|(_, made)| *made <= has) {
            self.reached = handled;
        }
        self.reached
    }
}

impl FarSocket {
    /// Returns the socket behind a stream.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(socket: impl AsFd, codecs: FarCodecs) -> io::Result<FarSocket> {
        let socket = Some(socket.as_fd().try_clone_to_owned()?);
        let state = FarState { socket, progress: FarProgress::default(), marks: Marks::default() };
        Ok(FarSocket { codecs, state: Mutex::new(state) })
    }

    /// Notes how far the bridge is.
    pub fn note(&self, progress: FarProgress) {
        let mut state = self.state();
        let has_more = progress.handled > state.progress.handled;
        state.progress = progress;
        if has_more {
            if state.marks.ahead.len() >= MARKS {
                let (has, _) = self.other_has(&state);
                state.marks.reach(has);
            }
            state.marks.push(progress.handled, progress.written + progress.pending as u64);
        }
    }

    /// Notes that the connection has ended. The socket closes with its stream then.
    pub fn end(&self) {
        self.state().socket = None;
    }

    /// Returns the kernel's facts about the socket, and how far the other broker's kernel is in the
    /// bytes of the shard. Costs two system calls, and a third one if bytes are on their way.
    pub fn view(&self) -> SocketView {
        let mut state = self.state();
        let (has, unacknowledged) = self.other_has(&state);
        let passed_on = Some(state.marks.reach(has));
        let unsent = unacknowledged + state.progress.pending;
        let Some(socket) = &state.socket else {
            return SocketView { unsent, passed_on, far_side: FarSide::Broker, ..SocketView::default() };
        };
        let (on_the_way, retransmits) =
            if unacknowledged > 0 { kernel_view::segments(socket.as_fd()) } else { (0, 0) };
        let arrived = kernel_view::unread(socket);
        SocketView { unsent, on_the_way, retransmits, arrived, passed_on, far_side: FarSide::Broker }
    }

    /// Returns the number of bytes that the other broker's kernel has at least, and the number of those
    /// that are on their way to it. Costs a system call.
    pub fn arrived(&self) -> (u64, usize) {
        self.other_has(&self.state())
    }

    /// Returns the number of bytes that the other broker's kernel has at least, and the number of
    /// wire bytes that it does not have. With TLS the wire has more bytes than were written, so the
    /// first number is too low while bytes are on their way.
    fn other_has(&self, state: &FarState) -> (u64, usize) {
        let unacknowledged =
            state.socket.as_ref().map_or(0, |socket| kernel_view::unacknowledged(socket.as_fd()));
        let FarProgress { written, flushed, .. } = state.progress;
        let in_socket = match self.codecs {
            FarCodecs::None => written,
            FarCodecs::Some => flushed.max(written.saturating_sub(CODECS)),
        };
        (in_socket.saturating_sub(unacknowledged as u64), unacknowledged)
    }

    fn state(&self) -> MutexGuard<'_, FarState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_place_is_reached_when_the_other_has_all_that_was_made_of_it() {
        let mut marks = Marks::default();
        marks.push(10, 15);
        marks.push(30, 45);
        assert_eq!([0, 14, 15, 44].map(|has| marks.reach(has)), [0, 0, 10, 10]);
        assert_eq!(marks.reach(45), 30);
    }

    #[test]
    fn marks_that_are_thinned_out_never_say_that_the_other_has_more() {
        let mut marks = Marks::default();
        (1..=10_000).for_each(|n| marks.push(n, 2 * n));
        assert!(marks.ahead.len() <= MARKS, "{}", marks.ahead.len());
        for has in 0..=20_000 {
            assert!(marks.reach(has) <= has / 2);
        }
        assert_eq!(marks.reach(20_000), 10_000, "the last mark stays");
    }

    #[test]
    fn a_peer_that_does_not_read_has_what_its_kernel_took_and_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a stream");
        let (_peer, _) = listener.accept().expect("a peer");
        let far = FarSocket::new(&stream, FarCodecs::None).expect("a descriptor");
        stream.set_nonblocking(true).expect("a mode");
        let mut progress = FarProgress::default();
        let chunk = [0; 4 << 10];
        while let Ok(written) = stream.write(&chunk) {
            progress.written += written as u64;
            progress.handled += written as u64;
            far.note(progress);
        }
        far.note(FarProgress { handled: progress.handled + 100, pending: 100, ..progress });
        let view = far.view();
        let has = view.passed_on.expect("a place");
        assert!(has > 0 && has < progress.written, "{has} of {}", progress.written);
        assert!(view.unsent > 100 && view.retransmits == 0, "{view:?}");
        far.end();
        assert_eq!(far.view().unsent, 100, "the descriptor is closed");
    }
}
