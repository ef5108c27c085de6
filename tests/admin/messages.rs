//! The messages of one client: why each waits, and what an operator does with it.

use crate::api::{Administered, json_of};
use crate::pages::{get, log_in};
use crate::support::packet::Kind;
use crate::support::property::Property;
use crate::support::{Connect, Message, RawClient, Version, Will, until};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

/// The settings of a broker that stores its sessions.
pub const STORED: [&str; 0] = [];

/// Returns the messages of a part of a client, `inflight` or `queue`.
pub fn messages(broker: &Administered, part: &str, client: &str) -> Vec<Value> {
    let (code, text) = broker.ctl(&["--json", part, client]);
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(&text).expect("a list")
}

fn word<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} in {row}"))
}

fn reasons(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| word(&row["wait"], "reason")).collect()
}

/// Connects a client with a session that stays, subscribed to `pumps/#`.
fn subscriber(broker: &Administered, version: Version, qos: u8) -> RawClient {
    let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(version, "pump"));
    client.subscribe(&[("pumps/#", qos)]);
    client
}

fn publish(broker: &Administered, payloads: &[&str], qos: u8) {
    broker.publish("pumps/7/set", payloads, qos);
}

#[test]
fn each_message_of_a_client_has_the_reason_why_it_waits() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.in_flight=2"]);
    let mut client = subscriber(&broker, Version::V311, 1);
    publish(&broker, &["1", "2", "3", "4"], 1);
    client.expect_publishes(2);
    let (in_flight, queue) = (messages(&broker, "inflight", "pump"), messages(&broker, "queue", "pump"));
    assert_eq!(reasons(&in_flight), ["unacknowledged", "unacknowledged"]);
    assert_eq!(reasons(&queue), ["window_full", "behind"]);
    assert_eq!(in_flight[0]["wait"]["then"], "resend");
    assert_eq!(queue[0]["wait"]["oldest_packet_id"], 1);
    client.vanish();
    broker.await_away("pump");
    for part in ["inflight", "queue"] {
        assert_eq!(reasons(&messages(&broker, part, "pump")), ["receiver_away", "receiver_away"]);
    }
}

#[test]
fn a_page_of_messages_begins_behind_the_one_before_it() {
    let broker = Administered::start();
    let client = subscriber(&broker, Version::V311, 1);
    client.disconnect();
    publish(&broker, &["1", "2", "3", "4", "5"], 1);
    let rows = broker.pages("/api/v1/clients/pump/queue?limit=2", "messages").concat();
    let mut seen: Vec<&str> = rows.iter().map(|row| word(row, "mid")).collect();
    assert_eq!(seen.len(), 5);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5);
    assert_eq!(broker.ask("GET", "/api/v1/clients/pump/queue?cursor=x", &broker.viewer).0, 400);
    assert_eq!(broker.ask("GET", "/api/v1/clients/pump/queue?limit=0", &broker.viewer).0, 400);
}

#[test]
fn a_3_1_1_client_gets_its_messages_again_on_its_connection() {
    let broker = Administered::start();
    let mut client = subscriber(&broker, Version::V311, 1);
    publish(&broker, &["1", "2"], 1);
    client.expect_publishes(2);
    let (code, text) = broker.ctl(&["redeliver", "pump", "--by", "resend"]);
    assert_eq!((code, text.trim()), (Some(0), "2 packets were sent again"));
    let again = client.expect_publishes(2);
    assert!(again.iter().all(|publish| publish.dup));
    assert_eq!([&*again[0].payload, &*again[1].payload], [b"1", b"2"]);
}

