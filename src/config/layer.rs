//! A layer: the values of one source (file, environment or flags) by their dotted keys. Each value
//! has the name of its source.
//!
//! Each layer is checked on its own, even where a higher layer overrides a value. A mistake that an
//! override hides would otherwise come out on the day the override goes away.

use super::keys::{self, SECTIONS, key};
use super::problem::{Problem, nearest};
use super::rule::ValueType;
use super::secrets::without_secrets;
use super::table::Key;
use super::value::origin;
use super::variable::{self, VariableMeaning};
use crate::file_thread;
use config::{ConfigError, Map, Source, Value, ValueKind};
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// The largest configuration in bytes. One with 1,000 bridges and 1,000 sinks has less than 1 MiB.
const LARGEST: u64 = 16 << 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    /// Dotted key and value; the value's origin is the source's name.
    leaves: Vec<(String, Value)>,
}

impl Layer {
    /// Returns the value that this layer has for a key. Of two for the same key, the later wins.
    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        self.leaves.iter().rev().find(|(leaf, _)| leaf == path).map(|(_, value)| value)
    }

    /// Returns the names of the sources of its values, each once.
    pub(super) fn origins(&self) -> Vec<String> {
        let mut names: Vec<String> = self.leaves.iter().map(|(_, value)| origin(value)).collect();
        names.dedup();
        names
    }

    pub(super) fn from_file(path: &Path) -> Result<Layer, Problem> {
        let opened = file_thread::opens(path);
        let read = file_thread::read_within(path, LARGEST).and_then(|content| {
            String::from_utf8(content).map_err(|_| io::Error::other("it is no UTF-8 text"))
        });
        drop(opened);
        match read {
            Ok(text) => Layer::from_text(path, &text),
            Err(cause) => Err(Problem::Unreadable { file: path.to_owned(), cause }),
        }
    }

    /// Reads the content of a file.
    pub(super) fn from_text(path: &Path, text: &str) -> Result<Layer, Problem> {
        let parsed = config::File::from_str(text, config::FileFormat::Toml).collect().map_err(|error| {
            let cause = match error {
                ConfigError::FileParse { cause, .. } => cause.to_string(),
                other => other.to_string(),
            };
            Problem::Syntax { file: path.to_owned(), cause: without_excerpt(&cause) }
        })?;
        let mut layer = Layer::default();
        layer.flatten(&path.display().to_string(), "", parsed);
        layer.leaves.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(layer)
    }

    fn flatten(&mut self, origin: &String, prefix: &str, table: Map<String, Value>) {
        for (name, value) in table {
            let path = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
            match value.kind {
                ValueKind::Table(inner) if !inner.is_empty() => self.flatten(origin, &path, inner),
                kind => self.leaves.push((path, Value::new(Some(origin), kind))),
            }
        }
    }

    /// Reads variables. Returns the layer, and a sentence for each variable that has the prefix and
    /// sets nothing. The name of a key with wrong underscores is a problem.
    pub(super) fn from_environment(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        problems: &mut Vec<Problem>,
    ) -> (Layer, Vec<String>) {
        let (mut layer, mut ignored) = (Layer::default(), Vec::new());
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            match variable::named_by(name, &value) {
                VariableMeaning::Key(path) => match value.into_string() {
                    Ok(text) => layer.push_text(&format!("environment variable {name}"), path, &text),
                    Err(_) => problems.push(Problem::NotUnicode { variable: name.to_owned() }),
                },
                VariableMeaning::Misspelt(meant) => {
                    problems.push(Problem::UnknownVariable { variable: name.to_owned(), meant });
                }
                VariableMeaning::Unknown => ignored.push(format!(
                    "environment variable {name} is ignored: no key has this name; keys are HOMING_SECTION__KEY, such as HOMING_LOG__LEVEL"
                )),
                VariableMeaning::Other => {}
            }
        }
        layer.leaves.sort_by(|(a, _), (b, _)| a.cmp(b));
        ignored.sort();
        (layer, ignored)
    }

    /// Adds a value that came as text. The rule of its key says which type it has.
    pub(super) fn push_text(&mut self, origin: &str, path: String, text: &str) {
        let kind = match key(&path) {
            Some(key) => key.rule.read(text),
            None => ValueKind::String(text.to_owned()),
        };
        self.leaves.push((path, Value::new(Some(&origin.to_owned()), kind)));
    }

    /// Reports every unknown key and every value that its key does not take.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        for (path, value) in &self.leaves {
            match key(path).map(|key| &key.rule.kind) {
                Some(ValueType::Tables(_, check)) => problems.extend(check(value)),
                _ => problems.extend(problem_with(path, value)),
            }
        }
    }
}

/// Returns the place and the reason of a mistake in TOML, on one line. The lines between them show
/// a line of the file, which may have a secret.
fn without_excerpt(cause: &str) -> String {
    let is_excerpt = |line: &&str| {
        let behind_number = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
        behind_number.starts_with('|')
    };
    let cause = cause.strip_prefix("TOML parse error at ").unwrap_or(cause);
    let lines: Vec<&str> = cause.lines().filter(|line| !is_excerpt(line)).collect();
    lines.join(": ")
}

fn problem_with(path: &str, value: &Value) -> Option<Problem> {
    let source_name = origin(value);
    let not_allowed = |allowed: String| Problem::NotAllowed {
        source_name: origin(value),
        key: path.to_owned(),
        value: without_secrets(path, value),
        allowed,
    };
    if let Some(key) = key(path) {
        return (!key.rule.admits(value)).then(|| not_allowed(key.rule.instead_of(value)));
    }
    if SECTIONS.iter().any(|section| section.name == path) {
        let is_table = matches!(value.kind, ValueKind::Table(_));
        return (!is_table).then(|| not_allowed(format!("a section, [{path}] with its keys below it")));
    }
    Some(Problem::UnknownKey { source_name, key: path.to_owned(), hint: hint(path) })
}

/// Returns the key most likely meant; else what the section holds; else which sections there are.
fn hint(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or_default();
    let section = path.split('.').next().unwrap_or_default();
    let is_part = |key: &&Key| key.section() == section && key.name().split('_').any(|part| part == name);
    let mut longer = keys::keys().filter(is_part);
    if let (Some(only), None) = (longer.next(), longer.next()) {
        return format!("did you mean {}?", only.path);
    }
    let mut same_name = keys::keys().filter(|key| key.name() == name);
    if let (Some(only), None) = (same_name.next(), same_name.next()) {
        return format!("did you mean {}?", only.path);
    }
    if let Some(near) = nearest(path, keys::keys().map(|key| key.path)) {
        return format!("did you mean {near}?");
    }
    match SECTIONS.iter().find(|known| known.name == section) {
        Some(known) if known.is_list() => format!("each table of it is [[{section}]]"),
        Some(known) => {
            let inside: Vec<_> = known.keys.iter().map(Key::name).collect();
            format!("[{section}] holds {}", inside.join(", "))
        }
        None => {
            let sections: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
            format!("the sections are {}", sections.join(", "))
        }
    }
}
