//! `homing admin-user`: stores a user with the argon2id hash of a password.

use super::edit::{CredentialError, check_name, replace};
use super::line_of;
use crate::admin::access::Scope;
use crate::auth::passwd::hash_for_people;
use crate::auth::passwd::secret::{Repeat, SecretSource, read};
use clap::Args;
use std::path::PathBuf;

/// Flags of `homing admin-user`.
#[derive(Args, Clone, Debug)]
pub struct UserArguments {
    /// The file of credentials (admin.credentials); made if it does not exist
    file: PathBuf,
    /// The name of the user, which the log shows
    name: String,
    /// The scope of the user: viewer looks, operator acts on clients, admin changes the broker
    #[arg(long, default_value = "viewer")]
    scope: Scope,
    /// Read the password from the first line of standard input [default: ask on the terminal]
    #[arg(long, conflicts_with = "delete")]
    stdin: bool,
    /// Delete the user of this name instead
    #[arg(long)]
    delete: bool,
}

/// Adds a user, changes its password and scope, or deletes it. Returns the line to print. A
/// credential of the same name is replaced.
///
/// # Errors
/// The name is not possible, there is no password, the file has a mistake, or the system refuses.
pub fn run(arguments: &UserArguments) -> Result<String, CredentialError> {
    let UserArguments { file, name, scope, stdin, delete } = arguments;
    check_name(name)?;
    if *delete {
        replace(file, name, None)?;
        return Ok(format!("{}: deleted user {name:?}", file.display()));
    }
    let source = if *stdin { SecretSource::Stdin } else { SecretSource::Terminal };
    // The terminal is asked before the file is locked.
    let password = read(source, Repeat::Twice)?;
    let hash = hash_for_people(&password)?;
    replace(file, name, Some(line_of(name, *scope, &hash.to_text())))?;
    Ok(format!("{}: user {name:?} with the scope {scope}", file.display()))
}