#[test]
fn a_5_0_client_is_sent_nothing_again_on_its_connection_and_auto_disconnects_it() {
    let broker = Administered::start();
    let mut client = subscriber(&broker, Version::V5, 1);
    publish(&broker, &["1"], 1);
    client.expect_publish();
    // 5.0 [MQTT-4.4.0-1]
    let (status, answer) = broker.ask("POST", "/api/v1/clients/pump/redeliver?by=resend", &broker.operator);
    assert!(status == 409 && answer.contains("resend-forbidden"), "{answer}");
    let (code, text) = broker.ctl(&["redeliver", "pump"]);
    assert!(code == Some(0) && text.contains("disconnected"), "{text}");
    client.expect_disconnected(0x98);
    let mut back = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "pump").clean(false));
    assert!(back.expect_publish().dup);
    assert_eq!(broker.ask("POST", "/api/v1/clients/pump/redeliver?by=x", &broker.operator).0, 400);
}

#[test]
fn a_session_that_ends_with_its_connection_is_not_disconnected_for_a_redelivery() {
    let broker = Administered::start();
    let mut client = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "pump"));
    client.subscribe(&[("pumps/#", 1)]);
    publish(&broker, &["1"], 1);
    client.expect_publish();
    let (status, answer) = broker.ask("POST", "/api/v1/clients/pump/redeliver", &broker.operator);
    assert!(status == 409 && answer.contains("session-ends"), "{answer}");
}

#[test]
fn a_skipped_message_is_gone_and_the_next_one_follows() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.in_flight=1"]);
    let mut client = subscriber(&broker, Version::V311, 1);
    publish(&broker, &["1", "2", "3"], 1);
    let first = client.expect_publish();
    let stuck = messages(&broker, "inflight", "pump");
    let (code, text) = broker.ctl(&["skip", "pump", word(&stuck[0], "mid"), "--note", "it is broken"]);
    assert_eq!(code, Some(0), "{text}");
    let second = client.expect_publish();
    assert_eq!(second.payload, b"2");
    // The late acknowledgement of the first message finishes nothing.
    client.ack(Kind::Puback, first.id);
    let queued = messages(&broker, "queue", "pump");
    let (code, text) = broker.ctl(&["skip", "pump", word(&queued[0], "mid")]);
    assert_eq!(code, Some(0), "{text}");
    client.ack(Kind::Puback, second.id);
    client.settle();
    assert!(messages(&broker, "inflight", "pump").is_empty());
    let (code, text) = broker.ctl(&["skip", "pump", word(&stuck[0], "mid")]);
    assert!(code == Some(2) && text.contains("no such message"), "{text}");
    let (_, audit) = broker.ctl(&["audit"]);
    assert!(audit.contains("it is broken") && audit.contains("no-such-message"), "{audit}");
}

#[test]
fn the_quota_of_a_skipped_message_of_a_5_0_client_is_free_with_its_next_connection() {
    let broker = Administered::start();
    let connect = Connect::persistent(Version::V5, "pump").clean(false).with(Property::ReceiveMaximum(1));
    let mut client = RawClient::connect(broker.mqtt, &connect);
    client.subscribe(&[("pumps/#", 1)]);
    publish(&broker, &["1", "2"], 1);
    client.expect_publish();
    let stuck = messages(&broker, "inflight", "pump");
    assert_eq!(broker.ctl(&["skip", "pump", word(&stuck[0], "mid")]).0, Some(0));
    // 5.0 [MQTT-3.3.4-9]: the client may still count the message.
    client.settle();
    assert_eq!(reasons(&messages(&broker, "queue", "pump")), ["window_full"]);
    client.vanish();
    let mut back = RawClient::connect(broker.mqtt, &connect);
    assert_eq!(back.expect_publish().payload, b"2");
}

#[test]
fn a_message_that_its_receiver_has_is_not_skipped() {
    let broker = Administered::start();
    let mut client = subscriber(&broker, Version::V311, 2);
    publish(&broker, &["1"], 2);
    let publish = client.expect_publish();
    let mid = word(&messages(&broker, "inflight", "pump")[0], "mid").to_owned();
    client.ack(Kind::Pubrec, publish.id);
    client.expect_ack(Kind::Pubrel, publish.id);
    let path = format!("/api/v1/clients/pump/messages/{mid}/skip");
    let (status, answer) = broker.ask("POST", &path, &broker.operator);
    assert!(status == 409 && answer.contains("already-received"), "{answer}");
    assert_eq!(reasons(&messages(&broker, "inflight", "pump")), ["awaiting_pubcomp"]);
    client.ack(Kind::Pubcomp, publish.id);
    client.settle();
    assert_eq!(broker.ask("POST", &path, &broker.operator).0, 404);
}

