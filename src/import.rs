//! `homing import`: the translation in `crates/import`, with the defaults and the check of this
//! package's configuration.

use crate::config::{ByteSize, Config, Sources};
use homing_import::HomingKeys;
use std::path::Path;

pub use homing_import::{ConfError, Imported};

/// Translates a file, as [`homing_import::import`] says.
///
/// # Errors
/// A file cannot be read.
pub fn import(file: &Path) -> Result<Imported, ConfError> {
    homing_import::import(file, homing_keys())
}

/// Translates a text, as [`homing_import::of_text`] says.
pub fn of_text(text: &str, file: &Path) -> Imported {
    homing_import::of_text(text, file, homing_keys())
}

fn homing_keys() -> HomingKeys {
    let limits = Config::default().limits;
    HomingKeys {
        memory: limits.memory.bytes(),
        packet_size: limits.packet_size.bytes(),
        size: |bytes| ByteSize(bytes).to_string(),
        problems: |text| match Sources::new().text("the result", text).load() {
            Ok(_) => Vec::new(),
            Err(refusal) => refusal.0.iter().map(ToString::to_string).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_import::TRANSLATED as OPTIONS;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// The options that are translated, each with a value.
    const TRANSLATED: &str = "per_listener_settings true\nlistener 1883 127.0.0.1\nport 1884\nbind_address ::1\n\
        socket_domain ipv4\nmax_connections 5\nglobal_max_connections 6\nglobal_max_clients 7\nprotocol mqtt\n\
        cafile a\ncertfile b\nkeyfile c\ncrlfile d\nrequire_certificate true\ntls_version tlsv1.2\n\
        use_identity_as_username true\nuse_subject_as_username true\ndisable_client_cert_date_checks false\n\
        websockets_origin x\nenable_proxy_protocol 1\nproxy_protocol_v2_require_tls false\naccept_protocol_versions 3, 5\nmount_point a/\nallow_anonymous true\n\
        listener_allow_anonymous true\npassword_file e\nacl_file f\nmax_inflight_messages 1\nmax_keepalive 2\n\
        max_packet_size 3000\nmessage_size_limit 3000\nmax_queued_messages 4\nmax_queued_bytes 5000\n\
        max_topic_alias 6\nmemory_limit 700000000\npersistent_client_expiration 1d\n\
        sys_interval 9\ncheck_retain_source false\nretain_available false\nclientid_prefixes dev-\nretained_persistence true\n\
        plugin /x/mosquitto_acl_file.so\nglobal_plugin /x/mosquitto_persist_sqlite.so\nplugin_load a /x/mosquitto_password_file.so\n\
        plugin_use a\nauth_plugin /x/mosquitto_acl_file.so\nauth_plugin_deny_special_chars true\nplugin_opt_acl_file f\nallow_zero_length_clientid true\nmax_qos 2\nmaximum_qos 2\npersistence true\npersistence_location /x\nlog_type all\nlog_dest stderr\n";

    #[test]
    fn every_option_that_counts_as_translated_is_translated() {
        for line in TRANSLATED.lines() {
            let name = line.split(' ').next().unwrap_or_default();
            assert!(OPTIONS.contains(&name) || name.contains("plugin"), "{name}");
            let notes = imported(line).notes;
            assert_eq!(notes.iter().find(|note| note.contains("is not translated")), None);
        }
    }

    /// Values at the ends of ranges, and beyond them; known words, and other texts.
    const EDGES: [&str; 47] = [
        "",
        "-2",
        "-1",
        "0",
        "1",
        "2",
        "3",
        "9",
        "10",
        "19",
        "20",
        "40",
        "100",
        "1023",
        "1024",
        "65534",
        "65535",
        "65536",
        "70000",
        "100000",
        "131072",
        "2097152",
        "100000001",
        "267386880",
        "268435455",
        "268435456",
        "1000000001",
        "2147483647",
        "4294967296",
        "99999999999999999999",
        "true",
        "false",
        "1 # on",
        "yes",
        "off",
        "auto",
        "x",
        "../a\u{1}b",
        "s",
        "0s",
        "1h",
        "99999y",
        "3, 3",
        "websockets",
        "ipv6",
        "tlsv1.1",
        "0 27.sock",
    ];

    fn imported(text: &str) -> Imported {
        of_text(text, Path::new("m.conf"))
    }

    /// Asserts that the output with exit code 0 is a configuration of Homing. If the translation
    /// loses nothing, the check of its result may find only a duplicate address.
    fn assert_accepted(text: &str) -> bool {
        let Imported { toml, notes, lost } = imported(text);
        let losses: Vec<&String> = notes.iter().filter(|note| note.starts_with("LOST")).collect();
        let is_found = |note: &&String| note.contains("the result: ");
        if losses.iter().all(is_found) {
            let unknown = losses.iter().find(|note| !note.contains("address"));
            assert_eq!(unknown, None, "{text}{toml}");
        }
        if lost == 0 {
            let loaded = Sources::new().text("the result", &toml).load();
            assert!(loaded.is_ok(), "{text}{toml}{}", loaded.expect_err("refused"));
        }
        lost == 0
    }

    #[test]
    fn what_is_printed_is_accepted_for_each_option_with_each_value() {
        for listener in ["listener 1884", "listener 1884\ncertfile s.pem\nkeyfile s.key"] {
            let mut accepted = 0;
            for option in OPTIONS {
                for value in EDGES {
                    accepted += usize::from(assert_accepted(&format!("{listener}\n{option} {value}\n")));
                }
            }
            assert!(accepted > 400, "{listener}: {accepted}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

        #[test]
        fn what_is_printed_is_accepted_for_every_configuration(
            lines in prop::collection::vec(
                prop_oneof![
                    3 => select(TRANSLATED.lines().map(str::to_owned).collect::<Vec<_>>()),
                    1 => (select(&OPTIONS[..]), select(&EDGES[..])).prop_map(|(name, value)| format!("{name} {value}")),
                    1 => select(vec!["certfile s.pem\nkeyfile s.key".to_owned(), "listener 1885 ::1".to_owned()]),
                ],
                1..12,
            )
        ) {
            assert_accepted(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        }
    }

    #[test]
    fn every_spelling_of_a_boolean_gives_each_listener_its_own_users() {
        for (value, is_per_listener) in [("1", true), ("true", true), ("1 # all", true), ("0", false)] {
            let text = format!(
                "per_listener_settings {value}\nlistener 1883 ::1\nallow_anonymous false\n\
                 listener 1884 ::1\nallow_anonymous true\n"
            );
            let Imported { toml, notes, .. } = imported(&text);
            let closed = toml.matches("anonymous = \"never\"").count();
            assert_eq!((closed, notes.len()), (usize::from(is_per_listener), 1), "{value}: {toml}{notes:?}");
        }
        for (text, needed) in [
            ("per_listener_settings yes\n", "must be true or false"),
            ("per_listener_settings true\nper_listener_settings 0\n", "has two values"),
        ] {
            let Imported { notes, lost, .. } = imported(text);
            assert!(lost == 1 && notes.concat().contains(needed), "{notes:?}");
        }
    }
}
