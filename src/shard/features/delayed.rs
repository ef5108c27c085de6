//! Messages that are published later: `$delayed/<seconds>/<topic>`.
//!
//! A shard keeps those that its own clients delayed. With a store, only the ones due before a
//! horizon are in memory, and the horizon moves on with the time: the others stand in the store,
//! found by when they are due. The earliest one in memory is known to the expiry actor. When its
//! time comes, a message leaves the store in the same transaction in which it enters the queues of
//! its receivers, in whatever shards they are.
//!
//! A Message Expiry Interval counts from the publication, not from the delay.

use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::expiry::lazy::Registered;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::{Publish, ReasonCode};
use crate::mqtt::topic::is_topic_name;
use crate::persistence::records::{DelayedNumber, Record, StoredDelayed};
use crate::session::drops::DropReason;
use crate::shard::deadlines::OWN_DELAYED;
use crate::shard::route::Publication;
use crate::shard::turn::Job;
use crate::shard::{Shard, TURN};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

const PREFIX: &str = "$delayed/";

/// How far ahead messages are read from the store.
pub const HORIZON: Duration = Duration::from_secs(60);

/// Messages read at once.
const AT_ONCE: usize = 1_000;

/// A look-up in the store: messages due from `from` on and before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedRequest {
    pub from: (Instant, DelayedNumber),
    pub until: Instant,
    pub most: usize,
}

/// What waits for its time.
#[derive(Debug)]
pub(in crate::shard) struct Delayed {
    near: BTreeMap<(Instant, DelayedNumber), Message>,
    /// All that is due before this is in `near`.
    read_until: Instant,
    asked: bool,
    /// Of all, wherever they are.
    messages: usize,
    /// The next number, where there is no store that gives one.
    next: u64,
    registered: Registered,
    progress: DelayedProgress,
    /// What `near` takes beside the messages.
    charge: Charge,
}

/// Whether messages are being published whose time has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DelayedProgress {
    #[default]
    Idle,
    /// In later turns.
    GoesOn,
    /// As soon as peers have room.
    WaitsForPeer,
}

/// Bytes of a message's place in `near`, whose nodes are half full at the worst.
const NEAR: usize = 64;

impl Default for Delayed {
    fn default() -> Delayed {
        Delayed {
            near: BTreeMap::new(),
            read_until: Instant::NEVER,
            asked: false,
            messages: 0,
            next: 0,
            registered: Registered::default(),
            progress: DelayedProgress::Idle,
            charge: Charge::NONE,
        }
    }
}

impl Delayed {
    /// What the store had: `near` what is due before `read_until`, and how many there are in all.
    pub fn restore(&mut self, read_until: Instant, near: Vec<StoredDelayed>, all: usize) {
        self.read_until = read_until;
        self.messages = all;
        self.near.extend(near.into_iter().map(|d| ((d.due, d.number), d.message)));
        self.account();
    }

    /// After `near` has grown or shrunk.
    fn account(&mut self) {
        self.charge.set(self.near.len() * NEAR);
    }
}

impl Recount for Delayed {
    fn recount(&self) -> Recounted {
        Recounted { held: self.near.len() * NEAR, charged: self.charge.bytes() }
    }
}

/// The delay and the topic of a publish to `$delayed/...`; `None` where it reads as neither.
fn parse(topic: &str) -> Option<(u32, &str)> {
    let (seconds, topic) = topic.strip_prefix(PREFIX)?.split_once('/')?;
    let digits = !seconds.is_empty() && seconds.bytes().all(|b| b.is_ascii_digit());
    Some((seconds.parse().ok().filter(|_| digits)?, topic))
}

/// Whether a topic asks for a delay at all.
pub(in crate::shard) fn is_delayed(topic: &str) -> bool {
    topic.starts_with(PREFIX)
}

