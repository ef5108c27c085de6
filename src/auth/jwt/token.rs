//! One token: its key, its signature and its claims.

use super::keys::TokenKeys;
use crate::access::grant::SessionRules;
use crate::auth::password::file::Fingerprint;
use crate::auth::session_rules::{SessionRulesError, session_rules};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The largest token in bytes.
const LARGEST: usize = 16 << 10;

/// The tolerated difference between the clocks of the issuer and the broker, in seconds.
const LEEWAY: f64 = 30.0;

/// The claims that the operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// The name of the claim with the user name.
    pub user_claim: Box<str>,
    /// The audience that a token must name; `None` if a token must not name one.
    pub audience: Option<Box<str>>,
    /// The issuer that a token must name; `None` for any.
    pub issuer: Option<Box<str>>,
}

/// Verifies tokens.
#[derive(Clone, Debug)]
pub struct TokenVerifier {
    keys: Arc<TokenKeys>,
    rules: TokenRules,
}

/// The content of a token that is right.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    /// The user name.
    pub user: Box<str>,
    /// The rules of the session; `None` if the ACL file counts.
    pub rules: Option<SessionRules>,
    /// The milliseconds from now until the token is not accepted any more. Up to `exp`; behind it,
    /// the rest of the leeway.
    pub remaining_ms: u64,
}

/// The reason why a token is refused. For the log; the client learns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// The text is no token. Another method may be meant.
    NoToken,
    /// The token is too large.
    TooLarge,
    /// The header asks for something that the broker does not know.
    Critical,
    /// No key has the `kid`.
    UnknownKey,
    /// The algorithm is not that of the key.
    Algorithm,
    /// The signature is wrong.
    Signature,
    /// The claims are not a JSON object.
    Claims,
    /// No `exp`.
    NoExpiry,
    /// `exp` has passed.
    Expired,
    /// `nbf` is not a number, or has not come.
    TooEarly,
    /// Another audience.
    Audience,
    /// Another issuer.
    Issuer,
    /// No user name.
    NoUser,
    /// The rules cannot be used.
    Rules(SessionRulesError),
}

impl TokenRefusal {
    /// Returns true if the signature was right, so that somebody trusted made the token.
    pub fn is_signed(self) -> bool {
        match self {
            TokenRefusal::NoToken
            | TokenRefusal::TooLarge
            | TokenRefusal::Critical
            | TokenRefusal::UnknownKey
            | TokenRefusal::Algorithm
            | TokenRefusal::Signature => false,
            TokenRefusal::Claims
            | TokenRefusal::NoExpiry
            | TokenRefusal::Expired
            | TokenRefusal::TooEarly
            | TokenRefusal::Audience
            | TokenRefusal::Issuer
            | TokenRefusal::NoUser
            | TokenRefusal::Rules(_) => true,
        }
    }

    /// Returns the reason as a text.
    pub fn text(self) -> &'static str {
        match self {
            TokenRefusal::NoToken => "the password is no JWT",
            TokenRefusal::TooLarge => "the JWT is larger than 16 KiB",
            TokenRefusal::Critical => "the JWT has a critical header that is not supported",
            TokenRefusal::UnknownKey => "no key of auth.jwt_keys has the kid of the JWT",
            TokenRefusal::Algorithm => "no key of auth.jwt_keys has the algorithm of the JWT",
            TokenRefusal::Signature => "the signature of the JWT is wrong",
            TokenRefusal::Claims => "the claims of the JWT are not a JSON object",
            TokenRefusal::NoExpiry => "the JWT has no exp",
            TokenRefusal::Expired => "the JWT has expired (exp)",
            TokenRefusal::TooEarly => "the JWT is not valid yet (nbf)",
            TokenRefusal::Audience => "the JWT is for another audience (aud, auth.jwt_audience)",
            TokenRefusal::Issuer => "the JWT is of another issuer (iss, auth.jwt_issuer)",
            TokenRefusal::NoUser => "the JWT has no user name (auth.jwt_user_claim)",
            TokenRefusal::Rules(error) => error.name(),
        }
    }
}

impl From<SessionRulesError> for TokenRefusal {
    fn from(error: SessionRulesError) -> TokenRefusal {
        TokenRefusal::Rules(error)
    }
}

impl TokenVerifier {
    /// Returns the verifier with these keys.
    pub fn new(keys: Arc<TokenKeys>, rules: TokenRules) -> TokenVerifier {
        TokenVerifier { keys, rules }
    }

