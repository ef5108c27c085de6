//! The byte stream of a connection: a TCP or Unix socket, plain or with TLS or WebSocket on top.
//!
//! A plain connection has no codecs, which costs one predictable branch for each read and write.
//!
//! Reads and writes are tried and never awaited: the owner of the connection polls for readiness. A
//! short read shows that the socket is empty. Readiness is then cleared without the system call
//! that would only answer "would block". The two calls of every message go past the C library,
//! whose own calls are cancellation points with work before and after.

use super::far_socket::FarSocket;
use super::kernel_view;
use super::wrapped::Wrapped;
use crate::net::layers::LayerError;
use crate::net::tls::config::TlsServer;
use crate::net::tls::identity::serial_number;
use crate::net::tls::verify::ChainError;
use crate::session::outbound::stall::{FarSide, SocketView};
use crate::session::outbox::Outbox;
use crate::shard::turn::io::Written;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use std::cell::{RefCell, RefMut};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket that is registered with the reactor of its thread.
///
/// A bare descriptor, because TCP and Unix sockets take the same calls. An enum of tokio's streams
/// would take 16 bytes more for each connection.
#[derive(Debug)]
pub struct Transport {
    socket: AsyncFd<OwnedFd>,
    /// `None` for the plain MQTT of a client.
    behind: Option<Box<Behind>>,
}

/// The part of a connection behind its socket.
#[derive(Debug)]
enum Behind {
    /// The codecs. Actor and driver share the transport on one thread.
    Codecs(RefCell<Wrapped>),
    /// The socket to another broker, to which a bridge passes the bytes on.
    Bridge(Arc<FarSocket>),
    /// An HTTP service, to which a sink sends the messages.
    Service,
}

/// A socket on its way to another thread, in non-blocking mode. No reactor knows it.
#[derive(Debug)]
pub struct DetachedTransport {
    socket: OwnedFd,
    behind: Option<Box<Behind>>,
}

impl DetachedTransport {
    /// Puts codecs on the socket: from here on, its bytes go through them.
    pub fn wrap(self, wrapped: Wrapped) -> DetachedTransport {
        DetachedTransport { behind: Some(Box::new(Behind::Codecs(RefCell::new(wrapped)))), ..self }
    }

    /// Says that a bridge passes the bytes of the socket on to another one.
    pub fn passed_on_to(self, far: Arc<FarSocket>) -> DetachedTransport {
        DetachedTransport { behind: Some(Box::new(Behind::Bridge(far))), ..self }
    }

    /// Says that a sink sends the messages of the socket to an HTTP service.
    pub fn of_service(self) -> DetachedTransport {
        DetachedTransport { behind: Some(Box::new(Behind::Service)), ..self }
    }
}

impl From<OwnedFd> for DetachedTransport {
    /// Takes a TCP or Unix socket in non-blocking mode.
    fn from(socket: OwnedFd) -> DetachedTransport {
        DetachedTransport { socket, behind: None }
    }
}

impl From<TcpStream> for DetachedTransport {
    fn from(socket: TcpStream) -> DetachedTransport {
        OwnedFd::from(socket).into()
    }
}

/// The state of the other side's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// The other side may send and receive.
    None,
    /// The other side sends nothing more. Bytes that it sent before may be left.
    PeerClosed,
    /// The connection was reset or timed out, so the other side receives nothing more either.
    Failed,
}

/// The result of trying to read.
#[derive(Debug)]
pub enum SocketRead {
    /// The reactor has reported nothing since the socket was last empty.
    Nothing,
    /// Some bytes; there may be more.
    Some(usize),
    /// Some bytes, and the socket is empty.
    Last(usize),
    /// The peer closed its side.
    End,
}

impl Transport {
    /// Registers a socket with the current reactor.
    ///
    /// # Errors
    /// The reactor refuses the socket.
    pub fn new(detached: DetachedTransport) -> io::Result<Transport> {
        // SAFETY: the descriptor is owned and open, and stays the same until the value is dropped
        // or `detach` takes the descriptor out.
        #[expect(unsafe_code, reason = "one type for TCP and Unix sockets, and the smallest")]
        let socket = unsafe { AsyncFd::register(detached.socket)? };
        Ok(Transport { socket, behind: detached.behind })
    }

    /// Takes the socket from its reactor, so that it can move to another thread.
    pub fn detach(self) -> DetachedTransport {
        DetachedTransport { socket: self.socket.into_inner(), behind: self.behind }
    }

