//! Reads the layers and puts them together to a [`Config`]. All problems of all layers are returned
//! at once.

use super::layer::Layer;
use super::problem::{ConfigRefusal, Problem, Setting};
use super::secrets::without_secrets;
use super::table::Key;
use super::{AuthMethod, Config, cluster_problems, keys, listener_contradictions, value};
use crate::file_thread;
use config::Value;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The files that are looked for if none is named. The first that exists is read. The first of
/// these is relative to the working directory.
pub const DEFAULT_FILES: [&str; 2] = ["config/homing.toml", "/etc/homing/homing.toml"];

/// The layers as the operator wrote them, not yet checked. No file is read before
/// [`Sources::load`].
#[derive(Debug, Default)]
pub struct Sources {
    file: Option<PathBuf>,
    /// The content of the file, if it is not to be read.
    text: Option<String>,
    environment: Vec<(OsString, OsString)>,
    flags: Layer,
    problems: Vec<Problem>,
}

/// A configuration that passed every check, and where it came from.
#[derive(Debug)]
pub struct Loaded {
    /// The merged configuration.
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Every source that gave a value, lowest layer first: the file, variables, flags. Empty for
    /// built-in defaults alone.
    pub sources: Vec<String>,
    /// Every key whose value is not the built-in default, with the source that won.
    pub changed: Vec<Setting>,
    /// The values of the file that a variable or a flag overrides.
    pub shadowed: Vec<Shadowed>,
    /// A sentence for each variable `HOMING_...` that sets nothing.
    pub ignored: Vec<String>,
}

/// A value of the file that a variable or a flag overrides.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema))]
pub struct Shadowed {
    /// The key, as `section.name`.
    pub key: Cow<'static, str>,
    /// The variable or flag that wins.
    pub by: String,
}

impl Sources {
    /// Returns the built-in defaults alone.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Sets the file layer. A file that cannot be read is a problem.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Sources {
        self.file = Some(path.into());
        self
    }

    /// Sets the file layer to a text. Problems have this name in place of that of a file.
    pub fn text(self, name: &str, text: &str) -> Sources {
        Sources { file: Some(name.into()), text: Some(text.to_owned()), ..self }
    }

    /// Sets the file layer to the first of these files that exists, or to nothing if none does. A
    /// file whose existence cannot be checked counts as existing, so that the operator sees why.
    pub fn first_file_of(self, candidates: &[&str]) -> Sources {
        let exists = |path: &&&str| {
            let _opened = file_thread::opens(Path::new(path));
            Path::new(path).try_exists().unwrap_or(true)
        };
        match candidates.iter().find(exists) {
            Some(path) => self.file(path),
            None => self,
        }
    }

    /// Sets the environment layer: `HOMING_SECTION__KEY`. Names without the prefix are ignored.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Sources {
        self.environment.extend(variables);
        self
    }

    /// Adds `section.key=value` to the flag layer. Of two for the same key, the later wins.
    pub fn assignment(mut self, text: &str) -> Sources {
        match text.split_once('=') {
            Some((key, value)) => self.flag("--set", key.trim(), value.trim()),
            None => {
                self.problems.push(Problem::NotAnAssignment { text: text.to_owned() });
                self
            }
        }
    }

    /// Adds to the flag layer the value of a flag (`name` with its dashes) that sets `key`.
    pub fn flag(mut self, name: &str, key: &str, value: &str) -> Sources {
        self.flags.push_text(name, key.to_owned(), value);
        self
    }

    /// Reads, checks and merges the layers.
    ///
    /// # Errors
    /// Returns every problem of every layer. Contradictions between keys are looked for once each
    /// layer is right.
    pub fn load(self) -> Result<Loaded, ConfigRefusal> {
        let Sources { file, text, environment, flags, mut problems } = self;
        let layer = |file| match &text {
            Some(text) => Layer::from_text(file, text),
            None => Layer::from_file(file),
        };
        let from_file = match file.as_deref().map(layer) {
            Some(Ok(layer)) => layer,
            Some(Err(problem)) => {
                problems.push(problem);
                Layer::default()
            }
            None => Layer::default(),
        };
        let (from_environment, ignored) = Layer::from_environment(environment, &mut problems);
        let layers = [from_file, from_environment, flags];
        for layer in &layers {
            layer.check(&mut problems);
        }
        if !problems.is_empty() {
            return Err(ConfigRefusal(problems));
        }
        let sources = layers.iter().flat_map(Layer::origins).collect();
        let config = merge(&layers)?;
        let setting_of = |path: &str| setting(&layers, path);
        let contradictions = contradictions(&config, &setting_of, winner(&layers, "listeners"));
        if !contradictions.is_empty() {
            return Err(ConfigRefusal(contradictions));
        }
        let changed = changed(&config, &layers);
        let shadowed = shadowed(&layers);
        Ok(Loaded { config, file, sources, changed, shadowed, ignored })
    }
}

