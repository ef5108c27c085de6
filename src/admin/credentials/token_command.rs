//! `homing admin-token`: makes a token, prints it once, and stores its digest.

use super::edit::{CredentialError, check_name, replace};
use super::{TOKEN_PREFIX, line_of, secret_of_token};
use crate::admin::access::Scope;
use crate::auth::random::random_text;
use clap::Args;
use std::path::PathBuf;

/// Flags of `homing admin-token`.
#[derive(Args, Clone, Debug)]
pub struct TokenArguments {
    /// The file of credentials (admin.credentials); made if it does not exist
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

/// Makes or deletes a token. Returns the new token. A credential of the same name is replaced.
///
/// # Errors
/// The name is not possible, the file has a mistake, or the system refuses.
pub fn run(arguments: &TokenArguments) -> Result<Option<String>, CredentialError> {
    let TokenArguments { file, name, scope, delete } = arguments;
    check_name(name)?;
    let token = if *delete { None } else { Some(format!("{TOKEN_PREFIX}{}", *random_text()?)) };
    let line = token.as_deref().map(|token| line_of(name, *scope, &secret_of_token(token)));
    replace(file, name, line)?;
    Ok(token)
}
