//! The checks of a login: the methods of its listener, one after the other.
//!
//! A method allows, denies, or is not meant: a user who is not in the password file, or a password
//! that is no token. Then the next method decides. After the last one the login is denied.

use super::decided::{Evidence, Proof};
use crate::access::grant::Grant;
use crate::access::identity::{Identity, IdentitySource};
use crate::auth::cache::CacheSecret;
use crate::auth::jwt::token::{TokenRefusal, TokenVerifier, VerifiedToken};
use crate::auth::password::file::{PasswordFile, Verdict};
use crate::auth::password::hash::{HashCost, HashKind};
use crate::clock;
use crate::session::authentication::AuthMethod;
use crate::shard::authentication::AuthRequest;
use std::sync::Arc;
use std::time::Duration;

/// The time that the check of a token is taken for, before it was measured.
const TOKEN_US: u64 = 100;

/// The files that logins are checked against. They do not change: a reload makes others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    /// `None` without a password file.
    pub(crate) passwords: Option<Arc<PasswordFile>>,
    /// `None` without keys.
    pub(crate) tokens: Option<TokenCheck>,
}

/// The check of tokens.
#[derive(Clone, Debug)]
pub(crate) struct TokenCheck {
    /// The keys and the rules.
    pub(crate) verifier: TokenVerifier,
    /// The place of the token in CONNECT.
    pub(crate) place: TokenPlace,
}

/// The place of a token in CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenPlace {
    /// The password.
    Password,
    /// The user name.
    UserName,
}

/// The work of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckCost {
    /// A hash of a password.
    Hash(HashCost),
    /// The signature of a token.
    Token,
}

/// The end of the chain.
#[derive(Debug)]
pub(super) enum ChainEnd {
    Allow(Grant, Proof),
    /// The text is for the log. A guess counts as a failed login of its address.
    Deny {
        what: &'static str,
        is_guess: bool,
    },
}

impl CheckCost {
    /// The number of places.
    pub(super) const KINDS: usize = 5;

    /// Returns the place of the kind of work in a list of averages.
    pub(super) fn place(self) -> usize {
        match self {
            CheckCost::Hash(HashCost { kind: HashKind::Sha512, .. }) => 0,
            CheckCost::Hash(HashCost { kind: HashKind::Pbkdf2, .. }) => 1,
            CheckCost::Hash(HashCost { kind: HashKind::Argon2, .. }) => 2,
            CheckCost::Hash(HashCost { kind: HashKind::Scram, .. }) => 3,
            CheckCost::Token => 4,
        }
    }

    /// Returns the estimated time on one core.
    pub(super) fn estimate(self) -> Duration {
        Duration::from_micros(match self {
            CheckCost::Hash(cost) => cost.estimated_us.max(1),
            CheckCost::Token => TOKEN_US,
        })
    }
}

impl TokenCheck {
    /// Returns the token of a request; empty without one.
    fn token<'a>(&self, request: &'a AuthRequest) -> &'a [u8] {
        match self.place {
            TokenPlace::Password => request.password_bytes(),
            TokenPlace::UserName => request.user().as_bytes(),
        }
    }

    fn proof(&self, secret: &CacheSecret, request: &AuthRequest) -> Proof {
        Proof::of_token(secret, self.token(request), self.verifier.fingerprint())
    }
}

impl Checks {
    /// Returns the work that a request may need, at most.
    pub(super) fn costs(&self, request: &AuthRequest) -> Vec<CheckCost> {
        let cost = |method: &AuthMethod| match method {
            AuthMethod::Password => self.passwords.as_ref()?.cost(request.user()).map(CheckCost::Hash),
            AuthMethod::Jwt => self.tokens.as_ref().map(|_| CheckCost::Token),
            _ => None,
        };
        request.methods.iter().filter_map(cost).collect()
    }

    /// Returns the keys of the cache that a request may have, in the order of the methods.
    pub(super) fn cached(&self, secret: &CacheSecret, request: &AuthRequest) -> Vec<Proof> {
        let mut proofs = Vec::new();
        for method in &request.methods {
            match method {
                AuthMethod::Password => {
                    let line = self.passwords.as_ref().and_then(|file| file.fingerprint(request.user()));
                    if let Some(fingerprint) = line {
                        // This method decides, so no later one counts.
                        proofs.push(Proof::of_line(secret, request, fingerprint));
                        break;
                    }
                }
                AuthMethod::Jwt => {
                    proofs.extend(self.tokens.as_ref().map(|check| check.proof(secret, request)));
                }
                _ => {}
            }
        }
        proofs
    }

    /// Returns true if a proof still rests on the files that are in force.
    pub(super) fn holds(&self, proof: &Proof) -> bool {
        match &proof.evidence {
            Evidence::Line { user, fingerprint } => {
                self.passwords.as_ref().and_then(|file| file.fingerprint(user)) == Some(*fingerprint)
            }
            Evidence::Keys(fingerprint) => {
                self.tokens.as_ref().is_some_and(|check| check.verifier.fingerprint() == *fingerprint)
            }
        }
    }

