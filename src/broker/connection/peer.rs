//! The address of a client, in 16 bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The address of a client.
///
/// Takes 16 bytes, because each connection has one: a `SocketAddr` takes 32. An IPv6 address is in
/// a box of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress(Address);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    V4 { port: u16, ip: Ipv4Addr },
    V6(Box<SocketAddrV6>),
    Unix { uid: u32 },
}

impl PeerAddress {
    /// Returns the address of a client with an IP address.
    pub fn ip(address: SocketAddr) -> PeerAddress {
        PeerAddress(match address {
            SocketAddr::V4(v4) => Address::V4 { port: v4.port(), ip: *v4.ip() },
            SocketAddr::V6(v6) => Address::V6(Box::new(v6)),
        })
    }

    /// Returns the address of a client on a Unix socket. `uid` is the user of its process.
    pub fn unix(uid: u32) -> PeerAddress {
        PeerAddress(Address::Unix { uid })
    }

    /// Returns the IP address and port, or `None` on a Unix socket.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Address::V4 { port, ip } => Some(SocketAddr::V4(SocketAddrV4::new(*ip, *port))),
            Address::V6(address) => Some(SocketAddr::V6(**address)),
            Address::Unix { .. } => None,
        }
    }

    /// Returns true if the client is on this machine: a loopback address, also as an IPv4-mapped
    /// IPv6 address, or a Unix socket.
    pub fn is_local(&self) -> bool {
        self.socket_address().is_none_or(|address| is_loopback(address.ip()))
    }
}

/// Returns true for a loopback address, also for an IPv4 one in the form of IPv6.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Writes `10.1.2.3:4567`, `[2001:db8::1]:4567`, or `unix:uid=1000`.
impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::V4 { port, ip } => write!(f, "{ip}:{port}"),
            Address::V6(address) => address.fmt(f),
            Address::Unix { uid } => write!(f, "unix:uid={uid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> PeerAddress {
        PeerAddress::ip(text.parse().unwrap())
    }

    #[test]
    fn an_address_takes_16_bytes_and_so_does_an_optional_one() {
        assert_eq!(size_of::<PeerAddress>(), 16);
        assert_eq!(size_of::<Option<PeerAddress>>(), 16);
    }

    #[test]
    fn an_address_is_written_as_a_socket_address() {
        for text in ["10.1.2.3:4567", "[2001:db8::1]:4567", "[fe80::1%3]:1"] {
            assert_eq!(ip(text).to_string(), text);
            assert_eq!(ip(text).socket_address(), text.parse().ok());
        }
        let unix = PeerAddress::unix(1000);
        assert_eq!((unix.to_string().as_str(), unix.socket_address()), ("unix:uid=1000", None));
    }

    #[test]
    fn loopback_and_unix_are_local() {
        for (text, local) in [
            ("127.0.0.1:1", true),
            ("127.8.9.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("[::ffff:10.0.0.1]:1", false),
            ("10.0.0.1:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            assert_eq!(ip(text).is_local(), local, "{text}");
        }
        assert!(PeerAddress::unix(0).is_local());
    }
}
