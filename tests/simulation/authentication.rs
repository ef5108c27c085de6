//! An authenticator that follows a script: it decides late, is busy, challenges, or never answers,
//! while clients come back, take over one another and go. Impostors try to get in. Challenged
//! clients answer, perhaps in several rounds, wrongly, or never.
//!
//! | rule | checked where |
//! |---|---|
//! | no client with a name is let in without an allow for its connection | `Connected` |
//! | no impostor is let in, not even a user of its own: the session has another owner | `Connected` |
//! | each refusal follows from the decision, or from the timeout | `Refused`, CONNACK |
//! | no connection waits for longer than the timeout | the sweep |
//! | no challenged client waits for longer than the time of CONNECT | the sweep |

use crate::client::Offer;
use crate::permissions::{Permissions, RuleStream};
use crate::plan::{LONG, Plan, Sessions};
use crate::rng::Rng;
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::access::identity::{Identity, IdentitySource};
use homing::login::authentication::{AuthDecision, AuthExchange, AuthRequest, Challenge, ExchangeStep};
use homing::mqtt::codec;
use homing::mqtt::packet::{Auth, Connect, ConnectProperties, Packet, ProtocolVersion, ReasonCode};
use homing::session::authentication::{Anonymous, AuthMethod, AuthPolicy};
use homing::shard::ConnectionId;
use homing::shard::Input;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

/// Seeds that failed before there was an authenticator play without one.
const AUTHENTICATION: u64 = 0x105_0000_0000;

/// Seeds that failed before there were challenges play the same without them.
const CHALLENGES: u64 = 0x106_0000_0000;

const METHOD: &str = "SCRAM-SHA-256";
const AGAIN: &[u8] = b"again";
const RIGHT: &[u8] = b"right";
const WRONG: &[u8] = b"wrong";

/// What a seed settles about the authenticator.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The longest time until a decision.
    decide_ms: u64,
    /// Of 100 decisions those that are "busy".
    busy: u64,
    /// Of 100 requests those that are never answered.
    silent: u64,
    /// Of 100 steps of a client those in which an impostor tries to take its session over.
    impostors: u64,
}

pub struct Authenticator {
    pub script: Option<Script>,
    rng: Rng,
    /// Decides about challenges alone.
    challenges: Rng,
    /// The clients that use an Authentication Method.
    exchanges: Vec<bool>,
    /// The user name of each client; `None` for anonymous clients.
    users: Vec<Option<String>>,
}

/// The answer of a challenged client, as the exchange has seen it.
#[derive(Clone, Debug, Default)]
struct Answered(Arc<AtomicU8>);

impl Answered {
    const RIGHT: u8 = 1;
    const WRONG: u8 = 2;

    fn is(&self, answer: u8) -> bool {
        self.0.load(Relaxed) == answer
    }
}

/// An exchange that asks until the answer is right or wrong.
#[derive(Debug)]
struct ScriptedExchange {
    user: String,
    answered: Answered,
}

impl AuthExchange for ScriptedExchange {
    fn user(&self) -> &str {
        &self.user
    }

    fn answer(&self, data: &[u8]) -> ExchangeStep {
        let (answer, decision) = match data {
            RIGHT => {
                let identity = Identity::new(&self.user, IdentitySource::Password);
                (Answered::RIGHT, AuthDecision::Allow(Arc::new(identity).into()))
            }
            AGAIN => {
                let exchange = ScriptedExchange { user: self.user.clone(), answered: self.answered.clone() };
                let data = AGAIN.into();
                return ExchangeStep::Challenge(Challenge { data, exchange: Arc::new(exchange) });
            }
            _ => (Answered::WRONG, AuthDecision::Deny("wrong answer")),
        };
        self.answered.0.store(answer, Relaxed);
        ExchangeStep::Decided { decision, data: Box::default() }
    }
}

/// The authentication of one socket.
#[derive(Debug, Default)]
pub struct Credentials {
    user: Option<String>,
    is_impostor: bool,
    asked: Option<u64>,
    decision: Option<AuthDecision>,
    answered: Answered,
    /// The refusal that CONNACK has.
    refused: Option<ReasonCode>,
}

