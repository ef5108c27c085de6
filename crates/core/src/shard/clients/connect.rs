//! Handles CONNECT: finds the shard and the session, and authenticates the client.
//! `connect_checks` looks at the session and at room, and `establish` takes over a connection.

use crate::access::grant::Grant;
use crate::access::identity::{Identity, shown_name};
use crate::events::client_counts::SessionEnd;
use crate::login::authentication::{AuthDecision, Authentication};
use crate::login::listener_terms::ListenerTerms;
use crate::login::pending_exchange::ExchangeEnd;
use crate::login::verdict::{AcceptedLogin, LoginVerdict};
use crate::mqtt::codec::{DecodeError, PacketType};
use crate::mqtt::packet::{Connect, ReasonCode, WillMessage};
use crate::named_enum::Named;
use crate::routing::subscription_tree::ShardId;
use crate::session::authentication::{EnhancedMethod, FirstDecision};
use crate::session::connect::{self, ConnectRefusal, Negotiated};
use crate::shard::Shard;
use crate::shard::clients::auth_exchange;
use crate::shard::clients::connection::{Connection, Leaves};
use crate::shard::clients::establish::ConnackTerms;
use crate::shard::core::Core;
use crate::shard::rules::mounted;
use crate::shard::turn::flow::Flow;
use crate::slots::client_table::hash;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Returns the shard of a client's sessions, in a broker with `shards` shards.
pub fn shard_of(client_id: &str, shards: u8) -> ShardId {
    if shards <= 1 {
        return ShardId(0);
    }
    // The seed is fixed, so that a client has the same shard after a restart. An attacker can
    // choose client identifiers that all live in one shard, but then slows down only that shard.
    let hash = foldhash::quality::FixedState::with_seed(0x484F_4D49_4E47).hash_one(client_id);
    ShardId((hash % u64::from(shards)) as u8)
}

/// A CONNECT that is being handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectRequest<'a> {
    pub(super) now: Instant,
    pub(super) connection: ConnectionId,
    pub(super) connect: &'a Connect<'a>,
    /// Why the listener's mount point does not allow the will, if it does not.
    pub(super) will_refusal: Option<ConnectRefusal>,
}

impl<'a> ConnectRequest<'a> {
    /// Handles the CONNECT of a new connection.
    pub(in crate::shard) fn handle(
        now: Instant,
        id: ConnectionId,
        connect: &'a Connect<'a>,
        shard: &mut Shard,
    ) -> Flow {
        let request = ConnectRequest { now, connection: id, connect, will_refusal: None };
        let (Some(will), Some(mount_point)) =
            (&connect.will, mounted::mount_point_of_listener(id, &shard.core))
        else {
            return request.connect(shard);
        };
        match mounted::will_topic(&mount_point, will.topic) {
            Ok(topic) => {
                let will = WillMessage { topic: &topic, ..will.clone() };
                let connect = Connect { will: Some(will), ..connect.clone() };
                ConnectRequest { connect: &connect, ..request }.connect(shard)
            }
            Err(refusal) => ConnectRequest { will_refusal: Some(refusal), ..request }.connect(shard),
        }
    }