#[test]
fn a_parked_message_is_a_dead_letter_whatever_the_policy_says() {
    let broker = Administered::start();
    let mut undertaker = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "undertaker"));
    undertaker.subscribe(&[("$dead/#", 1)]);
    let mut client = subscriber(&broker, Version::V5, 1);
    publish(&broker, &["1"], 1);
    client.expect_publish();
    let mid = word(&messages(&broker, "inflight", "pump")[0], "mid").to_owned();
    let (code, text) = broker.ctl(&["park", "pump", &mid]);
    assert_eq!(code, Some(0), "{text}");
    let letter = undertaker.expect_publish();
    assert_eq!((&*letter.topic, &*letter.payload), ("$dead/pump/pumps/7/set", &b"1"[..]));
    assert!(
        letter.properties.contains(&Property::User("cause".to_owned(), "parked".to_owned())),
        "{letter:?}"
    );
}

#[test]
fn a_park_and_a_skip_that_were_answered_survive_kill_9() {
    let mut broker = Administered::start_with(&STORED);
    let keeper = Connect::persistent(Version::V5, "keeper").clean(false);
    let mut letters = RawClient::connect(broker.mqtt, &keeper);
    letters.subscribe(&[("$dead/#", 1)]);
    letters.vanish();
    let client = subscriber(&broker, Version::V311, 1);
    client.disconnect();
    publish(&broker, &["parked", "skipped", "stays"], 1);
    let queue = messages(&broker, "queue", "pump");
    assert_eq!(broker.ctl(&["park", "pump", word(&queue[0], "mid")]).0, Some(0));
    assert_eq!(broker.ctl(&["skip", "pump", word(&queue[1], "mid")]).0, Some(0));
    broker.kill_and_start(&STORED);
    // A stored message has the same name in the next process.
    let again = messages(&broker, "queue", "pump");
    let names: Vec<&str> = again.iter().map(|row| word(row, "mid")).collect();
    assert_eq!(names, [word(&queue[2], "mid")]);
    let mut letters = RawClient::connect(broker.mqtt, &keeper);
    assert_eq!(letters.expect_publish().payload, b"parked");
    let mut back = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump").clean(false));
    assert_eq!(back.expect_publish().payload, b"stays");
    back.settle();
    letters.settle();
}

fn returned(broker: &Administered, version: Version) -> RawClient {
    RawClient::connect(broker.mqtt, &Connect::persistent(version, "pump").clean(false))
}

/// Skips the one message of QoS 2 in flight. Returns the client and the Packet Identifier.
fn with_a_skipped_message(broker: &Administered, version: Version) -> (RawClient, u16) {
    let mut client = subscriber(broker, version, 2);
    publish(broker, &["1"], 2);
    let id = client.expect_publish().id;
    let stuck = messages(broker, "inflight", "pump");
    assert_eq!(broker.ctl(&["skip", "pump", word(&stuck[0], "mid")]).0, Some(0));
    assert!(messages(broker, "inflight", "pump").is_empty());
    (client, id)
}

