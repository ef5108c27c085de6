//! Changes of the files about clients by operators: the password file, the ACL file and the file of
//! bans.
//!
//! The supervisor makes one change at a time, and none beside a reload. The new content is checked
//! first, then written, and then put in force, as a reload of this file alone does. Nothing can
//! fail behind the write: what is put in force was made from the checked content.

use super::handshake::entrance::listener_name;
use super::reload::ReloadMode;
use super::revocations::Revoked;
use crate::access::acl::Acl;
use crate::access::bans::BanList;
use crate::auth::file_error::FileError;
use crate::auth::password::PasswordFile;
use crate::auth::password::file::Fingerprint;
use crate::auth::replacement::{Replacement, ReplacementError};
use crate::auth::{acl_file, ban_file};
use crate::config::{Config, Listener};
use crate::file_thread::{self, NotRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zeroize::Zeroizing;

/// A file about clients that operators change while the broker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFile {
    /// The content of the file.
    pub kind: ClientFileKind,
    /// The listener whose own file it is; `None` for that of the broker.
    pub listener: Option<String>,
}

/// The content of a file about clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFileKind {
    /// The users and their passwords (`auth.password_file`).
    Passwords,
    /// The topics that clients may write and read (`acl.file`).
    Acl,
    /// The clients that may not enter (`bans.file`).
    Bans,
}

/// Makes the new content of the present one.
pub type ContentChange = Box<dyn FnOnce(&[u8]) -> Result<Zeroizing<Vec<u8>>, NotEdited> + Send>;

/// A change of a file.
pub struct FileEdit {
    /// The file.
    pub file: ClientFile,
    /// The change of its content.
    pub change: ContentChange,
    /// The change, or a check of its result alone.
    pub mode: ReloadMode,
}

/// A file that was changed.
#[derive(Clone, Copy, Debug)]
pub struct FileEdited {
    /// False if the content is as before.
    pub is_changed: bool,
    /// The fingerprint of the new content.
    pub version: Fingerprint,
    /// The clients that the change disconnected.
    pub disconnected: Revoked,
}

/// The content of a file.
pub struct ClientFileContent {
    /// The path of the file.
    pub path: PathBuf,
    /// The content.
    pub content: Zeroizing<Vec<u8>>,
    /// The fingerprint of the content.
    pub version: Fingerprint,
    /// False if the file was changed and not read again since.
    pub is_in_force: bool,
}

/// The reasons why a file is not changed, or not read.
#[derive(Debug, thiserror::Error)]
pub enum NotEdited {
    /// The configuration names no such file.
    #[error("{0}")]
    NoFile(String),
    /// The entry that is to be changed is not in the file.
    #[error("the file has no such entry")]
    NoEntry,
    /// The file is not the one that the change was made for.
    #[error("the file was changed meanwhile; read it again")]
    OtherVersion,
    /// The new content has mistakes, one text for each.
    #[error("{}", .0.join("; "))]
    Mistakes(Vec<String>),
    /// The system does not let the broker write the file. The file is unchanged.
    #[error(transparent)]
    NotWritten(#[from] ReplacementError),
    /// The change is written and in force, and may be lost in a power loss.
    #[error("the change is in force; {0}")]
    NotSynced(ReplacementError),
    /// The file is missing.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error(transparent)]
    NotRead(#[from] FileError),
    /// The disk hangs. The file may be changed all the same.
    #[error(transparent)]
    Hangs(NotRead),
}

impl ClientFileKind {
    /// Returns the key that names the file.
    pub const fn key(self) -> &'static str {
        match self {
            ClientFileKind::Passwords => "auth.password_file",
            ClientFileKind::Acl => "acl.file",
            ClientFileKind::Bans => "bans.file",
        }
    }

    /// Returns the key that names the file of a listener; `None` if listeners have none.
    const fn key_of_listener(self) -> Option<&'static str> {
        match self {
            ClientFileKind::Passwords => Some("listeners.password_file"),
            ClientFileKind::Acl => Some("listeners.acl_file"),
            ClientFileKind::Bans => None,
        }
    }

    /// Returns the path of the broker's file.
    ///
    /// # Errors
    /// The configuration names none. The text says what is there instead.
    fn of_broker(self, config: &Config) -> Result<PathBuf, NotEdited> {
        let auth = &config.auth;
        let path = match self {
            ClientFileKind::Passwords => auth.password_path(),
            ClientFileKind::Acl => config.acl.path(),
            ClientFileKind::Bans => config.bans.path(),
        };
        path.ok_or_else(|| {
            let http = auth.http_service().map(|url| format!("the service {url} decides about users"));
            let tokens = auth.jwt_keys_path().map(|_| "users come with tokens (auth.jwt_keys)".to_owned());
            let other = http.or(tokens).filter(|_| self == ClientFileKind::Passwords);
            let why = other.map(|other| format!(": {other}")).unwrap_or_default();
            NotEdited::NoFile(format!("{} is off{why}", self.key()))
        })
    }

