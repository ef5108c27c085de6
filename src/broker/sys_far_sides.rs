//! The bridges on `$SYS/broker/bridges/NAME/...`, and the sinks on `$SYS/broker/sinks/NAME/...`.

use crate::broker::bridges::reports::FarSession;
use crate::broker::bridges::status::BridgeFacts;
use crate::broker::sinks::status::SinkFacts;
use std::collections::BTreeSet;

/// Bridges with topics, and sinks. 1,000 of either would be 8,000 messages in one turn.
const MOST: usize = 100;

/// The topics of bridges and sinks that were published last, below `$SYS/broker/`.
#[derive(Debug, Default)]
pub(super) struct FarTopics(BTreeSet<String>);

impl FarTopics {
    /// Returns the figures of the bridges and sinks, and an empty value for each topic of one that
    /// is gone: it ends the retained message.
    pub(super) fn figures(&mut self, bridges: &[BridgeFacts], sinks: &[SinkFacts]) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = bridges.iter().take(MOST).flat_map(of_bridge).collect();
        all.extend(sinks.iter().take(MOST).flat_map(of_sink));
        let now: BTreeSet<String> = all.iter().map(|(name, _)| name.clone()).collect();
        let before = std::mem::take(&mut self.0);
        all.extend(before.difference(&now).map(|gone| (gone.clone(), String::new())));
        self.0 = now;
        all
    }
}

fn of_bridge(facts: &BridgeFacts) -> impl Iterator<Item = (String, String)> {
    let own = [
        ("state", facts.state.name().to_owned()),
        ("unacknowledged", facts.unacknowledged.to_string()),
        ("sent", facts.counts.sent.to_string()),
        ("received", facts.counts.received.to_string()),
        ("sessions_lost", facts.sessions_lost.to_string()),
    ];
    below(format!("bridges/{}", level(&facts.name)), own, &facts.session)
}

fn of_sink(facts: &SinkFacts) -> impl Iterator<Item = (String, String)> {
    let own = [
        ("state", facts.state.name().to_owned()),
        ("unacknowledged", facts.unacknowledged.to_string()),
        ("delivered", facts.counts.delivered.to_string()),
        ("refused", facts.counts.refused.to_string()),
        ("failed", facts.counts.failed.to_string()),
    ];
    below(format!("sinks/{}", level(&facts.name)), own, &facts.session)
}

/// Returns these figures and those of the session, each with its topic.
fn below(
    place: String,
    own: [(&'static str, String); 5],
    session: &FarSession,
) -> impl Iterator<Item = (String, String)> {
    let (queued, bytes) = session.row().map_or((0, 0), |row| (row.queued, row.queued_bytes));
    let of_session = [
        ("queued", queued.to_string()),
        ("queued/bytes", bytes.to_string()),
        ("dropped", session.drops.total().to_string()),
    ];
    own.into_iter().chain(of_session).map(move |(name, value)| (format!("{place}/{name}"), value))
}

/// Returns a name in plain signs. The exporter of mosquitto fails at others.
fn level(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::bridges::status::BridgeDirectory;
    use crate::broker::sinks::status::SinkDirectory;

    #[test]
    fn the_topics_of_what_is_gone_become_empty_once() {
        let (bridges, sinks) = (BridgeDirectory::default(), SinkDirectory::default());
        let mut topics = FarTopics::default();
        bridges.add("plant-7.b");
        sinks.add("data");
        let figures = topics.figures(&bridges.all(), &sinks.all());
        for (topic, state) in [("bridges/plant_7_b/state", "dialling"), ("sinks/data/state", "starting")] {
            assert!(figures.contains(&(topic.to_owned(), state.to_owned())), "{figures:?}");
        }
        let gone = topics.figures(&[], &[]);
        assert_eq!(gone.len(), figures.len());
        assert!(gone.iter().all(|(_, value)| value.is_empty()), "{gone:?}");
        assert!(topics.figures(&[], &[]).is_empty());
    }
}
