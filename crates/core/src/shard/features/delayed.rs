//! Delayed messages: a PUBLISH to `$delayed/<seconds>/<topic>` is published to `<topic>` later.
//!
//! A shard owns the messages that its own clients delayed. Without a store, all of them are in
//! memory. With a store, only the messages that are due before a horizon are in memory. The other
//! messages stay in the store, sorted by due time, and are read as the horizon moves on. The expiry
//! actor knows the due time of the earliest message in memory. One transaction removes a due
//! message from the store and adds it to the queues of its receivers in all shards.
//!
//! A Message Expiry Interval counts from the publication, and the delay does not count.

use crate::durability::publication::{Publication, expires};
use crate::durability::read_requests::DelayedRequest;
use crate::events::refusals::{RefusedKind, RefusedRequest};
use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::expiry::lazy::Registered;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::owner::{OwnedMessage, Owner};
use crate::mqtt::packet::{Publish, ReasonCode};
use crate::mqtt::topic::is_topic_name;
use crate::peers::Peers;
use crate::persistence::records::{CountedDelayed, DelayedNumber, Record, StoredDelayed};
use crate::routing::limit_shares::{Amount, LimitShares};
use crate::session::drops::{DropReason, Dropped};
use crate::session::publish_refusal;
use crate::shard::core::Core;
use crate::shard::delivery::fans::Fans;
use crate::shard::delivery::own_publications::publisher;
use crate::shard::settings::OWN_DELAYED;
use crate::shard::subscriptions::routes::Routes;
use crate::shard::turn::work::Job;
use crate::shared::totals::Totals;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const PREFIX: &str = "$delayed/";

/// The time ahead for which messages are read from the store.
pub const HORIZON: Duration = Duration::from_secs(60);

/// Maximum number of messages that one look-up reads.
const AT_ONCE: usize = 1_000;

/// The place of a delayed message in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelayedPlace {
    /// The time at which the message is published.
    pub due: Instant,
    /// The message's number.
    pub number: DelayedNumber,
}

/// The delayed messages of one shard.
#[derive(Debug)]
pub(crate) struct Delayed {
    /// The messages in memory, by due time.
    near: BTreeMap<(Instant, DelayedNumber), OwnedMessage>,
    /// Every message that is due before this time is in `near`.
    read_until: Instant,
    /// The due time from which the pending look-up reads, if any.
    reading_from: Option<Instant>,
    /// Messages that ended while a look-up was under way, and are due at `reading_from` or later.
    /// The set is small, because the look-up reads ahead, unless the machine was suspended.
    ended: BTreeSet<DelayedNumber>,
    /// Number of messages of this shard, in memory and in the store.
    messages: usize,
    /// The last message number. Only used without a store, because a store gives the numbers
    /// otherwise.
    next: u64,
    registered: Registered,
    progress: DelayedProgress,
    /// The charge of `near`, without the messages.
    charge: Charge,
}

/// The progress of the job that publishes due messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DelayedProgress {
    /// No job exists.
    #[default]
    Idle,
    /// The job continues in later turns.
    GoesOn,
    /// The job continues when no peer batch is full any more.
    WaitsForPeer,
}

/// Bytes of a message's entry in `near`, if each node of the tree is half full.
const NEAR: usize = 80;

impl Default for Delayed {
    fn default() -> Delayed {
        Delayed {
            near: BTreeMap::new(),
            read_until: Instant::NEVER,
            reading_from: None,
            ended: BTreeSet::new(),
            messages: 0,
            next: 0,
            registered: Registered::default(),
            progress: DelayedProgress::Idle,
            charge: Charge::NONE,
        }
    }
}

impl Delayed {
    /// Takes in the messages that were read at the start of the broker.
    fn restore(&mut self, read_until: Instant, near: Vec<StoredDelayed>, all: usize, shares: &LimitShares) {
        self.read_until = read_until;
        self.messages = all;
        self.near.extend(near.into_iter().map(|delayed| entry(delayed, shares)));
        self.account();
    }

    /// Iterates over the messages in memory from a place on, with their places, the earliest first.
    pub(crate) fn view_from(
        &self,
        from: Bound<DelayedPlace>,
    ) -> impl Iterator<Item = (DelayedPlace, &Message)> {
        let messages = self.near.range((from.map(|place| (place.due, place.number)), Bound::Unbounded));
        messages.map(|((due, number), owned)| (DelayedPlace { due: *due, number: *number }, &owned.message))
    }