    fn connect(&self, shard: &mut Shard) -> Flow {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let assigned = if connect.client_id.is_empty() {
            let Some(assigned) = self.assign_client_id(shard) else {
                let what = "the system has no random numbers";
                let refusal = ConnectRefusal::unexplained(ReasonCode::SERVER_UNAVAILABLE, what);
                return self.refuse("", None, &refusal, &mut shard.core);
            };
            Some(assigned)
        } else {
            None
        };
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let home = shard_of(client_id, shard.core.peers.shards());
        if home != shard.core.peers.here() {
            return Flow::Home(home);
        }
        if let Some(existing) = shard.core.sessions.find(client_id)
            && shard.fans.fans_out_for(shard.core.peers.here(), existing)
        {
            // The session's last PUBLISH is still routed in portions. CONNECT waits for its end, so
            // that the will follows that PUBLISH.
            shard.fans.pause(now, id, &mut shard.core.connections);
            return Flow::Wait;
        }
        if self.lets_older_be_read(client_id, &mut shard.core) {
            shard.work.read_later(now, id, &mut shard.core.connections);
            return Flow::Wait;
        }
        // The packets before this one may have ended the connection.
        let Some(listener) = shard.core.connections.get(id).map(|c| Arc::clone(&c.listener)) else {
            return Flow::Closed;
        };
        let settings = &shard.core.settings;
        let in_flight = settings.session.send.in_flight;
        let policy = settings.connect_policy(&listener);
        let negotiated = connect::negotiate(connect, policy, in_flight);
        let Some(Connection { wire, .. }) = shard.core.connections.get_mut(id) else { return Flow::Closed };
        wire.set_limits(&negotiated.limits);
        wire.set_mount_point(listener.mount_point.clone());
        if wire.is_traced() || shard.core.tracer.is_on() {
            shard.core.recorder().add_connect(now, id, client_id);
        }
        let login = match self.log_in(client_id, &listener, &negotiated, shard) {
            Ok(login) => login,
            Err(flow) => return flow,
        };
        let existing = self.find_client(client_id, shard);
        if let Err(refusal) = self.check_session(client_id, &listener, &negotiated, &login, existing, shard) {
            return self.refuse(client_id, login.user.as_deref(), &refusal, &mut shard.core);
        }
        // A session of this client may have ended in a batch that is not committed yet. A CONNACK
        // without Session Present promises that this session is gone, so CONNACK waits for that
        // commit.
        let is_ending = shard.core.durability.is_ending(hash(client_id));
        let was_stored = is_ending || existing.is_some_and(|session| shard.core.sessions.is_stored(session));
        let resumed = existing.and_then(|session| self.take_over(session, shard));
        let session_id = resumed.unwrap_or_else(|| self.begin_session(client_id, &mut shard.core));
        if was_stored && resumed.is_none() {
            shard.core.gate_until_commit(id);
        }
        let AcceptedLogin { user, rules, ends, proof } = login;
        self.grant(session_id, resumed, (user, rules, ends), shard);
        let terms = ConnackTerms { assigned: assigned.as_deref(), present: resumed.is_some(), proof };
        self.establish(session_id, &negotiated, &terms, shard);
        Flow::Continue
    }

    /// Checks the packet, and authenticates the client.
    ///
    /// # Errors
    /// The flow of a CONNECT that is refused or has to wait.
    fn log_in(
        &self,
        client_id: &str,
        listener: &ListenerTerms,
        negotiated: &Negotiated,
        shard: &mut Shard,
    ) -> Result<AcceptedLogin, Flow> {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let verdict = connect::check(connect, &negotiated.bounds)
            .and_then(|()| listener.check_version(connect.version))
            .and_then(|()| shard.bans.check_client(now, id, client_id, &mut shard.core))
            .and_then(|is_done| match is_done {
                true => self.authenticate(&mut shard.core),
                false => Ok(LoginVerdict::Later),
            });
        match verdict {
            Ok(LoginVerdict::Accepted(login)) => Ok(login),
            Ok(LoginVerdict::Challenged) => Err(Flow::Challenged),
            Ok(LoginVerdict::Pending) => Err(Flow::Wait),
            Ok(LoginVerdict::Later) => {
                shard.work.read_later(now, id, &mut shard.core.connections);
                Err(Flow::Wait)
            }
            Err(refusal) => Err(self.refuse(client_id, None, &refusal, &mut shard.core)),
        }
    }