// 3.1.1 and 5.0 [MQTT-4.4.0-1]
#[test]
fn the_pubrel_of_a_skipped_message_comes_again_until_pubcomp_over_a_restart_too() {
    for version in [Version::V311, Version::V5] {
        let mut broker = Administered::start_with(&STORED);
        let (mut client, id) = with_a_skipped_message(&broker, version);
        client.ack(Kind::Pubrec, id);
        assert_eq!(client.expect_ack(Kind::Pubrel, id).code, 0);
        assert_eq!(reasons(&messages(&broker, "inflight", "pump")), ["awaiting_pubcomp"]);
        client.vanish();
        let mut client = returned(&broker, version);
        client.expect_ack(Kind::Pubrel, id);
        client.vanish();
        broker.kill_and_start(&STORED);
        let mut client = returned(&broker, version);
        client.expect_ack(Kind::Pubrel, id);
        client.ack(Kind::Pubcomp, id);
        client.settle();
        assert!(messages(&broker, "inflight", "pump").is_empty());
        client.vanish();
        returned(&broker, version).settle();
        // Nothing is in flight, so the next process begins with the first identifier again.
        broker.kill_and_start(&STORED);
        let mut client = returned(&broker, version);
        publish(&broker, &["2"], 2);
        assert_eq!(client.expect_publish().id, id);
    }
}

#[test]
fn the_identifier_of_a_skipped_message_without_pubrec_is_given_to_no_other_message() {
    let mut broker = Administered::start_with(&STORED);
    let (client, id) = with_a_skipped_message(&broker, Version::V311);
    client.vanish();
    returned(&broker, Version::V311).settle();
    broker.kill_and_start(&STORED);
    let mut client = returned(&broker, Version::V311);
    publish(&broker, &["2"], 2);
    let next = client.expect_publish().id;
    assert_ne!(next, id);
    client.ack(Kind::Pubrec, next);
    client.expect_ack(Kind::Pubrel, next);
    client.ack(Kind::Pubcomp, next);
    // The client finishes the exchange late.
    client.ack(Kind::Pubrec, id);
    client.expect_ack(Kind::Pubrel, id);
    client.ack(Kind::Pubcomp, id);
    client.settle();
}

#[test]
fn a_client_whose_identifier_is_too_long_for_a_url_is_named_by_its_place() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.client_id=60 KiB"]);
    let id = "x".repeat(60_000);
    let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, &id));
    let (_, text) = broker.ctl(&["--json", "clients"]);
    let rows: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let path = format!("/api/v1/clients/-?ref={}", word(&rows[0], "ref"));
    let (status, answer) = broker.ask("GET", &path, &broker.viewer);
    assert!(status == 200 && answer.contains(&id), "{status}");
    let path = format!("/api/v1/clients/-/disconnect?ref={}", word(&rows[0], "ref"));
    assert_eq!(broker.ask("POST", &path, &broker.operator).0, 204);
    client.expect_disconnected(0x98);
    // A ref never stands for the next session of its slot.
    let path = format!("/api/v1/clients/-?ref={}", word(&rows[0], "ref"));
    assert_eq!(broker.ask("DELETE", &path, &broker.operator).0, 204);
    let _next = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, &id));
    assert_eq!(broker.ask("GET", &path, &broker.viewer).0, 404);
}

/// Returns what `homing ctl where` says.
fn verdicts(broker: &Administered, arguments: &[&str]) -> String {
    let (code, text) = broker.ctl(&[&["where"], arguments].concat());
    assert_eq!(code, Some(0), "{text}");
    text
}

#[test]
fn where_names_the_receiver_the_packet_and_what_ends_its_wait() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.in_flight=1"]);
    let mut client = subscriber(&broker, Version::V5, 1);
    publish(&broker, &["1", "2"], 1);
    client.expect_publish();
    let text = verdicts(&broker, &["--topic", "pumps/7/set"]);
    for part in
        ["pump (pumps/#, QoS 1)", "unacknowledged: packet 1, sent once", "the client's host has it", "1 more"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(verdicts(&broker, &["--topic", "pumps/8/set"]).contains("nothing waits for it"));
    assert!(verdicts(&broker, &["--topic", "lamps/8"]).contains("nobody is subscribed to the topic"));
    client.vanish();
    broker.await_away("pump");
    assert!(verdicts(&broker, &["--receiver", "pump"]).contains("receiver_away"));
    assert_eq!(broker.ask("GET", "/api/v1/messages/where", &broker.viewer).0, 400);
}