/// Returns the value of a key in the highest layer that has one.
fn winner<'a>(layers: &'a [Layer], path: &str) -> Option<&'a Value> {
    layers.iter().rev().find_map(|layer| layer.value(path))
}

/// Puts the layers over the built-in defaults. A list replaces the list below it.
fn merge(layers: &[Layer]) -> Result<Config, ConfigRefusal> {
    let mut config = Config::default();
    let mut problems = Vec::new();
    for key in keys::keys() {
        if let Some(given) = winner(layers, key.path)
            && !config.set(key, given)
        {
            problems.push(Problem::Internal(format!("{} does not take {}", key.path, value::written(given))));
        }
    }
    if !config.listeners.is_empty() && winner(layers, "network.listen").is_none() {
        config.network.listen.clear();
    }
    if problems.is_empty() { Ok(config) } else { Err(ConfigRefusal(problems)) }
}

/// Returns the keys whose values differ from the built-in ones, however either is spelled ("60s" is
/// "1m").
fn changed(config: &Config, layers: &[Layer]) -> Vec<Setting> {
    let built_in = Config::default();
    let written = |key: &Key, config: &Config| value::written(&config.value(key));
    let changed = keys::keys().filter(|key| written(key, config) != written(key, &built_in));
    // `network.listen` changes by itself where `[[listeners]]` are given.
    let set = changed.filter(|key| winner(layers, key.path).is_some());
    set.filter_map(|key| setting(layers, key.path)).collect()
}

/// Returns the values of the lowest layer, the file, that another layer overrides.
fn shadowed(layers: &[Layer]) -> Vec<Shadowed> {
    let [file, others @ ..] = layers else { return Vec::new() };
    let shadow = |key: &'static Key| {
        let (written, winner) = (file.value(key.path)?, winner(others, key.path)?);
        let differs = value::written(written) != value::written(winner);
        differs.then(|| Shadowed { key: key.path.into(), by: value::origin(winner) })
    };
    keys::keys().filter_map(shadow).collect()
}

/// Returns a key as the operator wrote it, or its built-in default. Returns `None` for an unknown
/// key.
fn setting(layers: &[Layer], path: &str) -> Option<Setting> {
    let key = keys::key(path)?;
    let value = winner(layers, path).cloned().unwrap_or_else(|| Config::default().value(key));
    Some(Setting {
        key: path.to_owned(),
        value: without_secrets(path, &value),
        source: value::origin(&value),
    })
}

