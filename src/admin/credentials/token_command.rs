//! `homing admin-token`: makes a token, prints it once, and stores its digest; lists the tokens.

use super::edit::{CredentialError, check_name, replace};
use super::{CredentialEntry, Credentials, TOKEN_PREFIX, end_text, line_of, secret_of_token};
use crate::admin::access::Scope;
use crate::auth::random::random_text;
use crate::clock::unix_millis;
use crate::time::duration;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Flags of `homing admin-token`.
#[derive(Args, Clone, Debug)]
pub struct TokenArguments {
    /// The file of credentials (admin.credentials); made if it does not exist
    file: PathBuf,
    /// The name of the token, which the log shows
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// The scope of the token: publisher publishes, viewer looks, operator acts on clients, admin
    /// changes the broker
    #[arg(long, default_value = "viewer")]
    scope: Scope,
    /// The time after which the token is refused, such as 30d [default: never]
    #[arg(long, value_name = "TIME", value_parser = lifetime, conflicts_with = "delete")]
    expires: Option<Duration>,
    /// Delete the token of this name instead
    #[arg(long)]
    delete: bool,
    /// List the tokens and users of the file instead, with their scopes and ends
    #[arg(long, conflicts_with_all = ["name", "scope", "expires", "delete"])]
    list: bool,
}

/// Reads a time to live. Errors: the text is no duration, or it is zero or more than a hundred
/// years.
pub(in crate::admin) fn lifetime(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|error| error.to_string())?;
    let is_allowed = (Duration::from_secs(1)..=Duration::from_hours(36_525 * 24)).contains(&time);
    if is_allowed { Ok(time) } else { Err("it must be 1s to 36525d".to_owned()) }
}

/// Makes or deletes a token, or lists all. Returns the output: the new token, or the list. A
/// credential of the same name is replaced.
///
/// # Errors
/// The name is not possible, the file has a mistake, or the system refuses.
pub fn run(arguments: &TokenArguments) -> Result<String, CredentialError> {
    let TokenArguments { file, name, scope, expires, delete, list } = arguments;
    if *list {
        return Ok(listed(&Credentials::load(file)?));
    }
    let name = name.as_deref().unwrap_or_default();
    check_name(name)?;
    if *delete {
        remove_token(file, name)?;
        return Ok("deleted".to_owned());
    }
    NewToken { name: name.to_owned(), scope: *scope, expires: *expires }.make(file)
}

#[derive(Clone, Debug)]
pub(in crate::admin) struct NewToken {
    pub(in crate::admin) name: String,
    pub(in crate::admin) scope: Scope,
    /// The time after which it is refused; `None` for never.
    pub(in crate::admin) expires: Option<Duration>,
}

impl NewToken {
    /// Makes the token, and stores its digest in the file. Returns the token. A credential of the
    /// same name is replaced. Errors: the name is not possible, the file has a mistake, or the
    /// system refuses.
    pub(in crate::admin) fn make(&self, file: &Path) -> Result<String, CredentialError> {
        let NewToken { name, scope, expires } = self;
        check_name(name)?;
        let token = format!("{TOKEN_PREFIX}{}", *random_text()?);
        let end = expires.map(|time| format!(":{}", end_text(unix_millis() + 1_000 * time.as_secs())));
        let line = line_of(name, *scope, &secret_of_token(&token)) + &end.unwrap_or_default();
        replace(file, name, Some(line))?;
        Ok(token)
    }
}

/// Removes the credential of a name from the file. Errors: the file has no such name or a mistake,
/// or the system refuses.
pub(in crate::admin) fn remove_token(file: &Path, name: &str) -> Result<(), CredentialError> {
    replace(file, name, None)
}

/// Returns a line for each token and user.
fn listed(credentials: &Credentials) -> String {
    let line = |entry: CredentialEntry| {
        let CredentialEntry { name, scope, is_user, ends } = entry;
        let kind = if is_user { "user" } else { "token" };
        let end = match ends {
            None => "never ends".to_owned(),
            Some(ends) if ends <= unix_millis() => format!("has ended {}", end_text(ends)),
            Some(ends) => format!("ends {}", end_text(ends)),
        };
        format!("{kind:<5}  {scope:<8}  {end:<26}  {name}")
    };
    credentials.entries().map(line).collect::<Vec<_>>().join("\n")
}