#[test]
fn where_finds_delayed_retained_dropped_and_stored_messages() {
    let broker = Administered::start_with(&STORED);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    publisher.deliver(&Message::new("$delayed/30/lamps/1", "later").qos(1));
    publisher.deliver(&Message::new("lamps/2", "kept").qos(1).retained());
    let text = verdicts(&broker, &["--topic", "lamps/1"]);
    assert!(text.contains("delayed: published in"), "{text}");
    let text = verdicts(&broker, &["--topic", "lamps/2"]);
    assert!(text.contains("the topic has a retained message"), "{text}");
    let client = subscriber(&broker, Version::V311, 1);
    client.disconnect();
    let payloads: Vec<String> = (0..70).map(|n| n.to_string()).collect();
    publish(&broker, &payloads.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    // All but the first 64 messages of a client that is away are in the store alone.
    let queue = messages(&broker, "queue", "pump");
    assert_eq!((queue.len(), queue.iter().filter(|row| row["message"].is_null()).count()), (70, 0));
    assert_eq!(broker.ctl(&["skip", "pump", word(&queue[69], "mid")]).0, Some(0));
    assert_eq!(broker.ctl(&["skip", "pump", word(&queue[0], "mid")]).0, Some(0));
    let text = verdicts(&broker, &["--topic", "pumps/7/set"]);
    assert!(text.contains("receiver_away") && text.contains("dropped") && text.contains("skipped"), "{text}");
    assert_eq!(messages(&broker, "queue", "pump").len(), 68);
}

/// Starts a broker with an ACL file in which `ann` may write `homes/ann/#` and `bob` read
/// `alarms/#`, without a login.
fn with_rules(directory: &TempDir) -> Administered {
    let file = directory.path().join("acl");
    let rules = "user ann\ntopic homes/ann/#\n\nuser bob\ntopic read alarms/#\ntopic deny alarms/keys\n";
    fs::write(&file, rules).expect("a file for the test");
    let acl = format!("acl.file={}", file.display());
    Administered::start_with(&["--ephemeral", "--set", &acl, "--set", "auth.anonymous=always"])
}

#[test]
fn a_message_a_filter_and_a_will_that_the_rules_deny_are_seen_everywhere() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let mut broker = with_rules(&directory);
    let connect = |name, user| Connect::persistent(Version::V311, name).user_name(user);
    let mut ann = RawClient::connect(broker.mqtt, &connect("ann1", "ann"));
    let mut bob = RawClient::connect(broker.mqtt, &connect("bob1", "bob"));
    ann.deliver(&Message::new("alarms/1", "on").qos(1));
    assert_eq!(bob.subscribe(&[("alarms/#", 1), ("homes/#", 1)]), [1, 0x80]);
    let will = Will::new("gone/ann", "gone");
    let mut late = RawClient::open(broker.mqtt, Version::V311);
    late.send(&connect("ann2", "ann").will(will).encode());
    late.expect_connack();
    let line = |broker: &mut Administered, code: &str| broker.lines_until(code).pop().expect("the line");
    let text = line(&mut broker, "client.publish_refused");
    for part in
        ["client_id=ann1", "user_name=ann", "topic=alarms/1", "cause=not_authorized", "more=0", "no line of "]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    let text = verdicts(&broker, &["--topic", "alarms/1"]);
    assert!(text.contains("bob1 (alarms/#, QoS 1)  nothing waits for it."), "{text}");
    assert!(
        text.contains("ann1 (user ann)  tried ") && text.contains("may not write alarms/1: no line of "),
        "{text}"
    );
    let text = verdicts(&broker, &["--topic", "alarms/keys"]);
    assert!(text.contains("bob1 (alarms/#, QoS 1)  may not read the topic: line 6 of "), "{text}");
    assert!(!text.contains("ann1"), "{text}");
    let text = verdicts(&broker, &["--publisher", "ann1"]);
    assert!(text.contains("may not write alarms/1") && !text.contains("bob1"), "{text}");
    let text = verdicts(&broker, &["--receiver", "bob1"]);
    assert!(text.contains("to subscribe to homes/#, and may read nothing of it: no line of "), "{text}");
    let (_, dropped) = broker.ask("GET", "/api/v1/messages/dropped", &broker.viewer);
    let mut kinds: Vec<String> = json_of(&dropped)["refused"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| format!("{} {} {}", word(row, "kind"), word(row, "client_id"), word(row, "topic")))
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["publish ann1 alarms/1", "subscription bob1 homes/#", "will ann2 gone/ann"]);
    let (_, client) = broker.ask("GET", "/api/v1/clients/ann1", &broker.viewer);
    assert_eq!(word(&json_of(&client)["refused"][0], "topic"), "alarms/1", "{client}");
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/clients/ann1", &cookie);
    assert!(page.contains("Refused requests") && page.contains("may not write alarms/1"), "{page}");
    // The shards report their counts once a second.
    until("the counts of the refusals", || {
        let (_, metrics) = broker.ask("GET", "/metrics", &broker.viewer);
        let sample = |family| format!("homing_{family}_refused_total{{cause=\"not_authorized\"}} 1\n");
        ["publishes", "wills", "subscriptions"].iter().all(|of| metrics.contains(&sample(of))).then_some(())
    });
}