    /// Updates the charge after `near` has grown or shrunk.
    fn account(&mut self) {
        self.charge.set(self.near.len() * NEAR);
    }
}

impl Recount for Delayed {
    fn recount(&self) -> Recounted {
        Recounted { in_use: self.near.len() * NEAR, charged: self.charge.bytes() }
    }
}

/// Returns the delay in seconds and the topic of a PUBLISH to `$delayed/...`, or `None` if the
/// topic does not contain both.
fn parse(topic: &str) -> Option<(u32, &str)> {
    let (seconds, topic) = topic.strip_prefix(PREFIX)?.split_once('/')?;
    let digits = !seconds.is_empty() && seconds.bytes().all(|b| b.is_ascii_digit());
    Some((seconds.parse().ok().filter(|_| digits)?, topic))
}

/// Returns the topic to which a delayed message will be published, or `None` if `topic` has none.
pub(crate) fn delayed_topic(topic: &str) -> Option<&str> {
    parse(topic).map(|(_, topic)| topic)
}

/// Returns true if a PUBLISH to this topic asks for a delay.
pub(crate) fn is_delayed(topic: &str) -> bool {
    topic.starts_with(PREFIX)
}

impl Delayed {
    /// Stores a PUBLISH to `$delayed/...` until it is due. The message counts for `owner`, or for
    /// nobody.
    ///
    /// # Errors
    /// Returns the reason code for a 5.0 client and the drop reason for the counters, if the topic
    /// is not valid or a bound on delayed messages is reached.
    pub(crate) fn keep(
        &mut self,
        now: Instant,
        owner: Option<Arc<Owner>>,
        publish: &Publish<'_>,
        topic: &str,
        core: &mut Core,
    ) -> Result<(), (ReasonCode, DropReason)> {
        let unreadable = (ReasonCode::TOPIC_NAME_INVALID, DropReason::ReservedTopic);
        let (seconds, topic) = parse(topic).ok_or(unreadable)?;
        if !is_topic_name(topic) {
            return Err(unreadable);
        }
        if let Some(cause) = core.settings.topic_refusal(topic) {
            return Err((ReasonCode::TOPIC_NAME_INVALID, cause));
        }
        let due = now + Duration::from_secs(seconds.into());
        let parts = Parts {
            qos: publish.qos,
            retain: publish.retain,
            expires: expires(due, publish.properties.message_expiry),
            topic,
            forwarded: &publish.properties.forwarded,
            payload: publish.payload,
        };
        let message = Message::new(parts, &mut core.scratch.sending.bytes);
        let Some(owner) = count_delayed(seconds, message.size(), owner, core) else {
            return Err((ReasonCode::QUOTA_EXCEEDED, DropReason::DelayedFull));
        };
        let owned = OwnedMessage { message, owner };
        self.messages += 1;
        let number = match core.durability.write_buffer() {
            Some(write_buffer) => write_buffer.delayed(due, owned.clone()),
            None => {
                self.next += 1;
                DelayedNumber(self.next)
            }
        };
        if due < self.read_until {
            self.near.insert((due, number), owned);
        }
        self.register(now, core);
        Ok(())
    }

    /// Publishes the messages that are due, oldest first. Returns the job if they take more than
    /// this turn. A message may be late by the interval of the expiry actor.
    pub(crate) fn expired(
        &mut self,
        now: Instant,
        fans: &mut Fans,
        routes: &mut Routes,
        core: &mut Core,
    ) -> Option<Job> {
        self.registered.fired();
        if self.progress != DelayedProgress::Idle {
            return None;
        }
        self.progress = DelayedProgress::GoesOn;
        self.publish_due(now, fans, routes, core)
    }

