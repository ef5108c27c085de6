//! Session state: chapters 3.1.2 (Clean Session), 3.1.3 (the client id as its key), 3.2.2 and 4.1.

use super::cases;
use crate::harness::Target;
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Kind, Message, Packet, V31, V311, Version};
use std::time::Duration;

cases! {
    v311 {
        retained_messages_outlive_the_session_that_published_them: ["MQTT-3.1.2-7"],
        client_id_alone_finds_the_session: ["MQTT-3.1.3-2"],
        clean_session_is_applied_before_what_follows_connect: ["MQTT-3.1.4-3"],
        session_state_is_kept_over_connections: ["MQTT-4.1.0-1"],
        session_lives_as_long_as_its_connection: ["MQTT-4.1.0-2"],
    }
    v311_and_v31 {
        session_is_begun_kept_and_taken_up: ["MQTT-3.1.2-4", "MQTT-3.2.2-2", "MQTT-3.2.2-3"],
        messages_wait_for_an_absent_client: ["MQTT-3.1.2-5"],
        clean_session_erases_what_was_and_leaves_nothing: ["MQTT-3.1.2-6", "MQTT-3.2.2-1"],
    }
}

fn session_is_begun_kept_and_taken_up(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    // 3.1 has sessions and no Session Present.
    let has_flag = version != V31;
    let mut client = broker.persistent(version, "c");
    assert!(!client.session_present());
    client.subscribe(&[(&topic, 1)]);
    client.disconnect();
    for round in 0..4 {
        let mut client = broker.persistent(version, "c");
        assert_eq!(client.session_present(), has_flag);
        client.deliver(&Message::new(&topic, "x").qos(1));
        let publish = client.expect_publish();
        client.complete(&publish);
        client.settle();
        if round % 2 == 0 { client.vanish() } else { client.disconnect() }
    }
}

fn messages_wait_for_an_absent_client(broker: &Target, version: Version) {
    let (topic, granted_1) = (broker.topic("t"), broker.topic("u"));
    let mut client = broker.persistent(version, "c");
    client.subscribe(&[(&topic, 2), (&granted_1, 1)]);
    client.disconnect();
    let mut publisher = broker.client(version, "p");
    for n in 0..10_u8 {
        publisher.deliver(&Message::new(&topic, [n]).qos(1 + n % 2));
        publisher.deliver(&Message::new(&granted_1, [n]).qos(2));
    }
    let mut client = broker.persistent(version, "c");
    let waited = client.expect_publishes(20);
    for (topic, qos) in [(&topic, [1, 2]), (&granted_1, [1, 1])] {
        let of_topic = waited.iter().filter(|publish| &publish.topic == topic);
        let seen: Vec<_> = of_topic.map(|publish| (publish.payload[0], publish.qos, publish.dup)).collect();
        let sent: Vec<_> = (0..10).map(|n| (n, qos[usize::from(n % 2)], false)).collect();
        assert_eq!(seen, sent);
    }
    client.settle();
}

fn clean_session_erases_what_was_and_leaves_nothing(broker: &Target, version: Version) {
    let topic = broker.topic("t");
    let mut publisher = broker.client(version, "p");
    let mut client = broker.persistent(version, "c");
    client.subscribe(&[(&topic, 2)]);
    // Something in flight, something half done, something waiting.
    publisher.deliver(&Message::new(&topic, "unacknowledged").qos(1));
    publisher.deliver(&Message::new(&topic, "received").qos(2));
    let received = &client.expect_publishes(2)[1];
    client.ack(Kind::Pubrec, received.id);
    client.expect_ack(Kind::Pubrel, received.id);
    client.vanish();
    publisher.deliver(&Message::new(&topic, "waiting").qos(2));

    let mut client = broker.client(version, "c");
    assert!(!client.session_present());
    publisher.deliver(&Message::new(&topic, "no subscription").qos(1));
    client.settle();
    client.subscribe(&[(&topic, 1)]);
    publisher.deliver(&Message::new(&topic, "served, and left unacknowledged").qos(1));
    client.expect_publish();
    client.vanish();
    publisher.deliver(&Message::new(&topic, "nobody waits").qos(1));

    let mut client = broker.persistent(version, "c");
    assert!(!client.session_present());
    publisher.deliver(&Message::new(&topic, "no subscription").qos(1));
    client.settle();
}

fn retained_messages_outlive_the_session_that_published_them(broker: &Target) {
    let topic = broker.topic("t");
    let mut publisher = broker.client(V311, "p");
    publisher.deliver(&Message::new(&topic, "kept").qos(1).retained());
    publisher.disconnect();
    // Not even the same client's next, clean session takes it away.
    let mut client = broker.client(V311, "p");
    assert!(!client.session_present());
    client.subscribe(&[(&topic, 1)]);
    assert_eq!(client.expect_publish().text(), "kept");
}

