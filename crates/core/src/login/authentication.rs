//! Requests to the authenticator, and its decisions.
//!
//! A CONNECT with a password is decided elsewhere. Its bytes stay in the connection's partial
//! packet, and the connection is paused. When the decision comes, the bytes are decoded again, and
//! the rest of CONNECT is handled. Nothing of the session is touched before.

use crate::access::grant::Grant;
use crate::login::listener_terms::ListenerTerms;
use crate::mqtt::packet::{Connect, ReasonCode};
use crate::session::authentication::{AuthMethod, EnhancedMethod, Reach};
use crate::session::connect::ConnectRefusal;
use crate::slots::ConnectionId;
use crate::time::Instant;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use zeroize::Zeroizing;

/// A request to the authenticator. The decision comes back as an input of the shard.
#[derive(Debug)]
pub struct AuthRequest {
    /// The connection that waits.
    pub connection: ConnectionId,
    /// The listener that accepted the connection.
    pub listener: Arc<ListenerTerms>,
    /// The methods that the listener allows, in their order, without those that the shard decides
    /// itself.
    pub methods: Box<[AuthMethod]>,
    /// The client identifier; empty if the client let the broker choose one.
    pub client_id: Box<str>,
    /// The reach of the connection.
    pub reach: Reach,
    /// The user name that the client sent.
    pub user_name: Option<Box<str>>,
    /// The password that the client sent.
    pub password: Option<Secret>,
    /// The beginning of an exchange of AUTH packets; `None` if the client named no Authentication
    /// Method. Then the decision is a [`AuthDecision::Challenge`].
    pub exchange: Option<ExchangeStart>,
    /// Lives as long as the connection waits.
    pub waits: Weak<()>,
}

/// The beginning of an exchange of AUTH packets.
#[derive(Clone, Debug)]
pub struct ExchangeStart {
    /// The Authentication Method.
    pub method: EnhancedMethod,
    /// The Authentication Data of CONNECT or of the AUTH that begins a re-authentication.
    pub data: Box<[u8]>,
}

/// A question to the client, with the exchange that takes the answer.
#[derive(Clone, Debug)]
pub struct Challenge {
    /// The Authentication Data for the client.
    pub data: Box<[u8]>,
    /// The exchange behind the challenge.
    pub exchange: Arc<dyn AuthExchange>,
}

/// An exchange that waits for the client's answer to a challenge. The value does not change: each
/// answer leads to another exchange, or to a decision.
pub trait AuthExchange: fmt::Debug + Send + Sync {
    /// Returns the user name that the client wants to prove.
    fn user(&self) -> &str;

    /// Returns the estimated time of [`Self::answer`] in microseconds, for the budget of the turn.
    /// 0 means the usual few of a packet.
    fn answer_us(&self) -> u64 {
        0
    }

    /// Takes the answer of the client. Runs on the shard's thread, so it must be fast.
    fn answer(&self, data: &[u8]) -> ExchangeStep;
}

/// The result of an answer.
#[derive(Clone, Debug)]
pub enum ExchangeStep {
    /// The client has to answer again.
    Challenge(Challenge),
    /// The exchange is complete.
    Decided {
        /// The decision; never another challenge.
        decision: AuthDecision,
        /// The last Authentication Data for a client that is allowed; may be empty.
        data: Box<[u8]>,
    },
}

impl AuthRequest {
    /// Returns true if nobody waits for the decision any more. Then the work can be saved.
    pub fn is_abandoned(&self) -> bool {
        self.waits.strong_count() == 0
    }

    /// Returns the user name that the client sent; empty without one.
    pub fn user(&self) -> &str {
        self.user_name.as_deref().unwrap_or_default()
    }

    /// Returns the password that the client sent; empty without one.
    pub fn password_bytes(&self) -> &[u8] {
        self.password.as_ref().map_or(&[], Secret::bytes)
    }

    /// Returns the bytes that the client sent.
    pub fn size(&self) -> usize {
        self.client_id.len() + self.user().len() + self.password_bytes().len()
    }
}

