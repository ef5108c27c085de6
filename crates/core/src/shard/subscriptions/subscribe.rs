//! Handles SUBSCRIBE and UNSUBSCRIBE, and waits until they are in force in every shard.
//!
//! The subscription tree of this shard changes at once. If there are other shards, they are
//! informed, and a barrier follows. SUBACK waits until every shard has passed the barrier. Then the
//! retained messages are read ([`super::retained_delivery`]). So the subscriber gets every message:
//! a message that is published after SUBACK arrives live, and a message that was retained before is
//! found. Retain Handling decides whether a filter gets any (`sends_retained` in
//! [`crate::session::subscriptions`]).
//!
//! A packet may have more filters than one turn can handle. Then the connection is paused, and the
//! rest becomes a [`SubscribeRequest`] for later turns. The barrier follows the last filter.

use crate::access::denial::DeniedAccess;
use crate::access::permit::Coverage;
use crate::events::refusals::RefusedKind;
use crate::login::access_rules::DeniedSubscribe;
use crate::mqtt::packet::{ReasonCode, Subscribe, SubscribeFilter, Unsubscribe};
use crate::mqtt::topic::without_share;
use crate::peers::answer::Answer;
use crate::peers::barrier::AfterBarrier;
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::PackedOptions;
use crate::session::mount_point::MountPoint;
use crate::session::subscriptions::{AnswerKind, CheckedFilter, FilterCause, FilterRefusal};
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::clients::pause::Pause;
use crate::shard::core::Core;
use crate::shard::observe::notes::request_of;
use crate::shard::rules::mounted::mount_point_of;
use crate::shard::subscriptions::subscribe_request::{Names, SubscribeRequest};
use crate::shard::turn::flow::Flow;
use crate::shard::turn::work::Job;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::borrow::Cow;

/// Filters of one SUBSCRIBE that are always checked, even if a client may have fewer subscriptions.
/// Some filters may be repetitions, which exceed no limit. Filters beyond this number and beyond
/// the limit are refused without a check.
const NAMED: usize = 1_024;

/// A SUBSCRIBE or UNSUBSCRIBE that is being handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterChange {
    pub now: Instant,
    pub connection: ConnectionId,
    pub session: SessionId,
}

impl FilterChange {
    /// Handles a SUBSCRIBE.
    pub(in crate::shard) fn subscribe(&self, subscribe: &Subscribe<'_>, shard: &mut Shard) -> Flow {
        let FilterChange { now, connection: id, session } = *self;
        let subscription_id = subscribe.subscription_id.unwrap_or(0);
        let mut answer = Answer::new(AnswerKind::Suback, subscribe.packet_id, subscribe.filters.len());
        let mount_point = mount_point_of(id, &shard.core);
        for (at, filter) in subscribe.filters.iter().enumerate() {
            if shard.core.turn.is_over() {
                let (mut filters, mut options) = (Names::default(), Vec::new());
                for rest in subscribe.filters.iter().skip(at) {
                    filters.add(rest.filter);
                    options.push(rest.options);
                }
                let rest = SubscribeRequest::new(id, session, (filters, options), subscription_id, answer);
                shard.work.pause_for(now, id, Some(Job::Request(rest)), &mut shard.core.connections);
                return Flow::Continue;
            }
            self.insert(filter, subscription_id, mount_point.as_deref(), &mut answer, shard);
        }
        let left = self.answer_when_in_force(answer, shard);
        shard.work.pause_for(now, id, left, &mut shard.core.connections);
        Flow::Continue
    }