/// A rule about two keys: true where it is broken, the keys, and its text.
type PairRule = (bool, (&'static str, &'static str), &'static str);

/// Returns true if each listener with the methods of the broker has a password file of its own.
fn have_own_passwords(config: &Config) -> bool {
    let listeners = config.all_listeners();
    let mut inherit = listeners.iter().filter(|listener| listener.auth.is_none()).peekable();
    inherit.peek().is_some() && inherit.all(|listener| listener.password_file.is_some())
}

/// Returns the rules about the methods of authentication and their files.
fn auth_rules(config: &Config) -> [PairRule; 8] {
    let methods = &config.auth.methods;
    let own = || config.listeners.iter().filter_map(|listener| listener.auth.as_deref());
    // A file is read by "auto", or by a method of the broker or of some listener.
    let is_read =
        |by: AuthMethod| methods.is_empty() || methods.contains(&by) || own().any(|own| own.contains(&by));
    let lacks = |method: AuthMethod| methods.contains(&method) && !config.auth.equips(method);
    [
        (
            (lacks(AuthMethod::Password) || lacks(AuthMethod::Scram)) && !have_own_passwords(config),
            ("auth.methods", "auth.password_file"),
            "the methods \"password\" and \"scram\" need a password file",
        ),
        (
            config.auth.password_path().is_some()
                && !is_read(AuthMethod::Password)
                && !is_read(AuthMethod::Scram),
            ("auth.password_file", "auth.methods"),
            "only the methods \"password\" and \"scram\" read the password file",
        ),
        (
            lacks(AuthMethod::Jwt),
            ("auth.methods", "auth.jwt_keys"),
            "the method \"jwt\" needs a file of keys",
        ),
        (
            config.auth.jwt_keys_path().is_some() && !is_read(AuthMethod::Jwt),
            ("auth.jwt_keys", "auth.methods"),
            "only the method \"jwt\" reads the keys of tokens",
        ),
        (
            lacks(AuthMethod::Http),
            ("auth.methods", "auth.http_url"),
            "the method \"http\" needs the address of a service",
        ),
        (
            config.auth.http_service().is_some() && !is_read(AuthMethod::Http),
            ("auth.http_url", "auth.methods"),
            "only the method \"http\" asks the service",
        ),
        (
            config.auth.http_ca_path().is_some()
                && config.auth.http_service().is_none_or(|service| !service.is_tls),
            ("auth.http_ca", "auth.http_url"),
            "only a service with https:// has a certificate",
        ),
        (
            config.auth.http_timeout > config.auth.timeout,
            ("auth.http_timeout", "auth.timeout"),
            "the time for one answer must not be above the time for the whole check",
        ),
    ]
}

/// Returns the rule about the two files of HTTPS.
fn https_rule(config: &Config) -> PairRule {
    let (certificate, key) = ("admin.certificate", "admin.key");
    let is_broken = config.admin.certificate.is_empty() != config.admin.key.is_empty();
    match config.admin.key.is_empty() {
        true => (is_broken, (certificate, key), "HTTPS needs both files: admin.key is missing"),
        false => (is_broken, (key, certificate), "HTTPS needs both files: admin.certificate is missing"),
    }
}

/// Returns the rule about the authorities of the collector.
fn otlp_rule(config: &Config) -> PairRule {
    let is_plain = config.otlp.collector().is_none_or(|collector| !collector.is_tls);
    let is_broken = config.otlp.ca_path().is_some() && is_plain;
    (is_broken, ("otlp.ca", "otlp.endpoint"), "only a collector with https:// has a certificate")
}

/// Returns the pairs of values that are each allowed but do not go together. `setting` returns a
/// value with its source, and `listeners` is the list with its source, if there is one.
pub(super) fn contradictions(
    config: &Config,
    setting: &dyn Fn(&str) -> Option<Setting>,
    listeners: Option<&Value>,
) -> Vec<Problem> {
    let rules: [PairRule; 4] = [
        (
            config.redelivery.max_backoff < config.redelivery.interval,
            ("redelivery.max_backoff", "redelivery.interval"),
            "the longest spacing must not be below the first",
        ),
        (
            config.redelivery.max_ack_timeout < config.redelivery.ack_timeout,
            ("redelivery.max_ack_timeout", "redelivery.ack_timeout"),
            "the longest ack timeout must not be below the first",
        ),
        (
            !config.keep_alive.allow_never && config.keep_alive.maximum.is_zero(),
            ("keep_alive.allow_never", "keep_alive.maximum"),
            "clients that may not ask for \"never\" need a maximum of at least \"1s\"",
        ),
        (
            config.limits.memory < config.limits.packet_size,
            ("limits.memory", "limits.packet_size"),
            "the broker-wide memory must hold one packet at least",
        ),
    ];
    let rules = rules.into_iter().chain(auth_rules(config)).chain([https_rule(config), otlp_rule(config)]);
    let broken = rules.filter(|(is_broken, ..)| *is_broken);
    let found = broken.filter_map(|(_, (one, other), rule)| {
        let keys = Box::new((setting(one)?, setting(other)?));
        Some(Problem::Contradiction { keys, rule })
    });
    let listeners = listeners.map(|value| listener_contradictions::contradictions(config, value));
    found.chain(listeners.unwrap_or_default()).chain(cluster_problems::problems(config)).collect()
}

/// Reads a configuration file with this text alone. The error is what an operator is told.
#[cfg(test)]
pub(super) fn load_text(text: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("homing.toml");
    std::fs::write(&file, text).expect("a file");
    Sources::new().file(&file).load().map(|loaded| loaded.config).map_err(|refusal| refusal.to_string())
}
