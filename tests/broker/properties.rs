//! Properties that travel with a message, and those that may not come from a client.

use crate::support::launch::{default_broker, on_one_and_three_threads};
use crate::support::{Message, Property, V5, V311};

fn all_that_travel() -> Vec<Property> {
    vec![
        Property::PayloadFormat(1),
        Property::ContentType("text/plain; caf\u{E9}".to_owned()),
        Property::ResponseTopic("reply/to".to_owned()),
        Property::CorrelationData(vec![0, 0xFF, 0, 1]),
        Property::user("k", "1"),
        Property::user("a", "2"),
        Property::user("k", "1"),
        Property::user("", ""),
    ]
}

fn sorted(properties: &[Property]) -> Vec<Property> {
    let mut sorted = properties.to_vec();
    // User properties keep their order among themselves: the sort is stable.
    sorted.sort_by_key(Property::id);
    sorted
}

// 5.0 [MQTT-3.3.2-4], [MQTT-3.3.2-15], [MQTT-3.3.2-16], [MQTT-3.3.2-17], [MQTT-3.3.2-18],
// [MQTT-3.3.2-20]
#[test]
fn v5_properties_travel_unchanged_and_in_order() {
    on_one_and_three_threads(|broker| {
        let mut publisher = broker.client(V5, "p");
        let mut subscribers = ["s0", "s1", "s2", "s3"].map(|id| broker.client(V5, id));
        for subscriber in &mut subscribers {
            subscriber.subscribe(&[("t", 2)]);
        }
        for qos in [0, 1, 2] {
            let message = Message { properties: all_that_travel(), ..Message::new("t", "text").qos(qos) };
            publisher.deliver(&message);
            for subscriber in &mut subscribers {
                let publish = subscriber.expect_publish();
                assert_eq!(sorted(&publish.properties), sorted(&message.properties));
                subscriber.complete(&publish);
            }
        }
    });
}

#[test]
fn v5_properties_are_kept_with_queued_and_retained_messages() {
    on_one_and_three_threads(|broker| {
        let mut sleeper = broker.persistent(V5, "sleeper");
        sleeper.subscribe(&[("t", 1)]);
        sleeper.disconnect();
        let mut publisher = broker.client(V5, "p");
        let message =
            Message { properties: all_that_travel(), ..Message::new("t", "text").qos(1).retained() };
        publisher.deliver(&message);
        let mut sleeper = broker.persistent(V5, "sleeper");
        assert_eq!(sorted(&sleeper.expect_publish().properties), sorted(&message.properties));
        let mut late = broker.client(V5, "late");
        late.subscribe(&[("t", 1)]);
        assert_eq!(sorted(&late.expect_publish().properties), sorted(&message.properties));
    });
}

#[test]
fn properties_are_left_out_for_older_versions() {
    let broker = default_broker();
    let mut older = broker.client(V311, "s");
    older.subscribe(&[("t", 0)]);
    let mut publisher = broker.client(V5, "p");
    publisher.deliver(&Message { properties: all_that_travel(), ..Message::new("t", "text").qos(1) });
    assert_eq!(older.expect_publish().text(), "text");
}