    /// Returns the user of the client, or asks the authenticator and pauses the connection. Then
    /// this CONNECT is handled again when the decision has come.
    ///
    /// # Errors
    /// The refusal, if the client may not connect.
    fn authenticate(&self, core: &mut Core) -> Result<LoginVerdict, ConnectRefusal> {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let Core { connections, settings, effects, figures, .. } = &mut *core;
        let now_revoked = connections.revocations();
        // A connection that has ended needs no verdict.
        let Some(connection) = connections.get_mut(id) else { return Ok(LoginVerdict::Pending) };
        if let Some(ExchangeEnd { decision, proof, revocations }) = connection.take_exchange_end() {
            figures.counts.login(&decision);
            let grant = decision.into_grant()?;
            if revocations != now_revoked {
                let what = "the password file has changed meanwhile";
                return Err(ConnectRefusal::unexplained(ReasonCode::SERVER_UNAVAILABLE, what));
            }
            if connect.user_name.is_some_and(|name| name != grant.identity.user()) {
                let what = "the user name of CONNECT is not the one that the exchange has proven";
                return Err(ConnectRefusal::unexplained(ReasonCode::NOT_AUTHORIZED, what));
            }
            return Ok(LoginVerdict::Accepted(AcceptedLogin { proof: Some(proof), ..grant.into() }));
        }
        match (connection.take_decision(now_revoked), connect.properties.authentication_method) {
            (Some(AuthDecision::Challenge(challenge)), Some(name))
                if let Some(method) = EnhancedMethod::of_name(name) =>
            {
                auth_exchange::challenge(id, method, challenge, core)?;
                return Ok(LoginVerdict::Challenged);
            }
            (Some(decision), _) => {
                figures.counts.login(&decision);
                return decision.into_grant().map(|grant| LoginVerdict::Accepted(grant.into()));
            }
            (None, _) => {}
        }
        let certificate_user = connection.rare().and_then(|rare| rare.certificate_user.as_deref());
        match settings.auth_of(&connection.listener).entry(connect, connection.reach, certificate_user)? {
            FirstDecision::Anonymous => Ok(LoginVerdict::Accepted(AcceptedLogin::ANONYMOUS)),
            FirstDecision::Named(name, source) => {
                let grant = Grant::from(Arc::new(Identity::new(name, source)));
                let rules = connection.listener.own_rules();
                Ok(LoginVerdict::Accepted(Grant { rules, ..grant }.into()))
            }
            first @ (FirstDecision::Asks | FirstDecision::Exchanges(_)) => {
                let authentication = Authentication::begin(now, settings.auth_timeout);
                let from = (Arc::clone(&connection.listener), connection.reach);
                effects.auth_requests.push(match first {
                    FirstDecision::Exchanges(method) => {
                        let data = connect.properties.authentication_data.unwrap_or_default();
                        authentication.exchange_request(id, from, connect.client_id, method, data)
                    }
                    _ => authentication.request(
                        id,
                        from,
                        settings.auth_of(&connection.listener).asked_methods(connect),
                        connect,
                    ),
                });
                connection.begin_authentication(now, authentication);
                connections.register_read_idle(id, effects);
                Ok(LoginVerdict::Pending)
            }
        }
    }

    /// Returns a new client identifier. No session has it, its sessions live in this shard, and
    /// nobody can guess it: who knows the identifier of a client without a user can resume its
    /// session. Returns `None` if the system has no random numbers.
    // 3.1.1 [MQTT-3.1.3-6]; 5.0 [MQTT-3.1.3-6], [MQTT-3.2.2-16]
    fn assign_client_id(&self, shard: &mut Shard) -> Option<String> {
        loop {
            let id = format!("homing-{:032x}", shard.randomness.secret()?);
            let core = &shard.core;
            if shard_of(&id, core.peers.shards()) == core.peers.here() && core.sessions.find(&id).is_none() {
                return Some(id);
            }
        }
    }

    /// Returns the session of a client, if there is one. Ends a session that has expired, even if
    /// the expiry actor has not reported it yet.
    // 5.0 [MQTT-4.1.0-2]
    fn find_client(&self, client_id: &str, shard: &mut Shard) -> Option<SessionId> {
        let ConnectRequest { now, .. } = *self;
        let id = shard.core.sessions.find(client_id)?;
        if shard.core.sessions.get(id)?.ends <= now {
            shard.end_session(now, id, SessionEnd::Expired);
            return None;
        }
        Some(id)
    }

