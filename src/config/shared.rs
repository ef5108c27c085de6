//! What the nodes of a cluster have to have in common, because each of them may serve.

use super::bridge::Bridge;
use super::listener::{CertificatePair, Listener, ListenerTls};
use super::rule::{ValueRule, ValueType};
use super::secrets::in_full;
use super::sink::Sink;
use super::table::{Key, KeyScope};
use super::value::{Field, text};
use super::{Config, keys};
use config::{Map, Value, ValueKind};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The settings and files that have to be the same on all nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedSettings {
    /// Each key that is not at its default, with its value. Each listener stands for itself, as
    /// `listeners.NAME`. A value may be a secret, so it must not leave the process.
    pub keys: BTreeMap<String, String>,
    /// The files whose content has to be the same, by the key that names them.
    pub files: BTreeMap<String, Vec<PathBuf>>,
}

impl Config {
    /// Returns what the nodes of a cluster have to have in common.
    pub fn shared_settings(&self) -> SharedSettings {
        let (mut shared, defaults) = (SharedSettings::default(), Config::default());
        for key in keys::keys().filter(|key| key.scope == KeyScope::Cluster) {
            let value = self.value(key);
            if value != defaults.value(key) {
                shared.add(key, value);
            }
        }
        shared
    }
}

impl SharedSettings {
    fn add(&mut self, key: &Key, value: Value) {
        match (key.path, &value.kind) {
            ("listeners", ValueKind::Array(tables)) => {
                for table in tables {
                    self.add_listener(table.clone());
                }
            }
            ("bridges", ValueKind::Array(_)) => self.add_list(key.path, value, Bridge::FIELDS),
            ("sinks", ValueKind::Array(_)) => self.add_list(key.path, value, Sink::FIELDS),
            (path, _) if matches!(key.rule.kind, ValueType::Path) => {
                let file = text(&value).unwrap_or_default().into();
                self.files.insert(path.to_owned(), vec![file]);
            }
            (path, _) => drop(self.keys.insert(path.to_owned(), in_full(&value))),
        }
    }

    fn add_listener(&mut self, mut table: Value) {
        let label = Listener::read(&table).map_or_else(String::new, |listener| listener.label());
        let path = format!("listeners.{label}");
        if let ValueKind::Table(fields) = &mut table.kind {
            // Each node has addresses of its own.
            fields.remove("address");
            self.take_files(&path, fields, Listener::FIELDS);
            if let Some(ValueKind::Table(tls)) = fields.get_mut("tls").map(|tls| &mut tls.kind) {
                let path = format!("{path}.tls");
                self.take_files(&path, tls, ListenerTls::FIELDS);
                self.take_lists(&path, tls);
            }
        }
        self.keys.insert(path, in_full(&table));
    }

