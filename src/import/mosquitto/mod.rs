//! `homing import mosquitto.conf`: translates a configuration of mosquitto 2.0 or 2.1.
//!
//! - [`conf`]: the lines of the file and of its `include_dir`.
//! - [`options`]: every option's name, and what becomes of it.
//! - [`translate`]: the meaning of the lines.
//! - [`output`]: the TOML.
//! - `value`: numbers, sizes and times.
//!
//! Password files and ACL files are not translated, because Homing reads mosquitto's files.

pub mod conf;
pub mod options;
pub mod output;
pub mod translate;
mod value;

use conf::ConfError;
use std::path::Path;

/// The result of a translation.
#[derive(Debug)]
pub struct Imported {
    /// The configuration for Homing.
    pub toml: String,
    /// One line for each option that does not mean the same.
    pub notes: Vec<String>,
    /// The number of notes about something that protects or delivers, and that would be lost.
    pub lost: usize,
}

/// Translates a file. Reads it and its `include_dir`, and nothing else.
///
/// # Errors
/// A file cannot be read.
pub fn import(file: &Path) -> Result<Imported, ConfError> {
    let translation = translate::translate(&conf::read(file)?);
    let lost = translation.notes.iter().filter(|note| note.is_loss).count();
    let notes = translation.notes.iter().map(ToString::to_string).collect();
    Ok(Imported { toml: output::toml(&translation.settings, file), notes, lost })
}
