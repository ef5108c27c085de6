//! Questions of operators about the last dropped messages and refused requests.

use crate::access::cover;
use crate::events::recent_drops::{RecentDrop, RecentDrops, TEXT};
use crate::events::refusals::{Refusal, Refusals, RefusedKind};
use crate::mqtt::excerpt::Excerpt;
use crate::mqtt::topic::{matches, without_share};
use crate::operators::budget::{Question, ROWS};
use crate::operators::wanted::{Wanted, WantedTopic};

/// The wanted drops and refusals, the newest first.
#[derive(Clone, Debug, Default)]
pub struct FoundDrops {
    /// The drops of wanted messages.
    pub drops: Vec<RecentDrop>,
    /// If a topic is wanted: the drops whose topics are not known. The messages were in the store
    /// alone.
    pub without_topic: Vec<RecentDrop>,
    /// If a publisher is wanted and no topic: the number of drops whose publishers are not known.
    pub without_publisher: usize,
    /// The refused requests. With a wanted topic, one whose topic is not known is among them.
    pub refused: Vec<Refusal>,
}

/// Returns the wanted drops and refusals, at most `most` and [`ROWS`] of each. Costs a pass over
/// those that the shard keeps.
pub(super) fn dropped(question: &mut Question<'_>, wanted: &Wanted, most: usize) -> FoundDrops {
    let (drops, refusals) = (question.shard.recent_drops(), question.shard.refusals());
    question.budget.spend(drops.newest_first().len() + refusals.newest_first().len());
    let most = most.min(ROWS);
    let find = |known| find(drops, wanted, known).take(most).cloned().collect();
    FoundDrops {
        drops: find(TopicKnowledge::Known),
        without_publisher: drops_of_nobody(drops, wanted),
        without_topic: if wanted.topic.is_some() { find(TopicKnowledge::Unknown) } else { Vec::new() },
        refused: refused(refusals, wanted).take(most).cloned().collect(),
    }
}

/// The knowledge of the topic of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopicKnowledge {
    Known,
    Unknown,
}

/// Returns the number of drops for the wanted receiver whose publishers are not known, if a
/// publisher is wanted and no topic.
fn drops_of_nobody(drops: &RecentDrops, wanted: &Wanted) -> usize {
    if wanted.publisher.is_none() || wanted.topic.is_some() {
        return 0;
    }
    let of_all = &Wanted { publisher: None, ..wanted.clone() };
    let all = find(drops, of_all, TopicKnowledge::Known);
    all.filter(|drop| drop.publisher.beginning().is_empty()).count()
}

/// Iterates over the drops of the wanted receiver and publisher. If a topic is wanted, the drops
/// have this topic, or an unknown topic. An unknown publisher then counts as the wanted one.
fn find<'a>(
    drops: &'a RecentDrops,
    wanted: &'a Wanted,
    knowledge: TopicKnowledge,
) -> impl Iterator<Item = &'a RecentDrop> {
    let excerpt = |name: &Option<Box<str>>| name.as_deref().map(|name| Excerpt::of(name, TEXT));
    let (receiver, publisher) = (excerpt(&wanted.receiver), excerpt(&wanted.publisher));
    drops.newest_first().filter(move |drop| {
        let known = drop.topic.beginning();
        let is_wanted = match (&wanted.topic, knowledge) {
            (None, _) => true,
            (Some(_), TopicKnowledge::Unknown) => known.is_empty(),
            (Some(topic), TopicKnowledge::Known) => !known.is_empty() && topic.may_be(known, TEXT),
        };
        let is_by = |publisher: &Excerpt| match drop.publisher.beginning() {
            "" => wanted.topic.is_some(),
            _ => drop.publisher == *publisher,
        };
        is_wanted
            && publisher.as_ref().is_none_or(is_by)
            && receiver.as_ref().is_none_or(|receiver| drop.receiver == *receiver)
    })
}

