//! A SCRAM exchange of one login: the check, and the decision from its result.
//!
//! No thread of the authenticator is needed, because an exchange costs no slow hash.

use super::Inner;
use crate::access::identity::{Identity, IdentitySource};
use crate::auth::password::file::Fingerprint;
use crate::auth::random::random;
use crate::auth::scram::{ClientFirst, ScramError, ScramExchange, ScramKeys};
use crate::clock;
use crate::login::authentication::{AuthDecision, AuthExchange, Challenge, ExchangeStep};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Random bytes of a nonce.
const NONCE: usize = 24;

/// A SCRAM exchange that waits for the client's last message.
pub(super) struct ScramLogin {
    inner: Arc<Inner>,
    exchange: ScramExchange,
    /// The path of the password file of the client's listener; `None` for the broker's file.
    file: Option<PathBuf>,
    /// Stands for the user's line; `None` if the user has none.
    fingerprint: Option<Fingerprint>,
    /// The address whose failures count; `None` for a client on this machine.
    address: Option<IpAddr>,
}

impl ScramLogin {
    /// Begins an exchange with the first message of a client. Returns a challenge, for an unknown
    /// user too.
    pub(super) fn begin(
        inner: &Arc<Inner>,
        file: Option<&Path>,
        address: Option<IpAddr>,
        message: &[u8],
    ) -> AuthDecision {
        let first = match ClientFirst::parse(message) {
            Ok(first) => first,
            Err(error) => return AuthDecision::Deny(error.name()),
        };
        let Ok(nonce) = random::<NONCE>() else {
            return AuthDecision::Unavailable("the system has no random numbers");
        };
        let checks = inner.checks.load();
        let Some(passwords) = checks.passwords.of(file) else {
            return AuthDecision::Unavailable("SCRAM needs auth.password_file");
        };
        let (hash, fingerprint) = passwords.scram(first.user());
        let nonce = STANDARD_NO_PAD.encode(nonce.as_slice());
        let keys = if fingerprint.is_some() { ScramKeys::OfUser } else { ScramKeys::MadeUp };
        let exchange = ScramExchange::begin(first, hash, keys, &nonce);
        let data = exchange.server_first().as_bytes().into();
        let (inner, file) = (Arc::clone(inner), file.map(Path::to_owned));
        let login = ScramLogin { inner, exchange, file, fingerprint, address };
        AuthDecision::Challenge(Challenge { data, exchange: Arc::new(login) })
    }

    fn finish(&self, message: &[u8]) -> Result<String, AuthDecision> {
        let now = clock::now();
        if self.inner.is_blocked(now, self.address) {
            return Err(AuthDecision::Blocked);
        }
        let last = self.exchange.finish(message).map_err(|error| {
            self.inner.failed(now, self.address);
            AuthDecision::Deny(error.name())
        })?;
        let checks = self.inner.checks.load();
        if checks.passwords.fingerprint(self.file.as_deref(), self.user()) != self.fingerprint {
            return Err(AuthDecision::Unavailable("the password file has changed meanwhile"));
        }
        // After the proof, so that the time tells nothing of users to others.
        if checks.passwords.of(self.file.as_deref()).is_some_and(|file| file.has_empty_password(self.user()))
        {
            self.inner.failed(now, self.address);
            return Err(AuthDecision::Deny(ScramError::EmptyPassword.name()));
        }
        Ok(last)
    }
}

impl AuthExchange for ScramLogin {
    fn user(&self) -> &str {
        self.exchange.user()
    }

    fn answer_us(&self) -> u64 {
        let checks = self.inner.checks.load();
        checks.passwords.of(self.file.as_deref()).map_or(0, |file| file.proof_us(self.user()))
    }

    fn answer(&self, message: &[u8]) -> ExchangeStep {
        let (decision, data) = match self.finish(message) {
            Ok(last) => {
                let identity = Identity::new(self.user(), IdentitySource::Password);
                (AuthDecision::Allow(Arc::new(identity).into()), last.into_bytes().into())
            }
            Err(decision) => (decision, Box::default()),
        };
        ExchangeStep::Decided { decision, data }
    }
}

impl fmt::Debug for ScramLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScramLogin").field(&self.exchange).finish()
    }
}