    /// Publishes as many due messages as this turn allows. Returns the job that is left. If a peer
    /// batch is full, the rest waits until no peer batch is full.
    pub(crate) fn publish_due(
        &mut self,
        now: Instant,
        fans: &mut Fans,
        routes: &mut Routes,
        core: &mut Core,
    ) -> Option<Job> {
        while self.near.first_key_value().is_some_and(|((due, _), _)| *due <= now) {
            if core.peers.is_any_full() {
                self.progress = DelayedProgress::WaitsForPeer;
                return None;
            }
            if fans.blocks_own() {
                return Some(Job::Delayed);
            }
            let Some(((due, number), owned)) = self.near.pop_first() else { break };
            self.note_end(due, number);
            self.account();
            self.messages = self.messages.saturating_sub(1);
            give_back(&owned, &core.shared.totals);
            core.turn.spend(1);
            publish_one(now, number, owned, fans, routes, core);
            if core.turn.is_over() || core.effects.is_much_unflushed() {
                return Some(Job::Delayed);
            }
        }
        self.progress = DelayedProgress::Idle;
        self.register(now, core);
        None
    }

    /// Deletes a message that is in memory, and records its end. Returns false if the message is
    /// not there: it was published, or is in the store alone.
    pub(crate) fn delete(&mut self, now: Instant, place: DelayedPlace, core: &mut Core) -> bool {
        let Some(owned) = self.near.remove(&(place.due, place.number)) else { return false };
        self.note_end(place.due, place.number);
        self.messages = self.messages.saturating_sub(1);
        give_back(&owned, &core.shared.totals);
        if let Some(write_buffer) = core.durability.write_buffer() {
            write_buffer.record(Record::DelayedDone(place.number));
        }
        self.register(now, core);
        true
    }

    /// Notes the end of a message if a look-up that is under way may find the message.
    fn note_end(&mut self, due: Instant, number: DelayedNumber) {
        if self.reading_from.is_some_and(|from| due >= from) {
            self.ended.insert(number);
        }
    }

    /// Returns the job if due messages waited for room in a peer batch, and no peer batch is full
    /// any more.
    pub(crate) fn peers_have_room(&mut self, peers: &Peers) -> Option<Job> {
        if self.progress != DelayedProgress::WaitsForPeer || peers.is_any_full() {
            return None;
        }
        self.progress = DelayedProgress::GoesOn;
        Some(Job::Delayed)
    }

    /// Registers the due time of the earliest message in memory, unless a job publishes messages
    /// already.
    fn register(&mut self, now: Instant, core: &mut Core) {
        self.account();
        if self.progress != DelayedProgress::Idle {
            return;
        }
        // No message is in memory.
        let Some(((due, _), _)) = self.near.first_key_value() else { return };
        let deadline = (*due).max(now);
        if self.registered.needs(deadline, core.settings.expiry_interval) {
            let (kind, slot, generation) = (DeadlineKind::Housekeeping, OWN_DELAYED, 0);
            core.effects.registrations.push(Registration { kind, slot, generation, deadline });
        }
    }

    /// Takes in the messages of the store at the start of the broker. `near` are all messages of
    /// this shard that are due before `read_until`. `all` has the counts of all its messages.
    pub(crate) fn recover(
        &mut self,
        now: Instant,
        read_until: Instant,
        near: Vec<StoredDelayed>,
        all: Vec<CountedDelayed>,
        core: &mut Core,
    ) {
        let (totals, messages) = (&core.shared.totals, all.len());
        totals.delayed_messages.add(messages);
        let mut shares = totals.delayed_shares();
        for CountedDelayed { size, owner, .. } in all {
            totals.delayed_bytes.add(size);
            if let Some(owner) = owner {
                shares.add(owner, size);
            }
        }
        self.restore(read_until, near, messages, &shares);
        drop(shares);
        self.register(now, core);
    }

    /// Moves the horizon on when half of it is used up, and looks up the messages before it. Part
    /// of the housekeeping.
    pub(crate) fn look_ahead(&mut self, now: Instant, core: &mut Core) {
        let until = now + HORIZON;
        let is_far = self.read_until >= now + HORIZON / 2;
        if self.reading_from.is_some() || is_far || !core.durability.is_on() {
            return;
        }
        if self.messages == self.near.len() {
            // All messages are in memory already.
            self.read_until = until;
            return;
        }
        // From now on, a new message that is due before `until` goes into memory, even if the
        // look-up finds it too. The look-up finds only committed messages, so it waits for the
        // commit of the earlier ones.
        let from = std::mem::replace(&mut self.read_until, until);
        self.reading_from = Some(from);
        let request = DelayedRequest { from: (from, DelayedNumber(0)), until, most: AT_ONCE };
        core.durability.look_up(request, &mut core.effects.reads);
    }

