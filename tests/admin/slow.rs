//! Deliveries that took more than a second, by receiver and topic.

use crate::api::{Administered, json_of};
use crate::support::packet::Kind;
use crate::support::{Connect, Message, RawClient, Version, until};
use serde_json::{Value, json};

/// Connects the client `slow`, which acknowledges a message of `slow/1` after more than a second.
pub fn deliver_slowly(broker: &Administered) -> RawClient {
    let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "slow"));
    client.subscribe(&[("slow/#", 1)]);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "publisher"));
    publisher.deliver(&Message::new("slow/1", "1").qos(1));
    let publish = client.expect_publish();
    until("a message that waits for more than a second", || {
        let (_, answer) = broker.ask("GET", "/api/v1/clients/slow", &broker.viewer);
        let age = json_of(&answer)["oldest_unacknowledged"]["age"].as_f64();
        age.is_some_and(|age| age > 1.0).then_some(())
    });
    client.ack(Kind::Puback, publish.id);
    client.settle();
    client
}

fn slow(broker: &Administered, query: &str) -> Value {
    let (status, answer) = broker.ask("GET", &format!("/api/v1/deliveries/slow{query}"), &broker.viewer);
    assert_eq!(status, 200, "{answer}");
    json_of(&answer)["deliveries"].clone()
}

#[test]
fn a_slow_delivery_is_listed_with_its_client_and_topic_and_a_quick_one_is_not() {
    let broker = Administered::start();
    let mut client = deliver_slowly(&broker);
    broker.publish("slow/2", &["quick"], 1);
    let quick = client.expect_publish();
    client.ack(Kind::Puback, quick.id);
    client.settle();
    let rows = slow(&broker, "");
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!((&rows[0]["receiver"], &rows[0]["topic"]), (&json!("slow"), &json!("slow/1")));
    assert!(rows[0]["longest"].as_f64() > Some(1.0) && rows[0]["deliveries"] == 1, "{rows}");
    for (query, found) in
        [("?topic=slow/1&receiver=slow", 1), ("?topic=slow/2", 0), ("?receiver=publisher", 0)]
    {
        assert_eq!(slow(&broker, query).as_array().map(Vec::len), Some(found), "{query}");
    }
    let (code, text) = broker.ctl(&["slow", "--receiver", "slow"]);
    assert!(code == Some(0) && text.contains("slow/1"), "{text}");
    let (_, text) = broker.ctl(&["slow", "--topic", "slow/2"]);
    assert!(text.contains("no delivery took more than a second"), "{text}");
    assert_eq!(broker.ask("GET", "/api/v1/deliveries/slow?limit=1001", &broker.viewer).0, 400);
}
