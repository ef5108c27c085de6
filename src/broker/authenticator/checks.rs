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
use crate::broker::listener_files::ListenerFiles;
use crate::clock;
use crate::login::authentication::AuthRequest;
use crate::session::authentication::AuthMethod;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time that the check of a token is taken for, before it was measured.
const TOKEN_US: u64 = 100;

/// The files that logins are checked against. The value does not change: a reload makes another
/// one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    /// The password files of the broker and of its listeners.
    pub(crate) passwords: Arc<ListenerFiles<PasswordFile>>,
    /// `None` without keys.
    pub(crate) tokens: Option<TokenCheck>,
}

#[derive(Clone, Debug)]
pub(crate) struct TokenCheck {
    /// The keys and the rules.
    pub(crate) verifier: TokenVerifier,
    pub(crate) place: TokenPlace,
}

/// The place of a token in CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenPlace {
    Password,
    UserName,
}

/// The work of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckCost {
    Hash(HashCost),
    /// The signature of a token.
    Token,
}

/// The end of the chain, or of its part that needs no HTTP service.
#[derive(Debug)]
pub(super) enum ChainEnd {
    Allow(Grant, Proof),
    /// The text is for the log. A guess counts as a failed login of its address.
    Deny {
        what: &'static str,
        is_guess: bool,
    },
    /// The HTTP service decides next. The rest of the chain follows if it ignores the client.
    AsksHttp(ChainPlace),
}

/// A place in the chain, with the results of earlier methods.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainPlace {
    /// The number of the next method.
    pub(super) next: usize,
    /// The reason of a refusal, if no further method is meant.
    pub(super) what: &'static str,
    /// True if such a refusal counts as a failed login.
    pub(super) is_guess: bool,
}

impl ChainPlace {
    /// Before the first method.
    pub(super) const START: ChainPlace =
        ChainPlace { next: 0, what: "no method of authentication is meant", is_guess: false };

    /// Returns the methods of a request from this place on.
    pub(super) fn rest(self, request: &AuthRequest) -> &[AuthMethod] {
        request.methods.get(self.next..).unwrap_or_default()
    }
}

impl CheckCost {
    /// The number of places.
    pub(super) const KINDS: usize = HashKind::ALL.len() + 1;

    /// Returns the place of the kind of work in a list of averages.
    pub(super) fn place(self) -> usize {
        match self {
            CheckCost::Hash(cost) => cost.kind as usize,
            CheckCost::Token => HashKind::ALL.len(),
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
    fn proof(&self, secret: &CacheSecret, request: &AuthRequest) -> Proof {
        Proof::of_token(secret, request, self.token(request), self.verifier.fingerprint())
    }

    /// Returns the token of a request; empty without one.
    fn token<'a>(&self, request: &'a AuthRequest) -> &'a [u8] {
        match self.place {
            TokenPlace::Password => request.password_bytes(),
            TokenPlace::UserName => request.user().as_bytes(),
        }
    }

    fn verify(
        &self,
        request: &AuthRequest,
        measured: &mut dyn FnMut(CheckCost, Duration),
    ) -> Result<VerifiedToken, TokenRefusal> {
        let token = self.token(request);
        let (result, took) = timed(|| self.verifier.verify(clock::unix_millis(), token));
        measured(CheckCost::Token, took);
        result
    }
}

impl Checks {
    /// Returns the work that a request may need from a place on, at most, until the HTTP service is
    /// asked.
    pub(super) fn costs(&self, request: &AuthRequest, place: ChainPlace) -> Vec<CheckCost> {
        let cost = |method: &AuthMethod| match method {
            AuthMethod::Password => {
                self.passwords.of(own_file(request))?.cost(request.user()).map(CheckCost::Hash)
            }
            AuthMethod::Jwt => self.tokens.as_ref().map(|_| CheckCost::Token),
            _ => None,
        };
        place
            .rest(request)
            .iter()
            .take_while(|method| **method != AuthMethod::Http)
            .filter_map(cost)
            .collect()
    }

    /// Returns the keys of the cache that a request may have, in the order of the methods.
    pub(super) fn cached(&self, secret: &CacheSecret, request: &AuthRequest) -> Vec<Proof> {
        let mut proofs = Vec::new();
        for method in &request.methods {
            match method {
                AuthMethod::Password => {
                    let line = self.passwords.fingerprint(own_file(request), request.user());
                    if let Some(fingerprint) = line {
                        // This method decides, so no later one counts.
                        proofs.push(Proof::of_line(secret, request, fingerprint));
                        break;
                    }
                }
                AuthMethod::Jwt => {
                    proofs.extend(self.tokens.as_ref().map(|check| check.proof(secret, request)));
                }
                // Its answers are not remembered, and it comes before the methods behind it.
                AuthMethod::Http => break,
                AuthMethod::Certificate | AuthMethod::Scram => {}
            }
        }
        proofs
    }

