//! Messages that are in the store alone: the pages of a long queue, and where they are.

use crate::api::Administered;
use crate::messages::STORED;
use crate::support::{Connect, Message, RawClient, Version};
use serde_json::{Value, json};

/// Messages of the queue, of which the first 64 are in memory.
const MESSAGES: usize = 300;
const ROBOTS: usize = 7;

/// Starts a broker with a client `pump` that is away, and a long queue of it.
fn with_long_queue() -> Administered {
    let broker = Administered::start_with(&STORED);
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump"));
    pump.subscribe(&[("plant/#", 1)]);
    pump.disconnect();
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "app"));
    for n in 0..MESSAGES {
        publisher.deliver(&Message::new(format!("plant/robot-{}", n % ROBOTS), format!("at {n}")).qos(1));
    }
    broker
}

fn body(broker: &Administered, path: &str, token: &str) -> Value {
    let (status, answer) = broker.ask("GET", path, token);
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(answer.lines().last().expect("a body")).expect("JSON")
}

#[test]
fn each_page_of_a_long_queue_has_its_messages_with_their_payloads_on_request() {
    let mut broker = with_long_queue();
    for _ in 0..2 {
        let rows = broker.pages("/api/v1/clients/pump/queue?limit=50", "messages").concat();
        assert_eq!(rows.len(), MESSAGES);
        for (n, row) in rows.iter().enumerate() {
            let message = &row["message"];
            assert_eq!(message["topic"], format!("plant/robot-{}", n % ROBOTS), "{n}: {row}");
            assert_eq!(message["payload_bytes"], format!("at {n}").len());
            assert_eq!(message["qos"], 1);
            assert!(row["queued_for"].as_f64().is_some_and(|age| (0.0..60.0).contains(&age)), "{row}");
        }
        let mut with_payload = Vec::new();
        let mut path = "/api/v1/clients/pump/queue?payload=true".to_owned();
        while with_payload.len() < 100 {
            let page = body(&broker, &path, &broker.operator);
            with_payload.extend(page["messages"].as_array().expect("rows").clone());
            let next = page["next"].as_str().expect("more");
            path = format!("/api/v1/clients/pump/queue?payload=true&cursor={next}");
        }
        for (n, row) in with_payload.iter().enumerate() {
            assert_eq!(row["payload"], json!({ "text": format!("at {n}"), "complete": true }), "{row}");
        }
        let (_, text) = broker.ctl(&["queue", "pump", "--limit", "300"]);
        assert_eq!(text.matches("plant/robot-").count(), MESSAGES, "{text}");
        let (_, text) = broker.ctl(&["queue", "pump", "--limit", "80", "--payload"]);
        assert!(text.contains("at 79"), "{text}");
        // All are in the store alone after this.
        broker.kill_and_start(&STORED);
    }
}

#[test]
fn where_finds_messages_that_are_in_the_store_alone_and_counts_all() {
    let mut broker = with_long_queue();
    let of_robot = |robot: usize| (0..MESSAGES).filter(|n| n % ROBOTS == robot).count();
    for _ in 0..2 {
        for robot in [0, 3] {
            let topic = format!("plant/robot-{robot}");
            let found = body(&broker, &format!("/api/v1/messages/where?topic={topic}"), &broker.viewer);
            let rows = found["messages"].as_array().expect("rows");
            assert_eq!(rows.len(), of_robot(robot), "{found:#}");
            assert!(rows.iter().all(|row| row["message"]["topic"] == *topic && row["receiver"] == "pump"));
            assert_eq!((&found["not_looked_at"], &found["complete"]), (&json!(0), &json!(true)));
            let (_, text) = broker.ctl(&["where", "--topic", &topic]);
            assert!(text.contains(&format!("{} more wait", of_robot(robot) - 1)), "{text}");
        }
        let (_, text) = broker.ctl(&["where", "--topic", "plant/robot-9"]);
        assert!(text.contains("pump (plant/#, QoS 1)  nothing waits for it."), "{text}");
        let (_, text) = broker.ctl(&["where", "--topic", "plant/+"]);
        assert!(text.contains(&format!("{} more wait", MESSAGES - 1)), "{text}");
        let (_, text) = broker.ctl(&["where", "--receiver", "pump"]);
        assert!(text.contains("receiver_away"), "{text}");
        broker.kill_and_start(&STORED);
    }
    let rows = broker.pages("/api/v1/clients?prefix=pump", "clients").concat();
    assert!(rows[0]["oldest_queued_age"].as_f64().is_some_and(|age| age < 60.0), "{}", rows[0]);
    // What was queued before the client unsubscribed is found, too.
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump").clean(false));
    pump.expect_publish();
    pump.unsubscribe(&["plant/#"]);
    pump.vanish();
    broker.await_away("pump");
    let (_, text) = broker.ctl(&["where", "--topic", "plant/robot-3"]);
    assert!(text.contains(&format!("{} more wait", of_robot(3) - 1)), "{text}");
}

