//! The mistakes in a file of the operator, all at once, each with its line.

use crate::file_thread;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The largest number of lines that are named. A file of another kind may have a mistake in each
/// line.
const NAMED: usize = 20;

/// The largest file in bytes: the rules or passwords of a million users have less. A device or a log
/// that is named by mistake would take all memory of the machine.
const LARGEST: u64 = 256 << 20;

/// The largest file with one secret in bytes.
pub const LARGEST_SECRET: u64 = 64 << 10;

/// The reason why a file cannot be used.
#[derive(Debug)]
pub struct FileError {
    file: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Unreadable(io::Error),
    Whole(Box<str>),
    Lines { named: Vec<LineError>, more: usize, of: LineKind },
}

/// The meaning of the number of a mistake.
#[derive(Clone, Copy, Debug, Default)]
enum LineKind {
    #[default]
    Line,
    Key,
}

/// A mistake in one line. The text never has a password or a hash.
#[derive(Debug)]
struct LineError {
    line: usize,
    what: String,
}

/// Collects the mistakes of one file.
#[derive(Debug, Default)]
pub struct LineErrors {
    named: Vec<LineError>,
    more: usize,
    of: LineKind,
}

impl FileError {
    /// Returns the content of a file.
    ///
    /// # Errors
    /// The system refuses the file, or it is larger than 256 MiB.
    pub fn read(file: &Path) -> Result<Vec<u8>, FileError> {
        FileError::read_within(file, LARGEST)
    }

    /// Returns the content of a file that has at most `most` bytes.
    ///
    /// # Errors
    /// The system refuses the file, or it is larger.
    pub fn read_within(file: &Path, most: u64) -> Result<Vec<u8>, FileError> {
        let _opened = file_thread::opens(file);
        let content = file_thread::read_within(file, most);
        content.map_err(|cause| FileError::unreadable(file, cause))
    }

    /// Returns the error for a file that the system refuses.
    pub fn unreadable(file: &Path, cause: io::Error) -> FileError {
        FileError { file: file.to_owned(), cause: Cause::Unreadable(cause) }
    }

    /// Returns the error for a file whose whole content is wrong.
    pub fn whole(file: &Path, what: &str) -> FileError {
        FileError { file: file.to_owned(), cause: Cause::Whole(what.into()) }
    }

    /// Returns each mistake as one line of text: `passwd:3: ...`.
    pub fn lines(&self) -> Vec<String> {
        let file = self.file.display();
        match &self.cause {
            Cause::Unreadable(cause) => vec![format!("{file}: cannot be read: {cause}")],
            Cause::Whole(what) => vec![format!("{file}: {what}")],
            Cause::Lines { named, more, of } => {
                let (place, all) = match of {
                    LineKind::Line => ("", "lines"),
                    LineKind::Key => (" key ", "keys"),
                };
                let line = |error: &LineError| format!("{file}:{place}{}: {}", error.line, error.what);
                let mut lines: Vec<String> = named.iter().map(line).collect();
                if *more > 0 {
                    lines.push(format!("{file}: {more} more {all} are not valid"));
                }
                lines
            }
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl std::error::Error for FileError {}

impl LineErrors {
    /// Returns the collection for a file of keys, which are numbered from 1.
    pub(super) fn of_keys() -> LineErrors {
        LineErrors { of: LineKind::Key, ..LineErrors::default() }
    }

    /// Records a mistake. Lines count from 1.
    pub fn push(&mut self, line: usize, what: impl Into<String>) {
        if self.named.len() < NAMED {
            self.named.push(LineError { line, what: what.into() });
        } else {
            self.more += 1;
        }
    }

    /// Returns `value` if no mistake was recorded.
    ///
    /// # Errors
    /// All mistakes.
    pub fn or<T>(self, file: &Path, value: T) -> Result<T, FileError> {
        if self.named.is_empty() {
            return Ok(value);
        }
        let cause = Cause::Lines { named: self.named, more: self.more, of: self.of };
        Err(FileError { file: file.to_owned(), cause })
    }
}

/// Returns the lines of a file with their numbers, from 1, without line ends. A line that is not
/// UTF-8 is recorded as a mistake. A byte order mark at the start is skipped.
pub(super) fn lines<'a>(content: &'a [u8], errors: &mut LineErrors) -> Vec<(usize, &'a str)> {
    let content = content.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(content);
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(content.split(|byte| *byte == b'\n')) {
        match std::str::from_utf8(line) {
            Ok(line) => lines.push((number, line.trim_end_matches('\r'))),
            Err(_) => errors.push(number, "the line is not UTF-8"),
        }
    }
    lines
}

/// As [`lines`], without blanks at both ends, and without empty lines and comments, which begin
/// with `#`.
pub(crate) fn entries<'a>(content: &'a [u8], errors: &mut LineErrors) -> Vec<(usize, &'a str)> {
    let trimmed = lines(content, errors).into_iter().map(|(number, line)| (number, line.trim()));
    trimmed.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_its_file_and_line() {
        let mut errors = LineErrors::default();
        let content = b"\xEF\xBB\xBFone\r\n\xFF\nthree";
        assert_eq!(lines(content, &mut errors), [(1, "one"), (3, "three")]);
        errors.push(3, "is wrong");
        let error = errors.or(Path::new("acl"), ()).unwrap_err();
        assert_eq!(error.to_string(), "acl:2: the line is not UTF-8\nacl:3: is wrong");
        assert!(LineErrors::default().or(Path::new("acl"), ()).is_ok());
    }

    #[test]
    fn a_file_of_mistakes_is_not_listed_whole() {
        for (mut errors, last) in [
            (LineErrors::default(), "acl: 80 more lines are not valid"),
            (LineErrors::of_keys(), "acl: 80 more keys are not valid"),
        ] {
            (1..=100).for_each(|line| errors.push(line, "is wrong"));
            let lines = errors.or(Path::new("acl"), ()).unwrap_err().lines();
            assert_eq!((lines.len(), lines[20].as_str()), (21, last));
        }
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let error = FileError::unreadable(Path::new("acl"), io::Error::other("no luck"));
        assert_eq!(error.to_string(), "acl: cannot be read: no luck");
    }
}
