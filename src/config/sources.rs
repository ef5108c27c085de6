//! From the four layers to a [`Config`], or to every problem in them at once.

use super::layer::{self, Layer};
use super::problem::{Problem, Refusal, Setting};
use super::{Config, schema};
use config::{ConfigError, Value, ValueKind};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file that is read, where it exists, when no other is named; relative to the working directory.
pub const DEFAULT_FILE: &str = "config/homing.toml";

/// What an operator wrote, layer by layer, not yet checked. Reads nothing until [`Sources::load`].
#[derive(Debug, Default)]
pub struct Sources {
    file: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    flags: Layer,
    problems: Vec<Problem>,
}

/// A configuration that passed every check, and where it came from.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Every source that gave a value, lowest layer first: the file, variables, flags. Empty: built-in defaults alone.
    pub sources: Vec<String>,
    /// Every key whose value is not the built-in default, with the source that won.
    pub changed: Vec<Setting>,
}

impl Sources {
    /// Built-in defaults alone.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// The file layer; it is an error if it cannot be read.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Sources {
        self.file = Some(path.into());
        self
    }

    /// The file layer is [`DEFAULT_FILE`] where there is one.
    pub fn default_file(self) -> Sources {
        if Path::new(DEFAULT_FILE).exists() { self.file(DEFAULT_FILE) } else { self }
    }

    /// The environment layer: `HOMING_SECTION__KEY`; other names are passed over.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Sources {
        self.environment.extend(variables);
        self
    }

    /// The flag layer, from `section.key=value`. Of two for the same key the later wins.
    pub fn assignment(mut self, text: &str) -> Sources {
        match text.split_once('=') {
            Some((key, value)) => self.flag("--set", key.trim(), value.trim()),
            None => {
                self.problems.push(Problem::NotAnAssignment { text: text.to_owned() });
                self
            }
        }
    }

    /// The flag layer, from a flag of its own (`name` with its dashes) that stands for `key`.
    pub fn flag(mut self, name: &str, key: &str, value: &str) -> Sources {
        self.flags.push_text(name, key.to_owned(), value);
        self
    }

    /// Reads, checks and merges the layers.
    pub fn load(self) -> Result<Loaded, Refusal> {
        let Sources { file, environment, flags, mut problems } = self;
        let from_file = match file.as_deref().map(Layer::from_file) {
            Some(Ok(layer)) => layer,
            Some(Err(problem)) => {
                problems.push(problem);
                Layer::default()
            }
            None => Layer::default(),
        };
        let from_environment = Layer::from_environment(environment, &mut problems);
        let layers = [from_file, from_environment, flags];
        for layer in &layers {
            layer.check(&mut problems);
        }
        if !problems.is_empty() {
            return Err(Refusal(problems));
        }
        let sources = layers.iter().flat_map(Layer::origins).collect();
        let (config, merged) = merge(layers).map_err(internal)?;
        let contradictions = contradictions(&config, &merged);
        if !contradictions.is_empty() {
            return Err(Refusal(contradictions));
        }
        let changed = changed(&config, &merged).map_err(internal)?;
        Ok(Loaded { config, file, sources, changed })
    }
}

/// The layers over the built-in defaults: as a `Config`, and as the tree in which each value knows its origin.
fn merge(layers: impl IntoIterator<Item = Layer>) -> Result<(Config, Value), ConfigError> {
    let mut builder = config::Config::builder().add_source(config::Config::try_from(&Config::default())?);
    for layer in layers {
        builder = builder.add_source(layer);
    }
    let merged = builder.build()?;
    let tree = merged.cache.clone();
    Ok((merged.try_deserialize()?, tree))
}

fn internal(error: ConfigError) -> Refusal {
    Refusal(vec![Problem::Internal(error.to_string())])
}

/// The keys whose values differ from the built-in ones, however either is spelled ("60s" is "1m").
fn changed(config: &Config, merged: &Value) -> Result<Vec<Setting>, ConfigError> {
    let ours = config::Config::try_from(config)?.cache;
    let built_in = config::Config::try_from(&Config::default())?.cache;
    let differs =
        |path: &str| lookup(&ours, path).map(layer::written) != lookup(&built_in, path).map(layer::written);
    Ok(schema::keys().filter(|key| differs(key.path)).map(|key| setting(merged, key.path)).collect())
}

fn setting(tree: &Value, path: &str) -> Setting {
    let value = lookup(tree, path).cloned().unwrap_or_default();
    Setting { key: path.to_owned(), value: layer::written(&value), source: layer::origin(&value) }
}

fn lookup<'a>(tree: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(tree, |value, name| match &value.kind {
        ValueKind::Table(table) => table.get(name),
        _ => None,
    })
}

/// Values that are each allowed but do not go together.
fn contradictions(config: &Config, merged: &Value) -> Vec<Problem> {
    let rules = [
        (
            config.redelivery.max_interval < config.redelivery.interval,
            ("redelivery.max_interval", "redelivery.interval"),
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
            "clients that may not ask for \"never\" need a maximum of at least \"1s\" to be held to",
        ),
        (
            config.limits.memory < config.limits.packet_size,
            ("limits.memory", "limits.packet_size"),
            "the broker-wide memory must hold one packet at least",
        ),
    ];
    let broken = rules.into_iter().filter(|(is_broken, ..)| *is_broken);
    broken
        .map(|(_, (one, other), rule)| Problem::Contradiction {
            keys: Box::new((setting(merged, one), setting(merged, other))),
            rule,
        })
        .collect()
}
