//! The files that a reload has read again, each with its changes.

use crate::named_enum::named_enum;
use std::fmt;
use std::path::PathBuf;

named_enum! {
    /// The kind of a file that a reload reads again.
    pub enum FileKind {
        /// A password file.
        Passwords = "passwords",
        /// The keys of tokens.
        TokenKeys = "token_keys",
        /// The authorities and the headers of the service that checks logins.
        HttpService = "http_service",
        /// Certificates, keys, authorities and revocation lists.
        Tls = "tls",
        /// An ACL file.
        Acl = "acl",
        /// The file of bans.
        Bans = "bans",
    }
}

/// One file of a reload, or all files of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNews {
    /// The kind of the file.
    pub kind: FileKind,
    /// The key that names the file.
    pub key: &'static str,
    /// The listener whose file this is; `None` for a file of the whole broker.
    pub listener: Option<String>,
    /// The path; `None` if several files belong to the key. Then the detail names the changed
    /// files.
    pub path: Option<PathBuf>,
    /// False if the content is as before.
    pub is_changed: bool,
    /// The content in numbers, or the changes.
    pub detail: String,
}

pub(super) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns a content in numbers, with the content `before` if it differs.
pub(super) fn with_before(now: String, before: Option<String>) -> String {
    match before.filter(|before| *before != now) {
        Some(before) => format!("{now}, had {before}"),
        None => now,
    }
}

impl fmt::Display for FileNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileNews { kind, key, listener, path, is_changed, detail } = self;
        write!(f, "{} ({key}", kind.name())?;
        if let Some(listener) = listener {
            write!(f, " of listener {listener}")?;
        }
        if let Some(path) = path {
            write!(f, ", {}", path.display())?;
        }
        f.write_str(if *is_changed { ") changed" } else { ") as before" })?;
        if !detail.is_empty() {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_kind_the_key_the_listener_and_the_path() {
        let of_broker = FileNews {
            kind: FileKind::Passwords,
            key: "auth.password_file",
            listener: None,
            path: Some("/etc/passwd".into()),
            is_changed: true,
            detail: with_before(counted(2, "user"), Some(counted(1, "user"))),
        };
        let wanted = "passwords (auth.password_file, /etc/passwd) changed: 2 users, had 1 user";
        assert_eq!(of_broker.to_string(), wanted);
        let of_listener = FileNews {
            kind: FileKind::Tls,
            key: "listeners.tls",
            listener: Some("a".to_owned()),
            path: None,
            is_changed: false,
            detail: String::new(),
        };
        assert_eq!(of_listener.to_string(), "tls (listeners.tls of listener a) as before");
    }
}