impl Authenticator {
    pub fn new(seed: u64, plan: &mut Plan) -> Authenticator {
        let mut rng = Rng::new(seed ^ AUTHENTICATION);
        let plays = rng.percent(20);
        let script = plays.then(|| Script {
            decide_ms: rng.pick(&[1, 20, 200, 1_500]),
            busy: rng.pick(&[0, 10, 30]),
            silent: rng.pick(&[0, 0, 5]),
            impostors: rng.pick(&[0, 10, 30]),
        });
        if plays {
            plan.settings.auth = AuthPolicy {
                anonymous: Anonymous::Always,
                methods: vec![AuthMethod::Scram, AuthMethod::Password],
            };
            plan.settings.auth_timeout = Duration::from_millis(rng.pick(&[300, 1_000, 2_000]));
        }
        let user = |n| (plays && rng.percent(80)).then(|| format!("user-{n}"));
        let users: Vec<_> = (0..plan.clients.len()).map(user).collect();
        let mut challenges = Rng::new(seed ^ CHALLENGES);
        let part = challenges.pick(&[0, 50, 100]);
        let exchange = |(n, user): (usize, &Option<String>)| {
            user.is_some() && plan.clients[n].version.is_v5() && challenges.percent(part)
        };
        let exchanges = users.iter().enumerate().map(exchange).collect();
        Authenticator { script, users, rng, exchanges, challenges }
    }
}

impl Authenticator {
    /// Draws the rules about topics.
    pub fn permissions(&mut self, seed: (u64, RuleStream), plan: &mut Plan) -> Permissions {
        Permissions::new(seed, plan, &mut self.users, self.script.is_some())
    }
}

impl World {
    /// The credentials of a new connection of a client.
    pub fn credentials(&mut self, client: usize, socket: usize) -> (Option<String>, Option<&'static [u8]>) {
        let user = self.authenticator.users[client].clone();
        self.sockets[socket].credentials.user = user.clone();
        let password = user.is_some().then_some(RIGHT);
        (user, password)
    }

    /// The Authentication Method and Data of a client's CONNECT, if it uses a method.
    pub fn method(&self, client: usize) -> Option<(&'static str, &'static [u8])> {
        self.authenticator.exchanges[client].then_some((METHOD, b"first"))
    }

    /// A client is challenged: it answers, or stays silent.
    pub fn challenged(&mut self, client: usize) {
        let chaos = self.phase == Phase::Chaos;
        let data = match self.authenticator.challenges.below(100) {
            0..10 if chaos => return self.saw("a challenged client stays silent"),
            10..20 if chaos => WRONG,
            20..40 => AGAIN,
            _ => RIGHT,
        };
        self.saw("a challenged client answers");
        let (method, data) = (Some(METHOD), Some(data));
        let reason = ReasonCode::CONTINUE_AUTHENTICATION;
        let auth = Auth { reason, method, data, reason_string: None, user_properties: Vec::new() };
        self.send(client, &Packet::Auth(auth));
    }

    /// A shard asks.
    pub fn asked(&mut self, shard: usize, request: &AuthRequest) {
        let Some(socket) = self.nodes[shard].socket_of(request.connection) else { return };
        let Some(script) = self.authenticator.script else {
            return self.fail(format!("the authenticator is asked, and there is none: {request:?}"));
        };
        self.sockets[socket].credentials.asked = Some(self.now);
        let rng = &mut self.authenticator.rng;
        let is_right = request.password.as_ref().is_some_and(|password| password.bytes() == RIGHT);
        let chaos = self.phase == Phase::Chaos;
        if chaos && rng.percent(script.silent) {
            trace!(self, "the authenticator never decides about socket {socket}");
            return;
        }
        let is_another_user =
            self.sockets[socket].credentials.is_impostor && self.has_owner(self.sockets[socket].client);
        let rng = &mut self.authenticator.rng;
        let is_right = is_right || is_another_user && rng.percent(50);
        let credentials = &self.sockets[socket].credentials;
        let decision = match (&request.user_name, is_right) {
            _ if chaos && rng.percent(script.busy) => AuthDecision::Busy,
            _ if request.exchange.is_some() => {
                let (user, answered) = (credentials.user.clone(), credentials.answered.clone());
                let exchange = ScriptedExchange { user: user.unwrap_or_default(), answered };
                AuthDecision::Challenge(Challenge { data: AGAIN.into(), exchange: Arc::new(exchange) })
            }
            (Some(user), true) => {
                AuthDecision::Allow(Arc::new(Identity::new(user, IdentitySource::Password)).into())
            }
            _ => AuthDecision::Deny("wrong password"),
        };
        let at = self.now + rng.below(if chaos { script.decide_ms } else { 20 });
        self.schedule(at, Event::Decided { shard, connection: request.connection, decision });
    }

