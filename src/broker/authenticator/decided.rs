//! A decision on its way from the authenticator to a shard, with the evidence of a success.

use crate::auth::cache::{CacheSecret, LoginKey};
use crate::auth::password::file::Fingerprint;
use crate::login::authentication::{AuthDecision, AuthRequest};
use crate::shard::ConnectionId;
use actix::Message;
use std::path::PathBuf;

/// A decision of the authenticator about one CONNECT.
#[derive(Debug)]
pub struct Decided {
    /// The connection that waits.
    pub connection: ConnectionId,
    /// The decision.
    pub(crate) decision: AuthDecision,
    /// The evidence of a success that rests on the password file or on keys.
    pub(crate) proof: Option<Proof>,
}

impl Message for Decided {
    type Result = ();
}

/// The evidence of a successful check.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The entry of the cache for this login.
    pub(super) key: LoginKey,
    /// Bytes that the client sent.
    pub(super) text: usize,
    /// The line or the file on which the success rests.
    pub(super) evidence: Evidence,
}

/// The line or the file on which a success rests.
#[derive(Debug)]
pub(super) enum Evidence {
    /// The line of a user in the password file of a listener, or in that of the broker for `None`.
    Line { file: Option<PathBuf>, user: Box<str>, fingerprint: Fingerprint },
    /// The file of keys.
    Keys(Fingerprint),
}

impl Proof {
    /// Returns the proof of a password that was verified with the user's line of this fingerprint.
    pub(super) fn of_line(secret: &CacheSecret, request: &AuthRequest, fingerprint: Fingerprint) -> Proof {
        let password = request.password.as_ref().map(|secret| secret.bytes());
        let key = secret.key(Some(&fingerprint), request.user(), password);
        let text = request.size();
        let (file, user) = (request.listener.password_file.clone(), request.user().into());
        Proof { key, text, evidence: Evidence::Line { file, user, fingerprint } }
    }

    /// Returns the proof of a token that was verified with the keys of this fingerprint.
    pub(super) fn of_token(
        secret: &CacheSecret,
        request: &AuthRequest,
        token: &[u8],
        fingerprint: Fingerprint,
    ) -> Proof {
        let key = secret.key(Some(&fingerprint), "", Some(token));
        let text = request.size();
        Proof { key, text, evidence: Evidence::Keys(fingerprint) }
    }
}