#[test]
fn where_never_counts_the_drops_of_another_topic() {
    let broker = Administered::start_with(&["--set", "store.queue_messages=2"]);
    subscriber(&broker, Version::V311, 1).disconnect();
    broker.await_away("pump");
    broker.publish("pumps/1", &["1", "2", "3", "4"], 1);
    broker.publish("pumps/other", &["1", "2", "3"], 1);
    assert!(
        verdicts(&broker, &["--topic", "pumps/1"])
            .contains("2 were dropped, the last on pumps/1: queue_refused")
    );
    let text = verdicts(&broker, &["--topic", "pumps/never"]);
    assert!(!text.contains("dropped") && !text.contains("queue_refused"), "{text}");
    let (_, dropped) = broker.ask("GET", "/api/v1/messages/dropped?topic=pumps/1", &broker.viewer);
    let dropped = json_of(&dropped);
    let topics: Vec<&str> =
        dropped["dropped"].as_array().expect("a list").iter().map(|row| word(row, "topic")).collect();
    assert_eq!((topics, dropped["without_topic"].as_array().map(Vec::len)), (vec!["pumps/1"; 2], Some(0)));
}

#[test]
fn where_says_that_a_held_message_defers_the_acknowledgement_of_its_publisher() {
    let arguments = ["--ephemeral", "--set", "limits.queue_messages=1", "--set", "limits.queue_policy=hold"];
    let broker = Administered::start_with(&arguments);
    let client = subscriber(&broker, Version::V311, 1);
    client.disconnect();
    publish(&broker, &["1"], 1);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    publisher.publish(&Message::new("pumps/7/set", "2").qos(1));
    until("a held message", || {
        (reasons(&messages(&broker, "queue", "pump")) == ["receiver_away", "held"]).then_some(())
    });
    let text = verdicts(&broker, &["--topic", "pumps/7/set", "--publisher", "app"]);
    assert!(text.contains("ack_deferred: 1 of its messages"), "{text}");
}

#[test]
fn a_message_is_not_parked_if_nobody_would_get_its_dead_letter() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.dead_letters=off"]);
    let mut client = subscriber(&broker, Version::V5, 1);
    publish(&broker, &["1"], 1);
    client.expect_publish();
    let rows = messages(&broker, "inflight", "pump");
    let (code, text) = broker.ctl(&["park", "pump", word(&rows[0], "mid")]);
    assert!(code == Some(1) && text.contains("subscribe to $dead/# first"), "{text}");
    assert_eq!(messages(&broker, "inflight", "pump").len(), 1);
}
