//! Requests to the authenticator, and its decisions.
//!
//! A CONNECT with a password is decided elsewhere. Its bytes stay in the connection's partial
//! packet, and the connection is paused. When the decision comes, the bytes are decoded again, and
//! the rest of CONNECT is handled. Nothing of the session is touched before.

use crate::access::grant::Grant;
use crate::mqtt::packet::{Connect, ReasonCode};
use crate::session::authentication::AuthMethod;
use crate::session::connect::ConnectRefusal;
use crate::shard::arrival::ListenerNumber;
use crate::shard::slots::ConnectionId;
use crate::time::Instant;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use zeroize::Zeroizing;

/// A request to the authenticator. The decision goes to [`crate::shard::Shard::authenticated`].
#[derive(Debug)]
pub struct AuthRequest {
    /// The connection that waits.
    pub connection: ConnectionId,
    /// The listener that accepted the connection.
    pub listener: ListenerNumber,
    /// The methods that the listener allows, in their order, without those that the shard decides
    /// itself.
    pub methods: Box<[AuthMethod]>,
    /// The client identifier; empty if the client let the broker choose one.
    pub client_id: Box<str>,
    /// The user name that the client sent.
    pub user_name: Option<Box<str>>,
    /// The password that the client sent.
    pub password: Option<Secret>,
    /// Lives as long as the connection waits.
    waits: Weak<()>,
}

impl AuthRequest {
    /// Returns true if nobody waits for the decision any more. Then the work can be saved.
    pub fn is_abandoned(&self) -> bool {
        self.waits.strong_count() == 0
    }

    /// Returns a request without a connection, which waits as long as `waits` lives.
    #[cfg(test)]
    pub(crate) fn of_test(user: &str, password: &[u8], waits: &Arc<()>) -> AuthRequest {
        AuthRequest {
            connection: ConnectionId::new(0, 0),
            listener: ListenerNumber::default(),
            methods: [AuthMethod::Password].into(),
            client_id: "client".into(),
            user_name: Some(user.into()),
            password: Some(Secret::copy_of(password)),
            waits: Arc::downgrade(waits),
        }
    }

    /// Returns the bytes that the client sent.
    pub fn size(&self) -> usize {
        let password = self.password.as_ref().map_or(0, |secret| secret.bytes().len());
        self.client_id.len() + self.user_name.as_ref().map_or(0, |name| name.len()) + password
    }
}

/// Bytes that no log and no error shows. They are overwritten when they are dropped.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Returns a copy of these bytes.
    pub fn copy_of(bytes: &[u8]) -> Secret {
        Secret(Zeroizing::new(bytes.to_vec()))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The decision about one request.
#[derive(Clone, Debug)]
pub enum AuthDecision {
    /// The client may enter, on these terms.
    Allow(Grant),
    /// The credentials are wrong. The text is for the log alone: the client cannot tell a wrong
    /// name from a wrong password.
    Deny(&'static str),
    /// Too many logins from this address have failed.
    Blocked,
    /// The authenticator has too much to do.
    Busy,
    /// The authenticator cannot decide.
    Unavailable(&'static str),
}

impl AuthDecision {
    /// Returns the terms on which the client may enter.
    ///
    /// # Errors
    /// The refusal, if the client may not connect.
    pub(crate) fn into_grant(self) -> Result<Grant, ConnectRefusal> {
        match self {
            AuthDecision::Allow(grant) => Ok(grant),
            AuthDecision::Deny(what) => Err(ConnectRefusal::untold(ReasonCode::NOT_AUTHORIZED, what)),
            AuthDecision::Blocked => Err(ConnectRefusal::untold(
                ReasonCode::BANNED,
                "too many logins from this address have failed (auth.failures)",
            )),
            AuthDecision::Busy => Err(ConnectRefusal::new(
                ReasonCode::SERVER_BUSY,
                "the authenticator has more requests than it can decide within auth.timeout",
            )),
            AuthDecision::Unavailable(what) => {
                Err(ConnectRefusal::untold(ReasonCode::SERVER_UNAVAILABLE, what))
            }
        }
    }
}

/// The authentication of a connection, from the request until CONNECT is handled.
#[derive(Debug)]
pub struct Authentication {
    since: Instant,
    timeout: Duration,
    /// Dropped when nobody waits any more.
    waits: Arc<()>,
    decision: Option<AuthDecision>,
}

impl Authentication {
    /// Begins to wait for a decision, for `timeout` at most.
    pub(crate) fn begin(now: Instant, timeout: Duration) -> Authentication {
        Authentication { since: now, timeout, waits: Arc::new(()), decision: None }
    }

    /// Returns the latest time of the decision. The time before `awake_since`, when the machine
    /// woke from a suspend, does not count.
    pub(crate) fn deadline(&self, awake_since: Instant) -> Instant {
        self.since.max(awake_since) + self.timeout
    }

    /// Returns the request for a CONNECT, to be decided by `methods`. Its password is copied.
    pub(crate) fn request(
        &self,
        connection: ConnectionId,
        listener: ListenerNumber,
        methods: Box<[AuthMethod]>,
        connect: &Connect<'_>,
    ) -> AuthRequest {
        AuthRequest {
            connection,
            listener,
            methods,
            client_id: connect.client_id.into(),
            user_name: connect.user_name.map(Into::into),
            password: connect.password.map(Secret::copy_of),
            waits: Arc::downgrade(&self.waits),
        }
    }

    /// Keeps the decision until CONNECT is handled.
    pub(crate) fn decide(&mut self, decision: AuthDecision) {
        self.decision = Some(decision);
    }

    /// Returns the decision, or `None` while the connection waits for it.
    pub(crate) fn into_decision(self) -> Option<AuthDecision> {
        self.decision
    }
}
