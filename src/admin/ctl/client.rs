//! The text of `homing ctl client`.

use super::listings::{TOPIC, given, given_seconds, name, text};
use super::text::{fact_lines, left, right, table};
use crate::admin::human::sent_age;
use crate::admin::pages::client_facts::facts;
use crate::admin::rows::client::{ClientRow, InFlightMessage, OwnSubscriptionRow, StallRow};
use crate::admin::rows::message::MessageRow;
use crate::admin::rows::refused::RefusedRow;
use crate::admin::sourced_redelivery::{ClientRedelivery, RedeliverySetting, SourceKind};

/// Messages in flight, and in the queue, in the text. `homing ctl inflight` and `queue` list all.
const MESSAGES: usize = 10;

/// Returns a client: its facts, and then its messages, subscriptions and redelivery settings.
pub(super) fn client_text(client: ClientRow) -> String {
    let mut lines = vec![("client", client.client_id.clone())];
    lines.extend(facts(&client));
    lines
        .extend(client.oldest_unacknowledged.as_ref().map(|oldest| ("oldest message", oldest_words(oldest))));
    let ClientRow { client_id, in_flight, queued, .. } = &client;
    let messages = first(&client.in_flight_messages);
    let queue = first(&client.queue);
    let subscriptions = client.subscriptions.as_deref().unwrap_or_default();
    let mut sections = vec![
        fact_lines(&lines),
        section("in flight", messages.is_empty(), "nothing is unacknowledged", || in_flight_table(messages)),
        more(messages.len(), *in_flight, "inflight", client_id),
        section("queue", *queued == 0, "nothing is queued", || queue_table(queue)),
        more(queue.len(), *queued, "queue", client_id),
        section("subscriptions", subscriptions.is_empty(), "none, so no message reaches the client", || {
            subscriptions_table(subscriptions)
        }),
    ];
    let refused = client.refused.as_deref().unwrap_or_default();
    if !refused.is_empty() {
        sections.push(section("refused requests", false, "", || refused_lines(refused)));
    }
    sections.extend(client.redelivery.as_ref().map(redelivery_text));
    sections.retain(|section| !section.is_empty());
    sections.join("\n\n")
}

fn first<T>(messages: &Option<Vec<T>>) -> &[T] {
    let all = messages.as_deref().unwrap_or_default();
    &all[..all.len().min(MESSAGES)]
}

fn section(title: &str, is_empty: bool, none: &str, table: impl FnOnce() -> String) -> String {
    if is_empty { format!("{title}: {none}") } else { format!("{title}:\n{}", table()) }
}

/// Returns how to see the messages that the answer does not have; empty if it has all.
fn more(shown: usize, all: usize, command: &str, client_id: &str) -> String {
    let id = text(client_id);
    match all.saturating_sub(shown) {
        0 => String::new(),
        left => format!("{left} more; homing ctl {command} {id} lists them"),
    }
}

fn oldest_words(oldest: &StallRow) -> String {
    let StallRow { packet_id, transmissions, cause, detail, .. } = oldest;
    let age = oldest.age();
    let holder = cause.map(|holder| format!(" ({holder})")).unwrap_or_default();
    let detail = detail.as_deref().unwrap_or("the client is away");
    format!("packet {packet_id}, unacknowledged for {age}, sent {transmissions}x: {detail}{holder}")
}

fn in_flight_table(rows: &[InFlightMessage]) -> String {
    table(
        rows,
        [
            right("packet", |row| text(row.packet_id)),
            left("topic", |row| {
                row.message.as_ref().map(|message| name(&message.topic, TOPIC)).unwrap_or_default()
            }),
            right("QoS", |row| given(&row.message.as_ref().map(|message| message.qos))),
            right("bytes", |row| given(&row.message.as_ref().map(|message| message.payload_bytes))),
            right("age", |row| sent_age(row.age, row.sent_before_start)),
            right("sent", |row| text(row.transmissions)),
            left("waits for", |row| text(&row.waits_for)),
            right("next deadline in", |row| given_seconds(row.next_deadline_in)),
        ],
    )
}

