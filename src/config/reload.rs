//! The difference between the configuration of a running broker and one that was read again.

use super::keys;
use super::secrets::without_secrets;
use super::sources::Loaded;
use super::table::{Key, ReloadEffect};
use super::{Config, Setting};

/// The largest value, in characters, that a change is shown with.
const SHOWN: usize = 120;

/// One key whose value differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key, as `section.name`.
    pub key: &'static str,
    /// The value that holds, as one would write it in the file.
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
        let change = |key: &'static Key| KeyChange {
            key: key.path,
            from: shown(key, running),
            to: shown(key, &self.config),
            effect: key.effect,
            source: self.source_of(key.path),
        };
        keys::keys().filter(differs).map(change).collect()
    }

    /// Returns the source of a key's value: the file, variable or flag, or `built-in default`.
    pub(super) fn source_of(&self, path: &str) -> String {
        let set = self.changed.iter().find(|setting: &&Setting| setting.key == path);
        set.map_or_else(|| "built-in default".to_owned(), |setting| setting.source.clone())
    }
}

impl Config {
    /// Returns this configuration with the values of `new` of all keys that need no restart.
    pub fn with_reloaded(&self, new: &Config) -> Config {
        let mut config = self.clone();
        for key in keys::keys().filter(|key| key.effect != ReloadEffect::Restart) {
            config.copy(key, new);
        }
        config
    }
}

/// Returns a value on one line of a bounded length, without what may be a secret.
pub(super) fn shown(key: &Key, config: &Config) -> String {
    let line = without_secrets(key.path, &config.value(key));
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
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
            "limits.memory" => &["3 GiB"],
            "redelivery.dead_letters" => &["expired"],
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
                "auth.http_ca" => sources.assignment("auth.http_url=https://login.example/mqtt"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

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
            "live     redelivery.interval \"20s\" -> \"5s\"",
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
        // What is left is what a start would change.
        let left = new.changes_from(&reloaded);
        assert_eq!(left.iter().map(|change| change.key).collect::<Vec<_>>(), ["runtime.threads"]);
    }
}
