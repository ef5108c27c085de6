//! The settings as TOML for Homing.

use super::translate::{BridgeSettings, ListenerSettings, TranslatedSettings};
use super::value::{quoted, quoted_list, quoted_seconds};
use std::fmt::Write;
use std::path::Path;

/// The sections of single keys, in their order.
const SECTIONS: [&str; 9] =
    ["network", "auth", "acl", "limits", "keep_alive", "redelivery", "store", "sys", "log"];

/// Returns the configuration file. `source` is the name of mosquitto's file.
pub(crate) fn toml(settings: &TranslatedSettings, source: &Path) -> String {
    let mut text = format!(
        "# Homing's configuration, translated by `homing import` from {}.\n\
         # Keys that are not here have Homing's defaults; docs/configuration.md lists them.\n",
        source.display().to_string().replace(['\n', '\r'], " ")
    );
    for section in SECTIONS {
        let keys = settings.keys.iter().filter_map(|(key, value)| {
            let (own, name) = key.split_once('.')?;
            (own == section).then_some((name, value))
        });
        // A later line of mosquitto's file wins, and TOML takes a key only once.
        let mut last: Vec<(&str, &String)> = Vec::new();
        for (name, value) in keys {
            last.retain(|(other, _)| *other != name);
            last.push((name, value));
        }
        if last.is_empty() {
            continue;
        }
        write_line(&mut text, format_args!("\n[{section}]"));
        for (name, value) in last {
            write_line(&mut text, format_args!("{name} = {value}"));
        }
    }
    for listener in &settings.listeners {
        write_listener(&mut text, listener);
    }
    for bridge in &settings.bridges {
        write_bridge(&mut text, bridge);
    }
    text
}

fn write_listener(text: &mut String, listener: &ListenerSettings) {
    write_line(text, format_args!("\n[[listeners]]"));
    write_keys(
        text,
        [
            ("address", Some(quoted(&listener.address))),
            ("auth", listener.auth.as_deref().map(quoted_list)),
            ("password_file", listener.password_file.as_deref().map(quoted)),
            ("anonymous", listener.anonymous.map(quoted)),
            ("acl_file", listener.acl_file.as_deref().map(quoted)),
            ("versions", some_list(&listener.versions)),
            ("client_id", listener.client_id.as_deref().map(quoted)),
            ("mount_point", listener.mount_point.as_deref().map(quoted)),
        ],
    );
    if listener.is_websocket {
        // mosquitto takes every path, and every origin unless some are named.
        let origins = some_list(&listener.origins).unwrap_or_else(|| quoted_list(&["*"]));
        write_line(text, format_args!("protocol = \"websocket\"\nwebsocket_path = \"*\""));
        write_line(text, format_args!("origins = {origins}"));
    }
    if let Some(version) = listener.proxy {
        write_line(text, format_args!("proxy_protocol = {}", quoted(version)));
        if listener.proxy_tls {
            write_line(text, format_args!("proxy_tls = true"));
        }
        if listener.trusts_all_proxies {
            write_line(text, format_args!("trusted_proxies = [\"0.0.0.0/0\", \"::/0\"]"));
        }
    }
    if let Some(connections) = listener.connections {
        write_line(text, format_args!("connections = {connections}"));
    }
    if let (Some(certificate), Some(key)) = (&listener.certificate, &listener.key) {
        write_tls(text, listener, &quoted(certificate), &quoted(key));
    }
}

fn write_tls(text: &mut String, listener: &ListenerSettings, certificate: &str, key: &str) {
    let chain =
        listener.chain.as_ref().map_or_else(String::new, |file| format!(", chain = {}", quoted(file)));
    write_line(text, format_args!("[listeners.tls]"));
    write_line(text, format_args!("certificates = [{{ certificate = {certificate}, key = {key}{chain} }}]"));
    write_line(
        text,
        format_args!("# mosquitto does not check the protocols that clients offer (ALPN).\nalpn = []"),
    );
    write_keys(
        text,
        [
            ("client_certificates", listener.needs_certificate.then(|| quoted("required"))),
            ("client_ca", listener.client_ca.as_deref().map(quoted)),
            ("crl", listener.crl.as_ref().map(|file| quoted_list(&[file]))),
            ("minimum", listener.minimum.map(quoted)),
            ("certificate_user", listener.certificate_user.map(quoted)),
            ("certificate_dates", listener.ignores_dates.then(|| "false".to_owned())),
        ],
    );
}

fn write_bridge(text: &mut String, bridge: &BridgeSettings) {
    let on = |is_on: bool| is_on.then(|| "true".to_owned());
    let seconds = |seconds: u32| quoted_seconds(seconds);
    write_line(text, format_args!("\n[[bridges]]"));
    write_keys(
        text,
        [
            ("name", Some(quoted(&bridge.name))),
            ("addresses", Some(quoted_list(&bridge.addresses))),
            ("balance", bridge.round_robin.then(|| quoted("round_robin"))),
            ("client_id", bridge.client_id.as_deref().map(quoted)),
            ("version", bridge.version.map(quoted)),
            ("bridge_bit", on(bridge.bridge_bit)),
            ("user", bridge.user.as_deref().map(quoted)),
            ("ca", bridge.ca.as_deref().map(quoted)),
            ("certificate", bridge.certificate.as_deref().map(quoted)),
            ("key", bridge.key.as_deref().map(quoted)),
            ("alpn", bridge.alpn.as_ref().map(|name| quoted_list(&[name]))),
            ("keep_alive", bridge.keep_alive.map(|keep_alive| seconds(keep_alive.into()))),
            ("session_expiry", bridge.session_expiry.map(seconds)),
            ("clean_start", on(bridge.clean_start)),
            ("max_packet_size", bridge.max_packet_size.map(|size| quoted(&format!("{size} B")))),
            ("connect", bridge.connect.map(quoted)),
            ("idle_timeout", bridge.idle_timeout.map(seconds)),
            ("backoff", bridge.backoff.map(|(first, _)| seconds(first))),
            ("max_backoff", bridge.backoff.map(|(_, most)| seconds(most))),
            ("acl_user", bridge.acl_user.as_deref().map(quoted)),
            ("notifications", on(bridge.notifies)),
            ("notification_topic", bridge.notification_topic.as_deref().map(quoted)),
        ],
    );
    for topic in &bridge.topics {
        let prefix = |prefix: &str| (!prefix.is_empty()).then(|| quoted(prefix));
        write_line(text, format_args!("\n[[bridges.topics]]"));
        write_keys(
            text,
            [
                ("filter", Some(quoted(&topic.filter))),
                ("direction", Some(quoted(&topic.direction))),
                ("qos", Some(topic.qos.to_string())),
                ("local_prefix", prefix(&topic.local_prefix)),
                ("remote_prefix", prefix(&topic.remote_prefix)),
            ],
        );
    }
}

/// Writes a line for each key that has a value.
fn write_keys<const N: usize>(text: &mut String, keys: [(&str, Option<String>); N]) {
    for (key, value) in keys {
        if let Some(value) = value {
            write_line(text, format_args!("{key} = {value}"));
        }
    }
}

/// Returns a list for a key; `None` for an empty one.
fn some_list(texts: &[impl AsRef<str>]) -> Option<String> {
    (!texts.is_empty()).then(|| quoted_list(texts))
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A String takes everything.
    let _ = writeln!(text, "{line}");
}
