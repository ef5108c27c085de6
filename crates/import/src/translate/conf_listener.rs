//! The options of a listener, as mosquitto has them.

use super::output::ListenerSettings;

/// One `listener` with its options, as mosquitto has them.
#[derive(Debug, Default)]
pub(super) struct ConfListener {
    /// The place of its line; `None` for the default listener.
    pub(super) place: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) host: Option<String>,
    /// The path of a Unix socket.
    pub(super) path: Option<String>,
    pub(super) is_ipv6: bool,
    pub(super) settings: ListenerSettings,
    pub(super) ca_file: Option<String>,
    pub(super) topic_aliases: Option<u16>,
    /// True if the common name of the client's certificate is its user name.
    pub(super) uses_identity: bool,
    /// True if the subject of the client's certificate is its user name.
    pub(super) uses_subject: bool,
    /// True if an option of the default listener was given.
    pub(super) is_used: bool,
    pub(super) entrance: EntranceSettings,
}

impl ConfListener {
    /// Returns the part of the client's certificate that is its user name; `None` if the user name
    /// is that of CONNECT. The common name wins in mosquitto.
    pub(super) fn certificate_user(&self) -> Option<&'static str> {
        match (self.uses_identity, self.uses_subject) {
            (true, _) => Some("cn"),
            (false, true) => Some("subject"),
            (false, false) => None,
        }
    }
}

/// The addresses of a listener without an address: as in mosquitto 2, where a configuration without
/// any listener is for this machine alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultReach {
    ThisMachine,
    All,
}

/// The clients that a listener admits, as mosquitto's options have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EntranceSettings {
    pub(super) anonymous: Option<bool>,
    pub(super) password_file: Option<String>,
    pub(super) acl_file: Option<String>,
}