    /// Returns true if a proof still rests on the files that are in force.
    pub(super) fn confirms(&self, proof: &Proof) -> bool {
        match &proof.evidence {
            Evidence::Line { file, user, fingerprint } => {
                self.passwords.fingerprint(file.as_deref(), user) == Some(*fingerprint)
            }
            Evidence::Keys(fingerprint) => {
                self.tokens.as_ref().is_some_and(|check| check.verifier.fingerprint() == *fingerprint)
            }
        }
    }

    /// Decides a request from a place on. Blocks for the work of [`Checks::costs`]. Reports the
    /// time of each check to `measured`.
    pub(super) fn decide(
        &self,
        secret: &CacheSecret,
        request: &AuthRequest,
        place: ChainPlace,
        measured: &mut dyn FnMut(CheckCost, Duration),
    ) -> ChainEnd {
        let ChainPlace { mut what, mut is_guess, .. } = place;
        let passwords = self.passwords.of(own_file(request));
        for (number, method) in (place.next..).zip(place.rest(request)) {
            match (method, passwords, &self.tokens) {
                (AuthMethod::Password, Some(file), _) => {
                    let next = ChainPlace { next: number + 1, ..place };
                    let is_token = self.is_signed_token(request, next, measured);
                    let verdict = match is_token {
                        true => verdict_of_token(file, request),
                        false => verify(file, request, measured),
                    };
                    match verdict {
                        Verdict::Verified => return allow_user(secret, file, request),
                        Verdict::WrongPassword => {
                            return ChainEnd::Deny { what: "wrong password", is_guess: !is_token };
                        }
                        Verdict::UnknownUser => (what, is_guess) = ("unknown user name", true),
                    }
                }
                (AuthMethod::Jwt, _, Some(check)) => match check.verify(request, measured) {
                    Ok(token) => {
                        return ChainEnd::Allow(grant_of(token), check.proof(secret, request));
                    }
                    Err(TokenRefusal::NoToken) => what = TokenRefusal::NoToken.text(),
                    // A fleet with expired tokens is not blocked, and a fleet with forgotten keys
                    // only if the method before did not know its names.
                    Err(refusal) => {
                        let is_guess = refusal == TokenRefusal::Signature || is_guess && !refusal.is_signed();
                        return ChainEnd::Deny { what: refusal.text(), is_guess };
                    }
                },
                (AuthMethod::Http, ..) => {
                    return ChainEnd::AsksHttp(ChainPlace { next: number + 1, what, is_guess });
                }
                _ => {}
            }
        }
        ChainEnd::Deny { what, is_guess }
    }

    /// Returns true if a later method finds a token with a right signature, such as an expired one.
    /// An issuer made that text, so it is nobody's password and no guess, with a known name as with
    /// an unknown one: a whole fleet may have expired tokens. A signature costs 100 us and the hash
    /// of a password up to 200 times that, so the token is looked at first and never hashed. A text
    /// without a right signature may be a password.
    fn is_signed_token(
        &self,
        request: &AuthRequest,
        next: ChainPlace,
        measured: &mut dyn FnMut(CheckCost, Duration),
    ) -> bool {
        let mut follows = next.rest(request).iter().take_while(|method| **method != AuthMethod::Http);
        let Some(check) = &self.tokens else { return false };
        follows.any(|method| *method == AuthMethod::Jwt)
            && check.verify(request, measured).err().is_none_or(TokenRefusal::is_signed)
    }
}

