//! The listing of the last dropped messages and refused requests.

use super::listings::{TOPIC, name, text};
use super::text::{left, right, table};
use crate::admin::human::long;
use crate::admin::routes::topics::DroppedMessages;
use std::time::Duration;

/// Returns the refused requests and the dropped messages as two tables, without an empty one.
pub(super) fn dropped_tables(found: DroppedMessages) -> String {
    let DroppedMessages { dropped, without_topic, refused } = found;
    let mut parts = Vec::new();
    if !refused.is_empty() {
        parts.push(table(
            &refused,
            [
                left("refused", |row| text(row.kind)),
                left("client", |row| text(row.client())),
                left("topic", |row| name(&row.topic, TOPIC)),
                right("times", |row| text(row.times)),
                right("last ago", |row| long(Duration::from_secs(row.ago))),
                left("cause", |row| text(&row.cause)),
                left("why", |row| text(&row.why)),
            ],
        ));
    }
    if !dropped.is_empty() {
        parts.push(table(
            &dropped,
            [
                left("dropped for", |row| text(&row.receiver)),
                left("topic", |row| name(&row.topic, TOPIC)),
                left("cause", |row| text(row.cause)),
                right("sent", |row| text(row.transmissions)),
                right("ago", |row| long(Duration::from_secs(row.ago))),
            ],
        ));
    }
    if !without_topic.is_empty() {
        let count = without_topic.len();
        parts.push(format!("drops without a known topic, some perhaps of this one: {count}"));
    }
    if parts.is_empty() { "nothing was dropped or refused".to_owned() } else { parts.join("\n\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refused_requests_and_dropped_messages_are_two_tables() {
        let drop = json!({ "receiver": "pump", "topic": "q/1", "cause": "expired", "transmissions": 0, "ago": 5_400 });
        let refused = json!({
            "client_id": "ann1", "user": "ann", "kind": "publish", "topic": "alarms/1", "cause": "not_authorized",
            "why": "no line of acl allows it", "times": 2, "ago": 3,
        });
        let found = json!({ "dropped": [&drop], "without_topic": [&drop], "refused": [refused] });
        let text = dropped_tables(serde_json::from_value(found).expect("an answer"));
        let expected = "\
refused  client           topic     times  last ago  cause           why
publish  ann1 (user ann)  alarms/1      2       3 s  not_authorized  no line of acl allows it

dropped for  topic  cause    sent         ago
pump         q/1    expired     0  1 h 30 min

drops without a known topic, some perhaps of this one: 1";
        assert_eq!(text, expected);
    }
}
