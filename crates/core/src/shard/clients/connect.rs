//! Handles CONNECT: checks it, authenticates the client, takes over or begins the session, and
//! writes CONNACK.

use crate::access::denial::DeniedAccess;
use crate::access::grant::{Grant, SessionRules};
use crate::access::identity::{Identity, shown_name};
use crate::events::client_counts::SessionEnd;
use crate::events::client_events::{DisconnectCause, Occurrence};
use crate::events::refusals::{RefusedKind, RefusedRequest};
use crate::login::acl_files::RuleSource;
use crate::login::authentication::{AuthDecision, Authentication};
use crate::login::listener_terms::{ListenerTerms, Served};
use crate::login::pending_exchange::{EnhancedProof, ExchangeEnd};
use crate::login::verdict::{AcceptedLogin, LoginVerdict};
use crate::mqtt::codec::{DecodeError, PacketType};
use crate::mqtt::packet::{Connect, ReasonCode, WillMessage};
use crate::named_enum::Named;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::ShardId;
use crate::session::Session;
use crate::session::authentication::{EnhancedMethod, FirstDecision, Ownership};
use crate::session::connect::{self, ConnectRefusal, Negotiated};
use crate::session::drops::DropReason;
use crate::session::inbound::AnnouncedLimits;
use crate::session::outbound::retry::Outlives;
use crate::session::packet_counts::RedeliveryCounts;
use crate::session::publish_refusal;
use crate::session::will::Ending;
use crate::session::will::take_at_return;
use crate::shard::Shard;
use crate::shard::admission::{Change, Entrant, ExistingSession};
use crate::shard::clients::auth_exchange;
use crate::shard::clients::connection::{Connection, Leaves};
use crate::shard::clients::rates;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::clients::wills::DueWill;
use crate::shard::core::Core;
use crate::shard::features::redelivery_request::take_connect_requests;
use crate::shard::rules::access_change::QueueCheck;
use crate::shard::rules::mounted;
use crate::shard::turn::Turn;
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
    now: Instant,
    connection: ConnectionId,
    connect: &'a Connect<'a>,
    /// Why the listener's mount point does not allow the will, if it does not.
    will_refusal: Option<ConnectRefusal>,
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
        if home != shard.core.here {
            return Flow::Home(home);
        }
        if let Some(existing) = shard.core.sessions.find(client_id)
            && shard.fans.fans_out_for(shard.core.here, existing)
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

    /// Checks that an authenticated client may have the session `existing`, or a new one.
    ///
    /// # Errors
    /// The refusal.
    fn check_session(
        &self,
        client_id: &str,
        listener: &Arc<ListenerTerms>,
        negotiated: &Negotiated,
        login: &AcceptedLogin,
        existing: Option<SessionId>,
        shard: &mut Shard,
    ) -> Result<(), ConnectRefusal> {
        let ConnectRequest { now, connection: id, .. } = *self;
        let (user, core) = (login.user.as_deref(), &mut shard.core);
        shard.bans.check_user(now, client_id, user, core)?;
        self.check_client_id(listener, user, core)?;
        self.check_will(client_id, listener, (user, login.rules.as_ref()), core)?;
        mounted::check_client(id, existing, core)?;
        // The configuration names the user of a bridge or sink, and a reload may name another.
        let ownership = match listener.serves {
            Served::Clients => self.check_owner(existing, user, core)?,
            Served::Bridge(_) => Ownership::Granted,
        };
        self.admit(negotiated, client_id, existing, core)?;
        if let (Ownership::Adopts, Some(session)) = (ownership, existing) {
            note_adopted(session, user, core);
        }
        Ok(())
    }

    /// Gives the session its user and rules, and the connection the end of its credentials. The
    /// queue of a resumed session is checked by the new rules before it is sent.
    fn grant(
        &self,
        session_id: SessionId,
        resumed: Option<SessionId>,
        (user, rules, ends): (Option<Arc<Identity>>, Option<SessionRules>, Instant),
        shard: &mut Shard,
    ) {
        let Core { sessions, access, connections, .. } = &mut shard.core;
        if let Some(rules) = &rules {
            access.note_own_rules(rules);
        }
        if let Some(session_entry) = sessions.get_mut(session_id) {
            session_entry.set_user(user);
            session_entry.set_own_rules(rules);
            if let Some(connection) = connections.get(self.connection) {
                session_entry.set_rule_source(RuleSource::of_newcomer(&connection.listener));
            }
            if resumed.is_none() && access.are_on() {
                session_entry.begin_access(access);
            }
        }
        if let Some(connection) = connections.get_mut(self.connection) {
            connection.set_end(ends);
        }
        if resumed.is_some() {
            QueueCheck { now: self.now, session: session_id }.begin(Some(self.connection), shard);
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

    /// Checks that the client identifier has the form that the listener demands. An identifier that
    /// the broker assigned has none, because nobody else has it. A user name that does not count in
    /// the rules of the ACL does not count here.
    ///
    /// # Errors
    /// The refusal, if it has another form.
    fn check_client_id(
        &self,
        listener: &ListenerTerms,
        user: Option<&Identity>,
        core: &Core,
    ) -> Result<(), ConnectRefusal> {
        let client_id = self.connect.client_id;
        listener.check_prefix(client_id)?;
        match &listener.client_id {
            Some(rule)
                if !client_id.is_empty()
                    && !rule.admits(core.access.names(user, client_id).user, client_id) =>
            {
                Err(ConnectRefusal::new(
                    ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
                    "the client id has not the form that this listener demands (client_id)",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the client may publish its will. A will that was dropped later would be a silent
    /// loss.
    ///
    /// # Errors
    /// The refusal, if it may not.
    fn check_will(
        &self,
        client_id: &str,
        listener: &Arc<ListenerTerms>,
        (user, own): (Option<&Identity>, Option<&SessionRules>),
        core: &mut Core,
    ) -> Result<(), ConnectRefusal> {
        let Some(will) = &self.connect.will else { return Ok(()) };
        let Core { access, settings, counters, figures, turn, .. } = core;
        let mut note = |cause: DropReason, why: &dyn Fn(&mut Turn) -> String| {
            counters.refused_wills.add(cause, 1);
            let user = user.map(|user| shown_name(user.user()));
            let (kind, topic, cause) = (RefusedKind::Will, will.topic, cause.name());
            let request = RefusedRequest { client_id, user, kind, topic, cause };
            figures.refusals.note(&request, || why(turn));
        };
        if let Some(refusal) = self.will_refusal {
            note(DropReason::ReservedTopic, &|_| refusal.what.to_owned());
            return Err(refusal);
        }
        let names = access.names(user, client_id);
        let rules = (own, &RuleSource::of_newcomer(listener));
        if will.payload.len() > settings.session.payload_size {
            note(DropReason::TooLarge, &|_| publish_refusal::bound(DropReason::TooLarge).to_owned());
            // 3.x has no return code with this meaning. mosquitto uses the same two.
            let is_v5 = self.connect.version.is_v5();
            let reason = if is_v5 { ReasonCode::PACKET_TOO_LARGE } else { ReasonCode::NOT_AUTHORIZED };
            return Err(ConnectRefusal::new(reason, "the payload of the will exceeds limits.payload_size"));
        }
        if !access.admits_will(rules, names, will.topic) {
            let denied = DeniedAccess::Publish(will.topic);
            note(DropReason::NotAuthorized, &|turn| {
                turn.explain(access.why_denied(rules, (user, names), denied))
            });
            let what = "the client may not publish to the topic of its will (acl.file)";
            return Err(ConnectRefusal::new(ReasonCode::NOT_AUTHORIZED, what));
        }
        Ok(())
    }

    /// Checks that the client's user may use the session that exists.
    ///
    /// # Errors
    /// The refusal, if another user owns the session.
    fn check_owner(
        &self,
        existing: Option<SessionId>,
        user: Option<&Identity>,
        core: &mut Core,
    ) -> Result<Ownership, ConnectRefusal> {
        let Some(session_entry) = existing.and_then(|id| core.sessions.get(id)) else {
            return Ok(Ownership::Granted);
        };
        let owner = session_entry.owner().map(|owner| &**owner);
        let ownership = core.settings.owners.check(owner, user);
        core.counters.foreign_sessions += u64::from(ownership.is_err());
        ownership
    }

    /// Returns a new client identifier. No session has it, its sessions live in this shard, and
    /// nobody can guess it: who knows the identifier of a client without a user can resume its
    /// session. Returns `None` if the system has no random numbers.
    // 3.1.1 [MQTT-3.1.3-6]; 5.0 [MQTT-3.1.3-6], [MQTT-3.2.2-16]
    fn assign_client_id(&self, shard: &mut Shard) -> Option<String> {
        loop {
            let id = format!("homing-{:032x}", shard.randomness.secret()?);
            let core = &shard.core;
            if shard_of(&id, core.peers.shards()) == core.here && core.sessions.find(&id).is_none() {
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

    /// Checks that a client may connect. If the client has no session, counts one more against
    /// `limits.sessions`.
    ///
    /// # Errors
    /// The reason code and the text of the refusal.
    fn admit(
        &self,
        negotiated: &Negotiated,
        client_id: &str,
        existing: Option<SessionId>,
        core: &mut Core,
    ) -> Result<(), ConnectRefusal> {
        let ConnectRequest { connect, .. } = *self;
        let refuse = |reason, what| Err(ConnectRefusal::new(reason, what));
        let known =
            existing.and_then(|session| core.sessions.get(session)).map(|session_entry| ExistingSession {
                kept: session_entry.session.expiry > 0,
                stored: session_entry.session.row().is_some(),
                will: session_entry.session.will.as_ref().map_or(0, |will| will.size()),
            });
        let kept = negotiated.session_expiry > 0;
        let entrant = Entrant {
            client_id: client_id.len(),
            will: connect.will.as_ref().map_or(0, WillMessage::size),
            kept,
            stored: core.durability.is_on() && kept,
            existing: known,
        };
        if let Err(want) = core.admits(Change::Connect(entrant)) {
            return refuse(ReasonCode::QUOTA_EXCEEDED, want.text());
        }
        // This check comes last, because it counts the session, and nothing would give the count
        // back.
        if existing.is_none() && !core.shared.totals.sessions.take(1, core.settings.sessions) {
            return refuse(ReasonCode::QUOTA_EXCEEDED, "limits.sessions is reached");
        }
        Ok(())
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

    /// Takes over a session: closes its old connection, if there is one. The newest connection of a
    /// client identifier stays, whatever the older one has in flight. Returns the session if it is
    /// resumed. Returns `None` if it ended, because the client asked for a new one or because it
    /// ended with its old connection.
    fn take_over(&self, session: SessionId, shard: &mut Shard) -> Option<SessionId> {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let is_of_another = mounted::is_of_another(id, session, &mut shard.core);
        let session_entry = shard.core.sessions.get(session)?;
        let old_session = match session_entry.connection {
            Some(_) => session_entry.session.outlives(),
            None => Outlives::Yes,
        };
        let ending = match is_of_another {
            true => Ending::TakenOverAfresh,
            false => connect::take_over(connect, old_session),
        };
        if let Some(old) = session_entry.connection {
            shard.core.write_disconnect(old, ReasonCode::SESSION_TAKEN_OVER, None);
            shard.core.note_disconnected(now, old, DisconnectCause::TakenOver);
            shard.detach_session(now, old, ending);
            shard.core.begin_closing(now, old, Leaves::Broker);
        }
        if ending == Ending::TakenOverAfresh {
            // Counts the new session before the old one is given back. Otherwise another shard
            // could take the place in between, and the client that was admitted would exceed
            // `limits.sessions`.
            shard.core.shared.totals.sessions.add(1);
            shard.end_session(now, session, SessionEnd::CleanStart);
            return None;
        }
        let session_entry = shard.core.sessions.get_mut(session)?;
        // When the client comes back, a delayed will is discarded. A will that is due already is
        // published, even if the expiry actor has not reported it yet.
        let due = session_entry.will_due();
        let will = take_at_return(&mut session_entry.session.will, now, due);
        session_entry.set_will_due(Instant::NEVER);
        session_entry.ends = Instant::NEVER;
        shard.core.figures.counts.sessions_resumed += 1;
        DueWill::publish_for(now, session, will, shard);
        Some(session)
    }

    /// Adds an empty session without a connection. [`Self::establish`] sets its terms.
    fn begin_session(&self, client_id: &str, core: &mut Core) -> SessionId {
        core.figures.counts.sessions_created += 1;
        let session = Session::new(client_id, 0, Arc::clone(core.sessions.rules().nobody()));
        let mut entry = SessionEntry::new(session, Instant::NEVER, Instant::NEVER);
        core.turn.spend_globs(entry.find_objectives(&core.counters.objectives));
        core.sessions.insert(entry)
    }

    /// Joins connection and session, writes CONNACK, and sends the messages that were in flight or
    /// queued.
    ///
    /// The order matters. The session is recorded first, so that the outbox can hold CONNACK until
    /// that record is committed. If the store is full, CONNACK waits only for the last complete
    /// record of the session. CONNACK is put into the outbox before the resends, because it must be
    /// the first packet that the client gets. Packets behind CONNACK wait with it.
    fn establish(
        &self,
        session_id: SessionId,
        negotiated: &Negotiated,
        terms: &ConnackTerms<'_>,
        shard: &mut Shard,
    ) {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let ConnackTerms { assigned, present, ref proof } = *terms;
        let client_id = assigned.unwrap_or(connect.client_id);
        let user = shard.core.sessions.get(session_id).and_then(|entry| entry.user().cloned());
        let name = shard.core.access.name_in_redelivery_rules(user.as_deref());
        let redelivery = shard.core.sessions.redelivery_of(client_id, name);
        let mount_point = mounted::mount_point_of(id, &shard.core);
        if let Some(session_entry) = shard.core.sessions.get_mut(session_id) {
            session_entry.set_mount_point(mount_point);
            session_entry.session.sender.set_redelivery(redelivery);
        }
        let granted = take_connect_requests(session_id, connect, &mut shard.core);
        let receive_maximum = receive_maximum(id, &shard.core);
        let mut connack = negotiated.connack(connect, receive_maximum, assigned);
        connack.session_present = present;
        if let Some(EnhancedProof { method, data }) = proof {
            // 5.0 [MQTT-4.12.0-5]; without a method [MQTT-4.12.0-6]
            connack.properties.authentication_method = Some(method.name());
            connack.properties.authentication_data = (!data.is_empty()).then_some(data);
        }
        connack.properties.user_properties.extend(granted.iter().map(|(name, text)| (*name, text.as_str())));
        shard.bans.count_connect(now, session_id, &mut shard.core);
        let host = shard.core.connections.get(id).and_then(|connection| connection.rare()?.host);
        self.join(session_id, negotiated, proof.as_ref().map(|proof| proof.method), &mut shard.core);
        if shard.core.settings.rates.is_some() {
            rates::begin(now, id, host, &mut shard.core);
        }
        shard.core.record_session(session_id);
        if shard.core.sessions.is_stored(session_id) {
            shard.core.gate_connack(id, session_id);
        }
        // 3.1.1 [MQTT-3.2.0-1]; 5.0 [MQTT-3.2.0-1]: the server sends CONNACK before any other
        // packet.
        let fits = shard.core.write(id, |wire, counters| {
            let fits = wire.put_connack(connack);
            counters.packets_sent.add(PacketType::Connack, u64::from(fits));
            fits
        });
        let fits = fits == Some(true);
        let (publishes, releases) = if fits { self.resume(&mut shard.core) } else { (0, 0) };
        shard.core.connections.count_established();
        shard.core.connections.register_read_idle(id, &mut shard.core.effects);
        shard.after_session_change(now, session_id);
        shard.routes.set_presence(session_id, Presence::Online, &mut shard.core);
        let connected = Occurrence::Connected {
            clean_start: connect.clean_start,
            session_present: present,
            keep_alive_secs: negotiated.keep_alive_secs,
        };
        shard.core.note_of(session_id, connected, None);
        shard.core.note_return(now, session_id, publishes, releases);
        if !fits {
            let what = "the client's Maximum Packet Size is too small for a CONNACK";
            shard.disconnect(
                now,
                id,
                None,
                DisconnectCause::Violation(ReasonCode::PACKET_TOO_LARGE, what.into()),
            );
        }
    }

    /// Joins connection and session. From here on each has the identifier of the other.
    fn join(
        &self,
        session_id: SessionId,
        negotiated: &Negotiated,
        method: Option<EnhancedMethod>,
        core: &mut Core,
    ) {
        let ConnectRequest { now, connection: id, connect, .. } = *self;
        let receive_maximum = receive_maximum(id, core);
        let Core { connections, sessions, .. } = &mut *core;
        // Both are there: CONNECT has just been accepted, and its session found or begun.
        let (Some(connection), Some(session_entry)) = (connections.get_mut(id), sessions.get_mut(session_id))
        else {
            return;
        };
        connection.accept_connect(now, connect);
        connection.method = method;
        connection.packet_size = negotiated.bounds.packet_size;
        connection.refuses_retain = negotiated.version.is_v5() && !negotiated.bounds.retain_available;
        connection.end_connect();
        connection.session = Some(session_id);
        connection.keep_alive.start(negotiated.keep_alive_secs, now);
        let wire = &mut connection.wire;
        session_entry.connection = Some(id);
        session_entry.session.receiver.begin_connection(AnnouncedLimits {
            receive_maximum,
            topic_alias_maximum: negotiated.bounds.topic_alias_maximum,
        });
        negotiated.begin_connection(&mut session_entry.session, connect, wire);
    }

    /// Sends the PUBREL packets again, then the PUBLISH packets that were in flight, then as much
    /// of the queue as window and outbox take. Returns the numbers of PUBLISH and PUBREL packets
    /// that were sent again.
    fn resume(&self, core: &mut Core) -> (u64, u64) {
        let ConnectRequest { now, connection: id, .. } = *self;
        // The caller has joined the connection and the session.
        let Some(mut client) = core.client(id) else { return (0, 0) };
        let RedeliveryCounts { returned_publishes, returned_releases, .. } = client.counters.redelivered;
        let before = client.begin_write();
        client.entry.session.sender.resume(now, &mut client.connection.wire, client.counters);
        client.end_write(before);
        client.pump(now);
        let redelivered = &client.counters.redelivered;
        let sent_again = (
            redelivered.returned_publishes - returned_publishes,
            redelivered.returned_releases - returned_releases,
        );
        core.spend_senders();
        sent_again
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

/// Returns the most unfinished messages that a client may send.
fn receive_maximum(id: ConnectionId, core: &Core) -> u16 {
    let of_listener = core.connections.get(id).and_then(|connection| connection.listener.receive_maximum);
    of_listener.unwrap_or(core.settings.session.receive_maximum)
}

/// Counts and notes that a session without an owner got one.
fn note_adopted(session: SessionId, user: Option<&Identity>, core: &mut Core) {
    core.counters.adopted_sessions += 1;
    let user_name = shown_name(user.map_or("", Identity::user)).into();
    core.note_of(session, Occurrence::Adopted { user_name }, None);
}

/// The parts of CONNACK that are not negotiated.
struct ConnackTerms<'a> {
    /// The client identifier that the broker chose; `None` if the client chose one.
    assigned: Option<&'a str>,
    /// Session Present.
    present: bool,
    /// The result of an exchange of AUTH packets.
    proof: Option<EnhancedProof>,
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
