//! The byte stream of a connection: today a TCP socket.
//!
//! Reads and writes are tried, never awaited: who owns the connection polls for readiness. A short
//! read says that the socket is empty, so readiness is cleared without the system call that would
//! only answer "would block". The two calls of every message go past the C library, whose own are
//! cancellation points with some work before and after.

use crate::session::outbound::stall::SocketView;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A socket registered with its arbiter's reactor.
#[derive(Debug)]
pub struct Transport(TcpStream);

/// What a try to read found.
#[derive(Debug)]
pub enum SocketRead {
    /// The reactor has heard of nothing.
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
    pub fn new(socket: std::net::TcpStream) -> io::Result<Transport> {
        TcpStream::from_std(socket).map(Transport)
    }

    /// Takes it from its reactor, to move to another arbiter.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        self.0.into_std()
    }

    /// Reads what the reactor says is there; nothing, and no system call, where it has heard of
    /// nothing since the socket was last found empty.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        let mut read = SocketRead::Nothing;
        // A short read says that the socket is empty. Edge-triggered: what comes after it raises a
        // new event, and on this thread none is taken in between; so readiness is let go of as if
        // the next read had been tried.
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

    /// Whether there may be something to read, or arranges to be woken when there is.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    /// Reads what the kernel has now, whether or not the reactor has heard of it: after a pause of
    /// the whole process it has not, though the bytes have long been there.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<SocketRead> {
        match retry_on_intr(|| rustix::net::recv(&self.0, &mut *buffer, RecvFlags::empty())) {
            Ok((0, _)) => Ok(SocketRead::End),
            Ok((n, _)) if n < buffer.len() => Ok(SocketRead::Last(n)),
            Ok((n, _)) => Ok(SocketRead::Some(n)),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes that the kernel has for it now.
    pub fn unread(&self) -> usize {
        rustix::io::ioctl_fionread(&self.0).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Whether the socket takes bytes, or arranges to be woken when it does.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx)
    }

    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let write = || rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL);
        self.0.try_io(Interest::WRITABLE, || Ok(retry_on_intr(write)?))
    }

    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    /// Says that nothing more will be written; the peer's bytes are still read.
    pub fn shut_down_writing(&self) {
        // A socket that the peer has reset is not connected any more: nothing to shut.
        let _ = socket2::SockRef::from(&self.0).shutdown(Shutdown::Write);
    }

    /// What became of the bytes that were written: one system call, and a second one where some are
    /// not with the peer's kernel.
    pub fn view(&self) -> SocketView {
        match self.unsent() {
            0 => SocketView::default(),
            unsent => {
                let (on_the_way, retransmits) = self.segments();
                SocketView { unsent, on_the_way, retransmits }
            }
        }
    }

    /// Segments that the peer's kernel has yet to acknowledge, and how often the oldest was sent
    /// again.
    fn segments(&self) -> (u32, u32) {
        // SAFETY: a plain structure of integers, for which all zeroes is a value.
        #[expect(unsafe_code, reason = "the structure has no constructor")]
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: `fd` is this socket's, open as long as `self` lives; the kernel writes at most
        // `len` bytes, the size of the live local that the pointer is to, and the number it wrote
        // to `len`.
        #[expect(unsafe_code, reason = "no safe wrapper for TCP_INFO in the crates at hand")]
        let answer = unsafe {
            let (fd, to) = (self.0.as_raw_fd(), (&raw mut info).cast());
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len)
        };
        if answer == 0 { (info.tcpi_unacked, info.tcpi_retransmits.into()) } else { (0, 0) }
    }

    /// Bytes that were written and that the peer's kernel has not acknowledged.
    fn unsent(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: `fd` is this socket's, open as long as `self` lives; TIOCOUTQ writes one `int` to
        // the pointer, which is to a live local of that type.
        #[expect(unsafe_code, reason = "no safe wrapper for TIOCOUTQ in the crates at hand")]
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if answer == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}
