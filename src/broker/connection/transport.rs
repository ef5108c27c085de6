//! The byte stream of a connection: today a TCP socket.
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
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A socket that is registered with the reactor of its thread.
#[derive(Debug)]
pub struct Transport(TcpStream);

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
    /// Registers a non-blocking socket with the current reactor.
    ///
    /// # Errors
    /// The reactor refuses the socket.
    pub fn new(socket: std::net::TcpStream) -> io::Result<Transport> {
        TcpStream::from_std(socket).map(Transport)
    }

    /// Takes the socket from its reactor, so that it can move to another thread.
    ///
    /// # Errors
    /// The reactor refuses to release the socket.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        self.0.into_std()
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
        let result = self.0.try_io(Interest::READABLE, || {
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
        self.0.poll_read_ready(cx)
    }

    /// Reads the bytes that the kernel has now, even if the reactor has not reported them. After a
    /// pause of the whole process the reactor has not, though the bytes came long ago.
    ///
    /// # Errors
    /// The system's, "would block" among them.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        match retry_on_intr(|| rustix::net::recv(&self.0, &mut *buffer, RecvFlags::empty())) {
            Ok((0, _)) => Ok(SocketRead::End),
            Ok((n, _)) if n < buffer.len() => Ok(SocketRead::Last(n)),
            Ok((n, _)) => Ok(SocketRead::Some(n)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the number of bytes that the kernel has for the socket now.
    pub fn unread(&self) -> usize {
        rustix::io::ioctl_fionread(&self.0).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Returns `Ready` if the socket may take bytes; else arranges to be woken when it does.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx)
    }

    /// Writes some of the bytes, and returns their number.
    ///
    /// # Errors
    /// "Would block" if the socket takes none; else the system's, if the connection failed.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let write = || rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL);
        self.0.try_io(Interest::WRITABLE, || Ok(retry_on_intr(write)?))
    }

    /// Writes some bytes of several pieces, and returns their number.
    ///
    /// # Errors
    /// As [`Transport::try_write`].
    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    /// Closes the writing side. The peer's bytes are still read.
    pub fn shut_down_writing(&self) {
        // A socket that the peer has reset is not connected, so there is nothing to close.
        let _ = socket2::SockRef::from(&self.0).shutdown(Shutdown::Write);
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
            let (fd, to) = (self.0.as_raw_fd(), (&raw mut info).cast());
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
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}
