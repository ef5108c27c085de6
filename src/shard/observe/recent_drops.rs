//! The last dropped messages of one shard, for operators. Written on the way of a drop only.

use crate::mqtt::excerpt::Excerpt;
use crate::session::drops::{DropReason, Dropped};
use crate::shard::observe::wanted::WantedTopic;
use crate::time::Instant;
use std::collections::VecDeque;

/// Drops that are kept.
const KEPT: usize = 1_000;

/// Characters of a topic and of a client identifier that are kept.
const TEXT: usize = 128;

/// A message that was dropped.
#[derive(Clone, Debug)]
pub struct RecentDrop {
    /// The time of the drop, to the second.
    pub at: Instant,
    /// The receiver's Client Identifier, the name of its shared group, or an empty text.
    pub receiver: Excerpt,
    /// The Topic Name; empty if the message was in the store alone.
    pub topic: Excerpt,
    /// The reason.
    pub cause: DropReason,
    /// The number of transmissions.
    pub transmissions: u16,
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
        let topic = dropped.message.as_ref().map_or("", |message| message.topic());
        self.drops.push_back(RecentDrop {
            at: self.now,
            receiver: Excerpt::of(receiver, TEXT),
            topic: Excerpt::of(topic, TEXT),
            cause: dropped.cause,
            transmissions: dropped.sent.times,
        });
    }

    /// Returns the number of drops that are kept.
    pub(crate) fn len(&self) -> usize {
        self.drops.len()
    }

    /// Returns the drops of a topic and a receiver, the newest first, at most `most`. A drop whose
    /// topic is not known fits any topic. Costs a pass over the [`KEPT`] drops.
    pub(crate) fn find(
        &self,
        topic: Option<&WantedTopic>,
        receiver: Option<&str>,
        most: usize,
    ) -> Vec<RecentDrop> {
        let receiver = receiver.map(|receiver| Excerpt::of(receiver, TEXT));
        let fits = |drop: &&RecentDrop| {
            let known = drop.topic.beginning();
            topic.is_none_or(|topic| known.is_empty() || topic.may_be(known, TEXT))
                && receiver.as_ref().is_none_or(|receiver| drop.receiver == *receiver)
        };
        self.drops.iter().rev().filter(fits).take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::message::Message;
    use crate::mqtt::packet::QoS;

    #[test]
    fn the_newest_drop_comes_first_and_the_oldest_goes() {
        let mut drops = RecentDrops::default();
        for n in 0..=KEPT as u64 {
            let message = Message::sample(if n == 7 { "seven" } else { "t" }, QoS::AtLeastOnce, b"");
            drops.set_time(Instant::from_millis(n));
            drops.note("c", &Dropped::unsent(DropReason::Expired, message));
        }
        let all = drops.find(None, None, usize::MAX);
        assert_eq!((all.len(), all[0].at), (KEPT, Instant::from_millis(KEPT as u64)));
        let seven = WantedTopic::read("seven").ok();
        assert_eq!(drops.find(seven.as_ref(), Some("c"), 10).len(), 1);
        assert!(drops.find(seven.as_ref(), Some("d"), 10).is_empty());
    }

    #[test]
    fn a_long_topic_is_cut_with_its_length_and_found_by_its_whole_text() {
        let mut drops = RecentDrops::default();
        let topic = "t".repeat(300);
        drops
            .note("c", &Dropped::unsent(DropReason::Expired, Message::sample(&topic, QoS::AtLeastOnce, b"")));
        let found = drops.find(WantedTopic::read(&topic).ok().as_ref(), Some("c"), 10);
        assert_eq!(found[0].topic.to_string(), format!("{}... (300 bytes)", "t".repeat(TEXT)));
    }
}
