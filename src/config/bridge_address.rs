//! The addresses of other brokers, as an operator writes them.

use super::service_url::host_and_port;
use super::value::{self, Field};
use config::{Value, ValueKind};
use std::fmt;

/// The address of another broker: `mqtt://HOST[:PORT]`, `ws://HOST[:PORT][/PATH]`, and `tls://` and
/// `wss://` for the same with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeAddress {
    /// True for TLS.
    pub is_tls: bool,
    /// A name or an address; an IPv6 address without its brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// The path of a WebSocket, `/mqtt` by default, with a query if there is one; `None` for bare
    /// MQTT.
    pub websocket_path: Option<Box<str>>,
}

impl BridgeAddress {
    fn parse(text: &str) -> Option<BridgeAddress> {
        let (scheme, rest) = text.split_once("://")?;
        let (is_tls, is_websocket, default_port) = match scheme {
            "mqtt" => (false, false, 1883),
            "tls" => (true, false, 8883),
            "ws" => (false, true, 80),
            "wss" => (true, true, 443),
            _ => return None,
        };
        let path_at = rest.find('/').filter(|_| is_websocket).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let (host, port) = host_and_port(authority, default_port)?;
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
        if path.len() > 1_024 || !path.bytes().all(is_allowed) {
            return None;
        }
        let path = if path.is_empty() { "/mqtt" } else { path };
        let websocket_path = is_websocket.then(|| path.into());
        Some(BridgeAddress { is_tls, host: host.into(), port, websocket_path })
    }

    /// Returns host and port, as the header Host has them.
    pub fn authority(&self) -> String {
        let BridgeAddress { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for BridgeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.is_tls, self.websocket_path.is_some()) {
            (false, false) => "mqtt",
            (true, false) => "tls",
            (false, true) => "ws",
            (true, true) => "wss",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.websocket_path.as_deref().unwrap_or_default())
    }
}

impl Field for BridgeAddress {
    fn read(value: &Value) -> Option<BridgeAddress> {
        BridgeAddress::parse(value::text(value)?)
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(self.to_string())
    }
}
