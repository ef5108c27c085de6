//! The checks of an authenticated CONNECT: client identifier, will, owner of the session, room.

use crate::access::denial::DeniedAccess;
use crate::access::grant::SessionRules;
use crate::access::identity::{Identity, shown_name};
use crate::events::client_events::Occurrence;
use crate::events::refusals::{RefusedKind, RefusedRequest};
use crate::login::acl_files::RuleSource;
use crate::login::listener_terms::{ListenerTerms, Served};
use crate::login::verdict::AcceptedLogin;
use crate::mqtt::packet::{ReasonCode, WillMessage};
use crate::session::authentication::Ownership;
use crate::session::connect::{ConnectRefusal, Negotiated};
use crate::session::drops::DropReason;
use crate::session::publish_refusal;
use crate::shard::Shard;
use crate::shard::admission::{Change, Entrant, ExistingSession};
use crate::shard::clients::connect::ConnectRequest;
use crate::shard::core::Core;
use crate::shard::rules::mounted;
use crate::shard::turn::Turn;
use crate::slots::SessionId;
use std::sync::Arc;

impl ConnectRequest<'_> {
    /// Checks that an authenticated client may have the session `existing`, or a new one.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn check_session(
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
        let assigned = Some(client_id).filter(|_| self.connect.client_id.is_empty());
        self.check_connack(negotiated, assigned, login.proof.as_ref(), core)?;
        self.admit(negotiated, client_id, existing, core)?;
        if let (Ownership::Adopts, Some(session)) = (ownership, existing) {
            note_adopted(session, user, core);
        }
        Ok(())
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
        let is_v5 = self.connect.version.is_v5();
        // 3.x has no return code that tells this from a wrong password. A bridge of mosquitto that
        // speaks 3.1.1 has a will below `$SYS` by default, and would never get in. Such a will is
        // dropped when it is due.
        if is_v5 && let Some(cause) = settings.topic_refusal(will.topic) {
            note(cause, &|_| publish_refusal::bound(cause).to_owned());
            return Err(match cause {
                DropReason::TopicTooDeep => ConnectRefusal::new(
                    ReasonCode::TOPIC_NAME_INVALID,
                    "the topic of the will has more levels than limits.topic_levels",
                ),
                _ => ConnectRefusal::new(
                    ReasonCode::NOT_AUTHORIZED,
                    "the topic of the will is reserved for the broker",
                ),
            });
        }
        if will.payload.len() > settings.session.payload_size {
            note(DropReason::TooLarge, &|_| publish_refusal::bound(DropReason::TooLarge).to_owned());
            // 3.x has no return code with this meaning. mosquitto uses the same two.
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
}

/// Counts and notes that a session without an owner got one.
fn note_adopted(session: SessionId, user: Option<&Identity>, core: &mut Core) {
    core.counters.adopted_sessions += 1;
    let user_name = shown_name(user.map_or("", Identity::user)).into();
    core.note_of(session, Occurrence::Adopted { user_name }, None);
}
