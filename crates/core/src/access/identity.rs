//! The authenticated user of a session, and the proof of its name.

use std::fmt;

/// The user that a client has proven to be, or claims to be.
///
/// An anonymous client has no identity: the owner of a session is an `Option` of this type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    user: Box<str>,
    source: IdentitySource,
}

/// The proof of a user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdentitySource {
    /// The client knew the password of the user, or proved by SCRAM that it knows it.
    Password,
    /// The certificate of the client has the name.
    Certificate,
    /// A signed token has the name.
    Jwt,
    /// The HTTP service of the operator accepted the name.
    Http,
    /// Nothing: the client sent the name, and the operator allows anonymous clients.
    Claim,
}

impl Identity {
    /// Returns the identity of `user`, whose name was proven by `source`.
    pub fn new(user: &str, source: IdentitySource) -> Identity {
        Identity { user: user.into(), source }
    }

    /// Returns the user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the proof of the name.
    pub fn source(&self) -> IdentitySource {
        self.source
    }

    /// Returns true if something proves the name. False for a name that the client only sent.
    pub fn is_verified(&self) -> bool {
        self.source != IdentitySource::Claim
    }

    /// Returns true if both are the same user, however the names were proven. An unverified name is
    /// never the same user as a verified name.
    pub fn is_same_user(&self, other: &Identity) -> bool {
        self.user == other.user && self.is_verified() == other.is_verified()
    }
}

/// Returns a user name as logs, events and pages may show it. A name that looks like a JSON Web
/// Token is a secret and is replaced by a text. Such a name has three parts in base64url with dots
/// between them, and the first part is a JSON object.
pub fn shown_name(user: &str) -> &str {
    let is_base64 =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte));
    let mut parts = user.split('.');
    let is_token = parts.next().is_some_and(|header| header.starts_with("eyJ") && is_base64(header))
        && parts.next().is_some_and(|claims| !claims.is_empty() && is_base64(claims))
        && parts.next().is_some_and(is_base64)
        && parts.next().is_none();
    if is_token { "(a token)" } else { user }
}

impl fmt::Display for IdentitySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdentitySource::Password => "password",
            IdentitySource::Certificate => "certificate",
            IdentitySource::Jwt => "jwt",
            IdentitySource::Http => "http",
            IdentitySource::Claim => "unverified claim",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_the_same_with_another_proof() {
        let password = Identity::new("ann", IdentitySource::Password);
        let certificate = Identity::new("ann", IdentitySource::Certificate);
        assert!(password.is_same_user(&certificate) && password.is_verified());
        assert!(!password.is_same_user(&Identity::new("bob", IdentitySource::Password)));
    }

    #[test]
    fn a_name_that_looks_like_a_token_is_not_shown() {
        // {"alg":"HS256"}.{"sub":"ann"}.
        let front = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.";
        for token in [format!("{front}c2lnbmF0dXJl_-"), front.to_owned()] {
            assert_eq!(shown_name(&token), "(a token)");
        }
        let names = ["ann", "", "a.b.c", "eyJ", "eyJa.eyJb", "eyJa.b.c.d", "eyJa..c", "eyJa.b c.d"];
        for name in names {
            assert_eq!(shown_name(name), name);
        }
    }

    #[test]
    fn a_claimed_name_is_not_the_verified_user() {
        let verified = Identity::new("ann", IdentitySource::Password);
        let claimed = Identity::new("ann", IdentitySource::Claim);
        assert!(!claimed.is_verified());
        assert!(!verified.is_same_user(&claimed) && claimed.is_same_user(&claimed.clone()));
    }
}
