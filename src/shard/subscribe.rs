//! SUBSCRIBE and UNSUBSCRIBE, and when they are in force everywhere.
//!
//! The index of this shard is changed at once. Where there are other shards, a barrier follows what
//! they must know, and the answer waits until each has passed it; then the retained messages are
//! read ([`crate::shard::suback`]). So what is published after the SUBACK reaches the subscriber
//! live, and what was retained before it is read: nothing falls between.
//!
//! A packet may name so many filters that a turn does not do for them. Then the connection is
//! paused, and the rest is a [`SubscribeRequest`] that goes on in later turns; the barrier follows
//! the last filter.

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::{ReasonCode, Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe};
use crate::routing::shared_group::{Member, Presence};
use crate::routing::subscription_tree::{
    Interest, PackedOptions, SessionSlot, Subscribed, Subscriber, Unsubscribed,
};
use crate::session::subscriptions::{AnswerKind, CheckedFilter, FilterRefusal};
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::connection::Pause;
use crate::shard::exchange::barrier::AfterBarrier;
use crate::shard::exchange::outbound::Item;
use crate::shard::observe::client_events::Occurrence;
use crate::shard::receive::Flow;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::shard::suback::Answer;
use crate::shard::turn::Job;
use crate::time::Instant;

/// Filters of one SUBSCRIBE that are looked at, if a client may not have more subscriptions: there
/// cannot be as many different ones, whatever is named twice.
const NAMED: usize = 1_024;

/// Bytes of a filter that are entered into the index, or taken out of it, for the price of a step:
/// two or three levels.
const FILTER_BYTES: usize = 8;

/// The filters of a SUBSCRIBE or UNSUBSCRIBE that are still to be seen to.
#[derive(Debug)]
pub(super) struct SubscribeRequest {
    pub connection: ConnectionId,
    session: SessionId,
    filters: Names,
    /// Of each filter; none in an UNSUBSCRIBE.
    options: Vec<SubscriptionOptions>,
    subscription_id: u32,
    answer: Answer,
    _charge: Charge,
}

impl SubscribeRequest {
    /// Keeps the filters of a packet that a later turn sees to, on the account. In a SUBSCRIBE each
    /// filter has its options; an UNSUBSCRIBE has none, and no Subscription Identifier.
    fn new(
        connection: ConnectionId,
        session: SessionId,
        (filters, options): (Names, Vec<SubscriptionOptions>),
        subscription_id: u32,
        answer: Answer,
    ) -> Box<SubscribeRequest> {
        let bytes = filters.memory() + options.capacity() * size_of::<SubscriptionOptions>();
        let _charge = Charge::new(bytes);
        Box::new(SubscribeRequest { connection, session, filters, options, subscription_id, answer, _charge })
    }
}

/// Names in a row, in one allocation.
#[derive(Debug, Default)]
struct Names {
    text: String,
    ends: Vec<u32>,
    next: usize,
}

impl Names {
    fn add(&mut self, name: &str) {
        self.text.push_str(name);
        // Of one packet, so fewer than 2^28 bytes.
        self.ends.push(self.text.len() as u32);
    }

    /// Returns the next name and its place in the row.
    fn next(&mut self) -> Option<(usize, &str)> {
        let at = self.next;
        let end = *self.ends.get(at)? as usize;
        let begin = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        self.next += 1;
        Some((at, self.text.get(begin..end)?))
    }

