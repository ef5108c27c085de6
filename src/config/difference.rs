//! The difference between the configuration of a running broker and one that was read again.

use super::keys;
use super::listener_changes::{self, ListenerChange, ReloadedListeners};
use super::problem::Problem;
use super::secrets::without_secrets;
use super::sources::{Loaded, contradictions};
use super::table::{Key, ReloadEffect};
use super::value::BUILT_IN;
use super::{Config, Setting};
use crate::mqtt::topic::first_chars;
use config::Value;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The largest value, in characters, that a change is shown with.
const SHOWN: usize = 120;

/// One key whose value differs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema))]
pub struct KeyChange {
    /// The key, as `section.name`.
    pub key: Cow<'static, str>,
    /// The value in force, as it would be written in the file.
    pub from: String,
    /// The value that was read.
    pub to: String,
    /// The effect of the change.
    pub effect: ReloadEffect,
    /// The file, variable or flag of the new value, or `built-in default`.
    pub source: String,
}

impl Loaded {
    /// Returns the keys whose values differ from those of a running broker, in the order of the
    /// file.
    pub fn changes_from(&self, running: &Config) -> Vec<KeyChange> {
        let differs = |key: &&Key| running.value(key) != self.config.value(key);
        let reloaded = running.with_reloaded(&self.config);
        // Listeners wait together with keys of other sections.
        let waits = |key: &Key| reloaded.value(key) != self.config.value(key);
        let change = |key: &'static Key| KeyChange {
            key: key.path.into(),
            from: shown(key, running),
            to: shown(key, &self.config),
            effect: if waits(key) { ReloadEffect::Restart } else { key.effect },
            source: self.source_of(key.path),
        };
        keys::keys().filter(differs).map(change).collect()
    }

    /// Returns the change of each listener that differs from a running broker's listeners.
    pub fn listener_changes(&self, running: &Config) -> Vec<ListenerChange> {
        listener_changes::reloaded(running, &self.config).changes
    }

    /// Returns the contradictions among the values after a reload: the new values, and the running
    /// values of keys that need a restart.
    pub fn contradictions_with(&self, running: &Config) -> Vec<Problem> {
        let effective = running.with_reloaded(&self.config);
        let source_of = |key: &Key| match effective.value(key) == self.config.value(key) {
            true => self.source_of(key.path),
            false => "in force until a restart".to_owned(),
        };
        let setting = |path: &str| {
            let key = keys::key(path)?;
            let value = without_secrets(path, &effective.value(key));
            Some(Setting { key: path.to_owned(), value, source: source_of(key) })
        };
        let listeners = keys::key("listeners").map(|key| {
            let kind = effective.value(key).kind;
            Value::new(Some(&source_of(key)), kind)
        });
        contradictions(&effective, &setting, listeners.as_ref())
    }

    /// Returns the source of a key's value: the file, variable or flag, or `built-in default`.
    pub(super) fn source_of(&self, path: &str) -> String {
        let set = self.changed.iter().find(|setting: &&Setting| setting.key == path);
        set.map_or(BUILT_IN, |setting| &setting.source).to_owned()
    }
}

impl Config {
    /// Returns this configuration with the values of `new` of all keys that need no restart.
    /// `listener_changes` decides about the listeners.
    pub fn with_reloaded(&self, new: &Config) -> Config {
        let mut config = self.clone();
        for key in keys::keys().filter(|key| key.effect != ReloadEffect::Restart) {
            config.copy(key, new);
        }
        let ReloadedListeners { listen, listeners, .. } = listener_changes::reloaded(self, new);
        (config.network.listen, config.listeners) = (listen, listeners);
        config
    }

    /// Returns true if `new` has another value of a key in these sections that needs a restart.
    pub(super) fn waits_for_restart(&self, new: &Config, sections: &[&str]) -> bool {
        let waits = |key: &Key| key.effect == ReloadEffect::Restart && self.value(key) != new.value(key);
        keys::keys().any(|key| sections.contains(&key.section()) && waits(key))
    }
}

