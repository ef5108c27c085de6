//! The translated configuration: settings and notes.

use crate::conf::ConfLine;
use std::fmt;

/// The settings for Homing. `None` and empty are left to Homing's defaults.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TranslatedSettings {
    /// Listeners with addresses of their own.
    pub listeners: Vec<ListenerSettings>,
    /// Connections to other brokers.
    pub bridges: Vec<BridgeSettings>,
    /// In the order of the output.
    pub keys: Keys,
}

/// A listener of Homing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ListenerSettings {
    /// The address, as Homing's file has it.
    pub address: String,
    /// True for MQTT over WebSocket.
    pub is_websocket: bool,
    /// The origins of web pages that may connect; any if empty.
    pub origins: Vec<String>,
    /// The version of the PROXY protocol.
    pub proxy: Option<&'static str>,
    /// True if the proxy must have used TLS.
    pub proxy_tls: bool,
    /// True if every address counts as a proxy, as in mosquitto.
    pub trusts_all_proxies: bool,
    /// The largest number of connections.
    pub connections: Option<u64>,
    /// The methods of authentication; `None` if those of all listeners hold.
    pub auth: Option<Vec<&'static str>>,
    /// The password file of this listener alone.
    pub password_file: Option<String>,
    /// The versions of MQTT that clients may speak; all if empty.
    pub versions: Vec<&'static str>,
    /// The form of the client identifiers; `None` if all may connect.
    pub client_id: Option<String>,
    /// The prefix of the clients' topics; `None` without one.
    pub mount_point: Option<String>,
    /// The word for anonymous clients; `None` if that of all listeners holds.
    pub anonymous: Option<&'static str>,
    /// The ACL file of this listener alone.
    pub acl_file: Option<String>,
    /// The certificate of the broker.
    pub certificate: Option<String>,
    /// The file with the authorities that complete the chain of the certificate.
    pub chain: Option<String>,
    /// The key of the certificate.
    pub key: Option<String>,
    /// The authorities of client certificates.
    pub client_ca: Option<String>,
    /// True if clients must have a certificate.
    pub needs_certificate: bool,
    /// The list of revoked certificates.
    pub crl: Option<String>,
    /// The lowest version of TLS.
    pub minimum: Option<&'static str>,
    /// The part of the certificate that is the user name; `None` if clients are not asked for one.
    pub certificate_user: Option<&'static str>,
    /// True if the dates of client certificates do not count.
    pub ignores_dates: bool,
}

/// A bridge of Homing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BridgeSettings {
    /// The name.
    pub name: String,
    /// The addresses, as Homing's file has them.
    pub addresses: Vec<String>,
    /// True to begin with the address behind the last one.
    pub round_robin: bool,
    /// The client identifier at the other broker.
    pub client_id: Option<String>,
    /// The version of MQTT; `None` for the highest that the other broker takes.
    pub version: Option<&'static str>,
    /// True to connect as bridges of mosquitto do.
    pub bridge_bit: bool,
    /// The user at the other broker.
    pub user: Option<String>,
    /// The authorities of the other broker's certificate.
    pub ca: Option<String>,
    /// The bridge's own certificate.
    pub certificate: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// The Keep Alive in seconds.
    pub keep_alive: Option<u16>,
    /// The time for which the session is kept, in seconds.
    pub session_expiry: Option<u32>,
    /// True if each connection begins a new session.
    pub clean_start: bool,
    /// The shortest and the longest time between two attempts, in seconds.
    pub backoff: Option<(u32, u32)>,
    /// The largest packet that leaves, in bytes; `None` for any.
    pub max_packet_size: Option<u32>,
    /// The name that TLS offers.
    pub alpn: Option<String>,
    /// The time at which the bridge connects; `None` for always.
    pub connect: Option<&'static str>,
    /// The time without a message after which a bridge on demand disconnects, in seconds.
    pub idle_timeout: Option<u32>,
    /// True to tell the state of the bridge on a topic.
    pub notifies: bool,
    /// The topic of these notifications, if it is not that of mosquitto.
    pub notification_topic: Option<String>,
    /// The user here whose rules hold.
    pub acl_user: Option<String>,
    /// The messages that pass.
    pub topics: Vec<BridgeTopic>,
}

/// A rule about the messages that pass a bridge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BridgeTopic {
    /// The filter behind the prefixes.
    pub filter: String,
    /// `out`, `in` or `both`.
    pub direction: String,
    /// The highest QoS.
    pub qos: u8,
    /// The beginning of the topics here.
    pub local_prefix: String,
    /// The beginning of the topics at the other broker.
    pub remote_prefix: String,
}

/// A line for standard error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Note {
    place: Option<String>,
    text: String,
    /// True if something that protects or delivers would be lost.
    pub is_loss: bool,
}

impl Note {
    /// Returns a note about something that works, but not the same.
    pub(super) fn differs(place: Option<String>, text: &str) -> Note {
        Note { place, text: text.to_owned(), is_loss: false }
    }

    /// Returns a note about something that would be lost.
    pub(crate) fn loss(place: Option<String>, text: &str) -> Note {
        Note { place, text: text.to_owned(), is_loss: true }
    }
}

/// A translated configuration.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    /// The settings.
    pub settings: TranslatedSettings,
    /// The options that do not mean the same.
    pub notes: Vec<Note>,
}

/// Keys of the form `section.key`, with values in TOML.
pub(super) type Keys = Vec<(&'static str, String)>;

/// Returns the place of an option, for a note.
pub(super) fn place_of(line: &ConfLine) -> String {
    format!("{}:{}: {}", line.file.display(), line.number, line.name)
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_loss { "LOST" } else { "differs" };
        match &self.place {
            Some(place) => write!(f, "{kind}: {place}: {}", self.text),
            None => write!(f, "{kind}: {}", self.text),
        }
    }
}
