//! The byte stream of a connection: a TCP or Unix socket.
//!
//! Reads and writes are tried and never awaited: the owner of the connection polls for readiness. A
//! short read shows that the socket is empty. Readiness is then cleared without the system call
//! that would only answer "would block". The two calls of every message go past the C library,
//! whose own calls are cancellation points with work before and after.

use crate::session::outbound::stall::SocketView;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
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
}

/// A socket on its way to another thread, in non-blocking mode. No reactor knows it.
#[derive(Debug)]
pub struct DetachedTransport {
    socket: OwnedFd,
}

impl From<TcpStream> for DetachedTransport {
    fn from(socket: TcpStream) -> DetachedTransport {
        DetachedTransport { socket: socket.into() }
    }
}

impl From<UnixStream> for DetachedTransport {
    fn from(socket: UnixStream) -> DetachedTransport {
        DetachedTransport { socket: socket.into() }
    }
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
        Ok(Transport { socket })
    }

    /// Takes the socket from its reactor, so that it can move to another thread.
    pub fn detach(self) -> DetachedTransport {
        DetachedTransport { socket: self.socket.into_inner() }
    }

    /// Reads, if the reactor has reported bytes since the socket was last empty. Makes no system
    /// call otherwise.
    ///
    /// # Errors
    /// The system's, if the connection failed. "Would block" is [`SocketRead::Nothing`].
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        let mut read = SocketRead::Nothing;
        // A short read shows that the socket is empty. The reactor is edge-triggered: later bytes
        // raise a new event, and this thread takes no event in between. So readiness can be cleared
        // as if the next read had been tried.
        let empty = || Err(io::ErrorKind::WouldBlock.into());
        let result = self.socket.try_io(Interest::READABLE, |_| {
            read = self.read_now(buffer)?;
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

    /// Reads the bytes that the kernel has now, even if the reactor has not reported them. After a
    /// pause of the whole process the reactor has not, though the bytes came long ago.
    ///
    /// # Errors
    /// The system's, "would block" among them.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        match retry_on_intr(|| rustix::net::recv(self.socket.get_ref(), &mut *buffer, RecvFlags::empty())) {
            Ok((0, _)) => Ok(SocketRead::End),
            Ok((n, _)) if n < buffer.len() => Ok(SocketRead::Last(n)),
            Ok((n, _)) => Ok(SocketRead::Some(n)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of bytes that the kernel has for the socket now.
    pub fn unread(&self) -> usize {
        rustix::io::ioctl_fionread(self.socket.get_ref())
            .map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Returns `Ready` if the socket may take bytes; else arranges to be woken when it does.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx).map_ok(drop)
    }

    /// Writes some of the bytes, and returns their number.
    ///
    /// # Errors
    /// "Would block" if the socket takes none; else the system's, if the connection failed.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.try_io(Interest::WRITABLE, |socket| {
            Ok(retry_on_intr(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))?)
        })
    }

    /// Writes some bytes of several pieces, and returns their number.
    ///
    /// # Errors
    /// As [`Transport::try_write`].
    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket
            .try_io(Interest::WRITABLE, |socket| Ok(retry_on_intr(|| rustix::io::writev(socket, pieces))?))
    }

    /// Closes the writing side. The peer's bytes are still read.
    pub fn shut_down_writing(&self) {
        // A socket that the peer has reset is not connected, so there is nothing to close.
        let _ = socket2::SockRef::from(self.socket.get_ref()).shutdown(Shutdown::Write);
    }

    /// Returns how many written bytes the peer's kernel does not have, and why. Costs one system
    /// call, and a second one if there are such bytes.
    pub fn view(&self) -> SocketView {
        match self.unsent() {
            0 => SocketView::default(),
            unsent => {
                let (on_the_way, retransmits) = self.segments();
                SocketView { unsent, on_the_way, retransmits }
            }
        }
    }

    /// Returns the number of segments that the peer's kernel has not acknowledged, and how often
    /// TCP sent the oldest of them again. Both are 0 if the system does not say.
    fn segments(&self) -> (u32, u32) {
        // SAFETY: `tcp_info` is a plain structure of integers, for which all zeroes is a value.
        #[expect(unsafe_code, reason = "the structure has no constructor")]
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: `fd` is this socket's, and open as long as `self` lives. The kernel writes at
        // most `len` bytes, which is the size of the live local behind the pointer. The kernel
        // writes their number to `len`.
        #[expect(unsafe_code, reason = "no safe wrapper for TCP_INFO in the crates at hand")]
        let result = unsafe {
            let (fd, to) = (self.socket.as_raw_fd(), (&raw mut info).cast());
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len)
        };
        if result == 0 { (info.tcpi_unacked, info.tcpi_retransmits.into()) } else { (0, 0) }
    }

    /// Returns the number of written bytes that the peer's kernel has not acknowledged.
    fn unsent(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: `fd` is this socket's, and open as long as `self` lives. TIOCOUTQ writes one
        // `int` to the pointer, which leads to a live local of that type.
        #[expect(unsafe_code, reason = "no safe wrapper for TIOCOUTQ in the crates at hand")]
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}
