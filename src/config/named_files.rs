//! The keys that name a file, for an error about the file.

use super::rule::ValueType;
use super::value;
use super::{Config, Listener, keys};
use std::path::Path;

impl Config {
    /// Returns the keys that name this file, such as `acl.file` and `tls.crl of [[listeners]]`,
    /// each once.
    pub fn keys_of_file(&self, file: &Path) -> Vec<String> {
        let is_file = |text: &str| Path::new(text) == file;
        let of_broker = keys::keys()
            .filter(|key| matches!(key.rule.kind, ValueType::Path))
            .filter(|key| {
                let value = self.value(key);
                !key.rule.is_word(&value) && value::text(&value).is_some_and(is_file)
            })
            .map(|key| key.path.to_owned());
        let of_listeners = self.listeners.iter().flat_map(named_files);
        let of_listeners =
            of_listeners.filter(|(_, text)| is_file(text)).map(|(key, _)| format!("{key} of [[listeners]]"));
        let of_bridges = self.bridges.iter().any(|bridge| {
            [&bridge.password_file, &bridge.ca, &bridge.certificate, &bridge.key]
                .into_iter()
                .flatten()
                .any(|text| is_file(text))
        });
        let of_sinks = self.sinks.iter().any(|sink| {
            let headers = sink.header_files.iter().flat_map(|table| table.iter()).map(|(_, file)| file);
            let tls = [&sink.ca, &sink.certificate, &sink.key].into_iter().flatten();
            headers.chain(tls.map(String::as_str)).any(is_file)
        });
        let of_tables = [(of_bridges, "[[bridges]]"), (of_sinks, "[[sinks]]")];
        let of_tables = of_tables.into_iter().filter(|(names, _)| *names).map(|(_, table)| table.to_owned());
        let mut found: Vec<String> = Vec::new();
        for key in of_broker.chain(of_listeners).chain(of_tables) {
            if !found.contains(&key) {
                found.push(key);
            }
        }
        found
    }
}

/// Returns the files that a listener names, each with its key.
fn named_files(listener: &Listener) -> Vec<(&'static str, &String)> {
    let tls = listener.tls.as_ref();
    let pairs = tls.and_then(|tls| tls.certificates.as_ref()).into_iter().flatten();
    let of_pairs = pairs.flat_map(|pair| {
        [&pair.certificate, &pair.chain, &pair.key].map(|file| ("tls.certificates", file.as_ref()))
    });
    let single = [
        ("password_file", listener.password_file.as_ref()),
        ("acl_file", listener.acl_file.as_ref()),
        ("tls.client_ca", tls.and_then(|tls| tls.client_ca.as_ref())),
    ];
    let lists = tls.and_then(|tls| tls.crl.as_ref()).into_iter().flatten();
    single
        .into_iter()
        .chain(of_pairs)
        .filter_map(|(key, file)| Some((key, file?)))
        .chain(lists.map(|file| ("tls.crl", file)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CertificatePair, ListenerTls};

    fn named(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    #[test]
    fn a_file_has_the_keys_that_name_it() {
        let pair = CertificatePair { certificate: named("c"), chain: named("d"), key: named("k") };
        let tls = ListenerTls {
            certificates: Some(vec![pair]),
            client_ca: named("d"),
            crl: Some(vec!["r".to_owned(), "s".to_owned()]),
            ..ListenerTls::default()
        };
        let listener = Listener {
            // No file.
            name: named("a"),
            password_file: named("p"),
            acl_file: named("a"),
            tls: Some(tls),
            ..Listener::default()
        };
        let mut config = Config { listeners: vec![listener.clone(), listener], ..Config::default() };
        config.acl.file = "a".to_owned();
        config.bans.file = "/etc/b".to_owned();
        for (file, expected) in [
            ("a", &["acl.file", "acl_file of [[listeners]]"][..]),
            ("/etc/b", &["bans.file"]),
            ("p", &["password_file of [[listeners]]"]),
            ("c", &["tls.certificates of [[listeners]]"]),
            ("k", &["tls.certificates of [[listeners]]"]),
            ("d", &["tls.client_ca of [[listeners]]", "tls.certificates of [[listeners]]"]),
            ("s", &["tls.crl of [[listeners]]"]),
            ("off", &[]),
            ("", &[]),
        ] {
            assert_eq!(config.keys_of_file(Path::new(file)), expected, "{file}");
        }
    }
}