    /// Takes in messages that were read from the store. The store returns messages of all shards,
    /// and this shard takes its own. Leaves out the messages that ended after they were read.
    pub(crate) fn take_read(
        &mut self,
        now: Instant,
        request: DelayedRequest,
        read: Vec<StoredDelayed>,
        core: &mut Core,
    ) {
        let more = (read.len() >= request.most).then(|| read.last().map(|d| (d.due, d.number))).flatten();
        let (here, shards) = (core.peers.here().0, core.peers.shards());
        let own = |d: &StoredDelayed| owner(d.number, shards) == here && !self.ended.contains(&d.number);
        let own = read.into_iter().filter(own);
        let shares = core.shared.totals.delayed_shares();
        self.near.extend(own.map(|delayed| entry(delayed, &shares)));
        drop(shares);
        match more {
            Some((due, number)) => {
                let from = (due, DelayedNumber(number.0 + 1));
                core.effects.reads.delayed.push(DelayedRequest { from, ..request });
            }
            None => {
                self.reading_from = None;
                self.ended.clear();
            }
        }
        self.register(now, core);
    }
}

/// Returns the entry of a message in `near`. All messages of an owner share one value.
fn entry(delayed: StoredDelayed, shares: &LimitShares) -> ((Instant, DelayedNumber), OwnedMessage) {
    let StoredDelayed { number, due, message, owner } = delayed;
    let owner = owner.map(|owner| shares.known(owner));
    ((due, number), OwnedMessage { message, owner })
}

/// Counts one more message in the totals of all shards, and for its owner. Returns the owner.
/// Returns `None` if the delay, the number of messages or their bytes would exceed a limit, or the
/// part of the owner or its listener.
fn count_delayed(
    seconds: u32,
    bytes: usize,
    owner: Option<Arc<Owner>>,
    core: &Core,
) -> Option<Option<Arc<Owner>>> {
    let (limits, totals) = (&core.settings.delayed, &core.shared.totals);
    if seconds > limits.horizon || !totals.delayed_messages.take(1, limits.messages) {
        return None;
    }
    if !totals.delayed_bytes.take(bytes, limits.bytes) {
        totals.delayed_messages.give_back(1);
        return None;
    }
    // Messages of the broker count for nobody.
    let Some(owner) = owner else { return Some(None) };
    let most = Amount { messages: limits.messages, bytes: limits.bytes };
    let mut shares = totals.delayed_shares();
    if !shares.admits(&owner, Amount::one(bytes), most) {
        totals.delayed_messages.give_back(1);
        totals.delayed_bytes.give_back(bytes);
        return None;
    }
    Some(Some(shares.add(owner, bytes)))
}

/// Takes back the count of a message that is delayed no more.
fn give_back(OwnedMessage { message, owner }: &OwnedMessage, totals: &Totals) {
    totals.delayed_messages.give_back(1);
    totals.delayed_bytes.give_back(message.size());
    if let Some(owner) = owner {
        totals.delayed_shares().remove(owner, message.size());
    }
}

/// Publishes a due message, and records its end.
fn publish_one(
    now: Instant,
    number: DelayedNumber,
    OwnedMessage { message, owner }: OwnedMessage,
    fans: &mut Fans,
    routes: &mut Routes,
    core: &mut Core,
) {
    if let Some(write_buffer) = core.durability.write_buffer() {
        write_buffer.record(Record::DelayedDone(number));
    }
    if message.is_expired(now) {
        // The broker was down beyond the end of the message's Message Expiry Interval.
        return core.drop_of_nobody(&Dropped::unsent(DropReason::Expired, message));
    }
    // No Local goes by the client identifier, which the owner has. The session lives in this shard,
    // unless the broker was started with another number of threads since. 5.0 [MQTT-3.8.3-3]
    let session = owner.as_ref().and_then(|owner| core.sessions.find(owner.client_id()));
    let publisher = session.map(|session| publisher(core.peers.here(), session));
    let mut publication = Publication::of(&message, publisher);
    publication.atomic = true;
    if message.header().retain {
        let publisher = owner.clone();
        let refused = routes.retain(now, &mut publication, None, owner, core).refused;
        if let (Some(cause), Some(publisher)) = (refused, publisher) {
            let (client_id, topic, kind) = (publisher.client_id(), message.topic(), RefusedKind::Publish);
            let request = RefusedRequest { client_id, user: None, kind, topic, cause: cause.name() };
            core.figures.refusals.note(&request, || publish_refusal::bound(cause).to_owned());
        }
    }
    fans.route_own_now(now, &mut publication, routes, core);
}