    /// Reads a content. Errors: all mistakes, with their lines.
    fn parse(self, path: &Path, content: &[u8]) -> Result<ParsedFile, NotEdited> {
        let parsed = match self {
            ClientFileKind::Passwords => {
                PasswordFile::parse(path, content).map(|file| ParsedFile::Passwords(Box::new(file)))
            }
            ClientFileKind::Acl => acl_file::parse(path, content).map(|acl| ParsedFile::Acl(Box::new(acl))),
            ClientFileKind::Bans => {
                ban_file::parse(path, content).map(|bans| ParsedFile::Bans(Box::new(bans)))
            }
        };
        parsed.map_err(|error| NotEdited::Mistakes(error.lines()))
    }
}

impl ClientFile {
    /// Returns the file of the broker.
    pub const fn of_broker(kind: ClientFileKind) -> ClientFile {
        ClientFile { kind, listener: None }
    }

    /// Returns the key that names the file.
    pub(super) fn key(&self) -> &'static str {
        let of_listener = self.listener.as_ref().and(self.kind.key_of_listener());
        of_listener.unwrap_or(self.kind.key())
    }

    /// Returns the path of the file.
    ///
    /// # Errors
    /// The configuration names none. The text says what is there instead.
    pub(super) fn path(&self, config: &Config) -> Result<PathBuf, NotEdited> {
        let (Some(wanted), Some(key)) = (&self.listener, self.kind.key_of_listener()) else {
            return self.kind.of_broker(config);
        };
        let all = config.all_listeners();
        let names: Vec<_> = all.iter().enumerate().map(|(at, one)| listener_name(at, one)).collect();
        let own = |listener: &Listener| match self.kind {
            ClientFileKind::Passwords => listener.password_file.clone(),
            ClientFileKind::Acl => listener.acl_file.clone(),
            ClientFileKind::Bans => None,
        };
        match names.iter().position(|name| **name == **wanted) {
            Some(at) => own(&all[at]).map(PathBuf::from).ok_or_else(|| {
                let of_all = self.kind.key();
                NotEdited::NoFile(format!(
                    "the listener {wanted} has no {key} of its own; {of_all} holds for it, which is changed without a listener"
                ))
            }),
            None => {
                let names = names.join(", ");
                Err(NotEdited::NoFile(format!("there is no listener {wanted}; the listeners are {names}")))
            }
        }
    }

    /// Returns true if the file at a path is that of the broker, which a listener may name, too.
    pub(super) fn is_of_broker(&self, path: &Path, config: &Config) -> bool {
        self.kind.of_broker(config).is_ok_and(|of_broker| of_broker == path)
    }
}

/// A content that has no mistake.
pub(super) enum ParsedFile {
    Passwords(Box<PasswordFile>),
    Acl(Box<Acl>),
    Bans(Box<BanList>),
}

/// A file that was written, and is not in force yet.
pub(super) struct WrittenFile {
    pub(super) parsed: ParsedFile,
    pub(super) version: Fingerprint,
    pub(super) is_changed: bool,
    /// The reason why a power loss may bring the old content back.
    pub(super) unsynced: Option<ReplacementError>,
}

/// Checks and writes a change. Blocks for as long as the disk takes. Once `given_up` is true,
/// nothing is written any more. Errors: the file is unchanged.
pub(super) fn write(
    path: &Path,
    edit: FileEdit,
    given_up: &Arc<AtomicBool>,
) -> Result<WrittenFile, NotEdited> {
    let FileEdit { file, change, mode } = edit;
    let _opened = file_thread::opens(path);
    let replacement = Replacement::begin(path)?;
    let before = replacement.content().ok_or_else(|| NotEdited::Missing(path.to_owned()))?;
    let content = change(before)?;
    let (parsed, mut unsynced) = (file.kind.parse(path, &content)?, None);
    let (version, is_changed) = (Fingerprint::of_bytes(&content), *content != before);
    if mode == ReloadMode::Apply && is_changed {
        if given_up.load(Ordering::Relaxed) {
            return Err(NotEdited::OtherVersion);
        }
        match replacement.commit(&content) {
            Err(error @ ReplacementError::NotSynced { .. }) => unsynced = Some(error),
            result => result?,
        }
    }
    Ok(WrittenFile { parsed, version, is_changed, unsynced })
}

/// Reads a file. Blocks for as long as the disk takes. Errors: the system refuses the file.
pub(super) fn read(path: PathBuf) -> Result<ClientFileContent, NotEdited> {
    let content = Zeroizing::new(FileError::read(&path)?);
    let version = Fingerprint::of_bytes(&content);
    Ok(ClientFileContent { path, content, version, is_in_force: false })
}
