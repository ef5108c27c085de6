//! Stored dead letters and delayed messages: what an operator sees of them and does with them.

use crate::api::{Administered, json_of};
use crate::messages::{STORED, messages};
use crate::pages::{get, log_in};
use crate::support::{Connect, Message, RawClient, Version, until};
use serde_json::Value;

pub fn connect(broker: &Administered, name: &str) -> RawClient {
    RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, name).clean(false))
}

/// Publishes messages at QoS 1 to a client that is away, and parks all of them.
pub fn park(broker: &Administered, name: &str, payloads: &[&str]) {
    let mut client = connect(broker, name);
    client.subscribe(&[("pumps/#", 1)]);
    client.disconnect();
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    for payload in payloads {
        publisher.deliver(&Message::new(format!("pumps/{payload}"), payload).qos(1));
    }
    for row in messages(broker, "queue", name) {
        let (code, text) = broker.ctl(&["park", name, row["mid"].as_str().expect("a name")]);
        assert_eq!(code, Some(0), "{text}");
    }
}

/// Returns the dead letters that a listing with these flags has.
pub fn letters(broker: &Administered, flags: &[&str]) -> Vec<Value> {
    let (code, text) = broker.ctl(&[&["--json", "dead-letters", "list"], flags].concat());
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(&text).expect("a list")
}

pub fn topics(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["topic"].as_str().expect("a topic")).collect()
}

pub fn id(row: &Value) -> &str {
    row["id"].as_str().expect("an id")
}

pub fn status_of(broker: &Administered, method: &str, path: &str, token: &str) -> (u16, Value) {
    let (status, answer) = broker.ask(method, path, token);
    (status, json_of(&answer))
}

