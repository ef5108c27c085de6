//! The operator's settings for the clients of one listener.

use crate::mqtt::packet::ProtocolVersion;
use crate::session::authentication::AuthPolicy;
use crate::session::client_id_rule::ClientIdRule;
use crate::session::mount_point::MountPoint;
use crate::session::policy::ConnectPolicy;
use std::sync::Arc;

/// The operator's settings for the clients of one listener.
#[derive(Clone, Debug)]
pub struct ListenerTerms {
    /// The rules about the clients that may enter.
    pub auth: AuthPolicy,
    /// The bounds on what a CONNECT requests, and on the packets of the client.
    pub connect: ConnectPolicy,
    /// The versions of MQTT that clients may speak.
    pub versions: ProtocolVersions,
    /// The form of the client identifiers; `None` for any.
    pub client_id: Option<ClientIdRule>,
    /// The prefix of the clients' topics; `None` without one.
    pub mount_point: Option<Arc<MountPoint>>,
}

/// A set of versions of MQTT.
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

impl FromIterator<ProtocolVersion> for ProtocolVersions {
    fn from_iter<I: IntoIterator<Item = ProtocolVersion>>(versions: I) -> ProtocolVersions {
        ProtocolVersions(versions.into_iter().fold(0, |set, version| set | 1 << version as u8))
    }
}
