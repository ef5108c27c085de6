//! A listener as its clients know it: the operator's settings for them, and the count of their
//! connections.

use crate::access::acl::Acl;
use crate::access::grant::SessionRules;
use crate::access::meter::{MeteredRate, TrafficRates};
use crate::bridge;
use crate::mqtt::packet::{ProtocolVersion, ReasonCode};
use crate::session::authentication::AuthPolicy;
use crate::session::client_id_rule::ClientIdRule;
use crate::session::connect::ConnectRefusal;
use crate::session::mount_point::MountPoint;
use crate::sink;
use arc_swap::ArcSwap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The operator's settings for the clients of one listener.
///
/// The listener and its connections share this value. A reload that changes the listener makes a
/// new value, and earlier connections keep the old value. `None` is the setting of the broker, so a
/// reload of that setting reaches them too.
#[derive(Debug, Default)]
pub struct ListenerTerms {
    /// The count of the connections.
    pub connections: Arc<ListenerConnections>,
    /// Whom the listener serves.
    pub serves: Served,
    /// The most unfinished messages that a client may send.
    pub receive_maximum: Option<u16>,
    /// The rules about the clients that may enter.
    pub auth: Option<AuthPolicy>,
    /// The path of the password file.
    pub password_file: Option<PathBuf>,
    /// The largest packet in bytes.
    pub packet_size: Option<u32>,
    /// The longest Keep Alive in seconds; 0 is no limit.
    pub keep_alive_maximum: Option<u16>,
    /// The rate of PUBLISH packets. The inner `None` is no limit.
    pub message_rate: Option<Option<MeteredRate>>,
    /// The rate of bytes. The inner `None` is no limit.
    pub byte_rate: Option<Option<MeteredRate>>,
    /// The versions of MQTT that clients may speak.
    pub versions: ProtocolVersions,
    /// The form of the client identifiers; `None` for any.
    pub client_id: Option<ClientIdRule>,
    /// The prefix of the clients' topics; `None` without one.
    pub mount_point: Option<Arc<MountPoint>>,
    /// The settings that a reload also changes for the clients that are connected. A listener
    /// shares them with its predecessor, if the two differ in nothing else.
    pub rules: Arc<LiveRules>,
}

/// Whom a listener serves: clients, or a bridge or sink of this broker.
#[derive(Clone, Debug, Default)]
pub enum Served {
    /// Clients. A client may not have the client identifier of a bridge or sink.
    #[default]
    Clients,
    /// One bridge or sink, with the rules of its session alone; `None` if the ACL file counts.
    Bridge(Option<SessionRules>),
}

/// The present [`ListenerRules`] of a listener.
pub type LiveRules = ArcSwap<ListenerRules>;

/// The settings of a listener that a reload also changes for the clients that are connected.
#[derive(Clone, Debug, Default)]
pub struct ListenerRules {
    /// The name of the listener, under which stored sessions and messages remember it.
    pub name: Arc<str>,
    /// False if the listener accepts no connections any more. Its name may be another listener's
    /// name.
    pub is_open: bool,
    /// The path of the ACL file; `None` if that of the broker holds.
    pub acl_file: Option<PathBuf>,
    /// The rules of this file.
    pub acl: Option<Arc<Acl>>,
}

/// The connections of a listener. A listener that comes back under the same label continues the
/// counts.
#[derive(Debug, Default)]
pub struct ListenerConnections {
    label: String,
    open: AtomicUsize,
    /// Connections since the start.
    opened: AtomicU64,
}

impl ListenerTerms {
    /// Returns the rates of a client. `broker` has those of the broker.
    pub(crate) fn rates(&self, broker: TrafficRates) -> TrafficRates {
        TrafficRates {
            messages: self.message_rate.unwrap_or(broker.messages),
            bytes: self.byte_rate.unwrap_or(broker.bytes),
        }
    }

    /// Returns true if the client is a bridge or a sink of this broker.
    pub(crate) fn serves_bridge(&self) -> bool {
        matches!(self.serves, Served::Bridge(_))
    }

    /// Returns the rules of a session alone that its client gets without a login.
    pub(crate) fn own_rules(&self) -> Option<SessionRules> {
        match &self.serves {
            Served::Clients => None,
            Served::Bridge(rules) => rules.clone(),
        }
    }

    /// Checks that bridges and sinks alone have a client identifier that begins with `$bridge/` or
    /// `$sink/`.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn check_prefix(&self, client_id: &str) -> Result<(), ConnectRefusal> {
        let is_bridge = self.serves_bridge();
        let prefixes = [bridge::CLIENT_ID_PREFIX, sink::CLIENT_ID_PREFIX];
        if prefixes.iter().any(|prefix| client_id.starts_with(prefix)) == is_bridge {
            return Ok(());
        }
        let what = "client ids that begin with $bridge/ or $sink/ are those of the broker's own connections";
        Err(ConnectRefusal::new(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, what))
    }

    /// Checks that clients may speak a version.
    ///
    /// # Errors
    /// The refusal, if they may not.
    // 5.0 [MQTT-3.1.2-2]; 3.1.1 [MQTT-3.1.2-2]
    pub(crate) fn check_version(&self, version: ProtocolVersion) -> Result<(), ConnectRefusal> {
        if self.versions.contains(version) {
            return Ok(());
        }
        let what = "this listener does not admit the client's version of MQTT (versions of [[listeners]])";
        Err(ConnectRefusal::new(ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, what))
    }
}

impl ListenerConnections {
    /// Returns the counts of a listener without a connection.
    pub fn new(label: String) -> ListenerConnections {
        ListenerConnections { label, ..ListenerConnections::default() }
    }

    /// Returns the name of the listener, or the address of a listener without one.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the open connections, with those that have not sent CONNECT.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the connections since the start.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Counts an open connection. Returns how many there were before.
    pub fn add(&self) -> usize {
        self.open.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a connection that no limit refused.
    pub fn count_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an open connection less.
    pub fn remove(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A set of versions of MQTT. The default has every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolVersions(u8);

impl ProtocolVersions {
    /// Every version.
    pub const ALL: ProtocolVersions = ProtocolVersions(u8::MAX);

    /// Returns true if the version is in the set.
    pub fn contains(self, version: ProtocolVersion) -> bool {
        self.0 & (1 << version as u8) != 0
    }
}

impl Default for ProtocolVersions {
    fn default() -> ProtocolVersions {
        ProtocolVersions::ALL
    }
}

impl FromIterator<ProtocolVersion> for ProtocolVersions {
    fn from_iter<I: IntoIterator<Item = ProtocolVersion>>(versions: I) -> ProtocolVersions {
        ProtocolVersions(versions.into_iter().fold(0, |set, version| set | 1 << version as u8))
    }
}
