//! The authenticator, and the files that it checks logins against.

use super::authenticator::checks::{Checks, TokenCheck, TokenPlace};
use super::authenticator::decided::Decided;
use super::authenticator::{AuthClientParts, Authenticator, AuthenticatorOptions};
use super::settings::asks_authenticator;
use super::start_error::StartError;
use crate::auth::jwt::keys::TokenKeys;
use crate::auth::jwt::token::{TokenRules, TokenVerifier};
use crate::auth::password::PasswordFile;
use crate::config::{self, Config};
use actix::Recipient;
use std::path::PathBuf;
use std::sync::Arc;

/// The authenticator, with the paths of its files.
pub(super) struct Logins {
    passwords: Option<PathBuf>,
    keys: Option<PathBuf>,
    authenticator: Authenticator,
}

/// Files that were read again, and are not in force yet.
pub(super) struct LoginFiles {
    passwords: Option<PasswordFile>,
    keys: Option<TokenKeys>,
}

/// A password file before and after a change.
pub(super) type ChangedPasswords = (Arc<PasswordFile>, Arc<PasswordFile>);

impl Logins {
    /// Starts the authenticator, if a method needs it.
    ///
    /// # Errors
    /// A file cannot be used, or the system refuses a thread.
    pub(super) fn start(config: &Config, shards: usize) -> Result<Option<Logins>, StartError> {
        let auth = &config.auth;
        if !asks_authenticator(config) {
            return Ok(None);
        }
        let (passwords, keys) = (auth.password_path(), auth.jwt_keys_path());
        let file = passwords.as_deref().map(PasswordFile::load).transpose().map_err(StartError::Passwords)?;
        let read = keys.as_deref().map(TokenKeys::load).transpose().map_err(StartError::TokenKeys)?;
        let checks =
            Checks { passwords: file.map(Arc::new), tokens: read.map(|keys| token_check(auth, keys)) };
        let options = AuthenticatorOptions {
            workers: auth.worker_count(),
            timeout: auth.timeout,
            cache: auth.cache,
            shards,
            failures: auth.failures,
        };
        let authenticator = Authenticator::start(checks, options)?;
        Ok(Some(Logins { passwords, keys, authenticator }))
    }

    /// Returns the way to the authenticator for one shard. Decisions go to `reply`.
    pub(super) fn client(&self, reply: Recipient<Decided>) -> AuthClientParts {
        self.authenticator.client(reply)
    }

    /// Reads the files again. Changes nothing.
    ///
    /// # Errors
    /// The mistakes of all files.
    pub(super) fn read_again(&self) -> Result<LoginFiles, String> {
        let passwords = self.passwords.as_deref().map(PasswordFile::load).transpose();
        let keys = self.keys.as_deref().map(TokenKeys::load).transpose();
        match (passwords, keys) {
            (Ok(passwords), Ok(keys)) => Ok(LoginFiles { passwords, keys }),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error.to_string()),
            (Err(one), Err(other)) => Err(format!("{one}; {other}")),
        }
    }

    /// Puts the files in force. Returns the password file before and after, and what changed, for
    /// the log.
    pub(super) fn replace(&self, files: LoginFiles) -> (Option<ChangedPasswords>, Vec<String>) {
        let old = self.authenticator.checks();
        let mut checks = Checks::clone(&old);
        let mut what = Vec::new();
        let mut changed = None;
        if let (Some(old), Some(new)) = (&old.passwords, files.passwords.map(Arc::new)) {
            what.push(format!("the password file has {} users, and had {}", new.users(), old.users()));
            checks.passwords = Some(Arc::clone(&new));
            changed = Some((Arc::clone(old), new));
        }
        if let (Some(check), Some(new)) = (&mut checks.tokens, files.keys) {
            what.push(format!("auth.jwt_keys has {} keys, and had {}", new.len(), check.verifier.keys()));
            check.verifier = check.verifier.with_keys(Arc::new(new));
        }
        self.authenticator.replace(checks);
        (changed, what)
    }
}

fn token_check(auth: &config::Auth, keys: TokenKeys) -> TokenCheck {
    let text = |text: &str| (!text.is_empty()).then(|| text.into());
    let rules = TokenRules {
        user_claim: auth.jwt_user_claim.as_str().into(),
        audience: text(&auth.jwt_audience),
        issuer: text(&auth.jwt_issuer),
    };
    let place = match auth.jwt_from {
        config::JwtFrom::Password => TokenPlace::Password,
        config::JwtFrom::UserName => TokenPlace::UserName,
    };
    TokenCheck { verifier: TokenVerifier::new(Arc::new(keys), rules), place }
}