#[test]
fn a_message_that_was_sent_before_a_restart_is_older_than_the_broker_knows() {
    let mut broker = Administered::start_with(&STORED);
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump"));
    pump.subscribe(&[("plant/#", 1)]);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "app"));
    publisher.deliver(&Message::new("plant/1", "x").qos(1));
    pump.expect_publish();
    let oldest = |broker: &Administered| {
        let client = body(broker, "/api/v1/clients/pump", &broker.viewer);
        let (oldest, first) = (&client["oldest_unacknowledged"], &client["in_flight_messages"][0]);
        assert_eq!(oldest["sent_before_start"], first["sent_before_start"], "{client:#}");
        oldest["sent_before_start"].as_bool()
    };
    assert_eq!(oldest(&broker), Some(false));
    let (_, text) = broker.ctl(&["where", "--topic", "plant/1"]);
    assert!(text.contains("sent once") && !text.contains("over "), "{text}");
    broker.kill_and_start(&STORED);
    assert_eq!(oldest(&broker), Some(true));
    let mut back = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump").clean(false));
    assert!(back.expect_publish().dup);
    assert_eq!(oldest(&broker), Some(true));
    let (_, text) = broker.ctl(&["where", "--topic", "plant/1"]);
    assert!(text.contains("sent 2 times, first over "), "{text}");
    for (command, part) in [
        (&["client", "pump"][..], "packet 1, unacknowledged for over "),
        (&["inflight", "pump"], "over "),
        (&["clients"], "over "),
    ] {
        let (_, text) = broker.ctl(command);
        assert!(text.contains(part), "{command:?}: {text}");
    }
}

#[test]
fn a_store_that_does_not_answer_is_named_and_what_is_in_it_is_counted() {
    let broker = with_long_queue();
    let (database, away) = (broker.database(), broker.database().with_extension("away"));
    std::fs::rename(&database, &away).expect("it is there");
    let in_store = MESSAGES - 64;
    let (_, text) = broker.ctl(&["where", "--topic", "plant/robot-3"]);
    for part in [
        "8 more wait.",
        &format!("{in_store} more are only in the store, and were not looked at."),
        "the store did not answer: ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let found = body(&broker, "/api/v1/messages/where?topic=plant/robot-3", &broker.viewer);
    assert_eq!((&found["not_looked_at"], &found["complete"]), (&json!(in_store), &json!(false)));
    let (_, text) = broker.ctl(&["queue", "pump", "--limit", "256"]);
    assert!(text.contains("(in the store)") && text.contains("the store did not answer: "), "{text}");
    let rows = broker.pages("/api/v1/clients/pump/queue?limit=256", "messages").concat();
    assert_eq!(
        (rows.len(), rows.iter().filter(|row| row["message"].is_null()).count()),
        (MESSAGES, in_store)
    );
    std::fs::rename(&away, &database).expect("it was moved");
    let found = body(&broker, "/api/v1/messages/where?topic=plant/robot-3", &broker.viewer);
    assert_eq!((&found["not_looked_at"], &found["complete"]), (&json!(0), &json!(true)));
}
