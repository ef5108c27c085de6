//! Every option of mosquitto 2.0 and 2.1, and its fate.

/// The fate of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// [`super::translate`] knows its meaning.
    Translated,
    /// Homing behaves so without the option, or the option has no effect.
    Needless,
    /// Homing does otherwise. The text says how.
    Differs(&'static str),
    /// The option protects or delivers something, and Homing has no equal. The text is the
    /// suggested fix.
    Lost(&'static str),
}

const PSK: Fate =
    Fate::Lost("Homing has no TLS with pre-shared keys; give the clients certificates or passwords");
const ENGINE: Fate = Fate::Lost("Homing reads keys from PEM files only");
const AUTO_ID: &str = "client identifiers that Homing makes begin with homing-";

/// Options of bridges: `connection` and those behind it, beside those that begin with `bridge_`.
const BRIDGES: &[&str] = &[
    "connection",
    "address",
    "addresses",
    "cleansession",
    "clientid",
    "idle_timeout",
    "keepalive_interval",
    "local_cleansession",
    "local_clientid",
    "local_password",
    "local_username",
    "notification_topic",
    "notifications",
    "notifications_local_only",
    "password",
    "remote_clientid",
    "remote_password",
    "remote_username",
    "restart_timeout",
    "round_robin",
    "start_type",
    "threshold",
    "topic",
    "try_private",
    "username",
];

/// Options whose meaning is written as keys of Homing.
pub const TRANSLATED: [&str; 54] = [
    "listener",
    "port",
    "bind_address",
    "socket_domain",
    "max_connections",
    "global_max_connections",
    "global_max_clients",
    "protocol",
    "cafile",
    "certfile",
    "keyfile",
    "crlfile",
    "require_certificate",
    "tls_version",
    "use_identity_as_username",
    "use_subject_as_username",
    "disable_client_cert_date_checks",
    "websockets_origin",
    "enable_proxy_protocol",
    "proxy_protocol_v2_require_tls",
    "accept_protocol_versions",
    "clientid_prefixes",
    "mount_point",
    "allow_anonymous",
    "listener_allow_anonymous",
    "password_file",
    "check_retain_source",
    "acl_file",
    "per_listener_settings",
    "max_inflight_messages",
    "max_keepalive",
    "max_packet_size",
    "message_size_limit",
    "max_queued_messages",
    "max_queued_bytes",
    "max_topic_alias",
    "memory_limit",
    "persistent_client_expiration",
    "sys_interval",
    "persistence",
    "retained_persistence",
    "persistence_location",
    "retain_available",
    "log_type",
    "log_dest",
    "plugin",
    "global_plugin",
    "plugin_load",
    "plugin_use",
    "auth_plugin",
    "auth_plugin_deny_special_chars",
    "allow_zero_length_clientid",
    "max_qos",
    "maximum_qos",
];

/// The beginnings of the names of options that a plugin has.
const OF_PLUGINS: [&str; 2] = ["plugin_opt_", "auth_opt_"];

/// Options that Homing does not need.
const NEEDLESS: [&str; 16] = [
    "autosave_interval",
    "autosave_on_changes",
    "persistence_file",
    "persistence_client_expiration",
    "store_clean_interval",
    "set_tcp_nodelay",
    "allow_duplicate_messages",
    "trace_level",
    "log_facility",
    "log_timestamp",
    "log_timestamp_format",
    "connection_messages",
    "websockets_log_level",
    "websockets_headers_size",
    "packet_buffer_size",
    "dhparamfile",
];

/// Options that Homing does not have, and its behaviour.
const DIFFERENT: [(&str, &str); 14] = [
    ("user", "Homing does not change its user; start it as that user, for example by systemd's User="),
    ("pid_file", "Homing writes no such file; systemd and containers need none"),
    ("ciphers", "Homing chooses from the cipher suites of TLS 1.2 with forward secrecy and of TLS 1.3"),
    (
        "ciphers_tls1.3",
        "Homing chooses from the cipher suites of TLS 1.2 with forward secrecy and of TLS 1.3",
    ),
    ("auto_id_prefix", AUTO_ID),
    ("listener_auto_id_prefix", AUTO_ID),
    ("queue_qos0_messages", "Homing does not queue QoS 0 messages for clients that are away"),
    ("upgrade_outgoing_qos", "Homing sends with the lower of the two QoS, as the standard demands"),
    ("max_topic_alias_broker", "Homing sends no topic aliases"),
    (
        "retry_interval",
        "mosquitto 2 ignores it; Homing sends to 3.x clients again after redelivery.interval, 15 s",
    ),
    ("max_inflight_bytes", "Homing bounds messages in flight by number (limits.in_flight)"),
    ("retain_expiry_interval", "Homing keeps retained messages until their own expiry"),
    ("http_dir", "Homing serves no files"),
    ("enable_control_api", "Homing has no such interface"),
];

/// Options whose loss would let clients do more, or cut clients off, and the reason.
const MISSING: [(&str, &str); 3] = [
    (
        "use_username_as_clientid",
        "Homing does not take the client identifier from the user name; clients could take over the sessions of others",
    ),
    ("bind_interface", "Homing listens on addresses; name the address of the interface in `listener`"),
    ("capath", "Homing reads authorities from one file; put them into a file for cafile"),
];

/// Returns the fate of an option, or `None` if mosquitto has no such option.
pub(crate) fn fate(name: &str) -> Option<Fate> {
    if is_of_bridge(name) {
        return Some(Fate::Translated);
    }
    if TRANSLATED.contains(&name) || OF_PLUGINS.iter().any(|beginning| name.starts_with(beginning)) {
        return Some(Fate::Translated);
    }
    if NEEDLESS.contains(&name) {
        return Some(Fate::Needless);
    }
    let text = |table: &[(&str, &'static str)]| {
        table.iter().find(|(option, _)| *option == name).map(|(_, text)| *text)
    };
    text(&DIFFERENT)
        .map(Fate::Differs)
        .or_else(|| text(&MISSING).map(Fate::Lost))
        .or_else(|| unsupported(name))
}

/// Returns true for an option of a bridge.
pub(crate) fn is_of_bridge(name: &str) -> bool {
    name.starts_with("bridge_") || BRIDGES.contains(&name)
}

/// Returns the fate of an option of a whole part of mosquitto that Homing does not have.
fn unsupported(name: &str) -> Option<Fate> {
    match name {
        "psk_file" | "psk_hint" => Some(PSK),
        "tls_engine" | "tls_engine_kpass_sha1" | "tls_keyform" => Some(ENGINE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_protects_is_never_dropped_in_silence() {
        for name in ["psk_file", "use_username_as_clientid", "tls_engine"] {
            assert!(matches!(fate(name), Some(Fate::Lost(_))), "{name}");
        }
        assert_eq!(fate("no_such_option"), None);
        assert_eq!(fate("password_file"), Some(Fate::Translated));
    }

    #[test]
    fn the_options_that_are_new_in_mosquitto_2_1_are_known() {
        for name in [
            "accept_protocol_versions",
            "disable_client_cert_date_checks",
            "enable_control_api",
            "enable_proxy_protocol",
            "global_max_clients",
            "global_max_connections",
            "global_plugin",
            "listener_allow_anonymous",
            "listener_auto_id_prefix",
            "max_qos",
            "max_topic_alias_broker",
            "maximum_qos",
            "packet_buffer_size",
            "plugin_load",
            "plugin_use",
            "proxy_protocol_v2_require_tls",
            "retain_expiry_interval",
            "retained_persistence",
        ] {
            assert!(fate(name).is_some(), "{name}");
        }
    }
}
