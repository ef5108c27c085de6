//! Binds the sockets of listeners.

use crate::config::{self, ListenerAddress};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The system refuses an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {cause}")]
pub struct BindError {
    /// The address as configured.
    pub address: String,
    /// The system's reason.
    pub cause: io::Error,
}

/// Binds a TCP listener. Returns the listener and its address, with the port that the system chose
/// for 0.
///
/// # Errors
/// The system refuses the address: [`BindError`].
pub fn tcp(address: SocketAddr, backlog: u32) -> Result<(TcpListener, SocketAddr), BindError> {
    let listen = || {
        let socket = bound(address)?;
        // The outbox gathers packets, so the kernel need not wait for more. Accepted sockets
        // inherit the option.
        socket.set_tcp_nodelay(true)?;
        listen(&socket, backlog)?;
        let listener = TcpListener::from(socket);
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|cause| BindError { address: address.to_string(), cause })
}

/// Returns a TCP socket that is bound and does not listen.
fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // 0.0.0.0 and [::] can then be listened on side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Checks that an address can be bound now. Nobody can connect meanwhile, and no file is made.
///
/// # Errors
/// The address is taken, or the system refuses it: [`BindError`].
pub fn check(address: &ListenerAddress) -> Result<(), BindError> {
    let result = match address {
        ListenerAddress::Ip(address) => bound(*address).map(drop),
        ListenerAddress::Unix(path) => match fs::symlink_metadata(path) {
            Ok(file) if file.file_type().is_socket() && UnixStream::connect(path).is_err() => Ok(()),
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => path.parent().map_or(Ok(()), |folder| fs::metadata(folder).map(drop)),
        },
    };
    result.map_err(|cause| BindError { address: address.to_string(), cause })
}

/// Returns the address to connect to for a listener: loopback if the listener is on all interfaces.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The permissions of a Unix socket. `None` leaves the system's default for a new file.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketPermissions<'a> {
    /// The permission bits.
    pub mode: Option<u32>,
    /// The group, by name or number.
    pub group: Option<&'a str>,
}

impl<'a> From<&'a config::Listener> for SocketPermissions<'a> {
    fn from(listener: &'a config::Listener) -> SocketPermissions<'a> {
        let mode = listener.mode.as_ref().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        SocketPermissions { mode, group: listener.group.as_deref() }
    }
}

/// Binds a Unix socket with these permissions, in non-blocking mode. Replaces a socket file
/// on which nobody listens.
///
/// # Errors
/// The system refuses the path, another process listens on it, or the group is unknown:
/// [`BindError`].
pub fn unix(
    path: &Path,
    permissions: SocketPermissions<'_>,
    backlog: u32,
) -> Result<(UnixListener, SocketFile), BindError> {
    let bind = || {
        let _alone = lock_folder(path);
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile::of(path)?;
        // Nobody can connect before `listen`, so nobody slips in under other permissions.
        if let Some(group) = permissions.group {
            std::os::unix::fs::chown(path, None, Some(group_id(group)?))?;
        }
        if let Some(mode) = permissions.mode {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        listen(&socket, backlog)?;
        Ok((UnixListener::from(socket), file))
    };
    bind().map_err(|cause| BindError { address: format!("unix:{}", path.display()), cause })
}

fn listen(socket: &Socket, backlog: u32) -> io::Result<()> {
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)
}

/// Locks the folder of a socket file, so that two processes that start at once do not take each
/// other's new file for a stale one. Returns `None` if the folder cannot be locked; then `bind`
/// alone decides. Waits for the other process, which needs microseconds.
fn lock_folder(path: &Path) -> Option<fs::File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::File::open(folder.unwrap_or(Path::new("."))).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// Removes a socket file that a dead process left. Leaves everything else, so that `bind` refuses.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    let is_refused = || {
        UnixStream::connect(path).err().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if file.file_type().is_socket() && is_refused() {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Returns the number of a group: the text itself, or the third field of its line in /etc/group.
fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string("/etc/group")?;
    let mut lines = groups.lines().map(|line| line.split(':'));
    let found = lines.find_map(|mut fields| (fields.next() == Some(group)).then(|| fields.nth(1)).flatten());
    found.and_then(|number| number.parse().ok()).ok_or_else(|| {
        let message = format!("the group {group} is not in /etc/group; name one that is, or its number");
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// The file of a Unix socket. Removed when the value is dropped, unless another process has put
/// another file there.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
    }
}

/// Returns device and inode of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // Nothing is left to do if the directory refuses.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(mode: &str) -> config::Listener {
        config::Listener { mode: Some(mode.to_owned()), ..config::Listener::default() }
    }

    #[test]
    fn a_listener_on_all_interfaces_is_asked_over_loopback() {
        assert_eq!(reachable("0.0.0.0:1883".parse().unwrap()), "127.0.0.1:1883".parse().unwrap());
        assert_eq!(reachable("[::]:1883".parse().unwrap()), "[::1]:1883".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:1883".parse().unwrap()), "10.0.0.1:1883".parse().unwrap());
    }

    #[test]
    fn a_socket_file_has_its_permissions_and_goes_with_the_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mqtt.sock");
        let (socket, file) = unix(&path, (&listener("0600")).into(), 8).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mqtt.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (_socket, file) = unix(&path, (&listener("0660")).into(), 8).unwrap();
        let error = unix(&path, (&listener("0660")).into(), 8).unwrap_err().to_string();
        assert!(error.contains("mqtt.sock") && error.contains("in use"), "{error}");
        assert!(path.exists());
        drop(file);
    }

    #[test]
    fn of_two_starts_at_once_one_has_the_place_of_a_stale_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mqtt.sock");
        for _ in 0..50 {
            drop(UnixListener::bind(&path).unwrap());
            let bound: Vec<_> = std::thread::scope(|scope| {
                let start = || scope.spawn(|| unix(&path, (&listener("0660")).into(), 8));
                let both = [start(), start()];
                both.into_iter().map(|thread| thread.join().expect("it ends")).collect()
            });
            assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1);
            UnixStream::connect(&path).expect("the one that is bound can be reached");
        }
    }

    #[test]
    fn a_check_finds_a_taken_address_and_leaves_a_free_one_free() {
        let (socket, taken) = tcp(SocketAddr::from(([127, 0, 0, 1], 0)), 8).unwrap();
        let address = ListenerAddress::Ip(taken);
        let error = check(&address).unwrap_err().to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
        drop(socket);
        check(&address).unwrap();
        tcp(taken, 8).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mqtt.sock");
        let address = ListenerAddress::Unix(path.clone());
        check(&address).unwrap();
        assert!(!path.exists());
        let (socket, file) = unix(&path, (&listener("0600")).into(), 8).unwrap();
        check(&address).unwrap_err();
        drop((socket, file));
        check(&ListenerAddress::Unix(folder.path().join("none/mqtt.sock"))).unwrap_err();
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mqtt.sock");
        fs::write(&path, "precious").unwrap();
        unix(&path, (&listener("0660")).into(), 8).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_group_is_a_name_or_a_number() {
        assert_eq!(group_id("0").unwrap(), 0);
        assert_eq!(group_id("root").unwrap(), 0);
        assert!(group_id("no such group").unwrap_err().to_string().contains("no such group"));
    }
}
