//! The lines of a mosquitto.conf.
//!
//! A line is an option's name, blanks and a value up to the end of the line. A line that begins
//! with `#` is a comment. `include_dir` adds the files of a directory that end in `.conf`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

/// One option with its value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfLine {
    /// The path of the file, as given.
    pub file: Rc<Path>,
    /// The number of the line, from 1.
    pub number: usize,
    /// The name of the option.
    pub name: String,
    /// The value without blanks around it; empty if missing.
    pub value: String,
}

/// A file or directory that cannot be read.
#[derive(Debug, Error)]
#[error("{}: cannot be read: {cause}", .file.display())]
pub struct ConfError {
    file: PathBuf,
    cause: io::Error,
}

/// Reads a file, and the files of its `include_dir` in their places. mosquitto follows
/// `include_dir` in the main file only.
///
/// # Errors
/// A file or directory cannot be read.
pub(crate) fn read(file: &Path) -> Result<Vec<ConfLine>, ConfError> {
    let mut lines = Vec::new();
    for line in read_file(file)? {
        if line.name == "include_dir" {
            for included in directory(Path::new(&line.value))? {
                lines.extend(read_file(&included)?);
            }
        } else {
            lines.push(line);
        }
    }
    Ok(lines)
}

fn read_file(file: &Path) -> Result<Vec<ConfLine>, ConfError> {
    let content = fs::read(file).map_err(|cause| ConfError { file: file.to_owned(), cause })?;
    Ok(parse(file, &String::from_utf8_lossy(&content)))
}

/// Returns the options of a text. `file` is its name in notes.
pub(crate) fn parse(file: &Path, text: &str) -> Vec<ConfLine> {
    let file: Rc<Path> = file.into();
    let option = |(number, line): (usize, &str)| {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (name, value) = line.trim_start().split_once([' ', '\t']).unwrap_or((line.trim_start(), ""));
        let (name, value) = (name.to_owned(), value.trim().to_owned());
        Some(ConfLine { file: Rc::clone(&file), number, name, value })
    };
    (1..).zip(text.lines()).filter_map(option).collect()
}

/// Returns the files in mosquitto's order: alphabetical, and upper case before the lower case of
/// the same letter.
fn directory(path: &Path) -> Result<Vec<PathBuf>, ConfError> {
    let failed = |cause| ConfError { file: path.to_owned(), cause };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "conf") {
            files.push(file);
        }
    }
    files.sort_by_key(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name.to_lowercase(), name)
    });
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_mosquitto_reads_them() {
        let text = "# comment\r\nlistener  1883 127.0.0.1 \r\n\r\nuser\nacl_file /a b/acl\n";
        let lines = parse(Path::new("m.conf"), text);
        let read: Vec<_> = lines.iter().map(|l| (l.number, l.name.as_str(), l.value.as_str())).collect();
        assert_eq!(read, [(2, "listener", "1883 127.0.0.1"), (4, "user", ""), (5, "acl_file", "/a b/acl")]);
    }

    #[test]
    fn an_included_directory_stands_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let included = directory.path().join("conf.d");
        fs::create_dir(&included).unwrap();
        for name in ["b.conf", "A.conf", "a.conf", "00.conf", "a.txt"] {
            fs::write(included.join(name), format!("user {name}\n")).unwrap();
        }
        let main = directory.path().join("mosquitto.conf");
        fs::write(&main, format!("user first\ninclude_dir {}\nuser last\n", included.display())).unwrap();
        let users: Vec<String> = read(&main).unwrap().into_iter().map(|line| line.value).collect();
        assert_eq!(users, ["first", "00.conf", "A.conf", "a.conf", "b.conf", "last"]);
        assert!(
            read(&directory.path().join("missing"))
                .unwrap_err()
                .to_string()
                .contains("missing: cannot be read")
        );
    }
}