impl Shard {
    /// Keeps a message for later; why not, if not.
    pub(in crate::shard) fn delay(
        &mut self,
        now: Instant,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Result<(), (ReasonCode, DropReason)> {
        let unreadable = (ReasonCode::TOPIC_NAME_INVALID, DropReason::ReservedTopic);
        let (seconds, topic) = parse(topic).ok_or(unreadable)?;
        if !is_topic_name(topic) {
            return Err(unreadable);
        }
        if let Some(cause) = self.topic_refusal(topic) {
            return Err((ReasonCode::TOPIC_NAME_INVALID, cause));
        }
        let due = now + Duration::from_secs(seconds.into());
        let parts = Parts {
            qos: publish.qos,
            retain: publish.retain,
            expires: crate::shard::publish::expires(due, publish.properties.message_expiry),
            topic,
            forwarded: &publish.properties.forwarded,
            payload: publish.payload,
        };
        let message = Message::new(parts, &mut self.scratch.bytes);
        if !self.has_room_for_delayed(seconds, message.size()) {
            return Err((ReasonCode::QUOTA_EXCEEDED, DropReason::DelayedFull));
        }
        let delayed = &mut self.delayed;
        delayed.messages += 1;
        let number = match &self.stored {
            Some(stored) => stored.write_buffer.delayed(due, message.clone()),
            None => {
                delayed.next += 1;
                DelayedNumber(delayed.next)
            }
        };
        if due < delayed.read_until {
            delayed.near.insert((due, number), message);
        }
        self.register_delayed(now);
        Ok(())
    }

    /// Counts one more delayed message if the limits allow it.
    fn has_room_for_delayed(&self, seconds: u32, bytes: usize) -> bool {
        let (limits, totals) = (&self.settings.delayed, &self.shared.totals);
        if seconds > limits.horizon || !totals.delayed_messages.take(1, limits.messages) {
            return false;
        }
        let fits = totals.delayed_bytes.take(bytes, limits.bytes);
        if !fits {
            totals.delayed_messages.give_back(1);
        }
        fits
    }

    /// The time of some messages may have come: publishes them, oldest first, in as many turns as
    /// it takes.
    // The precision is the expiry actor's interval.
    pub fn publish_delayed(&mut self, now: Instant) {
        self.delayed.registered.fired();
        if self.delayed.progress == DelayedProgress::Idle {
            self.delayed.progress = DelayedProgress::GoesOn;
            let left = self.publish_due(now);
            self.jobs.extend(left);
        }
    }

    /// As many as this turn allows; the job that is left. Peers that have as much from here as they
    /// should are waited for.
    pub(in crate::shard) fn publish_due(&mut self, now: Instant) -> Option<Job> {
        while self.delayed.near.first_key_value().is_some_and(|((due, _), _)| *due <= now) {
            if self.exchange.is_any_full() {
                self.delayed.progress = DelayedProgress::WaitsForPeer;
                return None;
            }
            if self.fans.holds_own() {
                return Some(Job::Delayed);
            }
            let Some(((_, number), message)) = self.delayed.near.pop_first() else { break };
            self.delayed.account();
            self.delayed.messages = self.delayed.messages.saturating_sub(1);
            self.shared.totals.delayed_messages.give_back(1);
            self.shared.totals.delayed_bytes.give_back(message.size());
            self.turn.charge(1);
            self.publish_one_delayed(now, number, &message);
            if self.turn.is_over() || self.unflushed >= TURN {
                return Some(Job::Delayed);
            }
        }
        self.delayed.progress = DelayedProgress::Idle;
        self.register_delayed(now);
        None
    }

    /// A peer has less from here than before: what waits goes on if none has too much.
    pub(in crate::shard) fn go_on_with_delayed(&mut self) {
        if self.delayed.progress == DelayedProgress::WaitsForPeer && !self.exchange.is_any_full() {
            self.delayed.progress = DelayedProgress::GoesOn;
            self.later(Job::Delayed);
        }
    }

    fn publish_one_delayed(&mut self, now: Instant, number: DelayedNumber, message: &Message) {
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.record(Record::DelayedDone(number));
        }
        if message.is_expired(now) {
            // Down for longer than the message was to live.
            self.counters.drops.count(DropReason::Expired);
            return;
        }
        let mut publication = Publication::of(message, None);
        publication.atomic = true;
        if message.header().retain {
            self.retain(now, &mut publication);
        }
        self.route_own_now(now, &mut publication);
    }

    fn register_delayed(&mut self, now: Instant) {
        self.delayed.account();
        if self.delayed.progress != DelayedProgress::Idle {
            // It is registered when all that is due is published.
            return;
        }
        let Some(((due, _), _)) = self.delayed.near.first_key_value() else { return };
        let deadline = (*due).max(now);
        if self.delayed.registered.needs(deadline, self.settings.expiry_interval) {
            let (kind, slot, generation) = (DeadlineKind::Housekeeping, OWN_DELAYED, 0);
            self.effects.registrations.push(Registration { kind, slot, generation, deadline });
        }
    }

    /// Takes up what the store had: `near` all that is due before `read_until`; how many there are
    /// in all, and their bytes.
    pub fn recover_delayed(
        &mut self,
        now: Instant,
        read_until: Instant,
        near: Vec<StoredDelayed>,
        all: (usize, usize),
    ) {
        let (messages, bytes) = all;
        self.shared.totals.delayed_messages.add(messages);
        self.shared.totals.delayed_bytes.add(bytes);
        self.delayed.restore(read_until, near, messages);
        self.register_delayed(now);
    }

    /// Regular work: moves the horizon on when half of it is used up.
    pub(in crate::shard) fn look_ahead(&mut self, now: Instant) {
        let delayed = &mut self.delayed;
        let until = now + HORIZON;
        if delayed.asked || delayed.read_until >= now + HORIZON / 2 || self.stored.is_none() {
            return;
        }
        if delayed.messages == delayed.near.len() {
            // There is nothing else.
            delayed.read_until = until;
            return;
        }
        // What is delayed from here on into that time is in memory, whether the look-up meets it
        // too or not; what was before has to be committed to be met.
        let from = (std::mem::replace(&mut delayed.read_until, until), DelayedNumber(0));
        delayed.asked = true;
        self.look_up(DelayedRequest { from, until, most: AT_ONCE });
    }

    /// What was looked up came. Others' messages are among it.
    pub fn take_delayed(&mut self, now: Instant, request: DelayedRequest, read: Vec<StoredDelayed>) {
        let more = (read.len() >= request.most).then(|| read.last().map(|d| (d.due, d.number))).flatten();
        let (here, shards) = (self.here.0, self.exchange.shards());
        let own = read.into_iter().filter(|d| owner(d.number, shards) == here);
        self.delayed.near.extend(own.map(|d| ((d.due, d.number), d.message)));
        match more {
            Some((due, number)) => {
                let from = (due, DelayedNumber(number.0 + 1));
                self.effects.delayed.push(DelayedRequest { from, ..request });
            }
            None => self.delayed.asked = false,
        }
        self.register_delayed(now);
    }
}

/// Which of `shards` keeps a delayed message that the store had.
pub fn owner(number: DelayedNumber, shards: u8) -> u8 {
    (number.0 % 64 % u64::from(shards.max(1))) as u8
}
