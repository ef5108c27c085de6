//! Session State: 3.1.2.4, 3.1.2.11, 4.1 and 4.4.

use super::cases;
use super::stage::{Stage, answer_to, assert_reason};
use crate::support::{Kind, Property, Publish, RawClient, now};
use std::time::Duration;

cases! {
    clean_start_throws_the_session_away: ["MQTT-3.1.2-4"],
    session_on_file_is_carried_on: ["MQTT-3.1.2-5"],
    session_is_opened_where_none_is_on_file: ["MQTT-3.1.2-6"],
    session_outlives_its_connection_where_its_expiry_is_above_0: ["MQTT-3.1.2-23"],
    session_is_found_by_its_client_id_alone: ["MQTT-3.1.3-2"],
    session_state_is_kept: ["MQTT-4.1.0-1"],
    session_is_erased_when_its_expiry_has_run_out: ["MQTT-4.1.0-2"],
    unacknowledged_packets_are_sent_again_on_resumption: ["MQTT-4.4.0-1"],
    nothing_is_sent_again_on_a_live_connection: ["MQTT-4.4.0-1"],
    refused_publish_is_settled: ["MQTT-4.4.0-2"],
    session_expiry_may_not_be_raised_from_0_at_disconnect: [],
    session_expiry_at_disconnect_is_the_one_that_counts: [],
}

/// A session with a subscription and a message that waits for its client.
fn left_with_a_message(stage: &Stage, name: &str) {
    let mut client = stage.connect(&stage.lasting(name));
    client.subscribe(&[(&stage.topic(name), 1)]);
    client.disconnect();
    stage.deliver(&stage.message(name, "queued").qos(1));
}

fn clean_start_throws_the_session_away(stage: &Stage) {
    left_with_a_message(stage, "control");
    assert_eq!(stage.connect(&stage.lasting("control")).expect_publish().text(), "queued");
    left_with_a_message(stage, "c");
    let mut client = stage.connect(&stage.lasting("c").clean(true));
    assert!(!client.session_present());
    stage.deliver(&stage.message("c", "live").qos(1));
    // Neither the message nor the subscription is there; nor does a later connection find them.
    client.settle();
    client.disconnect();
    let mut client = stage.connect(&stage.lasting("c"));
    assert!(client.session_present());
    client.settle();
}

fn session_on_file_is_carried_on(stage: &Stage) {
    left_with_a_message(stage, "c");
    let mut client = stage.connect(&stage.lasting("c"));
    assert!(client.session_present());
    let publish = client.expect_publish();
    assert_eq!(publish.text(), "queued");
    client.complete(&publish);
    stage.deliver(&stage.message("c", "live").qos(1));
    assert_eq!(client.expect_publish().text(), "live");
}

fn session_is_opened_where_none_is_on_file(stage: &Stage) {
    let mut client = stage.connect(&stage.lasting("c"));
    assert!(!client.session_present());
    client.settle();
    client.disconnect();
    assert!(stage.connect(&stage.lasting("c")).session_present());
}

fn session_outlives_its_connection_where_its_expiry_is_above_0(stage: &Stage) {
    let with = |expiry: Option<u32>| {
        let connect = stage.passing("c").clean(false);
        expiry.map_or(connect.clone(), |seconds| connect.with(Property::SessionExpiry(seconds)))
    };
    for (expiry, stays) in [(Some(60), true), (Some(u32::MAX), true), (Some(0), false), (None, false)] {
        stage.served(&with(expiry).clean(true)).vanish();
        let client = stage.connect(&with(Some(0)));
        assert_eq!(client.session_present(), stays, "{expiry:?}");
        client.disconnect();
    }
}

fn session_is_found_by_its_client_id_alone(stage: &Stage) {
    stage.connect(&stage.lasting("Id")).disconnect();
    for other in ["id", "ID", "I", "Idd", "Id ", "Id\u{301}"] {
        let mut client = stage.connect(&stage.lasting(other));
        assert!(!client.session_present(), "{other}");
        client.settle();
    }
    assert!(stage.connect(&stage.lasting("Id")).session_present());
}

/// Everything that belongs to it: subscriptions, what was sent and not acknowledged, what was
/// received and not released.
fn session_state_is_kept(stage: &Stage) {
    let mut observer = stage.subscriber("o", "out", 2);
    let mut client = stage.connect(&stage.lasting("c"));
    client.subscribe_with(&[Property::SubscriptionId(7)], &[(&stage.topic("in"), 2)]);
    client.publish_as(&stage.message("out", "once").qos(2), 10);
    client.expect_ack(Kind::Pubrec, 10);
    stage.deliver(&stage.message("in", "unacknowledged").qos(1));
    let first = client.expect_publish();
    // While the connection is open the identifier stays taken.
    client.publish_as(&stage.message("out", "once").qos(2).duplicate(), 10);
    client.expect_ack(Kind::Pubrec, 10);
    client.vanish();
    let mut client = stage.connect(&stage.lasting("c"));
    let again = client.expect_publish();
    assert_eq!((again.id, again.dup, again.text()), (first.id, true, "unacknowledged"));
    assert_eq!(again.subscription_ids(), [7]);
    client.complete(&again);
    client.publish_as(&stage.message("out", "once").qos(2).duplicate(), 10);
    client.expect_ack(Kind::Pubrec, 10);
    client.ack(Kind::Pubrel, 10);
    client.expect_ack(Kind::Pubcomp, 10);
    assert_eq!(observer.expect_publish().text(), "once");
    observer.settle();
}