    /// Takes the files out of the lists of a listener's TLS.
    fn take_lists(&mut self, path: &str, tls: &mut Map<String, Value>) {
        for (name, list) in tls.iter_mut() {
            let ValueKind::Array(items) = &mut list.kind else { continue };
            for item in items {
                match &mut item.kind {
                    ValueKind::Table(pair) => {
                        let mut of_pair = SharedSettings::default();
                        of_pair.take_files("", pair, CertificatePair::FIELDS);
                        let files = of_pair.files.into_values().flatten();
                        self.files.entry(format!("{path}.{name}")).or_default().extend(files);
                    }
                    ValueKind::String(file) if name == "crl" => {
                        let file = std::mem::take(file).into();
                        self.files.entry(format!("{path}.{name}")).or_default().push(file);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Adds a list of tables as one key. There may be a thousand of them.
    fn add_list(&mut self, path: &str, mut value: Value, fields: &'static [(&str, ValueRule)]) {
        if let ValueKind::Array(tables) = &mut value.kind {
            for table in tables {
                if let ValueKind::Table(table) = &mut table.kind {
                    self.take_files(path, table, fields);
                }
            }
        }
        self.keys.insert(path.to_owned(), in_full(&value));
    }

    /// Takes the files out of a table: their paths may differ, and their contents must not. The key
    /// of a certificate is left out, because it has to fit the certificate anyway.
    fn take_files(
        &mut self,
        path: &str,
        table: &mut Map<String, Value>,
        fields: &'static [(&str, ValueRule)],
    ) {
        for (name, _) in fields.iter().filter(|(_, rule)| matches!(rule.kind, ValueType::Path)) {
            let Some(value) = table.get_mut(*name) else { continue };
            let file = text(value).unwrap_or_default().into();
            *value = Value::new(None, "a file");
            if *name != "key" {
                self.files.entry(format!("{path}.{name}")).or_default().push(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn shared(lines: &str) -> SharedSettings {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        std::fs::write(&file, lines).expect("a file");
        let loaded = Sources::new().file(&file).load().unwrap_or_else(|refusal| panic!("{refusal}"));
        loaded.config.shared_settings()
    }

    const NODE: &str = "[network]\nlisten = [\"10.0.0.11:1883\"]\n[log]\nlevel = \"debug\"\n[runtime]\nthreads = 7\n\
        [store]\npath = \"/a\"\n[cluster]\nname = \"plant\"\nnode = \"a\"\nnodes = [\"a\"]\nnats = [\"nats://10.0.0.11:4222\"]\n\
        [admin]\naddresses = [\"10.0.0.11:11883\"]\ncredentials = \"/a/tokens\"\nallow_plain_http = true\n\
        [auth]\npassword_file = \"/a/passwd\"\n[limits]\nqueue_messages = 7\n";

    #[test]
    fn addresses_and_paths_are_a_node_s_own_and_the_rest_is_the_cluster_s() {
        let (a, b) = (shared(NODE), shared(&NODE.replace("/a", "/b").replace("0.0.11", "0.0.12")));
        assert_eq!(a.keys, b.keys);
        assert_eq!(
            a.keys.keys().collect::<Vec<_>>(),
            ["cluster.name", "cluster.nodes", "limits.queue_messages"]
        );
        assert_eq!(a.files.keys().collect::<Vec<_>>(), ["admin.credentials", "auth.password_file"]);
        assert_eq!(a.files["auth.password_file"], [PathBuf::from("/a/passwd")]);
        let other = shared(&NODE.replace("queue_messages = 7", "queue_messages = 8"));
        assert_ne!(a.keys["limits.queue_messages"], other.keys["limits.queue_messages"]);
    }

    #[test]
    fn a_listener_stands_by_its_name_and_its_files_by_their_keys() {
        const TEXT: &str = "[[listeners]]\nname = \"fleet\"\naddress = \"10.0.0.11:8883\"\nacl_file = \"/a/acl\"\n\
            [listeners.tls]\ncertificates = [{ certificate = \"/a/c\", key = \"/a/k\" }, { certificate = \"/a/d\", chain = \"/a/e\", key = \"/a/l\" }]\n\
            client_certificates = \"required\"\nclient_ca = \"/a/ca\"\ncrl = [\"/a/1\", \"/a/2\"]\n";
        let (a, b) = (shared(TEXT), shared(&TEXT.replace("/a/", "/b/").replace("0.0.11", "0.0.12")));
        assert_eq!(a.keys, b.keys);
        assert_eq!(a.keys.keys().collect::<Vec<_>>(), ["listeners.fleet"]);
        let files: Vec<(&str, Vec<&str>)> = a
            .files
            .iter()
            .map(|(key, files)| (&**key, files.iter().filter_map(|file| file.to_str()).collect()))
            .collect();
        assert_eq!(
            files,
            [
                ("listeners.fleet.acl_file", vec!["/a/acl"]),
                ("listeners.fleet.tls.certificates", vec!["/a/c", "/a/d", "/a/e"]),
                ("listeners.fleet.tls.client_ca", vec!["/a/ca"]),
                ("listeners.fleet.tls.crl", vec!["/a/1", "/a/2"]),
            ]
        );
        let other = shared(&TEXT.replace("\"required\"", "\"optional\""));
        assert_ne!(a.keys, other.keys);
        // One more certificate is another setting, too.
        let fewer = shared(&TEXT.replace("{ certificate = \"/a/c\", key = \"/a/k\" }, ", ""));
        assert_ne!(a.keys, fewer.keys);
    }

    #[test]
    fn bridges_and_sinks_are_one_key_each_without_the_paths_of_their_files() {
        const TEXT: &str = "[[bridges]]\nname = \"x\"\naddresses = [\"tls://far:8883\"]\nuser = \"u\"\npassword_file = \"/a/p\"\n\
            ca = \"/a/ca\"\ntopics = [{ direction = \"in\", filter = \"a\" }]\n";
        let (a, b) = (shared(TEXT), shared(&TEXT.replace("/a/", "/b/")));
        assert_eq!(a.keys, b.keys);
        assert_eq!(a.keys.keys().collect::<Vec<_>>(), ["bridges"]);
        assert_eq!(a.files.keys().collect::<Vec<_>>(), ["bridges.ca", "bridges.password_file"]);
    }
}
