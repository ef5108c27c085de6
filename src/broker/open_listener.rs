//! What is known of a listener of a running broker.

use super::handshake::entrance::{client_certificates, proxy_rules};
use crate::config::{AnonymousClients, Auth, Config, Listener, ListenerAddress};
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
    /// Returns what the configuration says of a listener that has this address.
    pub fn of(config: &Config, listener: &Listener, address: ListenerAddress) -> OpenListener {
        OpenListener {
            address,
            name: listener.name.clone(),
            auth: config.auth_of(listener),
            has_tls: listener.tls.is_some(),
            client_certificates: listener.tls.as_ref().map_or(ClientCertificates::Off, client_certificates),
            is_websocket: listener.protocol.as_deref() == Some("websocket"),
            has_proxy: proxy_rules(listener).is_some(),
        }
    }

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

/// Who may connect.
impl OpenListener {
    /// Returns true if some method lets clients in by this listener.
    pub fn verifies(&self) -> bool {
        self.has_passwords() || self.has_tokens() || self.has_service() || self.has_certificates()
    }

    /// Returns true if clients without credentials may enter by this listener.
    pub fn admits_anonymous(&self) -> bool {
        match self.auth.anonymous {
            AnonymousClients::Always => true,
            AnonymousClients::Loopback => self.address.is_local(),
            AnonymousClients::Never => false,
        }
    }

    /// Returns true if users of the password file may connect by this listener.
    pub fn has_passwords(&self) -> bool {
        (self.uses("password") || self.uses("scram")) && self.auth.password_path().is_some()
    }

    /// Returns true if clients with a token may connect by this listener.
    pub fn has_tokens(&self) -> bool {
        self.uses("jwt") && self.auth.jwt_keys_path().is_some()
    }

    /// Returns true if the HTTP service lets clients in by this listener.
    pub fn has_service(&self) -> bool {
        self.uses("http") && self.auth.http_service().is_some()
    }

    /// Returns true if a certificate lets a client in by this listener.
    pub fn has_certificates(&self) -> bool {
        self.uses("certificate") && self.client_certificates != ClientCertificates::Off
    }

    fn uses(&self, method: &str) -> bool {
        let methods = &self.auth.methods;
        methods.is_empty() || methods.iter().any(|name| name == method)
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