fn session_is_erased_when_its_expiry_has_run_out(stage: &Stage) {
    let mut observer = stage.subscriber("o", "end", 0);
    // The end of a session is seen from outside by a will that would wait longer.
    let connect = stage.passing("c").clean(false).with(Property::SessionExpiry(1));
    let will = stage.will("end", "ended").with(Property::WillDelay(3600));
    stage.connect(&connect).disconnect();
    let client = stage.connect(&connect.clone().will(will));
    assert!(client.session_present());
    let left = now();
    client.vanish();
    let passed = observer.expect_publish().at - left;
    assert!(passed + Duration::from_millis(5) >= Duration::from_secs(1), "early: {passed:?}");
    assert!(passed <= Duration::from_secs(3), "late: {passed:?}");
    assert!(!stage.connect(&connect).session_present());
}

/// Three deliveries that stay unanswered, of which the second got as far as PUBREL.
fn unanswered(stage: &Stage, client: &mut RawClient) -> Vec<Publish> {
    client.subscribe(&[(&stage.topic("t"), 2)]);
    for (qos, text) in [(1, "a"), (2, "b"), (2, "c")] {
        stage.deliver(&stage.message("t", text).qos(qos));
    }
    let publishes = client.expect_publishes(3);
    client.ack(Kind::Pubrec, publishes[1].id);
    client.expect_ack(Kind::Pubrel, publishes[1].id);
    publishes
}

fn unacknowledged_packets_are_sent_again_on_resumption(stage: &Stage) {
    let mut client = stage.connect(&stage.lasting("c"));
    let sent = unanswered(stage, &mut client);
    client.vanish();
    let mut client = stage.connect(&stage.lasting("c"));
    let mut again = [client.wait_for(Kind::Publish), client.wait_for(Kind::Publish)].into_iter();
    for first in [&sent[0], &sent[2]] {
        let Some(crate::support::Packet::Publish(publish)) = again.next() else { unreachable!() };
        assert_eq!((publish.id, publish.dup, publish.qos), (first.id, true, first.qos));
        assert_eq!((&publish.topic, &publish.payload), (&first.topic, &first.payload));
    }
    client.expect_ack(Kind::Pubrel, sent[1].id);
    client.settle();
}

/// A client of 3.1.1 on the same broker shows when the time has come at which messages are sent
/// again.
fn nothing_is_sent_again_on_a_live_connection(stage: &Stage) {
    let interval = Duration::from_millis(300);
    let broker = stage.configured(|config| {
        config.redelivery.interval = interval;
        config.redelivery.max_backoff = interval;
        config.redelivery.jitter = 0.0;
    });
    let stage = &Stage::of(&broker);
    let mut older = stage.older("older");
    let mut client = stage.connect(&stage.lasting("c"));
    unanswered(stage, &mut client);
    older.subscribe(&[(&stage.topic("u"), 1)]);
    stage.deliver(&stage.message("u", "again").qos(1));
    assert!(!older.expect_publish().dup);
    for _ in 0..2 {
        assert!(older.expect_publish().dup);
        client.settle();
    }
}

fn refused_publish_is_settled(stage: &Stage) {
    let mut client = stage.connect(&stage.lasting("c"));
    client.subscribe(&[(&stage.topic("t"), 2)]);
    for qos in [1, 2] {
        for code in [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99] {
            stage.deliver(&stage.message("t", "refused").qos(qos));
            let publish = client.expect_publish();
            client.ack_with(answer_to(qos), publish.id, code);
            // Nor is there a PUBREL.
            client.settle();
        }
    }
    stage.deliver(&stage.message("t", "pending").qos(1));
    client.expect_publish();
    client.vanish();
    let mut client = stage.connect(&stage.lasting("c"));
    assert!(client.session_present());
    let publish = client.expect_publish();
    assert_eq!((publish.text(), publish.dup), ("pending", true));
    client.complete(&publish);
    client.settle();
}

fn session_expiry_may_not_be_raised_from_0_at_disconnect(stage: &Stage) {
    // From another value it may, and be lowered too.
    let short = stage.passing("c").clean(false).with(Property::SessionExpiry(5));
    stage.connect(&short).disconnect_with(0, &[Property::SessionExpiry(3600)]);
    let client = stage.connect(&short);
    assert!(client.session_present());
    client.disconnect_with(0, &[Property::SessionExpiry(0)]);
    assert!(!stage.connect(&short).session_present());
    let none = stage.passing("d");
    for connect in [none.clone(), none.clone().with(Property::SessionExpiry(0))] {
        let mut client = stage.served(&connect);
        client.send(&[0xE0, 7, 0x00, 5, 0x11, 0, 0, 0, 10]);
        assert_reason(&mut client, &[0x82], "raised from 0");
        assert!(!stage.connect(&none.clone().clean(false)).session_present());
    }
    // To 0 from 0 is no raise.
    stage.served(&none).disconnect_with(0, &[Property::SessionExpiry(0)]);
}

fn session_expiry_at_disconnect_is_the_one_that_counts(stage: &Stage) {
    let mut observer = stage.subscriber("o", "end", 0);
    let will = stage.will("end", "ended").with(Property::WillDelay(3600));
    let client = stage.connect(&stage.lasting("c").will(will));
    let left = now();
    // 0x04 keeps the will, so that the end is seen.
    client.disconnect_with(0x04, &[Property::SessionExpiry(1)]);
    let passed = observer.expect_publish().at - left;
    assert!(passed + Duration::from_millis(5) >= Duration::from_secs(1), "early: {passed:?}");
    assert!(passed <= Duration::from_secs(3), "late: {passed:?}");
    assert!(!stage.connect(&stage.lasting("c")).session_present());
}