    /// Returns a verifier with other keys and the same rules.
    pub fn with_keys(&self, keys: Arc<TokenKeys>) -> TokenVerifier {
        TokenVerifier { keys, rules: self.rules.clone() }
    }

    /// Returns the fingerprint of the keys. Other keys have another one.
    pub fn fingerprint(&self) -> Fingerprint {
        self.keys.fingerprint()
    }

    /// Returns the number of keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Verifies a token. `unix_ms` is the time: milliseconds since 1970.
    ///
    /// # Errors
    /// The reason why it is refused. [`TokenRefusal::NoToken`] if the bytes are no token at all.
    pub fn verify(&self, unix_ms: u64, token: &[u8]) -> Result<VerifiedToken, TokenRefusal> {
        let parts = split(token).ok_or(TokenRefusal::NoToken)?;
        if token.len() > LARGEST {
            return Err(TokenRefusal::TooLarge);
        }
        let header = object(parts.header).ok_or(TokenRefusal::NoToken)?;
        let alg = header.get("alg").and_then(Value::as_str).ok_or(TokenRefusal::NoToken)?;
        // RFC 7515 section 4.1.11: an unknown critical header refuses the token.
        if header.contains_key("crit") {
            return Err(TokenRefusal::Critical);
        }
        let kid = match header.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str().ok_or(TokenRefusal::UnknownKey)?),
        };
        if kid.is_some_and(|kid| !self.keys.has(kid)) {
            return Err(TokenRefusal::UnknownKey);
        }
        let signature = URL_SAFE_NO_PAD.decode(parts.signature).map_err(|_| TokenRefusal::Signature)?;
        let mut has_key = false;
        let is_right = self.keys.candidates(kid, alg).any(|key| {
            has_key = true;
            key.verifies(parts.signed, &signature)
        });
        if !is_right {
            return Err(if has_key { TokenRefusal::Signature } else { TokenRefusal::Algorithm });
        }
        let claims = object(parts.claims).ok_or(TokenRefusal::Claims)?;
        self.check(unix_ms, &claims)
    }

    fn check(&self, unix_ms: u64, claims: &Map<String, Value>) -> Result<VerifiedToken, TokenRefusal> {
        let now = unix_ms as f64 / 1e3;
        let expires = claims.get("exp").and_then(Value::as_f64).ok_or(TokenRefusal::NoExpiry)?;
        if expires + LEEWAY <= now {
            return Err(TokenRefusal::Expired);
        }
        if let Some(begins) = claims.get("nbf")
            && begins.as_f64().is_none_or(|begins| begins - LEEWAY > now)
        {
            return Err(TokenRefusal::TooEarly);
        }
        if !self.admits_audience(claims.get("aud")) {
            return Err(TokenRefusal::Audience);
        }
        if let Some(issuer) = &self.rules.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err(TokenRefusal::Issuer);
        }
        let user = claims.get(&*self.rules.user_claim).and_then(Value::as_str);
        let user = user.filter(|user| !user.is_empty() && !user.contains('\0'));
        let ends = if expires > now { expires } else { expires + LEEWAY };
        Ok(VerifiedToken {
            user: user.ok_or(TokenRefusal::NoUser)?.into(),
            rules: session_rules(claims)?,
            // A cast of a large number saturates.
            remaining_ms: ((ends - now) * 1e3) as u64,
        })
    }

    // RFC 7519 section 4.1.3: a token with an audience is only for members of that audience.
    fn admits_audience(&self, aud: Option<&Value>) -> bool {
        let Some(own) = &self.rules.audience else { return aud.is_none() };
        let is_own = |aud: &Value| aud.as_str() == Some(own);
        match aud {
            Some(Value::Array(all)) => all.iter().any(is_own),
            Some(one) => is_own(one),
            None => false,
        }
    }
}

/// The parts of the compact serialization (RFC 7515 section 7.1), still in base64url.
struct TokenParts<'a> {
    header: &'a [u8],
    claims: &'a [u8],
    signature: &'a [u8],
    /// Header and claims with the dot between them.
    signed: &'a [u8],
}

fn split(token: &[u8]) -> Option<TokenParts<'_>> {
    let mut dots = token.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
    let (first, second) = (dots.next()?, dots.next()?);
    if dots.next().is_some() {
        return None;
    }
    Some(TokenParts {
        header: token.get(..first)?,
        claims: token.get(first + 1..second)?,
        signature: token.get(second + 1..)?,
        signed: token.get(..second)?,
    })
}

fn object(part: &[u8]) -> Option<Map<String, Value>> {
    let json = URL_SAFE_NO_PAD.decode(part).ok()?;
    match serde_json::from_slice(&json).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