    /// Subscribes to one filter. Adds its reason code, and the request for its retained messages,
    /// to the answer.
    fn insert(
        &self,
        requested: &SubscribeFilter<'_>,
        subscription_id: u32,
        mount_point: Option<&MountPoint>,
        answer: &mut Answer,
        shard: &mut Shard,
    ) {
        let filter = inside(mount_point, requested.filter);
        let requested = &SubscribeFilter { filter: &filter, ..*requested };
        shard.core.turn.spend_filter(requested.filter);
        let most = shard.core.settings.session.subscriptions.filters.max(NAMED);
        let inserted = if answer.reasons.len() < most {
            self.insert_one(requested, subscription_id, answer, shard)
        } else {
            let what = "more filters in a SUBSCRIBE than limits.subscriptions_per_client";
            Err(FilterRefusal { reason: ReasonCode::QUOTA_EXCEEDED, what })
        };
        answer.reasons.push(match inserted {
            Ok(()) => requested.options.qos.into(),
            Err(refusal) => {
                self.note_refusal(requested.filter, refusal, &mut shard.core);
                refusal.reason
            }
        });
    }

    /// Counts and keeps that a filter is refused.
    #[cold]
    fn note_refusal(&self, filter: &str, refusal: FilterRefusal, core: &mut Core) {
        let Core { sessions, access, counters, figures, turn, .. } = core;
        let cause = refusal.cause();
        counters.refused_subscriptions[cause as usize] += 1;
        let Some(entry) = sessions.get(self.session) else { return };
        let request = request_of(entry, RefusedKind::Subscription, filter, cause.name());
        figures.refusals.note(&request, || match cause {
            FilterCause::NotAuthorized => {
                turn.explain(entry.why_denied(access, DeniedAccess::Subscribe(without_share(filter))))
            }
            _ => refusal.what.to_owned(),
        });
    }

    /// Checks, records and subscribes to one filter.
    ///
    /// # Errors
    /// Why the filter is refused.
    fn insert_one(
        &self,
        requested: &SubscribeFilter<'_>,
        subscription_id: u32,
        answer: &mut Answer,
        shard: &mut Shard,
    ) -> Result<(), FilterRefusal> {
        let FilterChange { session, .. } = *self;
        let gone = FilterRefusal { reason: ReasonCode::UNSPECIFIED_ERROR, what: "no session" };
        let own = &shard.core.sessions.get(session).ok_or(gone)?.session.subscriptions;
        let CheckedFilter { filter, known, sends_retained } =
            own.check(requested, &shard.core.settings.session)?;
        let filter_text = filter.filter;
        let Core { access, sessions, turn, .. } = &mut shard.core;
        if access.are_on()
            && let Some(session_entry) = sessions.get_mut(session)
            && session_entry.subscribe_access(access, filter_text, turn) == Coverage::Disjoint
        {
            let what = "the client may read no topic of the filter";
            let refusal = FilterRefusal { reason: ReasonCode::NOT_AUTHORIZED, what };
            if access.on_denied_subscribe() == DeniedSubscribe::Refuse {
                return Err(refusal);
            }
            // The filter is granted, and nothing comes by it.
            self.note_refusal(requested.filter, refusal, &mut shard.core);
        }
        // Each level of the filter may be a new node of the tree. Two nodes cost one step.
        shard.core.turn.spend(u32::try_from(requested.filter.len() / 8).unwrap_or(u32::MAX));
        let change = Change::Subscribe {
            bytes: requested.filter.len(),
            known,
            stored: shard.core.sessions.is_stored(session),
        };
        shard
            .core
            .admits(change)
            .map_err(|want| FilterRefusal { reason: ReasonCode::QUOTA_EXCEEDED, what: want.text() })?;
        if let Some(session_entry) = shard.core.sessions.get_mut(session).filter(|_| !known) {
            session_entry.session.subscriptions.insert(requested.filter);
        }
        shard.core.sessions.record_subscription(
            session,
            requested.filter,
            &requested.options,
            subscription_id,
        );
        let options = PackedOptions::new(&requested.options);
        let presence = Presence::Online;
        shard.routes.insert_filter(session, &filter, options, subscription_id, presence, &mut shard.core);
        if filter.share_name.is_some() {
            return Ok(());
        }
        let (retained, qos) = (&mut answer.retained, requested.options.qos);
        if sends_retained {
            retained.add(filter.filter, qos, subscription_id, &mut shard.routes.retained_order);
        } else {
            // The packet may have named this filter before. The last options count.
            retained.update(filter.filter, qos, subscription_id);
        }
        Ok(())
    }

