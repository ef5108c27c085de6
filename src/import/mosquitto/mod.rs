//! `homing import mosquitto.conf`: translates a configuration of mosquitto 2.0 or 2.1.
//!
//! - [`conf`]: the lines of the file and of its `include_dir`.
//! - [`options`]: every option's name, and what becomes of it.
//! - [`translate`]: the meaning of the lines.
//! - [`output`]: the TOML.
//! - `value`: numbers, sizes and times.
//!
//! Password files and ACL files are not translated, because Homing reads mosquitto's files.

pub mod conf;
pub mod options;
pub mod output;
pub mod translate;
mod value;

use conf::ConfError;
use std::path::Path;

/// The result of a translation.
#[derive(Debug)]
pub struct Imported {
    /// The configuration for Homing.
    pub toml: String,
    /// One line for each option that does not mean the same.
    pub notes: Vec<String>,
    /// The number of notes about something that protects or delivers, and that would be lost.
    pub lost: usize,
}

/// Translates a file. Reads it and its `include_dir`, and nothing else.
///
/// # Errors
/// A file cannot be read.
pub fn import(file: &Path) -> Result<Imported, ConfError> {
    let translation = translate::translate(&conf::read(file)?);
    let lost = translation.notes.iter().filter(|note| note.is_loss).count();
    let notes = translation.notes.iter().map(ToString::to_string).collect();
    Ok(Imported { toml: output::toml(&translation.settings, file), notes, lost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use options::{Fate, fate};

    /// The options with [`Fate::Translated`], each with a value.
    const TRANSLATED: &str = "per_listener_settings true\nlistener 1883 127.0.0.1\nport 1884\nbind_address ::1\n\
        socket_domain ipv4\nmax_connections 5\nglobal_max_connections 6\nglobal_max_clients 7\nprotocol mqtt\n\
        cafile a\ncertfile b\nkeyfile c\ncrlfile d\nrequire_certificate true\ntls_version tlsv1.2\n\
        use_identity_as_username true\nuse_subject_as_username true\ndisable_client_cert_date_checks false\n\
        websockets_origin x\nenable_proxy_protocol 1\nproxy_protocol_v2_require_tls false\naccept_protocol_versions 3, 5\nmount_point a/\nallow_anonymous true\n\
        listener_allow_anonymous true\npassword_file e\nacl_file f\nmax_inflight_messages 1\nmax_keepalive 2\n\
        max_packet_size 3000\nmessage_size_limit 3000\nmax_queued_messages 4\nmax_queued_bytes 5000\n\
        max_topic_alias 6\nmemory_limit 700000000\npersistent_client_expiration 1d\nretry_interval 8\n\
        sys_interval 9\ncheck_retain_source false\nretain_available false\nclientid_prefixes dev-\nretained_persistence true\n\
        plugin /x/mosquitto_acl_file.so\nglobal_plugin /x/mosquitto_persist_sqlite.so\nplugin_load a /x/mosquitto_password_file.so\n\
        plugin_use a\nauth_plugin /x/mosquitto_acl_file.so\nauth_plugin_deny_special_chars true\nplugin_opt_acl_file f\npersistence true\npersistence_location /x\nlog_type all\nlog_dest stderr\n";

    #[test]
    fn every_option_that_counts_as_translated_is_translated() {
        for line in conf::parse(Path::new("m.conf"), TRANSLATED) {
            assert_eq!(fate(&line.name), Some(Fate::Translated), "{}", line.name);
            let notes = translate::translate(std::slice::from_ref(&line)).notes;
            let refused =
                notes.iter().map(ToString::to_string).find(|note| note.contains("is not translated"));
            assert_eq!(refused, None);
        }
    }
}
