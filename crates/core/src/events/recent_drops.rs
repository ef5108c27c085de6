//! The last dropped messages of one shard, for operators. Written on the way of a drop only.

use crate::mqtt::excerpt::Excerpt;
use crate::persistence::records::{EntryNumber, ReadEntry};
use crate::session::drops::{DropReason, Dropped, TOPIC};
use crate::time::Instant;
use std::collections::VecDeque;

/// Drops that are kept.
pub(crate) const KEPT: usize = 1_000;

/// Characters of a topic and of a client identifier that are kept.
pub(crate) const TEXT: usize = TOPIC;

/// A message that was dropped.
#[derive(Clone, Debug)]
pub struct RecentDrop {
    /// The time of the drop, to the second.
    pub at: Instant,
    /// The receiver's Client Identifier, the name of its shared group, or an empty text.
    pub receiver: Excerpt,
    /// The publisher's Client Identifier; empty if it is not known. Messages keep it only if a
    /// redelivery policy asks for dead letters.
    pub publisher: Excerpt,
    /// The Topic Name; empty if the message was in the store alone, and was not read from there.
    pub topic: Excerpt,
    /// The reason.
    pub cause: DropReason,
    /// The number of transmissions.
    pub transmissions: u16,
    /// The number under which the topic will come from the store.
    unread: Option<EntryNumber>,
}

/// The last drops, the newest last. Not charged: 0.3 MiB at most.
#[derive(Debug, Default)]
pub(crate) struct RecentDrops {
    drops: VecDeque<RecentDrop>,
    now: Instant,
}

impl RecentDrops {
    /// Sets the time of the drops that follow.
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Keeps a drop. The oldest one goes.
    pub(crate) fn note(&mut self, receiver: &str, dropped: &Dropped) {
        if self.drops.len() >= KEPT {
            self.drops.pop_front();
        }
        let message = dropped.message.as_ref();
        let known = || Excerpt::of(message.map_or("", |message| message.topic()), TEXT);
        self.drops.push_back(RecentDrop {
            at: self.now,
            receiver: Excerpt::of(receiver, TEXT),
            publisher: Excerpt::of(message.map_or("", |message| message.publisher()), TEXT),
            topic: dropped.topic.clone().unwrap_or_else(known),
            cause: dropped.cause,
            transmissions: dropped.sent.times,
            unread: dropped.unread,
        });
    }

    /// Adds what the store had of a message. Costs a pass over the drops: a microsecond.
    pub(super) fn topic_came(&mut self, read: &ReadEntry) {
        let Some(drop) = self.drops.iter_mut().rev().find(|drop| drop.unread == Some(read.number)) else {
            return;
        };
        drop.unread = None;
        drop.topic = Excerpt::of(read.message.topic(), TEXT);
        drop.publisher = Excerpt::of(read.message.publisher(), TEXT);
    }

    /// Iterates over the drops, the newest first.
    pub(crate) fn newest_first(&self) -> impl ExactSizeIterator<Item = &RecentDrop> {
        self.drops.iter().rev()
    }
}
