//! `[log]`: what is written to standard error.

use super::schema::{Key, Rule};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,homing::broker=debug`.
    pub level: String,
    pub format: LogFormat,
    /// Connect, refusal and disconnect lines within one second; what is left out is counted and reported.
    pub events_per_second: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object on a line, for machines.
    Json,
}

impl Default for Log {
    fn default() -> Log {
        Log { level: "info".to_owned(), format: LogFormat::Text, events_per_second: 100 }
    }
}

pub(super) const KEYS: &[Key] = &[
    Key::new("log.level", Rule::LogLevel),
    Key::new("log.format", Rule::OneOf(&["text", "json"])),
    Key::new("log.events_per_second", Rule::Integer(1, 1_000_000)),
];