    /// Returns true if CONNECT must wait because an older connection of this client has not been
    /// read yet. What the client sent there before this CONNECT may still be in the kernel, because
    /// the socket of a newcomer can come to the shard before the reactor has reported the older
    /// one. Acknowledgements that nobody reads would be messages that come again.
    ///
    /// CONNECT waits once, so an older connection whose bytes never end delays it by one turn.
    fn lets_older_be_read(&self, client_id: &str, core: &mut Core) -> bool {
        let older = core.sessions.find(client_id).and_then(|session| core.sessions.get(session)?.connection);
        let Some(older) = older else { return false };
        let Some(connection) = core.connections.get_mut(self.connection) else { return false };
        if std::mem::replace(&mut connection.rare_mut().has_let_older_be_read, true) {
            return false;
        }
        core.effects.read_now.push(older);
        true
    }

    /// Refuses a CONNECT whose exchange of AUTH packets has failed.
    pub(in crate::shard) fn refuse_exchange(
        now: Instant,
        id: ConnectionId,
        connect: &'a Connect<'a>,
        refusal: &ConnectRefusal,
        core: &mut Core,
    ) {
        let request = ConnectRequest { now, connection: id, connect, will_refusal: None };
        request.refuse(connect.client_id, None, refusal, core);
    }

    /// Writes the refusal of a CONNECT, and begins to close the connection. `user` is the user of
    /// the client, if the authentication was successful. A name that may be a token is not noted.
    fn refuse(
        &self,
        client_id: &str,
        user: Option<&Identity>,
        refusal: &ConnectRefusal,
        core: &mut Core,
    ) -> Flow {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let exchange = core.connections.get(id).and_then(Connection::exchange);
        let proven = exchange.map(|exchange| exchange.user().to_owned());
        core.write(id, |wire, counters| {
            let is_written = wire.put_refusal(refusal);
            counters.packets_sent.add(PacketType::Connack, u64::from(is_written));
        });
        core.begin_closing(now, id, Leaves::Broker);
        core.counters.refused_connects += u64::from(refusal.reason == ReasonCode::QUOTA_EXCEEDED);
        let user = user.filter(|user| user.is_verified()).map(Identity::user);
        let claimed = connect.user_name.filter(|_| !core.settings.user_names_are_tokens);
        let user_name = proven.as_deref().or(user).or(claimed).map(shown_name);
        core.note_refused(id, Some(client_id), user_name, refusal.reason, refusal.what);
        Flow::Closed
    }
}

/// Closes a connection whose first bytes are no valid CONNECT. Writes a CONNACK if `error` has one.
///
/// The log says so if the bytes look like another protocol, because a client then uses the wrong
/// port.
pub(crate) fn refuse_undecodable(
    now: Instant,
    id: ConnectionId,
    error: &DecodeError,
    bytes: &[u8],
    core: &mut Core,
) {
    if let Some(connack) = error.connack()
        && let Some(connection) = core.connections.get_mut(id)
    {
        connection.wire.outbox.buffer().extend_from_slice(connack);
        core.counters.packets_sent.count(PacketType::Connack);
    }
    core.begin_closing(now, id, Leaves::Broker);
    let what = match bytes {
        [0x16, 3, ..] => "TLS on a listener without TLS".to_owned(),
        [b'G', b'E', b'T', b' ', ..] => "HTTP on a listener for MQTT".to_owned(),
        [b'P', b'R', b'O', b'X', b'Y', b' ', ..] | [b'\r', b'\n', b'\r', b'\n', ..] => {
            "a PROXY header on a listener without proxy_protocol".to_owned()
        }
        _ => error.to_string(),
    };
    core.note_refused(id, None, None, error.reason_code(), &what);
}
