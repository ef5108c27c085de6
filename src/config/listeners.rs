//! `[listeners]`: where clients reach the broker, and how long a socket may be useless.

use super::schema::{Key, Rule, days, millis, seconds};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// IANA's port for MQTT over plain TCP.
const MQTT_PORT: u16 = 1883;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listeners {
    /// Addresses to listen on, at least one; port 0 takes a free one.
    pub addresses: Vec<SocketAddr>,
    /// A file that the addresses are written to while the broker runs, one on a line; nothing is none.
    pub addresses_file: String,
    /// Connections the kernel holds for each listener until the broker accepts them.
    pub backlog: u32,
    /// A socket whose CONNECT has not come within this is closed.
    #[serde(with = "super::duration")]
    pub connect_timeout: Duration,
    /// A socket that takes no bytes for this long, while some wait for it, is closed.
    #[serde(with = "super::duration")]
    pub write_timeout: Duration,
}

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners {
            addresses: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), MQTT_PORT)],
            addresses_file: String::new(),
            backlog: 4096,
            connect_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
        }
    }
}

pub(super) const KEYS: &[Key] = &[
    Key::new("listeners.addresses", Rule::Addresses),
    Key::new("listeners.addresses_file", Rule::Directory),
    Key::new("listeners.backlog", Rule::Integer(1, 65_535)),
    Key::new("listeners.connect_timeout", Rule::Duration(millis(100), seconds(3600))),
    Key::new("listeners.write_timeout", Rule::Duration(millis(100), days(1))),
];
