//! `homing import mosquitto.conf`: translates a configuration of mosquitto 2.0 or 2.1.
//!
//! - `imported`: the translation of a file.
//! - `conf`: the lines of the file and of its `include_dir`.
//! - `options`: every option's name and fate.
//! - `translate`: the meaning of the lines.
//! - `output`: the TOML.
//! - `value`: numbers, sizes and times.
//!
//! Password files and ACL files are not translated, because Homing reads mosquitto's files. The
//! defaults of Homing's keys and the check of the result come from the program around this package
//! ([`HomingKeys`]).

#![warn(missing_docs, unreachable_pub)]
#![warn(clippy::unwrap_used, reason = "a configuration that cannot be translated is a note")]

mod conf;
mod imported;
mod options;
mod output;
mod translate;
mod value;

pub use conf::ConfError;
pub use imported::{HomingKeys, Imported, import, of_text};
pub use options::TRANSLATED;
