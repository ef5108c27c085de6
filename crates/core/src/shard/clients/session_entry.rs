//! A session of a shard, with the data that the shard keeps beside it.

use crate::access::denial::DeniedAccess;
use crate::access::grant::SessionRules;
use crate::access::identity::Identity;
use crate::access::permit::Coverage;
use crate::access::rule::ClientNames;
use crate::events::drop_reports::DropReceiver;
use crate::expiry::lazy::Registered;
use crate::login::access_rules::{AccessRules, CheckPlace, SessionAccess};
use crate::login::acl_files::RuleSource;
use crate::login::listener_terms::ListenerTerms;
use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::retained_message::RetainedSource;
use crate::mqtt::topic::without_share;
use crate::peers::peer_batch::ReportTo;
use crate::persistence::records::{StoredAccess, StoredSession};
use crate::session::Session;
use crate::session::drops::Drops;
use crate::session::drops::ReceiverState;
use crate::session::mount_point::MountPoint;
use crate::session::objectives::{ClientObjectives, Objectives};
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::in_flight_packet::Unacked;
use crate::session::outbound::portion::Portion;
use crate::session::outbound::queue::{Head, QueueBounds, QueueLimits, QueuePolicy};
use crate::session::policy::SendPolicy;
use crate::shard::clients::connection::Connection;
use crate::shard::turn::{STEPS_PER_TURN, Turn};
use crate::slots::ConnectionId;
use crate::time::Instant;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

/// The most steps of the comparison of one filter with the rules. A filter that would need more is
/// granted without one, and each of its messages is checked.
const MOST_STEPS: u32 = STEPS_PER_TURN;

/// A session of this shard, with its deadlines and its held messages.
#[derive(Debug)]
pub struct SessionEntry {
    /// The session.
    pub session: Session,
    /// The connection; `None` while the client is away.
    pub connection: Option<ConnectionId>,
    /// The time at which the session expires. [`Instant::NEVER`] while the client is connected.
    pub ends: Instant,
    /// The listener by which the client came last; `None` if it has not come since the start.
    listener: Option<Weak<ListenerTerms>>,
    /// The parts that most sessions do not have: 8 bytes in every session, where the parts
    /// themselves would nearly always be empty.
    rare: Option<Box<RareParts>>,
    /// The deadline that the expiry actor has for this session.
    pub registered: Registered,
}

/// Parts of a session that most sessions do not have.
#[derive(Debug, Default)]
struct RareParts {
    /// Messages that wait for room in the queue, under the policy `hold`.
    held: VecDeque<HeldMessage>,
    /// The user of the client; `None` for an anonymous client.
    user: Option<Arc<Identity>>,
    /// The topics that the client may write and read, once they were asked for.
    access: SessionAccess,
    /// The mount point behind which the client came last, also before a restart.
    mount_point: Option<Arc<MountPoint>>,
    /// The objectives that name the client, once they were looked for.
    objectives: ClientObjectives,
    /// The time at which the will is published; `None` if no will is pending.
    will_due: Option<Instant>,
    /// The bounds of the queue of this session alone: that of a bridge or a sink.
    queue: Option<Box<QueueBounds>>,
}

/// Returns the rare parts of a session, which it has from now on.
fn rare_parts<'a>(
    rare: &'a mut Option<Box<RareParts>>,
    listener: &Option<Weak<ListenerTerms>>,
) -> &'a mut RareParts {
    rare.get_or_insert_with(|| {
        Box::new(RareParts { access: SessionAccess::of_listener(listener.clone()), ..RareParts::default() })
    })
}

impl RareParts {
    fn is_empty(&self) -> bool {
        self.held.is_empty()
            && self.user.is_none()
            && self.access.is_unknown()
            && self.mount_point.is_none()
            && self.objectives == ClientObjectives::default()
            && self.will_due.is_none()
            && self.queue.is_none()
    }
}

/// The result of one portion of a check.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// The messages in flight that the client may not read.
    pub in_flight: Portion<Unacked>,
    /// The queued messages that the client may not read. [`Portion::next`] is `None` if nothing is
    /// left to check.
    pub queued: Portion<Delivery>,
}