/// Bytes that no log and no error shows. The bytes are overwritten when they are dropped.
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
    /// The client has to answer this first.
    Challenge(Challenge),
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
            AuthDecision::Deny(what) => Err(ConnectRefusal::unexplained(ReasonCode::NOT_AUTHORIZED, what)),
            AuthDecision::Blocked => Err(ConnectRefusal::unexplained(
                ReasonCode::BANNED,
                "too many logins from this address have failed (auth.failures)",
            )),
            AuthDecision::Busy => Err(ConnectRefusal::new(
                ReasonCode::SERVER_BUSY,
                "the authenticator has more requests than it can decide within auth.timeout",
            )),
            AuthDecision::Challenge(_) => Err(ConnectRefusal::unexplained(
                ReasonCode::SERVER_UNAVAILABLE,
                "the authenticator has challenged a client that named no Authentication Method",
            )),
            AuthDecision::Unavailable(what) => {
                Err(ConnectRefusal::unexplained(ReasonCode::SERVER_UNAVAILABLE, what))
            }
        }
    }
}

/// The authentication of a connection, from the request until CONNECT is handled.
#[derive(Debug)]
pub struct Authentication {
    since: Instant,
    timeout: Duration,
    /// The beginning of a time that does not count, because the client is not heard; `None` while
    /// the time counts.
    unheard: Option<Instant>,
    /// Dropped when nobody waits any more.
    waits: Arc<()>,
    /// The decision, with the number of revocations at that time.
    decision: Option<(AuthDecision, u32)>,
}

impl Authentication {
    /// Begins to wait for a decision, for `timeout` at most.
    pub(crate) fn begin(now: Instant, timeout: Duration) -> Authentication {
        Authentication { since: now, timeout, unheard: None, waits: Arc::new(()), decision: None }
    }

    /// Returns the latest time of the decision, or [`Instant::NEVER`] while the client is not
    /// heard. The time before `awake_since`, when the machine woke from a suspend, does not count.
    pub(crate) fn deadline(&self, awake_since: Instant) -> Instant {
        match self.unheard {
            Some(_) => Instant::NEVER,
            None => self.since.max(awake_since) + self.timeout,
        }
    }

    /// Notes that the broker does not read the client from now on. Its answer may wait meanwhile.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.unheard.get_or_insert(now);
    }

    /// Notes that the broker reads the client again.
    pub(crate) fn resume(&mut self, now: Instant) {
        if let Some(unheard) = self.unheard.take() {
            self.since = self.since + now.since(unheard);
        }
    }

    /// Returns the request for an exchange of AUTH packets, which begins with this data.
    pub(crate) fn exchange_request(
        &self,
        connection: ConnectionId,
        (listener, reach): (Arc<ListenerTerms>, Reach),
        client_id: &str,
        method: EnhancedMethod,
        data: &[u8],
    ) -> AuthRequest {
        AuthRequest {
            connection,
            listener,
            methods: Box::default(),
            client_id: client_id.into(),
            reach,
            user_name: None,
            password: None,
            exchange: Some(ExchangeStart { method, data: data.into() }),
            waits: Arc::downgrade(&self.waits),
        }
    }

    /// Returns the request for a CONNECT, to be decided by `methods`. Its password is copied.
    pub(crate) fn request(
        &self,
        connection: ConnectionId,
        (listener, reach): (Arc<ListenerTerms>, Reach),
        methods: Box<[AuthMethod]>,
        connect: &Connect<'_>,
    ) -> AuthRequest {
        AuthRequest {
            connection,
            listener,
            methods,
            client_id: connect.client_id.into(),
            reach,
            user_name: connect.user_name.map(Into::into),
            password: connect.password.map(Secret::copy_of),
            exchange: None,
            waits: Arc::downgrade(&self.waits),
        }
    }

    /// Keeps the decision until CONNECT is handled. `revocations` is the number of revocations so
    /// far.
    pub(crate) fn decide(&mut self, decision: AuthDecision, revocations: u32) {
        self.decision = Some((decision, revocations));
    }

    /// Returns the decision. Returns `None` while the connection waits for it. Also returns `None`
    /// if users were revoked after the client was allowed: then the authenticator is asked again.
    pub(crate) fn into_decision(self, revocations: u32) -> Option<AuthDecision> {
        match self.decision? {
            (AuthDecision::Allow(_), then) if then != revocations => None,
            (decision, _) => Some(decision),
        }
    }
}
