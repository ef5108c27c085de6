//! What is wrong with what an operator wrote, each in one line that says where, which key, which value, and what is allowed.

use std::fmt;
use std::path::PathBuf;

/// Everything found wrong, in the order of the layers. Never empty.
#[derive(Debug)]
pub struct Refusal(pub Vec<Problem>);

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("{}: cannot be read: {cause}", .file.display())]
    Unreadable { file: PathBuf, cause: std::io::Error },

    #[error("{}: not valid TOML: {cause}", .file.display())]
    Syntax { file: PathBuf, cause: String },

    #[error("{source_name}: unknown key {key}; {hint}")]
    UnknownKey { source_name: String, key: String, hint: String },

    #[error("{source_name}: {key} = {value} is not allowed; must be {allowed}")]
    NotAllowed { source_name: String, key: String, value: String, allowed: String },

    #[error("environment variable {variable}: its value is not UTF-8; configuration is text")]
    NotUnicode { variable: String },

    #[error("--set {text}: not an assignment; must be section.key=value, such as --set log.level=debug")]
    NotAnAssignment { text: String },

    #[error("{} contradicts {}; {rule}", .keys.0, .keys.1)]
    Contradiction { keys: Box<(Setting, Setting)>, rule: &'static str },

    /// The rules let something through that the structs refuse: a mistake of ours, told rather than hidden.
    #[error("configuration: {0}")]
    Internal(String),
}

/// One key, the value it has, and the source that value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub key: String,
    /// As one would write it in the file.
    pub value: String,
    pub source: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.key, self.value, self.source)
    }
}

impl fmt::Display for Refusal {
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

impl std::error::Error for Refusal {}