    /// Decides a request. Blocks for the work of [`Checks::costs`]. Reports the time of each check
    /// to `measured`.
    pub(super) fn decide(
        &self,
        secret: &CacheSecret,
        request: &AuthRequest,
        measured: &mut dyn FnMut(CheckCost, Duration),
    ) -> ChainEnd {
        let (mut what, mut is_guess) = ("no method of authentication is meant", false);
        for method in &request.methods {
            match (method, &self.passwords, &self.tokens) {
                (AuthMethod::Password, Some(file), _) => match verify(file, request, measured) {
                    Verdict::Verified => return allow_user(secret, file, request),
                    Verdict::WrongPassword => {
                        return ChainEnd::Deny { what: "wrong password", is_guess: true };
                    }
                    Verdict::UnknownUser => (what, is_guess) = ("unknown user name", true),
                },
                (AuthMethod::Jwt, _, Some(check)) => {
                    let token = check.token(request);
                    let (result, took) = timed(|| check.verifier.verify(clock::unix_millis(), token));
                    measured(CheckCost::Token, took);
                    match result {
                        Ok(token) => {
                            return ChainEnd::Allow(grant_of(token), check.proof(secret, request));
                        }
                        Err(TokenRefusal::NoToken) => what = TokenRefusal::NoToken.text(),
                        // A fleet with expired tokens is not blocked. A name that the method
                        // before did not know counts all the same. Otherwise the block would tell
                        // which names are known.
                        Err(refusal) => {
                            let is_guess = is_guess || refusal == TokenRefusal::Signature;
                            return ChainEnd::Deny { what: refusal.text(), is_guess };
                        }
                    }
                }
                _ => {}
            }
        }
        ChainEnd::Deny { what, is_guess }
    }
}

/// Does some work, and returns its result with the time that it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = clock::nanos();
    let result = work();
    (result, Duration::from_nanos(clock::nanos().saturating_sub(began)))
}

/// Returns the terms on which the client with a valid token enters.
fn grant_of(token: VerifiedToken) -> Grant {
    let identity = Arc::new(Identity::new(&token.user, IdentitySource::Jwt));
    let ends = clock::now() + Duration::from_millis(token.remaining_ms);
    Grant { identity, rules: token.rules, ends }
}

/// Checks the password of a request. No password is never right.
fn verify(
    file: &PasswordFile,
    request: &AuthRequest,
    measured: &mut dyn FnMut(CheckCost, Duration),
) -> Verdict {
    let (verdict, took) = timed(|| file.verify(request.user(), request.password_bytes()));
    if let Some(cost) = file.cost(request.user()) {
        measured(CheckCost::Hash(cost), took);
    }
    match verdict {
        Verdict::Verified if request.password.is_none() => Verdict::WrongPassword,
        verdict => verdict,
    }
}

fn allow_user(secret: &CacheSecret, file: &PasswordFile, request: &AuthRequest) -> ChainEnd {
    match file.fingerprint(request.user()) {
        Some(fingerprint) => {
            let identity = Arc::new(Identity::new(request.user(), IdentitySource::Password));
            ChainEnd::Allow(identity.into(), Proof::of_line(secret, request, fingerprint))
        }
        None => ChainEnd::Deny { what: "unknown user name", is_guess: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::jwt::keys::TokenKeys;
    use crate::auth::jwt::token::TokenRules;
    use aws_lc_rs::hmac;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use std::path::Path;

    fn checks() -> Checks {
        let hash = crate::auth::password::pbkdf2::Pbkdf2Hash::create(b"right", 1, &[7; 12]);
        let line = format!("ann:{}\n", crate::auth::password::hash::PasswordHash::Pbkdf2(hash).to_text());
        let file = PasswordFile::parse(Path::new("passwd"), line.as_bytes()).unwrap();
        let key = format!(r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#, URL_SAFE_NO_PAD.encode([7; 32]));
        let keys = TokenKeys::parse(Path::new("jwks.json"), key.as_bytes()).unwrap();
        let rules = TokenRules { user_claim: "sub".into(), audience: None, issuer: None };
        let verifier = TokenVerifier::new(Arc::new(keys), rules);
        let tokens = Some(TokenCheck { verifier, place: TokenPlace::Password });
        Checks { passwords: Some(Arc::new(file)), tokens }
    }

    fn expired(secret: [u8; 32]) -> Vec<u8> {
        let [header, claims] = [r#"{"alg":"HS256"}"#, r#"{"sub":"ann","exp":1}"#];
        let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)).into_bytes()
    }

    fn is_guess(methods: &[AuthMethod], user: &str, password: &[u8]) -> bool {
        let waits = Arc::new(());
        let mut request = AuthRequest::of_test(user, password, &waits);
        request.methods = methods.into();
        match checks().decide(&CacheSecret::new().unwrap(), &request, &mut |_, _| ()) {
            ChainEnd::Deny { is_guess, .. } => is_guess,
            ChainEnd::Allow(..) => panic!("the credentials are wrong"),
        }
    }

    #[test]
    fn a_wrong_signature_is_a_guess_and_an_expired_token_is_none() {
        assert!(is_guess(&[AuthMethod::Jwt], "device", &expired([8; 32])));
        assert!(!is_guess(&[AuthMethod::Jwt], "device", &expired([7; 32])));
        assert!(!is_guess(&[AuthMethod::Jwt], "device", b"no token"));
    }

    #[test]
    fn a_login_that_fails_counts_for_known_and_unknown_names() {
        let methods = [AuthMethod::Password, AuthMethod::Jwt];
        for user in ["ann", "unknown"] {
            for password in [&b"wrong"[..], &expired([8; 32]), &expired([7; 32])] {
                assert!(is_guess(&methods, user, password), "{user}");
            }
        }
    }
}