#[test]
fn a_parked_message_stays_as_a_dead_letter_and_is_listed_by_cause_receiver_and_topic() {
    let broker = Administered::start();
    park(&broker, "pump", &["1", "2"]);
    park(&broker, "fan", &["3"]);
    let all = letters(&broker, &[]);
    assert_eq!(topics(&all), ["pumps/3", "pumps/2", "pumps/1"], "the newest first");
    let newest = &all[0];
    assert_eq!((&newest["cause"], &newest["receiver"]), (&"parked".into(), &"fan".into()));
    assert_eq!(
        (&newest["qos"], &newest["payload_bytes"], &newest["attempts"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert_eq!(topics(&letters(&broker, &["--receiver", "pump", "--topic", "pumps/1"])), ["pumps/1"]);
    assert_eq!(topics(&letters(&broker, &["--cause", "expired"])), [""; 0]);
    let (code, text) = broker.ctl(&["dead-letters", "list", "--cause", "gone"]);
    assert!(code == Some(2) && text.contains("must be one of") && text.contains("parked"), "{text}");
    let (_, text) = broker.ctl(&["dead-letters", "list"]);
    assert!(text.contains("parked") && text.contains("pumps/3"), "{text}");
}

#[test]
fn a_listing_has_each_letter_of_all_shards_once_over_its_pages() {
    let broker = Administered::start();
    for name in ["a", "b", "c", "d"] {
        park(&broker, name, &["1", "2", "3"]);
    }
    let pages = broker.pages("/api/v1/dead-letters?limit=5", "dead_letters");
    assert!(pages.iter().all(|rows| rows.len() <= 5));
    let ids: Vec<String> = pages.concat().iter().map(|row| id(row).to_owned()).collect();
    let listed: Vec<String> = letters(&broker, &[]).iter().map(|row| id(row).to_owned()).collect();
    assert_eq!((ids.len(), &ids), (12, &listed));
    let bad = status_of(&broker, "GET", "/api/v1/dead-letters?cursor=zz", &broker.viewer);
    assert!(bad.0 == 400 && bad.1["type"] == "/api/problems/invalid-cursor", "{bad:?}");
}

#[test]
fn a_viewer_sees_a_letter_and_an_operator_its_payload_too() {
    let broker = Administered::start();
    park(&broker, "pump", &["on"]);
    let row = &letters(&broker, &[])[0];
    let path = format!("/api/v1/dead-letters/{}", id(row));
    let (status, seen) = status_of(&broker, "GET", &path, &broker.viewer);
    assert_eq!((status, &seen), (200, row));
    assert_eq!(status_of(&broker, "GET", &format!("{path}?payload=true"), &broker.viewer).0, 403);
    let (_, seen) = status_of(&broker, "GET", &format!("{path}?payload=true"), &broker.operator);
    assert_eq!(seen["payload"], serde_json::json!({ "text": "on", "complete": true }));
    assert!(broker.ctl(&["audit"]).1.contains("view_payload"));
    for (method, path) in [("POST", format!("{path}/republish")), ("DELETE", path.clone())] {
        assert_eq!(status_of(&broker, method, &path, &broker.viewer).0, 403, "{method} {path}");
    }
    assert_eq!(letters(&broker, &[]).len(), 1);
    assert_eq!(status_of(&broker, "GET", "/api/v1/dead-letters/1-1", &broker.viewer).0, 404);
}

#[test]
fn a_republished_message_goes_to_its_receiver_alone_or_to_the_whole_topic() {
    let broker = Administered::start();
    park(&broker, "pump", &["1", "2"]);
    let mut other = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "other"));
    other.subscribe(&[("pumps/#", 1)]);
    let rows = letters(&broker, &[]);
    let (code, text) = broker.ctl(&["dead-letters", "republish", id(&rows[1]), "--note", "repaired"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = broker.ctl(&["dead-letters", "republish", id(&rows[0]), "--to", "topic"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(other.expect_publish().payload, b"2");
    other.settle();
    let mut pump = connect(&broker, "pump");
    assert_eq!(
        (pump.expect_publish().payload, pump.expect_publish().payload),
        (b"1".to_vec(), b"2".to_vec())
    );
    pump.settle();
    assert_eq!(letters(&broker, &[]).len(), 0);
    let path = format!("/api/v1/dead-letters/{}/republish", id(&rows[0]));
    assert_eq!(status_of(&broker, "POST", &path, &broker.operator).0, 404, "it is no letter any more");
    let audit = broker.ctl(&["audit"]).1;
    assert!(
        audit.contains("republish") && audit.contains("repaired") && audit.contains("pumps/1"),
        "{audit}"
    );
}

#[test]
fn a_message_that_nobody_takes_stays_a_dead_letter() {
    let broker = Administered::start_with(&["--set", "store.queue_messages=1"]);
    park(&broker, "pump", &["1"]);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    publisher.deliver(&Message::new("pumps/x", "full").qos(1));
    let rows = letters(&broker, &[]);
    let path = format!("/api/v1/dead-letters/{}/republish", id(&rows[0]));
    let refused = |detail: &str, path: &str| {
        let (status, body) = status_of(&broker, "POST", path, &broker.operator);
        assert!(status == 409 && body["type"] == "/api/problems/cannot-republish", "{body}");
        assert!(body["detail"].as_str().is_some_and(|text| text.contains(detail)), "{body}");
    };
    refused("queue of the receiver is full", &path);
    assert_eq!(broker.ctl(&["end", "pump"]).0, Some(0));
    assert_eq!(status_of(&broker, "POST", &path, &broker.operator).0, 404, "there is no such client");
    refused("nobody is subscribed", &format!("{path}?to=topic"));
    assert_eq!(status_of(&broker, "POST", &format!("{path}?to=all"), &broker.operator).0, 400);
    assert_eq!(letters(&broker, &[]), rows);
    assert_eq!(broker.ctl(&["dead-letters", "delete", id(&rows[0])]).0, Some(0));
    assert_eq!(letters(&broker, &[]).len(), 0);
}

#[test]
fn the_memory_of_a_deleted_letter_is_free_for_the_clients() {
    const LARGE: u64 = 1 << 20;
    let broker = Administered::start_with(&["--ephemeral", "--set", "sys.publish_interval=100ms"]);
    let mut reader = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "reader"));
    reader.subscribe(&[("$SYS/broker/memory/held", 0)]);
    // A shard publishes the figure, so the figure has not what the thread of the interface holds.
    let mut held = || -> u64 {
        let payload = String::from_utf8(reader.expect_publish().payload).expect("text");
        payload.parse().expect("a number")
    };
    let before = held();
    let mut client = connect(&broker, "pump");
    client.subscribe(&[("pumps/#", 1)]);
    client.disconnect();
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    publisher.deliver(&Message::new("pumps/1", vec![b'x'; LARGE as usize]).qos(1));
    publisher.disconnect();
    let message = &messages(&broker, "queue", "pump")[0];
    let (code, text) = broker.ctl(&["park", "pump", message["mid"].as_str().expect("a name")]);
    assert_eq!(code, Some(0), "{text}");
    until("the charge", || (held() > before + LARGE / 2).then_some(()));
    let rows = letters(&broker, &[]);
    assert_eq!(broker.ctl(&["dead-letters", "delete", id(&rows[0])]).0, Some(0));
    until("the release", || (held() < before + LARGE / 2).then_some(()));
}

#[test]
fn letters_and_what_was_done_with_them_survive_kill_9() {
    let mut broker = Administered::start_with(&STORED);
    park(&broker, "pump", &["republished", "deleted", "stays"]);
    let rows = letters(&broker, &[]);
    assert_eq!(broker.ctl(&["dead-letters", "republish", id(&rows[2])]).0, Some(0));
    assert_eq!(broker.ctl(&["dead-letters", "delete", id(&rows[1])]).0, Some(0));
    broker.kill_and_start(&STORED);
    let again = letters(&broker, &[]);
    assert_eq!((topics(&again), id(&again[0])), (vec!["pumps/stays"], id(&rows[0])));
    assert_eq!(again[0], rows[0]);
    let mut pump = connect(&broker, "pump");
    assert_eq!(pump.expect_publish().payload, b"republished");
    assert_eq!(broker.ctl(&["dead-letters", "republish", id(&again[0])]).0, Some(0));
    assert_eq!(pump.expect_publish().payload, b"stays");
    pump.settle();
}

#[test]
fn the_oldest_letters_go_beyond_the_bound_and_are_counted() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.dead_letters=3"]);
    park(&broker, "pump", &["1", "2", "3", "4", "5"]);
    assert_eq!(topics(&letters(&broker, &[])), ["pumps/5", "pumps/4", "pumps/3"]);
    let (_, metrics) = broker.ask("GET", "/metrics", &broker.viewer);
    for line in ["homing_dead_letters_stored 3\n", "homing_dead_letters_dropped_total 2\n"] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn a_delayed_message_that_an_operator_deletes_is_never_published() {
    let mut broker = Administered::start_with(&STORED);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    for topic in ["deleted", "stays"] {
        publisher.deliver(&Message::new(format!("$delayed/30/lamps/{topic}"), "on").qos(1));
    }
    let listed = |broker: &Administered| -> Vec<Value> {
        let (_, body) = status_of(broker, "GET", "/api/v1/delayed", &broker.viewer);
        body["delayed"].as_array().expect("rows").clone()
    };
    let rows = listed(&broker);
    let deleted = rows.iter().find(|row| row["message"]["topic"] == "lamps/deleted").expect("it waits");
    let path = format!("/api/v1/delayed/{}", id(deleted));
    assert_eq!(status_of(&broker, "DELETE", &path, &broker.viewer).0, 403);
    assert_eq!(broker.ctl(&["delayed", "--delete", id(deleted)]).0, Some(0));
    assert_eq!(status_of(&broker, "DELETE", &path, &broker.operator).0, 404);
    broker.kill_and_start(&STORED);
    let topics: Vec<Value> = listed(&broker).iter().map(|row| row["message"]["topic"].clone()).collect();
    assert_eq!(topics, ["lamps/stays"]);
    assert!(broker.ctl(&["delayed"]).1.contains("lamps/stays"));
}

#[test]
fn where_names_the_dead_letter_of_a_receiver_also_after_a_restart() {
    let mut broker = Administered::start_with(&STORED);
    park(&broker, "pump", &["1", "2"]);
    broker.kill_and_start(&STORED);
    let letter = letters(&broker, &["--topic", "pumps/1"]).remove(0);
    let (_, text) = broker.ctl(&["where", "--topic", "pumps/1"]);
    let verdict = format!("It is a dead letter: {} on pumps/1: parked", id(&letter));
    assert!(text.contains("pump (pumps/#, QoS 1)") && text.contains(&verdict), "{text}");
    assert!(text.contains("sent 0x") && !text.contains("nothing waits"), "{text}");
    let (_, text) = broker.ctl(&["where", "--receiver", "pump"]);
    assert!(text.starts_with("pump  2 are dead letters, the newest"), "{text}");
    let (_, found) = status_of(&broker, "GET", "/api/v1/messages/where?topic=pumps%2F1", &broker.viewer);
    assert_eq!(found["dead_letters"], serde_json::json!([letter]));
    for (wanted, count) in [("topic=pumps%2F1&receiver=fan", 0), ("topic=pumps%2F%23", 2)] {
        let path = format!("/api/v1/messages/where?{wanted}");
        let (_, found) = status_of(&broker, "GET", &path, &broker.viewer);
        assert_eq!(found["dead_letters"].as_array().map(Vec::len), Some(count), "{wanted}");
    }
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/where?topic=pumps%2F1", &cookie);
    assert!(page.contains(&format!("href=\"/dead-letters/{}\"", id(&letter))), "{page}");
}
