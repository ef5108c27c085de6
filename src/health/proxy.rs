//! The beginning of a connection to a listener that wants the header of the PROXY protocol.

use crate::access::network::network;
use crate::config::{Listener, ListenerAddress, ProxyProtocol};
use ipnet::IpNet;
use std::net::IpAddr;

/// Version 2, command LOCAL: a check of health by the proxy itself (section 2.2).
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
/// Version 1 has no such command. A proxy that does not name its client comes nearest.
const UNKNOWN: &[u8] = b"PROXY UNKNOWN\r\n";

/// The header to send, and those from whom the listener takes one.
#[derive(Clone, Debug)]
pub struct ProxyStart {
    /// The header.
    pub header: &'static [u8],
    /// The networks of the proxies; `None` if every peer of a local listener is one.
    trusted: Option<Vec<IpNet>>,
    /// True if no other machine can connect.
    is_local: bool,
}

impl ProxyStart {
    /// Returns the header for a connection to this listener; `None` without the PROXY protocol.
    pub fn of(listener: &Listener) -> Option<ProxyStart> {
        let header = match listener.proxy_protocol? {
            ProxyProtocol::Off => return None,
            ProxyProtocol::V1 => UNKNOWN,
            ProxyProtocol::V2 | ProxyProtocol::Any => LOCAL,
        };
        let networks = |texts: &Vec<String>| texts.iter().filter_map(|text| network(text).ok()).collect();
        Some(ProxyStart {
            header,
            trusted: listener.trusted_proxies.as_ref().map(networks),
            is_local: listener.address.as_ref().is_some_and(ListenerAddress::is_local),
        })
    }

    /// Returns true if the listener takes a header from this peer, which has no address on a Unix
    /// socket. The listener closes other connections.
    pub fn is_believed_from(&self, peer: Option<IpAddr>) -> bool {
        match (&self.trusted, peer.map(|address| address.to_canonical())) {
            (Some(trusted), Some(peer)) => trusted.iter().any(|network| network.contains(&peer)),
            (Some(_), None) => true,
            (None, _) => self.is_local,
        }
    }
}