/// Returns the shard, of `shards` shards, that owns a delayed message of the store.
pub fn owner(number: DelayedNumber, shards: u8) -> u8 {
    (number.0 % 64 % u64::from(shards.max(1))) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::QoS;
    use crate::peers::peer_batch::Item;
    use crate::routing::subscription_tree::ShardId;

    #[test]
    fn a_delay_is_digits_within_32_bits_and_a_topic_follows() {
        assert_eq!(parse("$delayed/5/a/b"), Some((5, "a/b")));
        assert_eq!(parse("$delayed/0/t"), Some((0, "t")));
        assert_eq!(parse("$delayed/4294967295/t"), Some((u32::MAX, "t")));
        for unreadable in ["$delayed/4294967296/t", "$delayed/+5/t", "$delayed/-1/t", "$delayed/ 5/t"] {
            assert_eq!(parse(unreadable), None, "{unreadable}");
        }
        for incomplete in ["$delayed/5", "$delayed//t", "$delayed/t", "$delayed/", "delayed/5/t"] {
            assert_eq!(parse(incomplete), None, "{incomplete}");
        }
    }

    #[test]
    fn a_number_belongs_to_one_of_the_shards_however_many_there_are() {
        for shards in 0..=64_u8 {
            let owners: Vec<u8> = (0..64).map(|number| owner(DelayedNumber(number), shards)).collect();
            assert!(owners.iter().all(|owner| *owner < shards.max(1)), "{shards} shards");
            assert!((0..shards).all(|shard| owners.contains(&shard)), "{shards} shards");
        }
        assert_eq!(owner(DelayedNumber(64 * 7 + 3), 4), 3, "the number of a message has its shard below 64");
    }

    fn stored(number: u64, due_ms: u64) -> StoredDelayed {
        StoredDelayed {
            number: DelayedNumber(number),
            due: Instant::from_millis(due_ms),
            message: Message::sample(&number.to_string(), QoS::AtLeastOnce, b"p"),
            owner: None,
        }
    }

    #[test]
    fn messages_stand_by_due_time_and_then_by_number_whatever_order_they_are_read_in() {
        let mut delayed = Delayed::default();
        let read = vec![stored(128, 20), stored(64, 20), stored(192, 10)];
        delayed.restore(Instant::from_millis(60_000), read, 5, &LimitShares::default());
        let topics: Vec<&str> = delayed.near.values().map(|owned| owned.message.topic()).collect();
        assert_eq!(topics, ["192", "64", "128"]);
        assert_eq!((delayed.messages, delayed.near.len()), (5, 3), "two stay in the store");
    }

    #[test]
    fn the_charge_follows_the_messages_in_memory() {
        let mut delayed = Delayed::default();
        for near in [3, 1, 0] {
            delayed.near = (0..near).map(|n| entry(stored(n, n), &LimitShares::default())).collect();
            delayed.account();
            let Recounted { in_use, charged } = delayed.recount();
            assert_eq!((in_use, charged), (near as usize * NEAR, near as usize * NEAR));
        }
    }

    #[test]
    fn due_messages_that_wait_for_a_peer_go_on_once_when_no_peer_is_full() {
        let mut peers = Peers::new(ShardId(0), 2);
        while !peers.is_any_full() {
            let peer = peers.peer(ShardId(1)).expect("two shards");
            peer.publish(Item::PeerBarrier { token: 1 }, 1, None);
        }
        let mut delayed = Delayed::default();
        assert!(delayed.peers_have_room(&Peers::new(ShardId(0), 2)).is_none(), "nothing waits");
        delayed.progress = DelayedProgress::WaitsForPeer;
        assert!(delayed.peers_have_room(&peers).is_none());
        peers.seal(&mut Vec::new());
        peers.peer(ShardId(1)).expect("two shards").settle(1);
        assert!(matches!(delayed.peers_have_room(&peers), Some(Job::Delayed)));
        assert!(delayed.peers_have_room(&peers).is_none(), "the job goes on already");
    }
}
