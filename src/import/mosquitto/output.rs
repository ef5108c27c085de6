//! The settings as TOML for Homing.

use super::translate::{ListenerSettings, TranslatedSettings};
use super::value::{quoted, quoted_list};
use std::fmt::Write;
use std::path::Path;

/// The sections of single keys, in their order.
const SECTIONS: [&str; 9] =
    ["network", "auth", "acl", "limits", "keep_alive", "redelivery", "store", "sys", "log"];

/// Returns the configuration file. `source` is the name of mosquitto's file.
pub fn toml(settings: &TranslatedSettings, source: &Path) -> String {
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
    text
}

fn write_listener(text: &mut String, listener: &ListenerSettings) {
    write_line(text, format_args!("\n[[listeners]]"));
    write_line(text, format_args!("address = {}", quoted(&listener.address)));
    if let Some(methods) = &listener.auth {
        write_line(text, format_args!("auth = {}", quoted_list(methods)));
    }
    if let Some(file) = &listener.password_file {
        write_line(text, format_args!("password_file = {}", quoted(file)));
    }
    if let Some(word) = listener.anonymous {
        write_line(text, format_args!("anonymous = {}", quoted(word)));
    }
    if let Some(file) = &listener.acl_file {
        write_line(text, format_args!("acl_file = {}", quoted(file)));
    }
    if !listener.versions.is_empty() {
        write_line(text, format_args!("versions = {}", quoted_list(&listener.versions)));
    }
    if let Some(rule) = &listener.client_id {
        write_line(text, format_args!("client_id = {}", quoted(rule)));
    }
    if let Some(mount_point) = &listener.mount_point {
        write_line(text, format_args!("mount_point = {}", quoted(mount_point)));
    }
    if listener.is_websocket {
        // mosquitto takes every path, and every origin unless some are named.
        let any = ["*".to_owned()];
        let origins = if listener.origins.is_empty() { &any[..] } else { &listener.origins };
        write_line(text, format_args!("protocol = \"websocket\"\nwebsocket_path = \"*\""));
        write_line(text, format_args!("origins = {}", quoted_list(origins)));
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
    let (Some(certificate), Some(key)) = (&listener.certificate, &listener.key) else { return };
    write_line(text, format_args!("[listeners.tls]"));
    let (certificate, key) = (quoted(certificate), quoted(key));
    let chain =
        listener.chain.as_ref().map_or_else(String::new, |file| format!(", chain = {}", quoted(file)));
    write_line(text, format_args!("certificates = [{{ certificate = {certificate}, key = {key}{chain} }}]"));
    write_line(
        text,
        format_args!("# mosquitto does not check the protocols that clients offer (ALPN).\nalpn = []"),
    );
    if listener.needs_certificate {
        write_line(text, format_args!("client_certificates = \"required\""));
    }
    if let Some(file) = &listener.client_ca {
        write_line(text, format_args!("client_ca = {}", quoted(file)));
    }
    if let Some(file) = &listener.crl {
        write_line(text, format_args!("crl = [{}]", quoted(file)));
    }
    if let Some(version) = listener.minimum {
        write_line(text, format_args!("minimum = {}", quoted(version)));
    }
    if let Some(part) = listener.certificate_user {
        write_line(text, format_args!("certificate_user = {}", quoted(part)));
    }
    if listener.ignores_dates {
        write_line(text, format_args!("certificate_dates = false"));
    }
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A String takes everything.
    let _ = writeln!(text, "{line}");
}
