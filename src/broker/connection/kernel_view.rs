//! What the kernel says of the bytes of a socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Returns the number of bytes that the kernel has for the socket now, and that nobody has read.
pub(super) fn unread(socket: impl AsFd) -> usize {
    rustix::io::ioctl_fionread(socket).map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Returns the number of wire bytes that were written and that the peer's kernel has not
/// acknowledged.
pub(super) fn unacknowledged(socket: BorrowedFd<'_>) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as it is borrowed. TIOCOUTQ writes one `int` to the
    // pointer, which leads to a live local of that type.
    #[expect(unsafe_code, reason = "no safe wrapper for TIOCOUTQ in the crates at hand")]
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Returns the number of segments that the peer's kernel has not acknowledged, and how often TCP
/// sent the oldest of them again. Both are 0 if the system does not say.
pub(super) fn segments(socket: BorrowedFd<'_>) -> (u32, u32) {
    // SAFETY: `tcp_info` is a plain structure of integers, for which all zeroes is a value.
    #[expect(unsafe_code, reason = "the structure has no constructor")]
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed. The kernel writes at most `len`
    // bytes, which is the size of the live local behind the pointer. The kernel writes their number
    // to `len`.
    #[expect(unsafe_code, reason = "no safe wrapper for TCP_INFO in the crates at hand")]
    let result = unsafe {
        let (fd, to) = (socket.as_raw_fd(), (&raw mut info).cast());
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len)
    };
    if result == 0 { (info.tcpi_unacked, info.tcpi_retransmits.into()) } else { (0, 0) }
}
