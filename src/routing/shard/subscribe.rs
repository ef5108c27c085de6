//! SUBSCRIBE and UNSUBSCRIBE, and when they are in force everywhere.
//!
//! The index of this shard is changed at once. Where there are other shards, a fence follows what they must know, and
//! the answer waits until each has passed it; then the retained messages are read. So what is published after the
//! SUBACK reaches the subscriber live, and what was retained before it is read: nothing falls between.

use super::admission::Change;
use super::connection::Pause;
use super::effects::Event;
use super::exchange::{Item, Peer};
use super::receive::Flow;
use super::record::owe;
use super::{ConnectionId, SessionId, Shard};
use crate::mqtt::packet::{
    Packet, PacketId, Properties, QoS, ReasonCode, RetainHandling, Suback, Subscribe, SubscribeFilter,
    Unsuback, Unsubscribe,
};
use crate::mqtt::session::Violation;
use crate::mqtt::session::loss::{LossCause, Lost};
use crate::mqtt::session::queue::Delivery;
use crate::mqtt::session::subscription::SubscriptionIds;
use crate::mqtt::topic::TopicFilter;
use crate::routing::retained::{self, Cursor};
use crate::routing::shared::{Member, Presence};
use crate::routing::subscription_tree::{
    Interest, PackedOptions, SessionSlot, Subscribed, Subscriber, Unsubscribed,
};
use crate::time::Instant;

/// Retained messages that are looked at while their store is locked.
const AT_ONCE: usize = 1_000;

/// Something that waits until every peer has passed its fence: has taken in what it was told before, and told what it had to
/// tell.
#[derive(Debug)]
pub(super) struct Fence {
    remaining: usize,
    then: Then,
}

/// What comes after a fence.
#[derive(Debug)]
pub(super) enum Then {
    /// SUBACK or UNSUBACK.
    Answer { connection: ConnectionId, session: SessionId, answer: Answer },
    /// What was left before the start goes to the members of groups, all of whom are known.
    ReadEstates,
}

#[derive(Debug)]
pub(super) struct Answer {
    packet_id: PacketId,
    kind: AnswerKind,
    reasons: Vec<ReasonCode>,
    retained: Vec<RetainedWish>,
}

#[derive(Clone, Copy, Debug)]
enum AnswerKind {
    Suback,
    Unsuback,
}

/// Retained messages to send once a subscription is in force.
#[derive(Debug)]
struct RetainedWish {
    filter: Box<str>,
    qos: QoS,
    subscription_id: u32,
}

/// Why a filter is not entered: what the client is told, and the log.
#[derive(Clone, Copy, Debug)]
struct NotEntered {
    reason: ReasonCode,
    text: &'static str,
}

impl Shard {
    pub(super) fn subscribe(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        subscribe: &Subscribe<'_>,
    ) -> Flow {
        let shared_no_local = |f: &SubscribeFilter<'_>| f.options.no_local && f.filter.starts_with("$share/");
        if subscribe.filters.iter().any(shared_no_local) {
            // 5.0 [MQTT-3.8.3-4]
            let what = "No Local on a shared subscription";
            self.fail(now, id, Violation { reason: ReasonCode::PROTOCOL_ERROR, what });
            return Flow::Closed;
        }
        let subscription_id = subscribe.subscription_id.unwrap_or(0);
        let mut answer = Answer {
            packet_id: subscribe.packet_id,
            kind: AnswerKind::Suback,
            reasons: Vec::with_capacity(subscribe.filters.len()),
            retained: Vec::new(),
        };
        let (mut refused, mut what) = (0, "");
        for filter in &subscribe.filters {
            let reason = match self.enter(session, filter, subscription_id, &mut answer.retained) {
                Ok(()) => filter.options.qos.into(),
                Err(NotEntered { reason, text }) => {
                    if reason == ReasonCode::QUOTA_EXCEEDED {
                        (refused, what) = (refused + 1, text);
                    }
                    reason
                }
            };
            answer.reasons.push(reason);
        }
        if refused > 0 {
            self.tally.refused_subscriptions += refused as u64;
            let client_id =
                self.sessions.get(session).map(|r| r.session.client_id.clone()).unwrap_or_default();
            self.note(Event::SubscriptionsRefused { client_id, filters: refused, what });
        }
        self.answer_when_in_force(now, id, session, answer);
        Flow::Continue
    }

