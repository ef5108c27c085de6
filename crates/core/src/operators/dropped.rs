//! Questions of operators about the last dropped messages.

use crate::mqtt::excerpt::Excerpt;
use crate::operators::budget::{Question, ROWS};
use crate::operators::wanted::Wanted;
use crate::shard::observe::recent_drops::{RecentDrop, RecentDrops, TEXT};

/// Returns the wanted drops, the newest first, at most `most` and [`ROWS`]. Costs a pass over the
/// drops that the shard keeps.
pub(super) fn dropped(question: &mut Question<'_>, wanted: &Wanted, most: usize) -> Vec<RecentDrop> {
    let drops = question.shard.recent_drops();
    question.budget.spend(drops.newest_first().len());
    find(drops, wanted, most.min(ROWS))
}

/// A drop whose topic is not known fits any topic.
fn find(drops: &RecentDrops, wanted: &Wanted, most: usize) -> Vec<RecentDrop> {
    let receiver = wanted.receiver.as_deref().map(|receiver| Excerpt::of(receiver, TEXT));
    let fits = |drop: &&RecentDrop| {
        let known = drop.topic.beginning();
        wanted.topic.as_ref().is_none_or(|topic| known.is_empty() || topic.may_be(known, TEXT))
            && receiver.as_ref().is_none_or(|receiver| drop.receiver == *receiver)
    };
    drops.newest_first().filter(fits).take(most).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::message::Message;
    use crate::mqtt::packet::QoS;
    use crate::operators::wanted::WantedTopic;
    use crate::session::drops::{DropReason, Dropped};
    use crate::shard::observe::recent_drops::KEPT;
    use crate::time::Instant;

    fn wanted(topic: &str, receiver: &str) -> Wanted {
        let (topic, receiver) = (WantedTopic::read(topic).ok(), Some(receiver.into()));
        Wanted { topic, receiver, ..Wanted::default() }
    }

    #[test]
    fn the_newest_drop_comes_first_and_the_oldest_goes() {
        let mut drops = RecentDrops::default();
        for n in 0..=KEPT as u64 {
            let message = Message::sample(if n == 7 { "seven" } else { "t" }, QoS::AtLeastOnce, b"");
            drops.set_time(Instant::from_millis(n));
            drops.note("c", &Dropped::unsent(DropReason::Expired, message));
        }
        let all = find(&drops, &Wanted::default(), usize::MAX);
        assert_eq!((all.len(), all[0].at), (KEPT, Instant::from_millis(KEPT as u64)));
        assert_eq!(find(&drops, &wanted("seven", "c"), 10).len(), 1);
        assert!(find(&drops, &wanted("seven", "d"), 10).is_empty());
    }

    #[test]
    fn a_long_topic_is_cut_with_its_length_and_found_by_its_whole_text() {
        let mut drops = RecentDrops::default();
        let topic = "t".repeat(300);
        drops
            .note("c", &Dropped::unsent(DropReason::Expired, Message::sample(&topic, QoS::AtLeastOnce, b"")));
        let found = find(&drops, &wanted(&topic, "c"), 10);
        assert_eq!(found[0].topic.to_string(), format!("{}... (300 bytes)", "t".repeat(TEXT)));
    }
}