fn queue_table(rows: &[MessageRow]) -> String {
    table(
        rows,
        [
            left("topic", |row| name(&row.topic, TOPIC)),
            right("QoS", |row| text(row.qos)),
            right("bytes", |row| text(row.payload_bytes)),
            right("expires in", |row| given_seconds(row.expires_in)),
        ],
    )
}

fn subscriptions_table(rows: &[OwnSubscriptionRow]) -> String {
    let filter = |row: &OwnSubscriptionRow| name(&row.filter, TOPIC);
    table(
        rows,
        [left("filter", filter), right("QoS", |row| text(row.qos)), left("options", |row| row.options())],
    )
}

fn refused_lines(rows: &[RefusedRow]) -> String {
    rows.iter().map(|row| text(row.sentence())).collect::<Vec<_>>().join("\n")
}

fn redelivery_text(ClientRedelivery { settings, topic_rules }: &ClientRedelivery) -> String {
    let source = |row: &RedeliverySetting| match (row.source, row.rule) {
        (SourceKind::Client, _) => "the client's own request".to_owned(),
        (SourceKind::Rule, rule) => format!("rule {} of redelivery.rules", given(&rule)),
        (SourceKind::Section, _) => "section [redelivery]".to_owned(),
    };
    let setting = left("setting", |row: &RedeliverySetting| text(&row.setting));
    let settings =
        table(settings, [setting, left("value", |row| text(&row.value)), left("comes from", source)]);
    let numbers: Vec<String> = topic_rules.iter().map(text).collect();
    let others = match &*numbers {
        [] => String::new(),
        numbers => format!("\nother settings for some topics: rules {}", numbers.join(", ")),
    };
    format!("redelivery:\n{settings}{others}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_client_is_written_as_facts_and_tables() {
        let client = json!({
            "client_id": "pump\u{1b}7", "ref": "1", "version": "5.0", "state": "connected",
            "user": "app", "address": "10.1.2.3:5000", "listener": "plain", "connected_for": 3_700.0,
            "keep_alive": 60, "clean_start": false, "last_packet_ago": 2.5, "sent_bytes": 2_048,
            "received_messages": 3, "received_bytes": 90, "sent_messages": 300,
            "session_expiry": 604_800, "in_flight": 300, "queued": 0, "queued_bytes": 0, "held": 0,
            "subscription_count": 1, "next_deadline_in": 4.0,
            "oldest_unacknowledged": { "packet_id": 7, "age": 190.0, "sent_before_start": true, "transmissions": 2,
                "cause": "network", "detail": "the network has it" },
            "in_flight_messages": [{ "packet_id": 7, "waits_for": "PUBACK", "age": 190.0,
                "sent_before_start": true, "transmissions": 2, "sent_on_this_connection": true, "next_deadline_in": 4.0,
                "message": { "topic": "pumps/7", "qos": 1, "payload_bytes": 2, "retain": false } }],
            "queue": [],
            "subscriptions": [{ "filter": "pumps/#", "qos": 1, "no_local": true,
                "retain_as_published": false, "subscription_id": 9 }],
            "redelivery": { "settings": [{ "setting": "ack_timeout", "value": "20s", "source": "rule",
                "rule": 2 }], "topic_rules": [3] },
            "refused": [{ "client_id": "pump", "user": null, "kind": "publish", "topic": "alarms/1",
                "cause": "not_authorized", "why": "line 3 of acl denies it", "times": 1, "ago": 61 }],
        });
        let text = client_text(serde_json::from_value(client).expect("a client"));
        for line in [
            "client           pump\\u{1b}7",
            "Keep Alive       1 min",
            "Clean Start      no",
            "messages in      3, 90 B",
            "messages out     300, 2.0 KiB",
            "session expiry   7 d",
            "last packet      2.5 s ago",
            "oldest message   packet 7, unacknowledged for over 3 min 10 s, sent 2x: the network has it (network)",
            "299 more; homing ctl inflight pump\\u{1b}7 lists them",
            "queue: nothing is queued",
            "pumps/#    1  No Local, Subscription Identifier 9",
            "refused requests:",
            "tried 1 min 1 s ago, and may not write alarms/1: line 3 of acl denies it.",
            "ack_timeout  20s    rule 2 of redelivery.rules",
            "other settings for some topics: rules 3",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
        assert!(text.contains(" UTC, for 1 h 1 min"), "{text}");
    }
}
