//! Mistakes of the operator. Each is one line with the source, the key, the value and the allowed
//! values.

use std::fmt;
use std::path::PathBuf;

/// Maximum number of edits between an unknown key and the key that is suggested.
const NEAR: usize = 3;

/// Returns the name most like an unknown one, if it is near.
pub(super) fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(name, unknown);
    let all = known.into_iter().map(|name| (distance(name), name));
    all.min_by_key(|(edits, _)| *edits).filter(|(edits, _)| *edits <= NEAR).map(|(_, name)| name)
}

/// Every problem that was found, in the order of the layers. Never empty.
#[derive(Debug)]
pub struct ConfigRefusal(pub Vec<Problem>);

/// One mistake in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The system refuses the file.
    #[error("{}: cannot be read: {cause}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },

    /// The file is no TOML.
    #[error("{}: not valid TOML: {cause}", .file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The place and the reason.
        cause: String,
    },

    /// No key has this name.
    #[error("{source_name}: unknown key {key}; {hint}")]
    UnknownKey {
        /// The file, variable or flag.
        source_name: String,
        /// The key as written.
        key: String,
        /// The nearest key, or the keys of the section.
        hint: String,
    },

    /// The key does not take this value.
    #[error("{source_name}: {key} = {value} is not allowed; must be {allowed}")]
    NotAllowed {
        /// The file, variable or flag.
        source_name: String,
        /// The key.
        key: String,
        /// The value as written.
        value: String,
        /// The values that the key takes, in words.
        allowed: String,
    },

    /// The keys of a cluster do not make a node, for this reason.
    #[error("{0}")]
    NoNode(String),

    /// The value of an environment variable is not UTF-8.
    #[error("environment variable {variable}: its value is not UTF-8; configuration is text")]
    NotUnicode {
        /// The name of the variable.
        variable: String,
    },

    /// A variable has nearly the name of a key.
    #[error("environment variable {variable}: no key has this name; did you mean {meant}?")]
    UnknownVariable {
        /// The name of the variable.
        variable: String,
        /// The variable of the key that has nearly this name.
        meant: String,
    },

    /// The text behind `--set` has no `=`.
    #[error("--set {text}: not an assignment; must be section.key=value, such as --set log.level=debug")]
    NotAnAssignment {
        /// The text as written.
        text: String,
    },

    /// Two values are each allowed, but do not go together.
    #[error("{} contradicts {}; {rule}", .keys.0, .keys.1)]
    Contradiction {
        /// The two keys with their values.
        keys: Box<(Setting, Setting)>,
        /// The broken rule, in words.
        rule: &'static str,
    },

    /// A file that a key names cannot be used.
    #[error("{key}: {why}")]
    UnusableFile {
        /// The key.
        key: &'static str,
        /// The file and the reason.
        why: String,
    },

    /// A rule admitted a value that its field cannot hold. The broker itself is at fault.
    #[error("configuration: {0}")]
    Internal(String),
}

/// One key with its value and the source of this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, as `section.name`.
    pub key: String,
    /// The value as one would write it in the file.
    pub value: String,
    /// The file, variable or flag, or `built-in default`.
    pub source: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.key, self.value, self.source)
    }
}

impl fmt::Display for ConfigRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigRefusal {}