    /// Enters one filter into the index; notes what retained messages it asks for.
    fn enter(
        &mut self,
        session: SessionId,
        asked: &SubscribeFilter<'_>,
        subscription_id: u32,
        retained: &mut Vec<RetainedWish>,
    ) -> Result<(), NotEntered> {
        let not = |reason, text| NotEntered { reason, text };
        let filter = TopicFilter::parse(asked.filter, self.settings.topic_levels)
            .map_err(|_| not(ReasonCode::TOPIC_FILTER_INVALID, "not a topic filter"))?;
        let limit = self.settings.subscriptions_per_client;
        let gone = not(ReasonCode::UNSPECIFIED_ERROR, "no session");
        let own = &self.sessions.get(session).ok_or(gone)?.session.subscriptions;
        let known = own.contains(asked.filter);
        if !known && own.len() >= limit {
            return Err(not(ReasonCode::QUOTA_EXCEEDED, "limits.subscriptions_per_client is reached"));
        }
        let change = Change::Subscribe { known, stored: self.is_stored(session) };
        self.admits(change).map_err(|want| not(ReasonCode::QUOTA_EXCEEDED, want.text()))?;
        if let Some(resident) = self.sessions.get_mut(session).filter(|_| !known) {
            resident.session.subscriptions.insert(asked.filter);
        }
        self.record_subscription(session, asked.filter, &asked.options, subscription_id);
        let options = PackedOptions::new(&asked.options);
        if let Some(group) = filter.share_name {
            self.enter_group(session, group, filter.filter, options, subscription_id, Presence::Online);
            return Ok(());
        }
        self.enter_index(session, filter.filter, options, subscription_id);
        // 3.1.1 [MQTT-3.3.1-6], [MQTT-3.8.4-3]; 5.0 [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]
        let wanted = match asked.options.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => !known,
            RetainHandling::DoNotSend => false,
        };
        if wanted {
            let qos = asked.options.qos;
            retained.push(RetainedWish { filter: filter.filter.into(), qos, subscription_id });
        }
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
        if let Subscribed::New { first_here: true } = self.tree.subscribe(filter, subscriber) {
            for peer in self.other_peers() {
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
        self.join_group(group, filter, member);
        for peer in self.other_peers() {
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
        let mut answer = Answer {
            packet_id: unsubscribe.packet_id,
            kind: AnswerKind::Unsuback,
            reasons: Vec::with_capacity(unsubscribe.filters.len()),
            retained: Vec::new(),
        };
        for filter in &unsubscribe.filters {
            let own = self.sessions.get_mut(session).is_some_and(|r| r.session.subscriptions.remove(filter));
            if own {
                self.record_unsubscription(session, filter);
            }
            // 3.1.1 and 5.0 [MQTT-3.10.4-1]
            let removed = own && self.leave_filter(session, filter);
            let valid = TopicFilter::parse(filter, usize::MAX).is_ok();
            answer.reasons.push(match (removed, valid) {
                (true, _) => ReasonCode::SUCCESS,
                (false, true) => ReasonCode::NO_SUBSCRIPTION_EXISTED,
                (false, false) => ReasonCode::TOPIC_FILTER_INVALID,
            });
        }
        self.answer_when_in_force(now, id, session, answer);
        Flow::Continue
    }

    /// Takes a plain filter of a session out of the index.
    pub(super) fn leave_index(&mut self, filter: &str, session: SessionId) -> bool {
        match self.tree.unsubscribe(filter, SessionSlot(session.slot)) {
            Unsubscribed::Removed { last_here } => {
                if last_here {
                    for peer in self.other_peers() {
                        peer.tell(Item::Interest { filter: filter.into(), interest: Interest::Absent });
                    }
                }
                true
            }
            Unsubscribed::NotFound => false,
        }
    }

    fn answer_when_in_force(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        session: SessionId,
        answer: Answer,
    ) {
        if self.shards == 1 {
            self.answer(now, connection, session, answer);
            return;
        }
        self.raise_fence(Then::Answer { connection, session, answer });
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.pause(Pause::Fence, now);
        }
    }

    /// Before all peers, of which there is one at least.
    pub(super) fn raise_fence(&mut self, then: Then) {
        self.next_fence += 1;
        let token = self.next_fence;
        let remaining = usize::from(self.shards) - 1;
        for peer in self.other_peers() {
            peer.tell(Item::Fence { token });
        }
        self.fences.insert(token, Fence { remaining, then });
    }

    /// A peer passed a fence.
    pub(super) fn passed(&mut self, now: Instant, token: u64) {
        let Some(fence) = self.fences.get_mut(&token) else { return };
        fence.remaining -= 1;
        if fence.remaining > 0 {
            return;
        }
        match self.fences.remove(&token).map(|fence| fence.then) {
            Some(Then::Answer { connection, session, answer }) => {
                self.answer(now, connection, session, answer);
                self.unpause(now, connection, Pause::Fence);
            }
            Some(Then::ReadEstates) => self.members_are_known(now),
            None => {}
        }
    }

    /// Writes SUBACK or UNSUBACK, then what is retained. A connection that is gone gets neither; its session keeps the
    /// subscription. To a session that is in the store both are promised at once: SUBACK waits until what is retained is owed.
    // 3.1.1 and 5.0 [MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.10.4-4], [MQTT-3.10.4-5]
    fn answer(&mut self, now: Instant, id: ConnectionId, session: SessionId, answer: Answer) {
        if self.is_stored(session) {
            if let (false, Some(ledger)) = (answer.retained.is_empty(), self.ledger()) {
                // What it comes to is recorded below, in the batch that is being filled.
                ledger.begin();
            }
            self.fence(id);
        }
        let Shard { connections, pool, unflushed, .. } = self;
        let Some(connection) = connections.get_mut(id).filter(|c| c.session == Some(session)) else { return };
        connection.wire.outbox.lend(pool);
        let Answer { packet_id, kind, reasons, retained } = answer;
        *unflushed += reasons.len();
        let properties = Properties::EMPTY;
        let packet = match kind {
            AnswerKind::Suback => Packet::Suback(Suback { packet_id, properties, reasons }),
            AnswerKind::Unsuback => Packet::Unsuback(Unsuback { packet_id, properties, reasons }),
        };
        let _ = connection.wire.put(&packet);
        self.touch(id);
        for wish in retained {
            self.send_retained(now, id, session, &wish);
        }
    }

    /// Queues the retained messages that match, beyond the queue's own limit: each is a reference, and there are at most as
    /// many more as are retained. The window and the outbox pace them.
    // 3.1.1 [MQTT-3.3.1-8]
    fn send_retained(&mut self, now: Instant, id: ConnectionId, session: SessionId, wish: &RetainedWish) {
        let mut found = Vec::new();
        let mut cursor = Cursor::default();
        // In parts, so that other shards' retained messages do not wait for all of it.
        while self.common.retained().matching_from(&mut cursor, &wish.filter, now, AT_ONCE, &mut found)
            == retained::Progress::More
        {}
        found.extend(self.granted_message(id, &wish.filter));
        let all = self.common.retained().len();
        let Shard { connections, sessions, settings, tally, .. } = self;
        let (Some(connection), Some(resident)) = (connections.get_mut(id), sessions.get_mut(session)) else {
            return;
        };
        // A client that asks again and again and acknowledges nothing gets them once.
        let most = settings.session.send.queue.messages + all;
        let room = most.saturating_sub(resident.session.sender.queued());
        let beyond = found.split_off(room.min(found.len()));
        for message in beyond {
            tally.losses.lose(Lost::unsent(LossCause::QueueRefused, message));
        }
        for message in found {
            let qos = message.header().qos.min(wish.qos);
            let ids = SubscriptionIds::from_index(wish.subscription_id);
            let mut delivery = Delivery { message, ids, qos, retain: true, share: None, stored: None };
            if qos != QoS::AtMostOnce {
                delivery.stored = owe(resident.session.account(), &mut None, &delivery, None);
            }
            resident.session.sender.enqueue_retained(delivery);
        }
        resident.session.sender.pump(now, &mut connection.wire, &settings.session.send, tally);
        self.settle_losses(session);
        self.touch(id);
        self.register_retransmit(now, id);
        self.fetch(session);
    }

    /// The shards other than this one.
    pub(super) fn other_peers(&mut self) -> impl Iterator<Item = &mut Peer> {
        let here = usize::from(self.here.0);
        self.peers.iter_mut().enumerate().filter(move |(at, _)| *at != here).map(|(_, peer)| peer)
    }
}