    /// Whether the client has a session for certain, now and until the broker crashes, that belongs
    /// to its user.
    fn has_owner(&self, client: usize) -> bool {
        let manners = &self.clients[client].manners;
        let lasts = self.plan.settings.session.connect.session_expiry == LONG;
        let is_kept = manners.sessions == Sessions::Kept && lasts && !manners.version.is_v5();
        let live = self.oracle.live[client].as_ref();
        is_kept && self.authenticator.users[client].is_some() && live.is_some_and(|live| !live.doubtful)
    }

    /// A shard gets a decision.
    pub fn decided(&mut self, shard: usize, connection: ConnectionId, decision: AuthDecision) {
        trace!(self, "shard {shard}: {connection:?} is decided: {decision:?}");
        match self.nodes[shard].socket_of(connection) {
            Some(socket) => self.sockets[socket].credentials.decision = Some(decision.clone()),
            None => self.saw("a decision comes for a connection that is gone"),
        }
        let now = self.instant();
        self.nodes[shard].core.input(now, Input::Authenticated(connection, decision));
        self.after_core(shard);
    }

    /// A client was let in: it had to be.
    pub fn check_entered(&mut self, socket: usize) -> Result<(), String> {
        let Credentials { user, is_impostor, decision, answered, .. } = &self.sockets[socket].credentials;
        match (user, decision) {
            _ if *is_impostor => Err(format!("an impostor is let in by socket {socket}")),
            (None, None) => Ok(()),
            (Some(_), None) if self.authenticator.script.is_none() => Ok(()),
            (Some(_), Some(AuthDecision::Challenge(_))) if answered.is(Answered::RIGHT) => Ok(()),
            (Some(user), Some(AuthDecision::Allow(grant))) if grant.identity.user() == user => Ok(()),
            _ => Err(format!("{user:?} is let in by socket {socket} after {decision:?}")),
        }
    }

    /// A client was refused for its credentials. Returns `None` if that was not the reason.
    pub fn check_kept_out(&mut self, socket: usize, reason: ReasonCode) -> Option<Result<(), String>> {
        let timeout = self.plan.settings.auth_timeout.as_millis() as u64;
        let connect_ms = self.plan.settings.connect_timeout.as_millis() as u64;
        let age = self.now - self.sockets[socket].accepted;
        let credentials = &mut self.sockets[socket].credentials;
        let asked = credentials.asked?;
        let waited = self.now - asked;
        let (result, what) = match (&credentials.decision, reason) {
            (Some(AuthDecision::Deny(_)), ReasonCode::NOT_AUTHORIZED) => (Ok(()), "wrong credentials"),
            (Some(AuthDecision::Allow(_)), ReasonCode::CLIENT_IDENTIFIER_NOT_VALID)
                if credentials.is_impostor =>
            {
                (Ok(()), "another user owns the session")
            }
            (Some(AuthDecision::Challenge(_)), ReasonCode::NOT_AUTHORIZED)
                if credentials.answered.is(Answered::WRONG) =>
            {
                (Ok(()), "a wrong answer to a challenge")
            }
            (Some(AuthDecision::Challenge(_)), ReasonCode::NOT_AUTHORIZED)
                if !credentials.answered.is(Answered::RIGHT) && age >= connect_ms =>
            {
                (Ok(()), "no answer to a challenge within the time of CONNECT")
            }
            (Some(AuthDecision::Busy), ReasonCode::SERVER_BUSY) => (Ok(()), "the authenticator is busy"),
            // The request leaves at the end of the turn in which the wait began.
            (_, ReasonCode::SERVER_UNAVAILABLE) if waited + self.plan.turn_ms >= timeout => {
                (Ok(()), "the authenticator does not decide")
            }
            (_, ReasonCode::QUOTA_EXCEEDED) => return None,
            (decision, _) => {
                (Err(format!("socket {socket} is refused with {reason} after {decision:?}, {waited} ms")), "")
            }
        };
        credentials.refused = Some(reason);
        if result.is_ok() {
            self.saw(what);
        }
        Some(result)
    }