/// Returns a value on one line of a bounded length, without possible secrets.
pub(super) fn shown(key: &Key, config: &Config) -> String {
    let line = without_secrets(key.path, &config.value(key));
    let shown = first_chars(&line, SHOWN);
    if shown.len() < line.len() { format!("{shown}...") } else { line }
}

/// Returns each key with a configuration in which it has another value than the default. Other keys
/// are changed, too, where the value alone would be a contradiction.
#[cfg(test)]
pub(crate) fn every_key_changed() -> Vec<(&'static str, Loaded)> {
    use crate::config::Sources;
    let (mut all, mut unknown) = (Vec::new(), Vec::new());
    for key in keys::keys() {
        let tables = match key.path {
            "redelivery.rules" => "[[redelivery.rules]]\ntopic = \"a\"\ninterval = \"7s\"\n",
            "listeners" => "[[listeners]]\naddress = \"127.0.0.1:1884\"\n",
            "slo" => "[[slo]]\nname = \"a\"\ntopic = \"a/#\"\nwithin = \"5s\"\ntarget = 0.99\n",
            "bridges" => {
                "[[bridges]]\nname = \"a\"\naddresses = [\"mqtt://a\"]\ntopics = [{ direction = \"in\", filter = \"a\" }]\n"
            }
            "sinks" => "[[sinks]]\nname = \"a\"\nurl = \"http://a/\"\nfilters = [\"a/#\"]\n",
            _ => "",
        };
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        std::fs::write(&file, tables).expect("a file");
        let candidates: &[&str] = match key.path {
            "auth.methods" => &["certificate"],
            "limits.connects_per_address" | "bans.flapping" => &["15 in 1m for 5m"],
            "log.level" => &["debug"],
            "auth.http_url" => &["http://127.0.0.1:9/mqtt"],
            "otlp.endpoint" => &["http://127.0.0.1:9"],
            "otlp.signals" => &["logs"],
            "cluster.nodes" => &["[\"a\", \"b\"]"],
            "cluster.nats" => &["[\"nats://127.0.0.1:9\"]"],
            "cluster.monitor" => &["http://127.0.0.1:9"],
            "cluster.acks" => &["commit"],
            "limits.memory" => &["3 GiB"],
            "limits.client_id" => &["2 KiB"],
            "redelivery.dead_letters" => &["expired"],
            "admin.trusted_proxies" => &["127.0.0.1"],
            _ => &[
                "true",
                "false",
                "7",
                "3",
                "7s",
                "3s",
                "250ms",
                "500s",
                "4000s",
                "5 MiB",
                "9 GiB",
                "96 KiB",
                "127.0.0.1:1885",
                "/tmp/other",
                "0.5",
                "1.5",
                "drop_oldest",
                "never",
                "filter",
                "disconnect",
                "keep",
                "alarm",
                "os",
                "json",
                "username",
                "issuer",
                "2000",
                "auto",
                "unlimited",
                "off",
            ],
        };
        let changed = candidates.iter().find_map(|value| {
            let sources = Sources::new().file(&file);
            let sources = if tables.is_empty() {
                sources.assignment(&format!("{}={value}", key.path))
            } else {
                sources
            };
            let sources = match key.path {
                // Without a maximum, "false" is a contradiction.
                "keep_alive.allow_never" => sources.assignment("keep_alive.maximum=1h"),
                // An authority without a service that has TLS is one, too.
                "admin.certificate" => sources.assignment("admin.key=key.pem"),
                "admin.key" => sources.assignment("admin.certificate=server.pem"),
                "auth.http_ca" => sources.assignment("auth.http_url=https://login.example/mqtt"),
                // So is a cluster without nodes and servers.
                "cluster.name" => sources
                    .assignment("cluster.node=a")
                    .assignment("cluster.nodes=[\"a\"]")
                    .assignment("cluster.nats=[\"nats://h:4222\"]"),
                "otlp.ca" => sources.assignment("otlp.endpoint=https://collector.example"),
                _ => sources,
            };
            let loaded = sources.load().ok()?;
            let differs = loaded.changes_from(&Config::default()).iter().any(|change| change.key == key.path);
            differs.then_some(loaded)
        });
        match changed {
            Some(loaded) => all.push((key.path, loaded)),
            None => unknown.push(key.path),
        }
    }
    assert!(unknown.is_empty(), "add other values of {unknown:?} to the candidates above");
    all
}

