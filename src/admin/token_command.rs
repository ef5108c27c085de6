//! `homing admin-token`: makes a token, prints it once, and stores its digest.

use super::access::{Scope, TOKEN_PREFIX, Tokens, line_of};
use crate::auth::file_error::FileError;
use crate::auth::random::{NoRandomness, random_text};
use crate::auth::replacement::{Replacement, ReplacementError};
use clap::Args;
use std::path::PathBuf;

/// Flags of `homing admin-token`.
#[derive(Args, Clone, Debug)]
pub struct TokenArguments {
    /// The file of tokens (admin.tokens_file); made if it does not exist
    file: PathBuf,
    /// The name of the token, which the log shows
    name: String,
    /// What the token is for: viewer looks, operator acts on clients, admin changes the broker
    #[arg(long, default_value = "viewer")]
    scope: Scope,
    /// Delete the token of this name instead
    #[arg(long)]
    delete: bool,
}

/// The reasons why a token is not made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The name cannot stand in the file.
    #[error(
        "the name {0:?} is not possible: it must not be empty, begin with #, begin or end with a blank, or have a colon or a control character"
    )]
    Name(String),
    /// The file has no token of this name.
    #[error("{}: no token {name:?}", .file.display())]
    NoSuchToken {
        /// The file of tokens.
        file: PathBuf,
        /// The name.
        name: String,
    },
    /// The file has a mistake.
    #[error("{0}")]
    File(#[from] FileError),
    /// The system refuses a step.
    #[error("{0}")]
    System(#[from] ReplacementError),
    /// There is no token without randomness.
    #[error("{0}")]
    Randomness(#[from] NoRandomness),
}

/// Makes or deletes a token. Returns the new token. A token of the same name is replaced.
///
/// # Errors
/// The name is not possible, the file has a mistake, or the system refuses.
pub fn run(arguments: &TokenArguments) -> Result<Option<String>, TokenError> {
    let TokenArguments { file, name, scope, delete } = arguments;
    let is_bare = name.trim() == name;
    if !is_bare
        || name.is_empty()
        || name.starts_with('#')
        || name.contains(|c: char| c == ':' || c.is_control())
    {
        return Err(TokenError::Name(name.clone()));
    }
    let replacement = Replacement::begin(file)?;
    let content = replacement.content().unwrap_or_default();
    Tokens::parse(file, content)?;
    let content = String::from_utf8_lossy(content).into_owned();
    let is_it = |line: &&str| line.trim().split(':').next() == Some(name);
    let found = content.lines().any(|line| is_it(&line));
    let mut lines: Vec<String> = content.lines().filter(|line| !is_it(line)).map(str::to_owned).collect();
    let token = match (delete, found) {
        (true, false) => return Err(TokenError::NoSuchToken { file: file.clone(), name: name.clone() }),
        (true, true) => None,
        (false, _) => Some(format!("{TOKEN_PREFIX}{}", *random_text()?)),
    };
    lines.extend(token.iter().map(|token| line_of(name, *scope, token)));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    replacement.commit(text.as_bytes())?;
    Ok(token)
}