    /// A CONNACK that refuses. Returns true if the credentials or the authenticator are the reason.
    pub fn is_kept_out(&self, socket: usize, reason: ReasonCode, v5: bool) -> bool {
        let Some(refused) = self.sockets[socket].credentials.refused else { return false };
        match (refused, v5) {
            (ReasonCode::SERVER_BUSY, false) => reason == ReasonCode::SERVER_UNAVAILABLE,
            _ => reason == refused,
        }
    }

    /// Looks for connections that have waited for longer than the timeout.
    pub fn sweep_authentication(&mut self, late: u64) {
        let timeout = self.plan.settings.auth_timeout.as_millis() as u64;
        let waits = |credentials: &Credentials| {
            credentials.decision.is_none() && credentials.refused.is_none() && credentials.asked.is_some()
        };
        let overdue = self.sockets.iter().position(|s| {
            let asked = s.credentials.asked.unwrap_or(u64::MAX);
            s.place.is_some()
                && s.closing.is_none()
                && waits(&s.credentials)
                && self.now > asked.saturating_add(timeout + late)
        });
        if let Some(socket) = overdue {
            self.fail(format!("socket {socket} still waits for the authenticator"));
        }
        let connect = self.plan.settings.connect_timeout.as_millis() as u64;
        let is_challenged = |credentials: &Credentials| {
            matches!(credentials.decision, Some(AuthDecision::Challenge(_)))
                && credentials.refused.is_none()
                && !credentials.answered.is(Answered::RIGHT)
        };
        // The time of CONNECT stands still until the challenge. Both deadlines may be late, one after
        // the other.
        let overdue = self.sockets.iter().position(|s| {
            s.place.is_some()
                && s.closing.is_none()
                && is_challenged(&s.credentials)
                && self.now > s.accepted + connect + timeout + 2 * late
        });
        if let Some(socket) = overdue {
            self.fail(format!("socket {socket} still waits for the answer to a challenge"));
        }
    }

    /// Somebody who is not this client comes with its client identifier.
    pub fn impersonate(&mut self, client: usize) {
        let Some(script) = self.authenticator.script else { return };
        let chaos = self.phase == Phase::Chaos;
        if !chaos || !self.authenticator.rng.percent(script.impostors) {
            return;
        }
        let name = self.clients[client].manners.name.clone();
        let offer = Offer { expiry: 0, keep_alive: 0, last_expiry: None, will: None };
        let socket = self.open(client, offer);
        self.sockets[socket].credentials =
            Credentials { user: Some("thief".into()), is_impostor: true, ..Credentials::default() };
        let clean_start = self.authenticator.rng.percent(50);
        trace!(self, "an impostor of client {client} connects by socket {socket}");
        let connect = Connect {
            version: ProtocolVersion::V3_1_1,
            clean_start,
            keep_alive: 0,
            properties: ConnectProperties::default(),
            client_id: &name,
            will: None,
            user_name: Some("thief"),
            password: Some(WRONG),
        };
        let mut bytes = Vec::new();
        let connect = Packet::Connect(Box::new(connect));
        codec::encode(&connect, ProtocolVersion::V3_1_1, &mut bytes).expect("a lawful packet");
        self.send_up(socket, &bytes);
    }
}
