//! The bridges on `$SYS/broker/bridges/NAME/...`.

use crate::broker::bridges::status::BridgeFacts;
use std::collections::BTreeSet;

/// Bridges with topics. 1,000 bridges would be 8,000 messages in one turn.
const MOST: usize = 100;

/// The topics of bridges that were published last, below `$SYS/broker/`.
#[derive(Debug, Default)]
pub(super) struct BridgeTopics(BTreeSet<String>);

impl BridgeTopics {
    /// Returns the figures of the bridges, and an empty value for each topic of a bridge that is
    /// gone: it ends the retained message.
    pub(super) fn figures(&mut self, bridges: &[BridgeFacts]) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = bridges.iter().take(MOST).flat_map(of_bridge).collect();
        let now: BTreeSet<String> = all.iter().map(|(name, _)| name.clone()).collect();
        let before = std::mem::take(&mut self.0);
        all.extend(before.difference(&now).map(|gone| (gone.clone(), String::new())));
        self.0 = now;
        all
    }
}

fn of_bridge(facts: &BridgeFacts) -> [(String, String); 8] {
    let level = level(&facts.name);
    let session = facts.session.as_ref().map(|session| &session.row);
    let (queued, bytes) = session.map_or((0, 0), |row| (row.queued, row.queued_bytes));
    [
        ("state", facts.state.name().to_owned()),
        ("queued", queued.to_string()),
        ("queued/bytes", bytes.to_string()),
        ("unacknowledged", facts.unacknowledged.to_string()),
        ("sent", facts.counts.sent.to_string()),
        ("received", facts.counts.received.to_string()),
        ("dropped", facts.drops.total().to_string()),
        ("sessions_lost", facts.sessions_lost.to_string()),
    ]
    .map(|(name, value)| (format!("bridges/{level}/{name}"), value))
}

/// Returns the name of a bridge in plain signs. The exporter of mosquitto fails at others.
fn level(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::bridges::status::BridgeDirectory;

    #[test]
    fn the_topics_of_a_bridge_that_is_gone_become_empty_once() {
        let (directory, mut topics) = (BridgeDirectory::default(), BridgeTopics::default());
        directory.add("plant-7.b");
        let figures = topics.figures(&directory.all());
        assert!(
            figures.contains(&("bridges/plant_7_b/state".to_owned(), "dialling".to_owned())),
            "{figures:?}"
        );
        let gone = topics.figures(&[]);
        assert_eq!(gone.len(), figures.len());
        assert!(gone.iter().all(|(_, value)| value.is_empty()), "{gone:?}");
        assert!(topics.figures(&[]).is_empty());
    }
}