    fn memory(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

impl Shard {
    pub(super) fn subscribe(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        subscribe: &Subscribe<'_>,
    ) -> Flow {
        let subscription_id = subscribe.subscription_id.unwrap_or(0);
        let mut answer = Answer::new(AnswerKind::Suback, subscribe.packet_id, subscribe.filters.len());
        for (at, filter) in subscribe.filters.iter().enumerate() {
            if self.turn.is_over() {
                let (mut filters, mut options) = (Names::default(), Vec::new());
                for rest in subscribe.filters.iter().skip(at) {
                    filters.add(rest.filter);
                    options.push(rest.options);
                }
                let rest = SubscribeRequest::new(id, session, (filters, options), subscription_id, answer);
                self.pause_for(now, id, Some(Job::Request(rest)));
                return Flow::Continue;
            }
            self.enter(session, filter, subscription_id, &mut answer);
        }
        let left = self.answer_when_in_force(now, id, session, answer);
        self.pause_for(now, id, left);
        Flow::Continue
    }

    /// Goes on with the filters of a packet; the job that is left. Of a connection that is gone the
    /// rest is dropped: nobody was told that it holds.
    pub(super) fn go_on_with_request(
        &mut self,
        now: Instant,
        mut request: Box<SubscribeRequest>,
    ) -> Option<Job> {
        let SubscribeRequest {
            connection,
            session,
            ref mut filters,
            ref options,
            subscription_id,
            ref mut answer,
            ..
        } = *request;
        if self.connections.get(connection).is_none_or(|c| c.session != Some(session)) {
            return None;
        }
        while let Some((at, filter)) = filters.next() {
            match options.get(at) {
                Some(options) => {
                    let asked = SubscribeFilter { filter, options: *options };
                    self.enter(session, &asked, subscription_id, answer);
                }
                None => self.leave(session, filter, answer),
            }
            if self.turn.is_over() {
                return Some(Job::Request(request));
            }
        }
        self.answer_when_in_force(now, connection, session, request.answer)
    }

    /// A connection whose packet goes on in a later turn is not read until then.
    fn pause_for(&mut self, now: Instant, id: ConnectionId, left: Option<Job>) {
        let Some(job) = left else { return };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.pause(Pause::Work, now);
        }
        self.later(job);
    }

    /// Enters one filter; notes how it is answered, and what retained messages it asks for.
    fn enter(
        &mut self,
        session: SessionId,
        asked: &SubscribeFilter<'_>,
        subscription_id: u32,
        answer: &mut Answer,
    ) {
        self.turn.charge(1 + (asked.filter.len() / FILTER_BYTES) as u32);
        let most = self.settings.session.subscriptions.filters.max(NAMED);
        let entered = if answer.reasons.len() < most {
            self.enter_one(session, asked, subscription_id, answer)
        } else {
            let what = "more filters in a SUBSCRIBE than limits.subscriptions_per_client";
            Err(FilterRefusal { reason: ReasonCode::QUOTA_EXCEEDED, what })
        };
        answer.reasons.push(match entered {
            Ok(()) => asked.options.qos.into(),
            Err(FilterRefusal { reason, what }) => {
                if reason == ReasonCode::QUOTA_EXCEEDED {
                    (answer.refused, answer.what) = (answer.refused + 1, what);
                }
                reason
            }
        });
    }

    fn enter_one(
        &mut self,
        session: SessionId,
        asked: &SubscribeFilter<'_>,
        subscription_id: u32,
        answer: &mut Answer,
    ) -> Result<(), FilterRefusal> {
        let gone = FilterRefusal { reason: ReasonCode::UNSPECIFIED_ERROR, what: "no session" };
        let own = &self.sessions.get(session).ok_or(gone)?.session.subscriptions;
        let CheckedFilter { filter, known, sends_retained } = own.check(asked, &self.settings.session)?;
        // Each level may be a node of the index, and two nodes are a step.
        self.turn.charge(u32::try_from(asked.filter.len() / 8).unwrap_or(u32::MAX));
        let change = Change::Subscribe { bytes: asked.filter.len(), known, stored: self.is_stored(session) };
        self.admits(change)
            .map_err(|want| FilterRefusal { reason: ReasonCode::QUOTA_EXCEEDED, what: want.text() })?;
        if let Some(session_entry) = self.sessions.get_mut(session).filter(|_| !known) {
            session_entry.session.subscriptions.insert(asked.filter);
        }
        self.record_subscription(session, asked.filter, &asked.options, subscription_id);
        let options = PackedOptions::new(&asked.options);
        if let Some(group) = filter.share_name {
            self.enter_group(session, group, filter.filter, options, subscription_id, Presence::Online);
            return Ok(());
        }
        self.enter_index(session, filter.filter, options, subscription_id);
        answer.retained.ask(filter.filter, asked.options.qos, subscription_id, sends_retained);
        Ok(())
    }

    /// Enters a plain filter into the index.
    pub(super) fn enter_index(
        &mut self,
        session: SessionId,
        filter: &str,
        options: PackedOptions,
        subscription_id: u32,
    ) {
        let subscriber = Subscriber { session: SessionSlot(session.slot), options, subscription_id };
        if let Subscribed::New { first_here: true } = self.router.subscribe(filter, subscriber) {
            for peer in self.exchange.others() {
                peer.tell(Item::Interest { filter: filter.into(), interest: Interest::Present });
            }
        }
    }

    pub(super) fn enter_group(
        &mut self,
        session: SessionId,
        group: &str,
        filter: &str,
        options: PackedOptions,
        subscription_id: u32,
        presence: Presence,
    ) {
        let member = Member {
            shard: self.here,
            session: SessionSlot(session.slot),
            generation: session.generation,
            options,
            subscription_id,
            online: presence == Presence::Online,
        };
        self.router.join(group, filter, member);
        for peer in self.exchange.others() {
            peer.tell(Item::Join { group: group.into(), filter: filter.into(), member });
        }
    }

    pub(super) fn unsubscribe(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Flow {
        let mut answer = Answer::new(AnswerKind::Unsuback, unsubscribe.packet_id, unsubscribe.filters.len());
        for (at, filter) in unsubscribe.filters.iter().enumerate() {
            if self.turn.is_over() {
                let mut filters = Names::default();
                unsubscribe.filters.iter().skip(at).for_each(|rest| filters.add(rest));
                let rest = SubscribeRequest::new(id, session, (filters, Vec::new()), 0, answer);
                self.pause_for(now, id, Some(Job::Request(rest)));
                return Flow::Continue;
            }
            self.leave(session, filter, &mut answer);
        }
        let left = self.answer_when_in_force(now, id, session, answer);
        self.pause_for(now, id, left);
        Flow::Continue
    }

    /// Takes one filter out; notes how it is answered.
    fn leave(&mut self, session: SessionId, filter: &str, answer: &mut Answer) {
        self.turn.charge(1 + (filter.len() / FILTER_BYTES) as u32);
        let Some(session_entry) = self.sessions.get_mut(session) else { return };
        let reason = session_entry.session.subscriptions.unsubscribe(filter);
        if reason == ReasonCode::SUCCESS {
            self.record_unsubscription(session, filter);
            self.leave_filter(session, filter);
        }
        answer.reasons.push(reason);
    }

    /// Takes a plain filter of a session out of the index.
    pub(super) fn leave_index(&mut self, filter: &str, session: SessionId) -> bool {
        match self.router.unsubscribe(filter, SessionSlot(session.slot)) {
            Unsubscribed::Removed { last_here } => {
                if last_here {
                    for peer in self.exchange.others() {
                        peer.tell(Item::Interest { filter: filter.into(), interest: Interest::Absent });
                    }
                }
                true
            }
            Unsubscribed::NotFound => false,
        }
    }

    /// The job that is left of it.
    fn answer_when_in_force(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        session: SessionId,
        answer: Answer,
    ) -> Option<Job> {
        if answer.refused > 0 {
            self.counters.refused_subscriptions += answer.refused as u64;
            let (filters, what) = (answer.refused, answer.what);
            self.note_of(session, Occurrence::SubscriptionsRefused { filters, what }, None);
        }
        if self.exchange.shards() == 1 {
            return self.answer(now, connection, session, answer);
        }
        self.exchange.raise_barrier(AfterBarrier::Answer { connection, session, answer });
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.pause(Pause::PeerBarrier, now);
        }
        None
    }

    /// A peer passed a barrier.
    pub(super) fn passed(&mut self, now: Instant, token: u64) {
        match self.exchange.pass_barrier(token) {
            Some(AfterBarrier::Answer { connection, session, answer }) => {
                let left = self.answer(now, connection, session, answer);
                self.pause_for(now, connection, left);
                self.unpause(now, connection, Pause::PeerBarrier);
            }
            Some(AfterBarrier::ReadOrphanedQueues) => self.members_are_known(now),
            None => {}
        }
    }
}