/// Iterates over the wanted refusals. A client is the publisher of a message, and the receiver of a
/// filter.
fn refused<'a>(refusals: &'a Refusals, wanted: &'a Wanted) -> impl Iterator<Item = &'a Refusal> {
    let excerpt = |name: &Option<Box<str>>| name.as_deref().map(|name| Excerpt::of(name, TEXT));
    let (publisher, receiver) = (excerpt(&wanted.publisher), excerpt(&wanted.receiver));
    refusals.newest_first().filter(move |row| {
        let (own, other) = match row.kind {
            RefusedKind::Publish | RefusedKind::Will => (&publisher, &receiver),
            RefusedKind::Subscription => (&receiver, &publisher),
        };
        // What somebody else may not do on the wanted topic explains why nothing arrived.
        let is_client = match own {
            Some(own) => row.client_id == *own,
            None => other.is_none() || wanted.topic.is_some(),
        };
        let known = row.topic.beginning();
        let is_topic = |topic: &WantedTopic| match row.kind {
            _ if known.is_empty() => true,
            RefusedKind::Subscription if !row.topic.is_whole() => true,
            RefusedKind::Publish | RefusedKind::Will => topic.may_be(known, TEXT),
            RefusedKind::Subscription if topic.is_filter() => {
                cover::overlaps(without_share(known), topic.text())
            }
            RefusedKind::Subscription => matches(without_share(known), topic.text()),
        };
        is_client && wanted.topic.as_ref().is_none_or(is_topic)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::recent_drops::KEPT;
    use crate::events::refusals::RefusedRequest;
    use crate::mqtt::message::Message;
    use crate::mqtt::packet::QoS;
    use crate::session::drops::{DropReason, Dropped};
    use crate::time::Instant;

    fn wanted(topic: &str, receiver: &str) -> Wanted {
        let (topic, receiver) = (WantedTopic::read(topic).ok(), Some(receiver.into()));
        Wanted { topic, receiver, ..Wanted::default() }
    }

    fn found(drops: &RecentDrops, wanted: &Wanted) -> Vec<RecentDrop> {
        find(drops, wanted, TopicKnowledge::Known).cloned().collect()
    }

    #[test]
    fn the_newest_drop_comes_first_and_the_oldest_goes() {
        let mut drops = RecentDrops::default();
        for n in 0..=KEPT as u64 {
            let message = Message::sample(if n == 7 { "seven" } else { "t" }, QoS::AtLeastOnce, b"");
            drops.set_time(Instant::from_millis(n));
            drops.note("c", &Dropped::unsent(DropReason::Expired, message));
        }
        let all = found(&drops, &Wanted::default());
        assert_eq!((all.len(), all[0].at), (KEPT, Instant::from_millis(KEPT as u64)));
        assert_eq!(found(&drops, &wanted("seven", "c")).len(), 1);
        assert!(found(&drops, &wanted("seven", "d")).is_empty());
    }

    #[test]
    fn a_long_topic_is_cut_with_its_length_and_found_by_its_whole_text() {
        let mut drops = RecentDrops::default();
        let topic = "t".repeat(300);
        drops
            .note("c", &Dropped::unsent(DropReason::Expired, Message::sample(&topic, QoS::AtLeastOnce, b"")));
        let found = found(&drops, &wanted(&topic, "c"));
        assert_eq!(found[0].topic.to_string(), format!("{}... (300 bytes)", "t".repeat(TEXT)));
    }

    #[test]
    fn a_drop_of_another_topic_is_not_found_and_one_without_a_topic_is_said_to_be_so() {
        let mut drops = RecentDrops::default();
        drops.note("c", &Dropped::new(DropReason::QueueRefused, None).on("q/other"));
        drops.note("c", &Dropped::new(DropReason::QueueRefused, None).on("q/1"));
        drops.note("c", &Dropped::new(DropReason::Expired, None));
        let of = |topic, knowledge| {
            let wanted = wanted(topic, "c");
            find(&drops, &wanted, knowledge).map(|drop| drop.topic.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("q/1", TopicKnowledge::Known), ["q/1"]);
        assert_eq!(of("q/1", TopicKnowledge::Unknown), [""]);
        assert!(of("q/never", TopicKnowledge::Known).is_empty());
        assert_eq!(found(&drops, &Wanted::default()).len(), 3);
        let by = |topic: Option<&str>| {
            let topic = topic.map(|topic| WantedTopic::read(topic).expect("a topic"));
            let wanted = Wanted { topic, publisher: Some("app".into()), receiver: None };
            (found(&drops, &wanted).len(), drops_of_nobody(&drops, &wanted))
        };
        assert_eq!([by(None), by(Some("q/1"))], [(0, 3), (1, 0)]);
    }

    #[test]
    fn a_refused_message_is_its_publishers_and_a_refused_filter_its_subscribers() {
        let mut refusals = Refusals::default();
        for (client_id, kind, topic) in [
            ("ann", RefusedKind::Publish, "alarms/1"),
            ("bob", RefusedKind::Subscription, "$share/g/alarms/#"),
            ("bob", RefusedKind::Will, "gone/bob"),
        ] {
            let request = RefusedRequest { client_id, user: None, kind, topic, cause: "not_authorized" };
            refusals.note(&request, String::new);
        }
        let found = |topic: Option<&str>, publisher: Option<&str>, receiver: Option<&str>| {
            let topic = topic.map(|topic| WantedTopic::read(topic).expect("a topic"));
            let wanted =
                Wanted { topic, publisher: publisher.map(Into::into), receiver: receiver.map(Into::into) };
            refused(&refusals, &wanted).map(|row| row.kind.name()).collect::<Vec<_>>()
        };
        assert_eq!(found(Some("alarms/1"), None, None), ["subscription", "publish"]);
        assert_eq!(found(Some("alarms/+"), None, None), ["subscription", "publish"]);
        assert_eq!(found(Some("alarms/2"), None, None), ["subscription"]);
        assert_eq!(found(Some("alarms/1"), Some("ann"), None), ["subscription", "publish"]);
        assert_eq!(found(Some("alarms/1"), Some("bob"), None), ["subscription"]);
        assert_eq!(found(None, Some("bob"), None), ["will"]);
        assert_eq!(found(None, None, Some("bob")), ["subscription"]);
        assert_eq!(found(Some("alarms/1"), Some("ann"), Some("bob")), ["subscription", "publish"]);
        assert_eq!(found(Some("other"), None, None), [""; 0]);
    }
}
