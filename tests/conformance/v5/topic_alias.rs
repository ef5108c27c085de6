//! Topic Aliases in both directions: 3.1.2.11.5, 3.2.2.3.8 and 3.3.2.3.4.

use super::cases;
use super::stage::{Stage, assert_reason, find};
use crate::support::{Message, Property, Publish, RawClient, V5};
use std::collections::HashMap;

cases! {
    aliases_stay_within_what_the_client_announced: ["MQTT-3.1.2-26"],
    no_alias_beyond_the_clients_maximum: ["MQTT-3.3.2-11"],
    no_aliases_for_a_client_that_announced_none: ["MQTT-3.1.2-27"],
    every_alias_up_to_the_announced_maximum_is_taken: ["MQTT-3.3.2-12"],
    alias_above_the_brokers_maximum_is_refused: ["MQTT-3.2.2-17"],
    alias_above_the_maximum_of_connack_is_refused: ["MQTT-3.3.2-9"],
    any_alias_is_refused_where_none_was_announced: ["MQTT-3.2.2-18"],
    alias_0_is_refused: ["MQTT-3.3.2-8"],
    aliases_end_with_their_connection: ["MQTT-3.3.2-7"],
    aliases_of_the_broker_end_with_their_connection: ["MQTT-3.3.2-7"],
}

const INVALID: &[u8] = &[0x94];

/// Returns the Topic Alias Maximum of the broker.
fn maximum(client: &RawClient) -> u16 {
    let value = |p: &Property| if let Property::TopicAliasMaximum(n) = p { Some(*n) } else { None };
    find(&client.connack().properties, value).unwrap_or(0)
}

fn alias(publish: &Publish) -> Option<u16> {
    find(&publish.properties, |p| if let Property::TopicAlias(alias) = p { Some(*alias) } else { None })
}

/// Deliveries on many topics to a client that announced this maximum: the highest alias that was
/// used.
fn highest_alias(stage: &Stage, announced: Option<u16>) -> u16 {
    let connect = stage.passing("s");
    let mut subscriber = stage.connect(&match announced {
        Some(n) => connect.with(Property::TopicAliasMaximum(n)),
        None => connect,
    });
    subscriber.subscribe(&[(&stage.topic("#"), 1)]);
    let mut publisher = stage.client("p");
    let (mut known, mut highest) = (HashMap::new(), 0);
    for n in 0..40 {
        let topic = format!("t/{}", n % 8);
        publisher.deliver(&stage.message(&topic, "x").qos(n % 2));
        let publish = subscriber.expect_publish();
        subscriber.complete(&publish);
        let meant = match alias(&publish) {
            None => publish.topic,
            Some(alias) => {
                highest = highest.max(alias);
                if !publish.topic.is_empty() {
                    known.insert(alias, publish.topic);
                }
                known.get(&alias).expect("an alias that was set before").clone()
            }
        };
        assert_eq!(meant, stage.topic(&topic));
    }
    subscriber.disconnect();
    highest
}

fn aliases_stay_within_what_the_client_announced(stage: &Stage) {
    for announced in [1, 3, 65_535] {
        assert!(highest_alias(stage, Some(announced)) <= announced);
    }
}

fn no_alias_beyond_the_clients_maximum(stage: &Stage) {
    // Also after a reconnect that announces less.
    for announced in [5, 2, 1, 0] {
        assert!(highest_alias(stage, Some(announced)) <= announced);
    }
}

fn no_aliases_for_a_client_that_announced_none(stage: &Stage) {
    assert_eq!(highest_alias(stage, None), 0);
    assert_eq!(highest_alias(stage, Some(0)), 0);
}

/// Sets an alias and uses it, watched by a subscriber.
fn assert_alias_works(stage: &Stage, client: &mut RawClient, subscriber: &mut RawClient, alias: u16) {
    let topic = format!("t/{alias}");
    client.deliver(&stage.message(&topic, "sets").qos(1).with(Property::TopicAlias(alias)));
    client.deliver(&Message::new("", "uses").qos(1).with(Property::TopicAlias(alias)));
    for text in ["sets", "uses"] {
        let publish = subscriber.expect_publish();
        assert_eq!((publish.text(), &publish.topic), (text, &stage.topic(&topic)));
    }
}

