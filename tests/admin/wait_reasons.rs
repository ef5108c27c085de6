//! `where` names the reason why a message waits, and its end. Each reason has its own situation.

use crate::api::{Administered, SMALL_STORE, json_of};
use crate::messages::STORED;
use crate::support::client::subscribe_packet;
use crate::support::packet::Kind;
use crate::support::property::Property;
use crate::support::{Connect, Message, PATIENCE, RawClient, Version, now, until};
use homing::shard::shard_of;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};

impl Administered {
    /// Asks where messages are, such as `topic=pumps/7`.
    fn find(&self, wanted: &str) -> Value {
        let (status, answer) = self.ask("GET", &format!("/api/v1/messages/where?{wanted}"), &self.viewer);
        assert_eq!(status, 200, "{answer}");
        json_of(&answer)
    }

    /// Waits until a message waits for this reason. Returns the answer. Its verdicts have the
    /// reason, too.
    pub fn await_reason(&self, wanted: &str, reason: &str) -> Value {
        let found = until(reason, || {
            let found = self.find(wanted);
            reasons(&found).contains(&reason).then_some(found)
        });
        let verdicts = found["verdicts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        assert!(verdicts.into_iter().any(|verdict| verdict.contains(reason)), "{found:#}");
        found
    }
}

/// Returns the reasons of all messages, and that of the publisher.
fn reasons(found: &Value) -> Vec<&str> {
    let waits = ["messages", "in_store", "delayed"].into_iter();
    let waits = waits.flat_map(|part| found[part].as_array().into_iter().flatten());
    let waits = waits.map(|row| &row["wait"]["reason"]);
    waits.chain([&found["publisher"]["reason"]]).filter_map(Value::as_str).collect()
}

/// A client that takes one message at a time.
fn one_at_a_time() -> Connect {
    Connect::persistent(Version::V5, "pump").clean(false).with(Property::ReceiveMaximum(1))
}

/// Connects a client with a session that stays, subscribed to `pumps/#`.
fn subscriber(broker: &Administered, connect: &Connect) -> RawClient {
    let mut client = RawClient::connect(broker.mqtt, connect);
    client.subscribe(&[("pumps/#", 2)]);
    client
}

#[test]
fn a_full_window_holds_up_the_first_message_of_the_queue_and_the_others_are_behind_it() {
    let broker = Administered::start();
    let mut pump = subscriber(&broker, &one_at_a_time());
    broker.publish("pumps/7", &["1", "2", "3"], 1);
    pump.expect_publish();
    let found = broker.await_reason("receiver=pump", "window_full");
    assert_eq!(reasons(&found), ["unacknowledged", "window_full", "behind"]);
    assert_eq!(found["messages"][1]["wait"]["oldest_packet_id"], 1);
    assert_eq!(found["messages"][2]["wait"]["ahead"], 1);
    let verdicts = found["verdicts"].to_string();
    assert!(verdicts.contains("behind: Until 1 messages before it in the queue are sent"), "{verdicts}");
}

#[test]
fn a_message_whose_pubrec_came_waits_for_pubcomp() {
    let broker = Administered::start();
    let mut pump = subscriber(&broker, &Connect::persistent(Version::V311, "pump"));
    broker.publish("pumps/7", &["1"], 2);
    let publish = pump.expect_publish();
    pump.ack(Kind::Pubrec, publish.id);
    pump.expect_ack(Kind::Pubrel, publish.id);
    let found = broker.await_reason("receiver=pump", "awaiting_pubcomp");
    assert_eq!(found["messages"][0]["packet_id"], publish.id);
}

#[test]
fn a_message_without_room_in_the_queue_is_held() {
    let settings = ["--ephemeral", "--set", "limits.queue_messages=1", "--set", "limits.queue_policy=hold"];
    let broker = Administered::start_with(&settings);
    subscriber(&broker, &Connect::persistent(Version::V311, "pump")).disconnect();
    broker.publish("pumps/7", &["1"], 1);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    publisher.publish(&Message::new("pumps/7", "2").qos(1));
    let found = broker.await_reason("receiver=pump", "held");
    assert!(found["messages"][1]["wait"]["refused_in"].is_number(), "{found:#}");
}

#[test]
fn a_client_that_does_not_read_blocks_its_socket() {
    let settings = ["--ephemeral", "--set", "limits.in_flight=100", "--set", "limits.queue_bytes=64MiB"];
    let broker = Administered::start_with(&settings);
    let _pump = subscriber(&broker, &Connect::persistent(Version::V5, "pump"));
    // More than the kernel takes for one connection.
    let payload = "x".repeat(200_000);
    broker.publish("pumps/7", &[payload.as_str(); 100], 1);
    let found = broker.await_reason("receiver=pump", "socket_blocked");
    let blocked = found["messages"].as_array().into_iter().flatten();
    let closes =
        blocked.filter(|row| row["wait"]["reason"] == "socket_blocked").map(|row| &row["wait"]["closed_in"]);
    assert!(closes.clone().count() > 0 && closes.into_iter().all(Value::is_number), "{found:#}");
}

#[test]
fn after_a_return_older_messages_are_sent_again_first() {
    let broker = Administered::start();
    let mut pump = subscriber(&broker, &Connect::persistent(Version::V5, "pump"));
    broker.publish("pumps/7", &["1", "2", "3"], 1);
    pump.expect_publishes(3);
    pump.vanish();
    let mut back = RawClient::connect(broker.mqtt, &one_at_a_time());
    assert!(back.expect_publish().dup);
    let found = broker.await_reason("receiver=pump", "older_first");
    assert_eq!(reasons(&found), ["unacknowledged", "older_first", "older_first"]);
}

#[test]
fn a_packet_behind_an_uncommitted_record_waits_for_the_commit() {
    let broker = Administered::start_with(&SMALL_STORE);
    let mut pump = subscriber(&broker, &Connect::persistent(Version::V5, "pump"));
    let other = broker.stop_commits();
    let id = pump.fresh_id();
    pump.send(&subscribe_packet(Version::V5, id, &[], &[("lamps/#", 1)]));
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    // SUBACK waits for its commit, and a message behind it waits, too.
    until("a message behind SUBACK", || {
        publisher.publish(&Message::new("pumps/7", "on").qos(1));
        reasons(&broker.find("receiver=pump")).contains(&"committing").then_some(())
    });
    broker.await_reason("receiver=pump", "committing");
    other.execute_batch("ROLLBACK").expect("it held the lock");
    pump.wait_for(Kind::Suback);
    pump.expect_publish();
}

#[test]
fn a_message_in_the_store_alone_is_read_back_once_there_is_room() {
    let broker = Administered::start_with(&STORED);
    subscriber(&broker, &one_at_a_time()).vanish();
    broker.await_away("pump");
    // All but the first 64 messages of a client that is away are in the store alone.
    broker.publish("pumps/7", &["x"; 70], 1);
    broker.publish("pumps/8", &["late"], 1);
    let found = broker.await_reason("topic=pumps/8", "receiver_away");
    assert_eq!(found["in_store"][0]["messages"], 7);
    let mut back = RawClient::connect(broker.mqtt, &one_at_a_time());
    back.expect_publish();
    let found = broker.await_reason("topic=pumps/8", "reading_back");
    assert_eq!(found["in_store"][0]["receiver"], "pump");
}

#[test]
fn a_publisher_is_not_read_while_another_thread_has_too_much_to_do() {
    let broker = Administered::start();
    // The threads of `start`.
    let thread = |client_id: &str| shard_of(client_id, 3);
    let elsewhere = (0..).map(|n| format!("lamp-{n}")).filter(|id| thread(id) != thread("app"));
    // Each message costs its publisher's thread little, and the other threads much.
    let _lamps: Vec<RawClient> = elsewhere
        .take(60)
        .map(|id| {
            let mut lamp = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, &id));
            lamp.subscribe(&[("f", 0)]);
            lamp
        })
        .collect();
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    let packets = Message::new("f", "").encode(Version::V5, 0).repeat(1_000);
    let is_found = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = now();
            while !is_found.load(Ordering::Relaxed) && now() - started < 2 * PATIENCE {
                publisher.send(&packets);
            }
        });
        let found = broker.await_reason("publisher=app", "peer_pending");
        is_found.store(true, Ordering::Relaxed);
        assert!(
            found["publisher"]["text"].as_str().is_some_and(|text| text.contains("threads")),
            "{found:#}"
        );
    });
}

#[test]
fn a_delayed_message_is_overdue_once_its_time_is_over() {
    // Deadlines are found at the end of their bucket, ten seconds wide here.
    let broker = Administered::start_with(&["--ephemeral", "--set", "expiry.tick=10s"]);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    let topics = ["$delayed/1/pumps/7", "$delayed/4/pumps/7"];
    for topic in topics {
        publisher.deliver(&Message::new(topic, "later").qos(1));
    }
    let found = broker.await_reason("topic=pumps/7", "delayed");
    assert!(found["delayed"][0]["wait"]["due_in"].is_number(), "{found:#}");
    broker.await_reason("topic=pumps/7", "overdue");
}