    /// Returns the codecs, or `None` for plain MQTT.
    #[inline]
    fn wrapped(&self) -> Option<RefMut<'_, Wrapped>> {
        match self.behind.as_deref()? {
            Behind::Codecs(wrapped) => Some(wrapped.borrow_mut()),
            Behind::Bridge(_) | Behind::Service => None,
        }
    }

    /// Returns true if the bytes of this connection go through codecs: what is read needs
    /// [`Self::open`].
    #[inline]
    pub fn is_wrapped(&self) -> bool {
        matches!(self.behind.as_deref(), Some(Behind::Codecs(_)))
    }

    /// Reads up to `size` bytes, if the reactor has reported bytes since the socket was last empty.
    /// Makes no system call otherwise. With codecs, the bytes that are kept of a record come first
    /// in the buffer; the number does not count them.
    ///
    /// # Errors
    /// The system's, if the connection failed. "Would block" is [`SocketRead::Nothing`].
    #[inline]
    pub fn try_read(&self, buffer: &mut [u8], size: usize) -> io::Result<SocketRead> {
        let mut read = SocketRead::Nothing;
        // A short read shows that the socket is empty. The reactor is edge-triggered: later bytes
        // raise a new event, and this thread takes no event in between. So readiness can be cleared
        // as if the next read had been tried.
        let empty = || Err(io::ErrorKind::WouldBlock.into());
        let result = self.socket.try_io(Interest::READABLE, |_| {
            read = self.read_now(buffer, size)?;
            if matches!(read, SocketRead::Last(_)) { empty() } else { Ok(()) }
        });
        match (read, result) {
            (SocketRead::Nothing, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            (read, _) => Ok(read),
        }
    }

    /// Returns `Ready` if there may be bytes to read; else arranges to be woken when there are.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_read_ready(cx).map_ok(drop)
    }

    /// Reads up to `size` bytes that the kernel has now, even if the reactor has not reported them.
    /// After a pause of the whole process the reactor has not, though the bytes came long ago.
    ///
    /// # Errors
    /// The system's, "would block" among them.
    pub fn read_now(&self, buffer: &mut [u8], size: usize) -> io::Result<SocketRead> {
        let buffer = match self.wrapped() {
            None => buffer,
            Some(wrapped) => {
                let kept = wrapped.put_tail(buffer);
                buffer.get_mut(kept..).unwrap_or_default()
            }
        };
        let size = size.min(buffer.len());
        let buffer = buffer.get_mut(..size).unwrap_or_default();
        match retry_on_intr(|| rustix::net::recv(self.socket.get_ref(), &mut *buffer, RecvFlags::empty())) {
            Ok((0, _)) => Ok(SocketRead::End),
            Ok((n, _)) if n < buffer.len() => Ok(SocketRead::Last(n)),
            Ok((n, _)) => Ok(SocketRead::Some(n)),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens what was read into this buffer, and appends the MQTT bytes to `plain`. Returns true if
    /// the peer closed its side. Replies may be pending afterwards.
    ///
    /// # Errors
    /// The peer broke a rule of TLS or WebSocket.
    pub fn open(&self, buffer: &mut [u8], read: usize, plain: &mut Vec<u8>) -> Result<bool, LayerError> {
        match self.wrapped() {
            Some(mut wrapped) => wrapped.open(buffer, read, plain),
            None => {
                plain.extend_from_slice(buffer.get(..read).unwrap_or_default());
                Ok(false)
            }
        }
    }

    /// Verifies the chain of the client with this TLS. A client without TLS passes, and so does a
    /// client that this TLS or a newer one has admitted.
    ///
    /// # Errors
    /// The chain is not valid any more.
    pub fn check_chain(&self, server: &TlsServer, unix_ms: u64) -> Result<(), ChainError> {
        match self.wrapped().as_ref().and_then(|wrapped| wrapped.layers().tls()) {
            Some(tls) if !server.has_checked(tls) => server.check(tls, unix_ms),
            _ => Ok(()),
        }
    }

    /// Returns true if the peer closed TLS or WebSocket. Its socket may be open.
    pub fn is_peer_closed(&self) -> bool {
        self.wrapped().is_some_and(|wrapped| wrapped.layers().is_peer_closed())
    }

    /// Returns true if a part of a TLS record or WebSocket frame has come, and its rest has not.
    pub fn has_partial(&self) -> bool {
        self.wrapped().is_some_and(|wrapped| wrapped.has_partial())
    }

    /// Returns the serial number of the client's certificate in upper-case hexadecimal; `None`
    /// without one. Parses the certificate, which takes some microseconds.
    pub fn client_serial(&self) -> Option<String> {
        let wrapped = self.wrapped()?;
        wrapped.layers().tls()?.peer_certificates().first().and_then(serial_number)
    }

    /// Returns true if wire bytes wait for the socket, besides the outbox.
    pub fn has_pending(&self) -> bool {
        self.wrapped().is_some_and(|wrapped| wrapped.has_pending())
    }

    /// Returns the number of bytes that the kernel has for the socket now.
    pub fn unread(&self) -> usize {
        kernel_view::unread(self.socket.get_ref())
    }

    /// Returns whether the other side has ended the connection. Bytes may be left to be read. Costs
    /// one system call.
    pub fn hang_up(&self) -> HangUp {
        let mut sockets = [PollFd::new(self.socket.get_ref(), PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut sockets, Some(&now)).is_err() {
            return HangUp::None;
        }
        let found = sockets.iter().fold(PollFlags::empty(), |all, socket| all | socket.revents());
        if found.contains(PollFlags::ERR) {
            HangUp::Failed
        } else if found.intersects(PollFlags::RDHUP | PollFlags::HUP) {
            HangUp::PeerClosed
        } else {
            HangUp::None
        }
    }

    /// Returns `Ready` if the socket may take bytes; else arranges to be woken when it does.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx).map_ok(drop)
    }

    /// Writes as much of the outbox as the socket takes. `scratch` is the write buffer of the
    /// thread, for connections with codecs.
    ///
    /// # Errors
    /// The system's, if the connection failed. "Would block" is no error.
    pub fn write(&self, outbox: &mut Outbox, scratch: &RefCell<Vec<u8>>) -> io::Result<Written> {
        if let Some(mut wrapped) = self.wrapped() {
            let send = |bytes: &[u8]| self.try_write(bytes);
            return wrapped.write(outbox, &mut scratch.borrow_mut(), send, || self.unacknowledged());
        }
        let mut wrote = 0;
        loop {
            let result = if outbox.is_contiguous() {
                let front = outbox.front();
                if front.is_empty() {
                    break;
                }
                self.try_write(front)
            } else {
                let pieces = outbox.pieces();
                if pieces.is_empty() {
                    break;
                }
                self.try_write_vectored(&pieces)
            };
            match result {
                Ok(n) => {
                    outbox.advance(n);
                    wrote += n;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Written::plain(wrote))
    }

    /// Writes some of the bytes, and returns their number.
    ///
    /// # Errors
    /// "Would block" if the socket takes none; else the system's, if the connection failed.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.try_io(Interest::WRITABLE, |socket| {
            Ok(retry_on_intr(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))?)
        })
    }

    /// Writes some bytes of several pieces, and returns their number. Errors: as
    /// [`Transport::try_write`].
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket
            .try_io(Interest::WRITABLE, |socket| Ok(retry_on_intr(|| rustix::io::writev(socket, pieces))?))
    }

    /// Ends the codecs in order: a close frame of WebSocket, and close_notify of TLS. Does nothing
    /// without codecs.
    pub fn close_layers(&self) {
        if let Some(mut wrapped) = self.wrapped() {
            wrapped.close(|bytes| self.try_write(bytes));
        }
    }

    /// Returns true once, when the keys of TLS 1.2 are nearly used up.
    pub fn take_keys_used_up(&self) -> bool {
        self.wrapped().is_some_and(|mut wrapped| wrapped.take_keys_used_up())
    }

    /// Returns the number of MQTT bytes that were taken from the outbox and wait here.
    pub fn pending_bytes(&self) -> usize {
        self.wrapped().map_or(0, |wrapped| wrapped.unsent(0))
    }

    /// Closes the writing side. The peer's bytes are still read.
    pub fn shut_down_writing(&self) {
        self.close_layers();
        // A socket that the peer has reset is not connected, so there is nothing to close.
        let _ = socket2::SockRef::from(self.socket.get_ref()).shutdown(Shutdown::Write);
    }

    /// Returns how many written MQTT bytes the peer's kernel does not have, and why; and how many
    /// wire bytes of the peer are not read. Costs two system calls, and a third one if there are
    /// written bytes that the peer's kernel does not have.
    ///
    /// For a Unix socket the kernel reports the memory of what the peer's process has not read,
    /// which is more than the bytes. So such bytes count as not read for longer than they are.
    /// The connection of a bridge answers for the socket to the other broker.
    pub fn view(&self) -> SocketView {
        if let Some(Behind::Bridge(far)) = self.behind.as_deref() {
            return far.view();
        }
        let unacknowledged = self.unacknowledged();
        let unsent = match self.wrapped() {
            None => unacknowledged,
            Some(wrapped) => wrapped.unsent(unacknowledged),
        };
        let (on_the_way, retransmits) =
            if unsent > 0 { kernel_view::segments(self.socket.get_ref().as_fd()) } else { (0, 0) };
        let far_side = match self.behind.as_deref() {
            Some(Behind::Service) => FarSide::Service,
            _ => FarSide::Client,
        };
        SocketView { unsent, on_the_way, retransmits, arrived: self.unread(), passed_on: None, far_side }
    }

    fn unacknowledged(&self) -> usize {
        kernel_view::unacknowledged(self.socket.get_ref().as_fd())
    }
}