fn client_id_alone_finds_the_session(broker: &Target) {
    let id = broker.id("client");
    broker.connect(&Connect::persistent(V311, &id)).disconnect();
    let others = [broker.id("clien"), broker.id("clients"), broker.id("Client"), broker.id("client ")];
    for other in &others {
        assert!(!broker.connect(&Connect::persistent(V311, other)).session_present(), "{other}");
    }
    // Neither credentials nor another keep alive make it another's.
    let found = Connect::persistent(V311, &id).keep_alive(7).user_name("user").password(b"secret");
    assert!(broker.connect(&found).session_present());
}

fn clean_session_is_applied_before_what_follows_connect(broker: &Target) {
    let (old, new) = (broker.topic("old"), broker.topic("new"));
    let mut publisher = broker.client(V311, "p");
    let mut client = broker.persistent(V311, "c");
    client.subscribe(&[(&old, 1)]);
    client.disconnect();
    publisher.deliver(&Message::new(&old, "waiting").qos(1));
    // In one write: what is subscribed and published behind the CONNECT belongs to the new session.
    let mut client = broker.open(V311);
    let connect = Connect::new(V311, &broker.id("c")).encode();
    let subscribe = subscribe_packet(V311, 1, &[], &[(&new, 0)]);
    let publishes =
        [Message::new(&old, "x").encode(V311, 0), Message::new(&new, "x").qos(1).encode(V311, 2)].concat();
    client.send(&[connect, subscribe, publishes].concat());
    let connack = client.expect_connack();
    assert_eq!((connack.code, connack.session_present), (0, false));
    // Deliveries may come before the SUBACK.
    let Packet::Granted(suback) = client.wait_for(Kind::Suback) else { unreachable!() };
    assert_eq!(suback.codes, [0]);
    client.wait_for(Kind::Puback);
    assert_eq!(client.expect_publish().topic, new);
    client.settle();
}

fn session_state_is_kept_over_connections(broker: &Target) {
    let topic = broker.topic("t");
    let mut client = broker.persistent(V311, "c");
    client.subscribe(&[(&topic, 2)]);
    let mut publisher = broker.client(V311, "p");
    ["half sent", "sent"].iter().for_each(|text| {
        publisher.deliver(&Message::new(&topic, text).qos(2));
    });
    let sent = client.expect_publishes(2);
    client.ack(Kind::Pubrec, sent[0].id);
    client.expect_ack(Kind::Pubrel, sent[0].id);
    // Of what it publishes itself, the identifier of a QoS 2 message that it has not released.
    client.publish_as(&Message::new(broker.topic("u"), "half received").qos(2), 500);
    client.expect_ack(Kind::Pubrec, 500);
    client.vanish();
    publisher.deliver(&Message::new(&topic, "waiting").qos(2));
    for _ in 0..3 {
        let mut client = broker.persistent(V311, "c");
        assert!(client.session_present());
        client.wait_for(Kind::Pubrel);
        assert_eq!(
            client.expect_publishes(2).iter().map(|p| p.text()).collect::<Vec<_>>(),
            ["sent", "waiting"]
        );
        client.settle();
        client.vanish();
    }
    let mut watcher = broker.client(V311, "w");
    watcher.subscribe(&[(&broker.topic("u"), 2)]);
    let mut client = broker.persistent(V311, "c");
    client.publish_as(&Message::new(broker.topic("u"), "half received").qos(2).duplicate(), 500);
    client.wait_for(Kind::Pubrec);
    watcher.settle();
}

/// Longer than the broker would keep it for an absent client.
fn session_lives_as_long_as_its_connection(broker: &Target) {
    let broker = broker.configured(|config| config.limits.session_expiry = Duration::from_secs(1));
    let topic = broker.topic("t");
    let mut publisher = broker.client(V311, "p");
    let mut clients = [broker.client(V311, "clean"), broker.persistent(V311, "lasting")];
    for client in &mut clients {
        client.subscribe(&[(&topic, 1)]);
    }
    publisher.deliver(&Message::new(&topic, "pending").qos(1));
    let pending = clients.each_mut().map(|client| client.expect_publish());
    publisher.expect_nothing_for(Duration::from_millis(2500));
    publisher.deliver(&Message::new(&topic, "later").qos(1));
    for (client, pending) in clients.iter_mut().zip(&pending) {
        let later = client.expect_publish();
        assert_eq!(later.text(), "later");
        assert_ne!(later.id, pending.id);
        client.complete(pending);
        client.settle();
    }
    let [_, lasting] = clients;
    lasting.vanish();
    assert!(broker.persistent(V311, "lasting").session_present());
}