    /// Handles an UNSUBSCRIBE.
    pub(in crate::shard) fn unsubscribe(&self, unsubscribe: &Unsubscribe<'_>, shard: &mut Shard) -> Flow {
        let FilterChange { now, connection: id, session } = *self;
        let mut answer = Answer::new(AnswerKind::Unsuback, unsubscribe.packet_id, unsubscribe.filters.len());
        let mount_point = mount_point_of(id, &shard.core);
        for (at, filter) in unsubscribe.filters.iter().enumerate() {
            if shard.core.turn.is_over() {
                let mut filters = Names::default();
                unsubscribe.filters.iter().skip(at).for_each(|rest| filters.add(rest));
                let rest = SubscribeRequest::new(id, session, (filters, Vec::new()), 0, answer);
                shard.work.pause_for(now, id, Some(Job::Request(rest)), &mut shard.core.connections);
                return Flow::Continue;
            }
            self.leave(filter, mount_point.as_deref(), &mut answer, shard);
        }
        let left = self.answer_when_in_force(answer, shard);
        shard.work.pause_for(now, id, left, &mut shard.core.connections);
        Flow::Continue
    }

    /// Unsubscribes from one filter. Adds its reason code to the answer.
    fn leave(&self, filter: &str, mount_point: Option<&MountPoint>, answer: &mut Answer, shard: &mut Shard) {
        let FilterChange { session, .. } = *self;
        let filter = &*inside(mount_point, filter);
        shard.core.turn.spend_filter(filter);
        // The session has ended, and gets no answer.
        let Some(session_entry) = shard.core.sessions.get_mut(session) else { return };
        let reason = session_entry.session.subscriptions.unsubscribe(filter);
        if reason == ReasonCode::SUCCESS {
            shard.core.sessions.record_unsubscription(session, filter);
            shard.routes.leave_filter(session, filter, &mut shard.core);
        }
        answer.reasons.push(reason);
    }

    /// Sends the answer when the change is in force in every shard. Pauses the connection until
    /// then. Returns the job that is left.
    fn answer_when_in_force(&self, answer: Answer, shard: &mut Shard) -> Option<Job> {
        let FilterChange { now, connection: id, session } = *self;
        if shard.core.peers.shards() == 1 {
            return answer.send(now, id, session, shard);
        }
        shard.core.peers.raise_barrier(AfterBarrier::Answer { connection: id, session, answer });
        shard.core.connections.pause(id, Pause::PeerBarrier, now);
        None
    }
}

impl SubscribeRequest {
    /// Continues with the filters of the packet. Returns the job that is left. If the connection is
    /// gone, the remaining filters are dropped, because no SUBACK has promised them.
    pub(in crate::shard) fn go_on(mut self: Box<Self>, now: Instant, shard: &mut Shard) -> Option<Job> {
        let SubscribeRequest { connection, session, ref mut filters, ref options, .. } = *self;
        if shard.core.connections.get(connection).is_none_or(|c| c.session != Some(session)) {
            return None;
        }
        let change = FilterChange { now, connection, session };
        let mount_point = mount_point_of(connection, &shard.core);
        let (mount_point, answer) = (mount_point.as_deref(), &mut self.answer);
        while let Some((at, filter)) = filters.next() {
            match options.get(at) {
                Some(options) => {
                    let requested = SubscribeFilter { filter, options: *options };
                    change.insert(&requested, self.subscription_id, mount_point, answer, shard);
                }
                None => change.leave(filter, mount_point, answer, shard),
            }
            if shard.core.turn.is_over() {
                return Some(Job::Request(self));
            }
        }
        change.answer_when_in_force(self.answer, shard)
    }
}

/// Returns the broker's form of the filter. Without a mount point nothing is allocated.
fn inside<'a>(mount_point: Option<&MountPoint>, filter: &'a str) -> Cow<'a, str> {
    mount_point.map_or(Cow::Borrowed(filter), |mount_point| mount_point.filter(filter))
}