/// A message that waits for room in a full queue.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    pub delivery: Delivery,
    /// The gate that gets the outcome: it belongs to the publisher, a peer or an orphaned queue.
    pub gate: ReportTo,
    pub until: Instant,
    /// The charge for its place in the list.
    pub _charge: Charge,
}

/// Filters whose lengths are looked at in one step of a turn.
const LENGTHS: u32 = 64;

/// Bytes of a held message beside the message itself.
pub(crate) const HELD: usize = size_of::<HeldMessage>();

impl SessionEntry {
    /// Returns the session as the receiver of a dropped message.
    pub(crate) fn drop_receiver(&self) -> DropReceiver<'_> {
        let Session { client_id, sender, .. } = &self.session;
        let is_connected = self.connection.is_some();
        DropReceiver {
            client_id,
            redelivery: sender.redelivery(),
            stored: self.session.row().is_some(),
            state: if is_connected { ReceiverState::Connected } else { ReceiverState::Away },
        }
    }

    /// Returns an entry for a session without a connection. `ends` and `will_due` are
    /// [`Instant::NEVER`] if nothing is pending.
    pub(crate) fn new(session: Session, ends: Instant, will_due: Instant) -> SessionEntry {
        let registered = Registered::default();
        let mut entry =
            SessionEntry { session, connection: None, ends, listener: None, rare: None, registered };
        entry.set_will_due(will_due);
        entry
    }

    /// Returns the earliest of session expiry, will delay and the end of a hold.
    pub(crate) fn deadline(&self) -> Instant {
        self.ends.min(self.will_due()).min(self.held_until())
    }

    /// Returns true if a delivery has to be held: the policy is `hold`, and the queue has no room
    /// or other messages are held already. Drops expired messages first to make room. A message
    /// that is larger than the whole queue is not held, because it would never fit.
    pub(crate) fn must_hold(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        limits: &QueueLimits,
        drops: &mut Drops,
    ) -> bool {
        let size = delivery.size();
        limits.policy == QueuePolicy::Hold
            && size <= limits.bytes
            && (self.holds() || !self.session.sender.make_room(now, size, limits, drops))
    }

    /// Returns the time at which the will is published, or [`Instant::NEVER`] if no will is
    /// pending.
    pub(crate) fn will_due(&self) -> Instant {
        self.rare.as_ref().and_then(|rare| rare.will_due).unwrap_or(Instant::NEVER)
    }

    /// Sets the time at which the will is published; [`Instant::NEVER`] if no will is pending.
    pub(crate) fn set_will_due(&mut self, due: Instant) {
        let due = (!due.is_never()).then_some(due);
        if due.is_some() || self.rare.is_some() {
            rare_parts(&mut self.rare, &self.listener).will_due = due;
        }
    }

    /// Returns the listener by which the client came last; `None` if the client has not come since
    /// the start, or if the listener is gone.
    pub(crate) fn listener(&self) -> Option<Arc<ListenerTerms>> {
        self.listener.as_ref()?.upgrade()
    }

    /// Sets the mount point of the client.
    pub(crate) fn set_mount_point(&mut self, mount_point: Option<Arc<MountPoint>>) {
        if mount_point.is_some() || self.rare.is_some() {
            rare_parts(&mut self.rare, &self.listener).mount_point = mount_point;
        }
    }

    /// Returns the mount point behind which the client came last; `None` without one.
    pub(crate) fn mount_point(&self) -> Option<&MountPoint> {
        self.rare.as_ref()?.mount_point.as_deref()
    }

    /// Looks for the objectives that name the client. Returns the bytes that were looked at: 0 if
    /// there is no objective, or nothing has changed since the last look.
    pub(crate) fn find_objectives(&mut self, all: &Objectives) -> usize {
        if all.are_none() || all.are_known(self.objectives()) {
            return 0;
        }
        let client_id = &*self.session.client_id;
        rare_parts(&mut self.rare, &self.listener).objectives = all.of_client(client_id);
        all.looked_at(client_id)
    }

    /// Returns the objectives that name the client, as of the last [`Self::find_objectives`].
    pub(crate) fn objectives(&self) -> ClientObjectives {
        self.rare.as_ref().map(|rare| rare.objectives).unwrap_or_default()
    }

    /// Returns the user of the client; `None` for an anonymous client.
    pub(crate) fn user(&self) -> Option<&Arc<Identity>> {
        self.rare.as_ref()?.user.as_ref()
    }

    /// Returns the user who owns the session: the user of the client, if something has verified its
    /// name. A name that a client only claims owns nothing.
    pub(crate) fn owner(&self) -> Option<&Arc<Identity>> {
        self.user().filter(|user| user.is_verified())
    }

    /// Notes that a new session begins, without a subscription.
    pub(crate) fn begin_access(&mut self, rules: &AccessRules) {
        let RareParts { user, access, .. } = rare_parts(&mut self.rare, &self.listener);
        access.begin(rules, user.as_deref(), &self.session.client_id);
    }

    /// Returns true if the client may publish to a topic. Charges what the decision takes.
    pub(crate) fn may_write(&mut self, rules: &AccessRules, topic: &str, turn: &mut Turn) -> bool {
        let (access, names) = self.access(rules);
        turn.decide(access.may_write(names, topic))
    }

    /// As [`Self::may_write`], for a topic that is written once, such as that of a will. Nothing is
    /// kept in memory for the topic.
    pub(crate) fn may_write_once(&mut self, rules: &AccessRules, topic: &str, turn: &mut Turn) -> bool {
        let (access, names) = self.access(rules);
        turn.decide(access.may_write_once(names, topic))
    }

    /// Returns the reason for which an access of the client is denied, for operators, and the
    /// number of rules that were compared for it.
    pub(crate) fn why_denied(&self, rules: &AccessRules, denied: DeniedAccess<'_>) -> (String, usize) {
        self.with_rules(rules, |own, client| rules.why_denied(own, client, denied))
    }

    /// Returns the reason for which the client may not read a topic, for operators, and the number
    /// of rules that were compared for it; `None` if it may.
    pub(crate) fn why_unreadable(&self, rules: &AccessRules, topic: &str) -> Option<(String, usize)> {
        self.with_rules(rules, |own, client| rules.why_unreadable(own, client, topic))
    }

    /// Calls `ask` with the rules of the session, and with its user and names.
    fn with_rules<T>(
        &self,
        rules: &AccessRules,
        ask: impl FnOnce((Option<&SessionRules>, &RuleSource), (Option<&Identity>, ClientNames<'_>)) -> T,
    ) -> T {
        let nobody = SessionAccess::of_listener(self.listener.clone());
        let access = self.rare.as_ref().map_or(&nobody, |rare| &rare.access);
        let user = self.user().map(|user| &**user);
        let names = rules.names(user, &self.session.client_id);
        ask((access.own_rules(), access.source()), (user, names))
    }

    /// Notes that the client has left. Frees data that is in memory only for its connection.
    pub(crate) fn leave_connection(&mut self) {
        self.connection = None;
        if let Some(rare) = &mut self.rare {
            rare.access.forget_written();
        }
    }

    /// Returns the client as the source of a retained message. Returns `None` if the session has
    /// rules of its own: no file says later if they would still allow the message.
    pub(crate) fn retained_source(&mut self, rules: &AccessRules) -> Option<Arc<RetainedSource>> {
        let (access, names) = self.access(rules);
        access.retained_source(names)
    }

    /// Returns true if a message of a topic may be delivered to the client. Charges what the
    /// decision takes.
    pub(crate) fn may_read(&mut self, rules: &AccessRules, topic: &str, turn: &mut Turn) -> bool {
        let (access, names) = self.access(rules);
        turn.decide(access.may_read(rules, names, topic))
    }

    /// Returns true if a message of a topic may be delivered to the client, whatever filters the
    /// session has.
    pub(crate) fn permits_read(&mut self, rules: &AccessRules, topic: &str, turn: &mut Turn) -> bool {
        let (access, names) = self.access(rules);
        turn.decide(access.permits_read(rules, names, topic))
    }

    /// Returns the part of a filter that the client may read. If it is not the whole filter,
    /// deliveries are checked from now on. The filter has no `$share/NAME/`. Charges the cost of
    /// the comparison with the rules. A filter that would take longer than a turn is not compared.
    pub(crate) fn subscribe_access(
        &mut self,
        rules: &AccessRules,
        filter: &str,
        turn: &mut Turn,
    ) -> Coverage {
        let (access, names) = self.access(rules);
        let steps = access.comparison_steps(names, filter.len());
        if steps > MOST_STEPS {
            access.guard();
            return Coverage::Partial;
        }
        turn.spend(steps);
        access.compare_filter(rules, names, filter)
    }

    /// Returns true if the session may have messages that its client may not read, because the
    /// rules or the user have changed since the last check, or the check is not complete.
    pub(crate) fn is_unchecked(&mut self, rules: &AccessRules) -> bool {
        let (access, _) = self.access(rules);
        access.is_unchecked(rules)
    }

    /// Notes that messages have come from the store that were not checked.
    pub(crate) fn mark_unchecked(&mut self) {
        rare_parts(&mut self.rare, &self.listener).access.mark_unchecked();
    }

    /// Decides again if deliveries have to be checked. Returns the steps spent, at most those of a
    /// turn: a session that would need more stays guarded. A session with held messages, or with
    /// messages that are only in the store, stays guarded: they may have come by filters that it
    /// has no more.
    pub(crate) fn renew_guard(&mut self, rules: &AccessRules) -> u32 {
        if self.holds() || self.session.sender.queue.paged_out() > 0 {
            return 0;
        }
        let RareParts { user, access, .. } = rare_parts(&mut self.rare, &self.listener);
        let names = access.names(rules, user.as_deref(), &self.session.client_id);
        let subscriptions = &self.session.subscriptions;
        let steps = |filter: &str| 1 + access.comparison_steps(names, filter.len());
        let least = u32::try_from(subscriptions.len()).unwrap_or(u32::MAX).saturating_mul(steps(""));
        let sum = |sum: u32, filter| sum.saturating_add(steps(filter));
        if least > STEPS_PER_TURN || subscriptions.iter().fold(0, sum) > STEPS_PER_TURN {
            // The look at the rules would take longer than a turn. The session stays guarded, so
            // each delivery is checked, which costs the more but is right.
            return least.min(subscriptions.len() as u32 / LENGTHS + 1);
        }
        let all = subscriptions.iter().fold(0, sum);
        access.renew_guard(rules, names, subscriptions.iter().map(without_share));
        all
    }

    /// Checks the next `most` messages in memory, and removes messages that the client may not
    /// read. Messages in flight come first, unless some were sent on the present connection; then
    /// those of the queue. Returns `None` if all were checked before.
    pub(crate) fn take_unreadable(
        &mut self,
        rules: &AccessRules,
        most: usize,
        turn: &mut Turn,
    ) -> Option<Unreadable> {
        let RareParts { user, access, .. } = rare_parts(&mut self.rare, &self.listener);
        let names = access.names(rules, user.as_deref(), &self.session.client_id);
        let from = access.place_of_check(rules)?;
        let (sender, is_away) = (&mut self.session.sender, self.connection.is_none());
        let mut is_denied = |message: &Message| !turn.decide(access.may_read(rules, names, message.topic()));
        let window = sender.window.get_mut().filter(|window| is_away || !window.has_sent());
        let in_flight = window
            .map_or_else(Portion::default, |window| window.take_where(from.in_flight, most, &mut is_denied));
        let queued = match in_flight.next {
            Some(_) => Portion { next: Some(from.queued), ..Portion::default() },
            None => sender.queue.get_mut().map_or_else(Portion::default, |queue| {
                queue.take_where(from.queued, most - in_flight.looked_at, is_denied)
            }),
        };
        if let Some(next) = queued.next {
            access.check_from(CheckPlace { in_flight: in_flight.next.unwrap_or(u64::MAX), queued: next });
        }
        Some(Unreadable { in_flight, queued })
    }

    fn access(&mut self, rules: &AccessRules) -> (&mut SessionAccess, ClientNames<'_>) {
        let RareParts { user, access, .. } = rare_parts(&mut self.rare, &self.listener);
        let names = access.names(rules, user.as_deref(), &self.session.client_id);
        (access, names)
    }

    /// Sets the user of the client.
    pub(crate) fn set_user(&mut self, user: Option<Arc<Identity>>) {
        if user.is_some() || self.rare.is_some() {
            let rare = rare_parts(&mut self.rare, &self.listener);
            let is_same = match (&rare.user, &user) {
                (Some(one), Some(other)) => one.is_same_user(other),
                (one, other) => one.is_none() && other.is_none(),
            };
            if !is_same {
                rare.access = SessionAccess::of_listener(self.listener.clone());
            }
            rare.user = user;
        }
        self.rare.take_if(|rare| rare.is_empty());
    }

    /// Sets the rules of this session alone, or removes them. Call it after [`Self::set_user`].
    pub(crate) fn set_own_rules(&mut self, rules: Option<SessionRules>) {
        if rules.is_some() || self.rare.is_some() {
            rare_parts(&mut self.rare, &self.listener).access.set_own(rules);
        }
    }

    /// Sets the ACL file that counts for the session. Call it after [`Self::set_user`].
    pub(crate) fn set_rule_source(&mut self, source: RuleSource) {
        self.listener = source.listener().cloned();
        if source.name().is_some() || self.rare.is_some() {
            rare_parts(&mut self.rare, &self.listener).access.set_source(source);
        }
    }

    /// Returns true if the store has another ACL file for the session than the one that counts now.
    /// True only once after each change of the rules.
    pub(crate) fn has_unrecorded_rules(&mut self) -> bool {
        let is_renamed = self.rare.as_mut().is_some_and(|rare| rare.access.renew_source());
        is_renamed && self.session.row().is_some_and(|row| row.recorded.get() != self.hash_of_terms())
    }

    /// Returns the number of held messages.
    pub(crate) fn held_messages(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.held.len())
    }

    /// Returns true if messages are held.
    pub(crate) fn holds(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.held.is_empty())
    }

    /// Holds a message behind the messages that are held already.
    pub(crate) fn hold(&mut self, held: HeldMessage) {
        rare_parts(&mut self.rare, &self.listener).held.push_back(held);
    }

    /// Returns the oldest held message.
    pub(crate) fn first_held(&self) -> Option<&HeldMessage> {
        self.rare.as_ref()?.held.front()
    }

    /// Iterates over the held messages, the oldest first.
    pub(crate) fn view_held(&self) -> impl Iterator<Item = &HeldMessage> {
        self.rare.iter().flat_map(|rare| rare.held.iter())
    }

    /// Removes and returns the oldest held message.
    pub(crate) fn pop_held(&mut self) -> Option<HeldMessage> {
        let rare = self.rare.as_mut()?;
        let front = rare.held.pop_front();
        if rare.is_empty() {
            self.rare = None;
        }
        front
    }

    /// Returns the time at which the oldest held message is refused, or [`Instant::NEVER`] if none
    /// is held. All messages are held for the same time, so this is also the earliest refusal.
    pub(crate) fn held_until(&self) -> Instant {
        self.first_held().map_or(Instant::NEVER, |held| held.until)
    }

    /// Takes the entry apart. Returns the session and the held messages.
    pub(crate) fn into_parts(self) -> (Session, VecDeque<HeldMessage>) {
        (self.session, self.rare.map_or_else(VecDeque::new, |rare| rare.held))
    }

    /// Sets the bounds of the queue of this session alone. What is queued already stays.
    pub(crate) fn set_queue_bounds(&mut self, own: QueueBounds) {
        let own = (own != QueueBounds::default()).then(|| Box::new(own));
        if own.is_some() || self.rare.is_some() {
            rare_parts(&mut self.rare, &self.listener).queue = own;
        }
    }

    /// Returns the bounds of the session's queue.
    pub(crate) fn queue_limits(&self, policy: &SendPolicy) -> QueueLimits {
        let limits = self.session.queue_limits(policy).clone();
        match self.rare.as_ref().and_then(|rare| rare.queue.as_deref()) {
            Some(own) => limits.within(own),
            None => limits,
        }
    }

    /// Returns true if the session is connected and has room in its outbox and its queue.
    /// `connection` is the session's connection, if it has one.
    pub(crate) fn takes_more(&self, connection: Option<&Connection>, policy: &SendPolicy) -> bool {
        connection.is_some_and(|c| c.wire.outbox.len() < policy.outbox) && self.has_place(policy)
    }

    /// Returns true if the number of queued messages is below its limit. Ignores their bytes.
    pub(crate) fn has_place(&self, policy: &SendPolicy) -> bool {
        self.session.sender.queue.len() < self.queue_limits(policy).messages
    }

    /// Returns true if the queue takes a message of `size` bytes, after expired messages were
    /// dropped. Held messages come before such a message, so the result is false if there are any.
    pub(crate) fn make_room(
        &mut self,
        now: Instant,
        size: usize,
        policy: &SendPolicy,
        drops: &mut Drops,
    ) -> bool {
        let limits = self.queue_limits(policy);
        !self.holds() && self.session.sender.make_room(now, size, &limits, drops)
    }

    /// Returns true if the queue takes a message of `size` bytes that an ended session left. Held
    /// messages come before such a message, so the result is false if there are any.
    pub(crate) fn has_room_for_orphaned(&self, now: Instant, size: usize, policy: &SendPolicy) -> bool {
        let limits = self.queue_limits(policy);
        !self.holds() && self.session.sender.queue.may_have_room(now, size, &limits)
    }

    /// Estimates if the session gets a new message above QoS 0 of `size` bytes, without a change.
    /// Returns false if the message would be refused now.
    pub(crate) fn may_take(&self, now: Instant, size: usize, policy: &SendPolicy) -> bool {
        let limits = self.queue_limits(policy);
        let drops_oldest = limits.policy == QueuePolicy::DropOldest && size <= limits.bytes;
        drops_oldest || self.has_room_for_orphaned(now, size, policy)
    }

    /// Returns how many messages of a long queue stay in memory. The others are paged out.
    pub(crate) fn head(&self) -> Head {
        match self.connection {
            _ if self.session.sender.redelivery().keep_what_waits() => Head::All,
            Some(_) => Head::Online,
            None => Head::Offline,
        }
    }

    /// Returns a hash of the fields that [`Self::record`] writes, except those that change whenever
    /// a connection comes or goes. So an equal hash means that a short record is enough. Never 0.
    pub(crate) fn hash_of_terms(&self) -> u64 {
        let session = &self.session;
        let will = session.will.as_deref();
        let will = will.map(|w| {
            let options = (w.qos as u8, w.retain, w.delay, w.message_expiry);
            (&w.topic, options, &w.payload, &w.forwarded)
        });
        let own = (session.version as u8, session.expiry, session.requested_times(), will);
        let terms = (own, self.owner().map(|owner| owner.user()), self.stored_access());
        session.row().map_or(0, |row| row.write_buffer.hasher.hash_one(terms)).max(1)
    }

    /// Returns the stored facts, beside the owner, for the rules about topics.
    fn stored_access(&self) -> StoredAccess {
        // A session without a user has nothing of its own.
        let Some(rare) = &self.rare else { return StoredAccess::default() };
        let claimed = rare.user.as_ref().filter(|user| !user.is_verified());
        StoredAccess {
            claimed_name: claimed.map(|user| user.user().into()),
            rules: rare.access.own_rules().map(|rules| rules.to_text().into()),
            listener: rare.access.source().name().map(Into::into),
            mount_point: rare.mount_point.as_ref().map(|mount_point| mount_point.to_string().into()),
        }
    }

    /// Records all fields of the session, if it is stored.
    pub(crate) fn record(&self) {
        let session = &self.session;
        // The session is not stored.
        let Some(row) = session.row() else { return };
        let (retry_interval, ack_timeout) = session.requested_times();
        row.record(Box::new(StoredSession {
            key: row.key,
            client_id: session.client_id.clone(),
            version: session.version,
            expiry: session.expiry,
            connected: self.connection.is_some(),
            ends: self.ends,
            will: session.will.clone(),
            will_due: self.will_due(),
            retry_interval,
            ack_timeout,
            user_name: self.owner().map(|owner| owner.user().into()),
            access: self.stored_access(),
        }));
    }
}
