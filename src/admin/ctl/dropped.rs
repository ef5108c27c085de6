//! The listing of the last dropped messages and refused requests.

use super::listings::{TOPIC, name, text};
use super::text::{left, right, table};
use crate::admin::routes::topics::DroppedMessages;
use crate::admin::routes::whereabouts::DroppedMessage;
use crate::admin::rows::refused::RefusedRow;

/// Returns the refused requests and the dropped messages as two tables, without an empty one.
pub(super) fn dropped_tables(found: DroppedMessages) -> String {
    let DroppedMessages { dropped, without_topic, refused } = found;
    let mut parts = Vec::new();
    if !refused.is_empty() {
        let cells = |row: &RefusedRow| {
            [
                text(row.kind),
                text(row.client()),
                name(&row.topic, TOPIC),
                text(row.times),
                format!("{} s", row.ago),
                text(&row.cause),
                text(&row.why),
            ]
        };
        let columns = [
            left("refused"),
            left("client"),
            left("topic"),
            right("times"),
            right("last ago"),
            left("cause"),
            left("why"),
        ];
        parts.push(table(columns, &refused, cells));
    }
    if !dropped.is_empty() {
        let cells = |row: &DroppedMessage| {
            [
                text(&row.receiver),
                name(&row.topic, TOPIC),
                text(row.cause),
                text(row.transmissions),
                format!("{} s", row.ago),
            ]
        };
        let columns = [left("dropped for"), left("topic"), left("cause"), right("sent"), right("ago")];
        parts.push(table(columns, &dropped, cells));
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
        let drop =
            json!({ "receiver": "pump", "topic": "q/1", "cause": "expired", "transmissions": 0, "ago": 4 });
        let refused = json!({
            "client_id": "ann1", "user": "ann", "kind": "publish", "topic": "alarms/1", "cause": "not_authorized",
            "why": "no line of acl allows it", "times": 2, "ago": 3,
        });
        let found = json!({ "dropped": [&drop], "without_topic": [&drop], "refused": [refused] });
        let text = dropped_tables(serde_json::from_value(found).expect("an answer"));
        let expected = "\
refused  client           topic     times  last ago  cause           why
publish  ann1 (user ann)  alarms/1      2       3 s  not_authorized  no line of acl allows it

dropped for  topic  cause    sent  ago
pump         q/1    expired     0  4 s

drops without a known topic, some perhaps of this one: 1";
        assert_eq!(text, expected);
    }
}
