//! What is known of a listener of a running broker.

use crate::config::{Auth, ListenerAddress};
use crate::net::tls::settings::ClientCertificates;
use std::fmt;
use std::net::SocketAddr;

/// A listener of a running broker.
#[derive(Clone, Debug)]
pub struct OpenListener {
    /// The address. A port 0 is replaced by the port that the system chose.
    pub address: ListenerAddress,
    /// The name, if the operator gave one.
    pub name: Option<String>,
    /// The settings of authentication for its clients.
    pub auth: Auth,
    /// True with TLS.
    pub has_tls: bool,
    /// Whether clients are asked for a certificate.
    pub client_certificates: ClientCertificates,
    /// True with WebSocket.
    pub is_websocket: bool,
    /// True if each connection begins with a PROXY header.
    pub has_proxy: bool,
}

impl OpenListener {
    /// Returns the name, or the address of a listener without one.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }

    /// Returns the IP address if a client speaks plain MQTT there, without anything before it.
    pub fn plain_address(&self) -> Option<SocketAddr> {
        match self.address {
            ListenerAddress::Ip(address) if !(self.has_tls || self.is_websocket || self.has_proxy) => {
                Some(address)
            }
            _ => None,
        }
    }
}

/// Writes the address, and behind it what is not plain MQTT, and the name.
impl fmt::Display for OpenListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        let parts = [(self.has_proxy, "PROXY"), (self.has_tls, "TLS"), (self.is_websocket, "WebSocket")];
        for (_, part) in parts.iter().filter(|(has, _)| *has) {
            write!(f, ", {part}")?;
        }
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}