fn every_alias_up_to_the_announced_maximum_is_taken(stage: &Stage) {
    let mut subscriber = stage.subscriber("s", "#", 0);
    let mut client = stage.client("c");
    let maximum = maximum(&client);
    assert!(maximum > 0, "this broker offers aliases");
    for alias in 1..=maximum {
        assert_alias_works(stage, &mut client, &mut subscriber, alias);
    }
    // Once more, in the other direction: none has pushed out another. And an alias may be set anew.
    for alias in (1..=maximum).rev() {
        client.deliver(&Message::new("", "still").qos(1).with(Property::TopicAlias(alias)));
        assert_eq!(subscriber.expect_publish().topic, stage.topic(&format!("t/{alias}")));
    }
    client.deliver(&stage.message("new", "").qos(1).with(Property::TopicAlias(1)));
    client.deliver(&Message::new("", "").qos(1).with(Property::TopicAlias(1)));
    assert!(subscriber.expect_publishes(2).iter().all(|publish| publish.topic == stage.topic("new")));
}

/// The first alias beyond, and the last there is.
fn assert_refused_beyond_the_maximum(stage: &Stage) {
    let mut subscriber = stage.subscriber("s", "#", 0);
    let mut client = stage.client("c");
    let maximum = maximum(&client);
    assert_alias_works(stage, &mut client, &mut subscriber, maximum);
    for alias in [maximum + 1, 65_535] {
        let message = stage.message("t", "x").with(Property::TopicAlias(alias));
        stage.assert_disconnected(&message.encode(V5, 0), INVALID, &format!("alias {alias} of {maximum}"));
    }
    subscriber.settle();
}

fn alias_above_the_brokers_maximum_is_refused(stage: &Stage) {
    assert_refused_beyond_the_maximum(stage);
}

fn alias_above_the_maximum_of_connack_is_refused(stage: &Stage) {
    let broker = stage.configured(|config| config.limits.topic_alias_maximum = 3);
    let stage = &Stage::of(&broker);
    assert_eq!(maximum(&stage.client("control")), 3);
    assert_refused_beyond_the_maximum(stage);
}

fn any_alias_is_refused_where_none_was_announced(stage: &Stage) {
    let broker = stage.configured(|config| config.limits.topic_alias_maximum = 0);
    let stage = &Stage::of(&broker);
    assert_eq!(maximum(&stage.client("control")), 0);
    for alias in [1, 65_535] {
        let message = stage.message("t", "x").with(Property::TopicAlias(alias));
        stage.assert_disconnected(&message.encode(V5, 0), INVALID, "no aliases");
    }
}

fn alias_0_is_refused(stage: &Stage) {
    let mut subscriber = stage.subscriber("s", "#", 0);
    assert_alias_works(stage, &mut stage.client("c"), &mut subscriber, 1);
    let message = stage.message("t", "x").with(Property::TopicAlias(0));
    stage.assert_disconnected(&message.encode(V5, 0), INVALID, "alias 0");
    subscriber.settle();
}

fn aliases_end_with_their_connection(stage: &Stage) {
    let mut subscriber = stage.subscriber("s", "#", 0);
    let mut client = stage.connect(&stage.lasting("c"));
    assert_alias_works(stage, &mut client, &mut subscriber, 1);
    client.disconnect();
    let mut client = stage.connect(&stage.lasting("c"));
    assert!(client.session_present());
    client.send(&Message::new("", "").with(Property::TopicAlias(1)).encode(V5, 0));
    assert_reason(&mut client, &[0x82, 0x94], "an alias of the connection before");
    subscriber.settle();
}

/// A message that was sent by an alias is sent again by its name, or by an alias of the new
/// connection.
fn aliases_of_the_broker_end_with_their_connection(stage: &Stage) {
    let connect = stage.lasting("s").with(Property::TopicAliasMaximum(5));
    let mut subscriber = stage.connect(&connect);
    subscriber.subscribe(&[(&stage.topic("#"), 1)]);
    for topic in ["a", "b", "a", "b"] {
        stage.deliver(&stage.message(topic, topic).qos(1));
    }
    subscriber.expect_publishes(4);
    subscriber.vanish();
    let mut subscriber = stage.connect(&connect);
    let mut known = HashMap::new();
    for publish in subscriber.expect_publishes(4) {
        assert!(publish.dup);
        let topic = match alias(&publish) {
            None => publish.topic.clone(),
            Some(alias) if publish.topic.is_empty() => known.get(&alias).cloned().expect("set anew"),
            Some(alias) => known.entry(alias).insert_entry(publish.topic.clone()).get().clone(),
        };
        assert_eq!(topic, stage.topic(publish.text()));
    }
}