/// Returns each key of a listener with a configuration, and with another in which the key of its
/// listener has another value.
#[cfg(test)]
pub(crate) fn every_listener_key_changed() -> Vec<(&'static str, Loaded, Loaded)> {
    use crate::config::{Listener, Sources};
    const TCP: &str = "address = \"127.0.0.1:1884\"\n";
    const UNIX: &str = "address = \"unix:/tmp/homing.sock\"\n";
    const WEBSOCKET: &str = "address = \"127.0.0.1:1884\"\nprotocol = \"websocket\"\n";
    const PROXY: &str = "address = \"127.0.0.1:1884\"\nproxy_protocol = \"v2\"\n";
    let keys = [
        ("name", TCP, "name = \"a\""),
        ("address", "", UNIX),
        ("mode", UNIX, "mode = \"0600\""),
        ("group", UNIX, "group = \"root\""),
        ("auth", TCP, "auth = []"),
        ("password_file", TCP, "password_file = \"passwd\""),
        ("anonymous", TCP, "anonymous = \"always\""),
        ("acl_file", TCP, "acl_file = \"acl\""),
        ("versions", TCP, "versions = [\"5.0\"]"),
        ("client_id", TCP, "client_id = \"%u-*\""),
        ("mount_point", TCP, "mount_point = \"a/\""),
        ("packet_size", TCP, "packet_size = \"64 KiB\""),
        ("keep_alive_maximum", TCP, "keep_alive_maximum = \"1m\""),
        ("protocol", TCP, "protocol = \"websocket\""),
        ("websocket_path", WEBSOCKET, "websocket_path = \"/a\""),
        ("origins", WEBSOCKET, "origins = [\"*\"]"),
        ("proxy_protocol", TCP, "proxy_protocol = \"any\""),
        ("proxy_tls", PROXY, "proxy_tls = true"),
        ("trusted_proxies", PROXY, "trusted_proxies = [\"10.0.0.0/8\"]"),
        ("backlog", TCP, "backlog = 7"),
        ("connections", TCP, "connections = 7"),
        ("connects_per_second", TCP, "connects_per_second = 7"),
        ("messages_per_second", TCP, "messages_per_second = 7"),
        ("bytes_per_second", TCP, "bytes_per_second = \"5 KiB\""),
        ("share", TCP, "share = 7"),
        ("tls", TCP, "tls = { certificates = [{ certificate = \"a\", key = \"b\" }] }"),
    ];
    let fields = Listener::FIELDS.iter().map(|(name, _)| *name);
    assert!(
        fields.eq(keys.iter().map(|(name, ..)| *name)),
        "each key of a listener stands here in its order"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let load = |lines: &str| {
        let file = directory.path().join("homing.toml");
        std::fs::write(&file, format!("[[listeners]]\n{lines}\n")).expect("a file");
        Sources::new().file(&file).load().unwrap_or_else(|refusal| panic!("{refusal}"))
    };
    let both = |(name, running, new): (_, &str, &str)| {
        let running_lines = if running.is_empty() { TCP } else { running };
        (name, load(running_lines), load(&format!("{running}{new}")))
    };
    keys.map(both).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Anonymous, AuthMethod, Listener, Sources};

    fn load(assignments: &[&str]) -> Loaded {
        assignments.iter().fold(Sources::new(), |sources, text| sources.assignment(text)).load().unwrap()
    }

    #[test]
    fn a_change_has_its_key_values_effect_and_source() {
        let running = Config::default();
        assert_eq!(load(&[]).changes_from(&running), []);
        let loaded = load(&["redelivery.interval=5s", "runtime.threads=8", "keep_alive.maximum=1m"]);
        let line = |change: KeyChange| {
            let KeyChange { key, from, to, effect, .. } = change;
            format!("{:<8} {key} {from} -> {to}", effect.name())
        };
        let lines: Vec<String> = loaded.changes_from(&running).into_iter().map(line).collect();
        let expected = [
            "restart  runtime.threads \"auto\" -> 8",
            "new      keep_alive.maximum \"unlimited\" -> \"1m\"",
            "live     redelivery.interval \"15s\" -> \"5s\"",
        ];
        assert_eq!(lines, expected);
        assert_eq!(loaded.changes_from(&running)[0].source, "--set");
        let back = load(&[]).changes_from(&loaded.config);
        assert_eq!((back.len(), back[0].source.as_str()), (3, "built-in default"));
    }

    #[test]
    fn keys_that_need_a_restart_keep_their_values() {
        let running = Config::default();
        let new = load(&["redelivery.interval=5s", "runtime.threads=8", "keep_alive.maximum=1m"]);
        let reloaded = running.with_reloaded(&new.config);
        assert_eq!(reloaded.runtime, running.runtime);
        assert_eq!(reloaded.redelivery, new.config.redelivery);
        // Only the changes that need a restart are left.
        let left = new.changes_from(&reloaded);
        assert_eq!(left.iter().map(|change| &*change.key).collect::<Vec<_>>(), ["runtime.threads"]);
    }

    #[test]
    fn a_rule_about_client_ids_stays_until_the_password_in_its_place_is_demanded() {
        let running = Config {
            listeners: vec![Listener {
                address: "127.0.0.1:1884".parse().ok(),
                anonymous: Some(Anonymous::Always),
                client_id: Some("dev-*".to_owned()),
                connections: Some(7),
                ..Listener::default()
            }],
            ..Config::default()
        };
        let [listener] = &running.listeners[..] else { panic!("one listener") };
        let without_rule = Listener { client_id: None, connections: Some(8), ..listener.clone() };
        let demanding = Listener { auth: Some(vec![AuthMethod::Password]), ..without_rule.clone() };
        let loaded = |listener: &Listener| Loaded {
            config: Config { listeners: vec![listener.clone()], ..Config::default() },
            ..load(&[])
        };
        let waits = |loaded: &Loaded| {
            assert_eq!(running.with_reloaded(&loaded.config).listeners, running.listeners);
            let changes = loaded.changes_from(&running);
            let listeners = changes.iter().find(|change| change.key == "listeners");
            assert_eq!(listeners.map(|change| change.effect), Some(ReloadEffect::Restart), "{changes:?}");
        };
        // The same demand for all listeners, and rules about topics.
        let mut of_broker = loaded(&without_rule);
        of_broker.config.auth.methods = vec![AuthMethod::Password];
        waits(&of_broker);
        let mut of_rules = loaded(&without_rule);
        of_rules.config.acl.file = "acl".to_owned();
        waits(&of_rules);
        for together in [without_rule, demanding] {
            let reloaded = running.with_reloaded(&loaded(&together).config);
            assert_eq!(reloaded.listeners, [together], "nothing of the listener waits");
        }
    }

    #[test]
    fn new_values_must_go_together_with_those_that_need_a_restart() {
        let size = |text: &str| Some(text.parse().expect("a size"));
        let running = Config {
            listeners: vec![Listener {
                address: "unix:/tmp/homing.sock".parse().ok(),
                packet_size: size("128 MiB"),
                ..Listener::default()
            }],
            ..Config::default()
        };
        let mut sources = Sources::new();
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        let text = "[limits]\nmemory = \"64 MiB\"\n[[listeners]]\naddress = \"unix:/tmp/homing.sock\"\nmode = \"0660\"\n";
        std::fs::write(&file, text).expect("a file");
        sources = sources.file(&file);
        let loaded = sources.load().expect("no contradiction by itself");
        let problems = loaded.contradictions_with(&running);
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(
            problem.to_string(),
            "in force until a restart: listeners, listener 1: packet_size = \"128 MiB\" is not allowed; must be at most \
             limits.memory, which must hold one packet at least"
        );
        assert!(loaded.contradictions_with(&loaded.config).is_empty());
    }
}