/// Returns the path of the password file of the client's listener; `None` for the broker's file.
fn own_file(request: &AuthRequest) -> Option<&Path> {
    request.listener.password_file.as_deref()
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

/// Returns the verdict of a password file about a token that an issuer has signed: it is no
/// password. No hash is computed.
fn verdict_of_token(file: &PasswordFile, request: &AuthRequest) -> Verdict {
    match file.fingerprint(request.user()) {
        Some(_) => Verdict::WrongPassword,
        None => Verdict::UnknownUser,
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
    use crate::broker::authenticator::tests::request;
    use aws_lc_rs::hmac;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn checks() -> Checks {
        let hash = crate::auth::password::pbkdf2::Pbkdf2Hash::create(b"right", 1, &[7; 12]);
        let line = format!("ann:{}\n", crate::auth::password::hash::PasswordHash::Pbkdf2(hash).to_text());
        let file = PasswordFile::parse(Path::new("passwd"), line.as_bytes()).unwrap();
        let key = format!(r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#, URL_SAFE_NO_PAD.encode([7; 32]));
        let keys = TokenKeys::parse(Path::new("jwks.json"), key.as_bytes()).unwrap();
        let rules = TokenRules { user_claim: "sub".into(), audience: None, issuer: None };
        let verifier = TokenVerifier::new(Arc::new(keys), rules);
        let tokens = Some(TokenCheck { verifier, place: TokenPlace::Password });
        Checks { passwords: Arc::new(Arc::new(file).into()), tokens }
    }

    fn expired(secret: [u8; 32]) -> Vec<u8> {
        let [header, claims] = [r#"{"alg":"HS256"}"#, r#"{"sub":"ann","exp":1}"#];
        let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)).into_bytes()
    }

    fn is_guess(methods: &[AuthMethod], user: &str, password: &[u8]) -> bool {
        let waits = Arc::new(());
        let mut request = request(user, password, &waits);
        request.methods = methods.into();
        let secret = CacheSecret::new().unwrap();
        match checks().decide(&secret, &request, ChainPlace::START, &mut |_, _| ()) {
            ChainEnd::Deny { is_guess, .. } => is_guess,
            other => panic!("the credentials are wrong: {other:?}"),
        }
    }

    #[test]
    fn a_wrong_signature_is_a_guess_and_an_expired_token_is_none() {
        assert!(is_guess(&[AuthMethod::Jwt], "device", &expired([8; 32])));
        assert!(!is_guess(&[AuthMethod::Jwt], "device", &expired([7; 32])));
        assert!(!is_guess(&[AuthMethod::Jwt], "device", b"no token"));
    }

    #[test]
    fn a_failure_counts_in_the_same_way_for_known_and_unknown_names() {
        let methods = [AuthMethod::Password, AuthMethod::Jwt];
        for user in ["ann", "unknown"] {
            for password in [&b"wrong"[..], &expired([8; 32])] {
                assert!(is_guess(&methods, user, password), "{user}");
            }
            // A fleet with expired tokens is not blocked, whatever its user names are.
            assert!(!is_guess(&methods, user, &expired([7; 32])), "{user}");
            assert!(is_guess(&[AuthMethod::Password], user, &expired([7; 32])), "{user}");
        }
    }

    #[test]
    fn a_token_that_an_issuer_signed_is_never_hashed_as_a_password() {
        let (waits, secret) = (Arc::new(()), CacheSecret::new().unwrap());
        for user in ["ann", "unknown"] {
            let hashes = |password: &[u8]| {
                let mut request = request(user, password, &waits);
                request.methods = [AuthMethod::Password, AuthMethod::Jwt].into();
                let mut costs = Vec::new();
                checks().decide(&secret, &request, ChainPlace::START, &mut |cost, _| costs.push(cost));
                costs.iter().filter(|cost| **cost != CheckCost::Token).count()
            };
            assert_eq!(hashes(&expired([7; 32])), 0, "{user}: its logins are not counted as guesses");
            assert_eq!(hashes(&expired([8; 32])), 1, "{user}: it may be a password");
            assert_eq!(hashes(b"wrong"), 1, "{user}");
        }
    }

    #[test]
    fn the_http_service_is_asked_at_its_place_in_the_chain() {
        let (waits, secret) = (Arc::new(()), CacheSecret::new().unwrap());
        let decide = |user: &str, methods: &[AuthMethod], place: ChainPlace| {
            let mut request = request(user, b"right", &waits);
            request.methods = methods.into();
            checks().decide(&secret, &request, place, &mut |_, _| ())
        };
        let chain = [AuthMethod::Password, AuthMethod::Http, AuthMethod::Jwt];
        assert!(matches!(decide("ann", &chain, ChainPlace::START), ChainEnd::Allow(..)));
        let ChainEnd::AsksHttp(place) = decide("bob", &chain, ChainPlace::START) else { panic!("not asked") };
        assert_eq!((place.next, place.is_guess), (2, true), "the password file does not know bob");
        let end = decide("bob", &chain, place);
        assert!(matches!(end, ChainEnd::Deny { what: "the password is no JWT", is_guess: true }), "{end:?}");
        let first = [AuthMethod::Http, AuthMethod::Password];
        let ChainEnd::AsksHttp(place) = decide("ann", &first, ChainPlace::START) else { panic!("not asked") };
        assert!(matches!(decide("ann", &first, place), ChainEnd::Allow(..)));
    }

    #[test]
    fn no_remembered_login_is_used_before_the_http_service_was_asked() {
        let (waits, secret) = (Arc::new(()), CacheSecret::new().unwrap());
        let mut request = request("ann", b"right", &waits);
        let mut remembered = |methods: &[AuthMethod]| {
            request.methods = methods.into();
            checks().cached(&secret, &request).len()
        };
        assert_eq!(remembered(&[AuthMethod::Http, AuthMethod::Jwt, AuthMethod::Password]), 0);
        assert_eq!(remembered(&[AuthMethod::Jwt, AuthMethod::Http, AuthMethod::Password]), 1);
        assert_eq!(remembered(&[AuthMethod::Password, AuthMethod::Http]), 1);
    }
}
