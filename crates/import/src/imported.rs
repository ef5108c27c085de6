//! The translation of a file, and the check of its result.

use crate::conf::{self, ConfError, ConfLine};
use crate::output;
use crate::translate::{self, Note};
use std::path::Path;

/// What a translation needs to know of Homing's configuration.
#[derive(Clone, Copy, Debug)]
pub struct HomingKeys {
    /// The default of `limits.memory` in bytes.
    pub memory: u64,
    /// The default of `limits.packet_size` in bytes.
    pub packet_size: u64,
    /// Writes a number of bytes as Homing writes sizes: `2 MiB`.
    pub size: fn(u64) -> String,
    /// Returns a line for each problem that Homing finds in a configuration file with this text.
    pub problems: fn(&str) -> Vec<String>,
}

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

/// Translates a file. Reads it and its `include_dir`, and nothing else. A chain of certificates is
/// therefore completed when Homing starts, and with each renewal.
///
/// # Errors
/// A file cannot be read.
pub fn import(file: &Path, homing: HomingKeys) -> Result<Imported, ConfError> {
    Ok(of_lines(&conf::read(file)?, file, homing))
}

/// Translates a text as the content of `file`. Does not follow its `include_dir`.
pub fn of_text(text: &str, file: &Path, homing: HomingKeys) -> Imported {
    of_lines(&conf::parse(file, text), file, homing)
}

/// Translates the lines of a file. Values that Homing refuses in the result are lost.
fn of_lines(lines: &[ConfLine], file: &Path, homing: HomingKeys) -> Imported {
    let mut translation = translate::translate(lines, homing);
    let toml = output::toml(&translation.settings, file);
    translation.notes.extend((homing.problems)(&toml).iter().map(|problem| Note::loss(None, problem)));
    let lost = translation.notes.iter().filter(|note| note.is_loss).count();
    let notes = translation.notes.iter().map(ToString::to_string).collect();
    Imported { toml, notes, lost }
}
