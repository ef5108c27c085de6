//! The CSV file of a run: a head, and a line for each slot as soon as it ends.

use super::record::RunSlot;
use super::refused::Refused;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const HEAD: &str = "at_s,unix_s,per_s,p50_ms,p99_ms,delivered,overdue\n";

/// An open CSV file.
#[derive(Debug)]
pub(super) struct CsvFile {
    path: PathBuf,
    file: File,
    failure: Option<String>,
}

impl CsvFile {
    /// Creates the file, or empties it, and writes its head.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn create(path: &Path) -> Result<CsvFile, Refused> {
        let created = File::create(path).and_then(|mut file| file.write_all(HEAD.as_bytes()).map(|()| file));
        let file = created.map_err(|error| Refused(format!("--csv {}: {error}", path.display())))?;
        Ok(CsvFile { path: path.to_owned(), file, failure: None })
    }

    /// Writes a line. After an error no more lines are written.
    pub(super) fn line(&mut self, unix_s: f64, slot: &RunSlot) {
        if self.failure.is_none()
            && let Err(error) = self.file.write_all(line(unix_s, slot).as_bytes())
        {
            self.failure = Some(format!("cannot write {}: {error}", self.path.display()));
        }
    }

    /// Closes the file. Returns the first error.
    pub(super) fn finish(self) -> Option<String> {
        self.failure
    }
}

fn line(unix_s: f64, slot: &RunSlot) -> String {
    let RunSlot { at_s, per_s, p50_ms, p99_ms, delivered, overdue } = *slot;
    // A slot without messages has no latency: the field is empty, not 0.
    let millis = |value: Option<f64>| value.map(|value| format!("{value:.3}")).unwrap_or_default();
    let (p50, p99) = (millis(p50_ms), millis(p99_ms));
    format!("{at_s:.3},{unix_s:.3},{per_s:.1},{p50},{p99},{delivered},{overdue}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_field_for_each_name_of_the_head() {
        let slot =
            RunSlot { at_s: 0.25, per_s: 8.0, p50_ms: Some(1.5), p99_ms: None, delivered: 2, overdue: 1 };
        let line = line(1_700_000_000.25, &slot);
        assert_eq!(line, "0.250,1700000000.250,8.0,1.500,,2,1\n");
        assert_eq!(line.matches(',').count(), HEAD.matches(',').count());
    }
}
