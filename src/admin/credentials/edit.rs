//! Changes of the file of credentials.

use super::Credentials;
use crate::auth::file_error::FileError;
use crate::auth::passwd::PasswdError;
use crate::auth::random::NoRandomness;
use crate::auth::replacement::{Replacement, ReplacementError};
use std::path::{Path, PathBuf};

/// The reasons why a credential is not changed.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The name is not possible in the file.
    #[error(
        "the name {0:?} is not possible: it must not be empty, begin with #, begin or end with a blank, or have a colon or a control character"
    )]
    Name(String),
    /// The file has no credential of this name.
    #[error("{}: {name:?} does not stand there", .file.display())]
    NoSuchName {
        /// The file of credentials.
        file: PathBuf,
        /// The name.
        name: String,
    },
    /// The file has a mistake.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system refuses a step.
    #[error(transparent)]
    System(#[from] ReplacementError),
    /// There is no secret without randomness.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The password cannot be read or hashed.
    #[error(transparent)]
    Password(#[from] PasswdError),
}

/// Replaces the line of a name, which must be valid, by `line`. Without a line the name leaves the
/// file. Without a file a new one is made. Errors: the file has a mistake, the system refuses, or
/// there is nothing to delete.
pub(super) fn replace(file: &Path, name: &str, line: Option<String>) -> Result<(), CredentialError> {
    let replacement = Replacement::begin(file)?;
    let content = replacement.content().unwrap_or_default();
    Credentials::parse(file, content)?;
    let content = String::from_utf8_lossy(content).into_owned();
    let is_it = |line: &&str| line.trim().split(':').next() == Some(name);
    if line.is_none() && !content.lines().any(|line| is_it(&line)) {
        return Err(CredentialError::NoSuchName { file: file.to_owned(), name: name.to_owned() });
    }
    let others = content.lines().filter(|line| !is_it(line)).map(str::to_owned);
    let text: String = others.chain(line).map(|line| format!("{line}\n")).collect();
    Ok(replacement.commit(text.as_bytes())?)
}

/// Checks that a name means the same when the file is read again. Errors: the name would be read
/// back differently.
pub(super) fn check_name(name: &str) -> Result<(), CredentialError> {
    match crate::auth::passwd::is_user_name(name) {
        true => Ok(()),
        false => Err(CredentialError::Name(name.to_owned())),
    }
}
