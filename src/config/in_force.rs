//! The values of a running broker, each with its source.

use super::difference::shown;
use super::keys;
use super::render::joined;
use super::table::ReloadEffect;
use super::value::BUILT_IN;
use super::{Config, Loaded};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One key of a running broker. No value is a secret: the keys name files, and a URL is shown
/// without its query.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema), schema(as = ConfigKey))]
pub struct KeyInForce {
    /// The key, as `section.name`.
    pub key: Cow<'static, str>,
    /// The value that holds, as one would write it in the file, cut at 120 characters.
    pub value: String,
    /// The built-in default, written the same way.
    pub default: String,
    /// The file, variable or flag of the value; `built-in default` for the default, whoever wrote
    /// it.
    pub source: String,
    /// The effect of a change at a reload.
    pub effect: ReloadEffect,
    /// The value that was read and holds from the next start on; null if it is the same.
    #[cfg_attr(feature = "admin", schema(required))]
    pub pending: Option<String>,
}

impl KeyInForce {
    /// Returns true if the value is not the built-in default, or another one is pending.
    pub fn is_changed(&self) -> bool {
        self.value != self.default || self.pending.is_some()
    }
}

/// The sources of the values in force, and the values that wait for a restart, by key.
#[derive(Clone, Debug, Default)]
pub struct KeySources {
    sources: BTreeMap<&'static str, String>,
    pending: BTreeMap<&'static str, String>,
}

impl KeySources {
    /// Returns the sources of a configuration that a broker starts with.
    pub fn of_start(loaded: &Loaded) -> KeySources {
        let mut sources = KeySources::default();
        sources.note(&loaded.config, loaded);
        sources
    }

    /// Notes the sources of a configuration that was read. A key whose value in force differs from
    /// the read value keeps its source, and the read value is pending.
    pub fn note(&mut self, running: &Config, loaded: &Loaded) {
        self.pending.clear();
        for key in keys::keys() {
            if running.value(key) == loaded.config.value(key) {
                self.sources.insert(key.path, loaded.source_of(key.path));
            } else {
                self.pending.insert(key.path, shown(key, &loaded.config));
            }
        }
    }
}

impl Config {
    /// Returns every key with its value, in the order of the file. A value that `sources` does not
    /// have was set in code, unless it is the built-in default.
    pub fn in_force(&self, sources: &KeySources) -> Vec<KeyInForce> {
        let built_in = Config::default();
        let row = |key| {
            let (value, default) = (shown(key, self), shown(key, &built_in));
            let unknown = || if value == default { BUILT_IN } else { "code" }.to_owned();
            let source = sources.sources.get(key.path).cloned().unwrap_or_else(unknown);
            let pending = sources.pending.get(key.path).cloned();
            KeyInForce { key: key.path.into(), value, default, source, effect: key.effect, pending }
        };
        keys::keys().map(row).collect()
    }
}

/// Returns the description of a key with its allowed values, as in `docs/configuration.md`; `None`
/// for an unknown key.
pub fn help_of(path: &str) -> Option<String> {
    let key = keys::key(path)?;
    Some(format!("{} Values: {}.", joined(key.help), key.rule.span()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn load(assignments: &[&str]) -> Loaded {
        assignments.iter().fold(Sources::new(), |sources, text| sources.assignment(text)).load().unwrap()
    }

    fn row(rows: &[KeyInForce], key: &str) -> KeyInForce {
        rows.iter().find(|row| row.key == key).cloned().unwrap()
    }

    #[test]
    fn each_value_has_its_source_and_one_that_waits_for_a_restart_is_pending() {
        let started = load(&["redelivery.interval=5s"]);
        let mut sources = KeySources::of_start(&started);
        let read = load(&["redelivery.interval=7s", "runtime.threads=8"]);
        let running = started.config.with_reloaded(&read.config);
        sources.note(&running, &read);
        let rows = running.in_force(&sources);
        let interval = row(&rows, "redelivery.interval");
        assert_eq!((interval.value.as_str(), interval.source.as_str()), ("\"7s\"", "--set"));
        assert_eq!((interval.default.as_str(), interval.pending.as_deref()), ("\"15s\"", None));
        let threads = row(&rows, "runtime.threads");
        assert_eq!((threads.value.as_str(), threads.source.as_str()), ("\"auto\"", "built-in default"));
        assert_eq!((threads.pending.as_deref(), threads.effect), (Some("8"), ReloadEffect::Restart));
        let changed: Vec<_> = rows.iter().filter(|row| row.is_changed()).map(|row| &*row.key).collect();
        assert_eq!(changed, ["runtime.threads", "redelivery.interval"]);
    }

    #[test]
    fn the_query_of_a_url_is_never_shown() {
        let loaded = load(&["auth.http_url=http://127.0.0.1:9/mqtt?key=hidden"]);
        let rows = loaded.config.in_force(&KeySources::of_start(&loaded));
        let url = row(&rows, "auth.http_url").value;
        assert!(url.contains("127.0.0.1:9/mqtt") && !url.contains("hidden"), "{url}");
        let changes = loaded.changes_from(&Config::default());
        assert!(changes.iter().all(|change| !change.to.contains("hidden")), "{changes:?}");
    }
}
