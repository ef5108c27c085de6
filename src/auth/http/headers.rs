//! The file with further headers of the request: `Name: value` on each line.
//!
//! A service may ask for a secret of the broker. In a file of its own, the secret is neither in the
//! configuration nor in the environment.

use crate::auth::file_error::{FileError, LineErrors, entries};
use crate::config::http_header::{is_name, is_own, is_value};
use std::fmt;
use std::path::Path;
use zeroize::Zeroizing;

/// Further headers of the request, in their order. `Debug` shows no value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpHeaders(Vec<(Box<str>, Zeroizing<String>)>);

impl HttpHeaders {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or has lines that are no headers: then all of them are named.
    pub fn load(file: &Path) -> Result<HttpHeaders, FileError> {
        HttpHeaders::parse(file, &Zeroizing::new(FileError::read(file)?))
    }

    /// Reads the content of a file. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// Lines are no headers: then all of them are named, without their values.
    pub fn parse(file: &Path, content: &[u8]) -> Result<HttpHeaders, FileError> {
        let mut errors = LineErrors::default();
        let mut headers = Vec::new();
        for (number, line) in entries(content, &mut errors) {
            match line.split_once(':').map(|(name, value)| (name, value.trim())) {
                Some((name, _)) if is_own(name) => {
                    errors.push(number, format!("the broker writes the header {name} itself"));
                }
                Some((name, value)) if is_name(name) && is_value(value) => {
                    headers.push((name.into(), Zeroizing::new(value.to_owned())));
                }
                _ => errors.push(number, "a header is written `Name: value`, in visible ASCII"),
            }
        }
        errors.or(file, HttpHeaders(headers))
    }

    /// Adds a header whose name and value were checked.
    pub fn push(&mut self, name: &str, value: Zeroizing<String>) {
        self.0.push((name.into(), value));
    }

    /// Returns name and value of each header.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_str()))
    }
}

impl fmt::Debug for HttpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<HttpHeaders, FileError> {
        HttpHeaders::parse(Path::new("headers"), text.as_bytes())
    }

    #[test]
    fn each_line_is_a_header() {
        let headers = parse("# for the service\nAuthorization: Bearer a:b\r\n\nX-Site:  north \n").unwrap();
        let all: Vec<_> = headers.iter().collect();
        assert_eq!(all, [("Authorization", "Bearer a:b"), ("X-Site", "north")]);
        assert_eq!(format!("{headers:?}"), r#"["Authorization", "X-Site"]"#, "no value is shown");
    }

    #[test]
    fn a_mistake_is_named_without_its_value() {
        let error = parse("Secret\nX Y: secret\nHost: secret\nX: sécret\nX:\n").unwrap_err().to_string();
        let form = "a header is written `Name: value`, in visible ASCII";
        let lines = [
            format!("headers:1: {form}"),
            format!("headers:2: {form}"),
            "headers:3: the broker writes the header Host itself".to_owned(),
            format!("headers:4: {form}"),
            format!("headers:5: {form}"),
        ];
        assert_eq!(error, lines.join("\n"));
    }
}
