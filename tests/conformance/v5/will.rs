//! Will Messages: 3.1.2.5 to 3.1.2.7, 3.1.3.2 to 3.1.3.4 and 3.14.4.

use super::cases;
use super::stage::{EITHER, MALFORMED, Stage, assert_reason, connect_packet, string};
use super::utf8::NOT_UTF8;
use crate::support::{Connect, Property, RawClient, Will, now};
use std::time::Duration;

cases! {
    will_is_kept_with_the_session: ["MQTT-3.1.2-7"],
    will_goes_out_when_the_connection_ends_otherwise_than_by_normal_disconnect: ["MQTT-3.1.2-8"],
    will_waits_for_its_delay: ["MQTT-3.1.2-8"],
    will_goes_out_at_the_end_of_its_session_at_the_latest: ["MQTT-3.1.2-8"],
    will_never_fires_twice: ["MQTT-3.1.2-10"],
    will_flag_without_will_fields_is_refused: ["MQTT-3.1.2-9"],
    will_qos_without_will_is_refused: ["MQTT-3.1.2-11"],
    will_qos_is_at_most_2: ["MQTT-3.1.2-12"],
    will_retain_without_will_is_refused: ["MQTT-3.1.2-13"],
    will_without_retain_is_not_retained: ["MQTT-3.1.2-14"],
    will_with_retain_becomes_the_retained_message: ["MQTT-3.1.2-15"],
    return_within_the_will_delay_cancels_the_will: ["MQTT-3.1.3-9"],
    user_properties_of_a_will_keep_their_order: ["MQTT-3.1.3-10"],
    will_topic_that_is_not_utf8_is_refused: ["MQTT-3.1.3-11"],
    disconnect_0x00_throws_the_will_away: ["MQTT-3.14.4-3"],
    will_properties_travel_and_its_delay_does_not: [],
    will_topic_must_be_a_topic_name: [],
}

/// The broker may take its reading of the clock a little before we take ours.
const EARLY: Duration = Duration::from_millis(5);
/// One expiry tick, and what a busy machine may add.
const LATE: Duration = Duration::from_millis(250 + 1750);

fn observer(stage: &Stage) -> RawClient {
    stage.subscriber("observer", "will", 2)
}

fn expect_will(observer: &mut RawClient, text: &str) {
    let publish = observer.expect_publish();
    assert_eq!(publish.text(), text, "{publish:?}");
    observer.complete(&publish);
}

/// A session that outlives its connection, with a will that waits.
fn delayed(stage: &Stage, name: &str, text: &str, delay: u32) -> Connect {
    stage.lasting(name).will(stage.will("will", text).with(Property::WillDelay(delay)))
}

fn will_is_kept_with_the_session(stage: &Stage) {
    let mut observer = observer(stage);
    let mut client = stage.served(&stage.passing("c").will(stage.will("will", "kept")));
    // Not at once, nor for anything that the client does.
    client.deliver(&stage.message("other", "").qos(1));
    stage.assert_nothing_came(&mut observer, "will");
    client.vanish();
    expect_will(&mut observer, "kept");
}

fn will_goes_out_when_the_connection_ends_otherwise_than_by_normal_disconnect(stage: &Stage) {
    let mut observer = observer(stage);
    let connect = |text: &str| stage.served(&stage.passing("c").will(stage.will("will", text)));
    connect("hung up").vanish();
    expect_will(&mut observer, "hung up");
    for code in [0x04, 0x80, 0x81, 0x82, 0x83, 0x98] {
        connect("reason").disconnect_with(code, &[]);
        expect_will(&mut observer, "reason");
    }
    let mut malformed = connect("malformed");
    malformed.send(&[0x36, 0]);
    assert_reason(&mut malformed, EITHER, "QoS 3");
    expect_will(&mut observer, "malformed");
    let mut old = connect("taken over");
    connect("not this one").disconnect();
    assert_reason(&mut old, &[0x8E], "taken over");
    expect_will(&mut observer, "taken over");
    stage.assert_nothing_came(&mut observer, "will");
}

fn will_waits_for_its_delay(stage: &Stage) {
    let mut observer = observer(stage);
    let left = now();
    stage.connect(&delayed(stage, "c", "late", 1)).vanish();
    let publish = observer.expect_publish();
    let passed = publish.at - left;
    assert!(passed + EARLY >= Duration::from_secs(1), "early: {passed:?}");
    assert!(passed <= Duration::from_secs(1) + LATE, "late: {passed:?}");
}

fn will_goes_out_at_the_end_of_its_session_at_the_latest(stage: &Stage) {
    let mut observer = observer(stage);
    let ending = |name: &str, expiry: u32| {
        let connect = stage.passing(name).with(Property::SessionExpiry(expiry));
        connect.will(stage.will("will", name).with(Property::WillDelay(3600)))
    };
    stage.connect(&ending("atonce", 0)).vanish();
    expect_will(&mut observer, "atonce");
    let left = now();
    stage.connect(&ending("inasecond", 1)).vanish();
    let publish = observer.expect_publish();
    let passed = publish.at - left;
    assert_eq!(publish.text(), "inasecond");
    assert!(passed + EARLY >= Duration::from_secs(1), "early: {passed:?}");
    observer.complete(&publish);
    // A clean start ends the session that waits.
    stage.connect(&delayed(stage, "d", "ended", 3600)).vanish();
    stage.client("d").disconnect();
    expect_will(&mut observer, "ended");
}

fn will_never_fires_twice(stage: &Stage) {
    let mut observer = observer(stage);
    stage.connect(&stage.lasting("c").will(stage.will("will", "once"))).vanish();
    expect_will(&mut observer, "once");
    // The session is taken up without a will of its own, and broken off again.
    let client = stage.connect(&stage.lasting("c"));
    assert!(client.session_present());
    client.vanish();
    stage.connect(&stage.lasting("d").will(stage.will("will", "cancelled"))).disconnect();
    stage.connect(&stage.lasting("d")).vanish();
    stage.assert_nothing_came(&mut observer, "will");
}

fn will_flag_without_will_fields_is_refused(stage: &Stage) {
    let id = string(stage.id("c"));
    let topic = string(stage.topic("will"));
    let mut control = stage.open();
    control.send(&connect_packet(0x06, &[], &[&id, &[0], &topic, &string("payload")]));
    assert_eq!(control.expect_connack().code, 0);
    control.settle();
    control.disconnect();
    stage.assert_refused(&connect_packet(0x06, &[], &[&id]), EITHER, "nothing");
    stage.assert_refused(&connect_packet(0x06, &[], &[&id, &[0]]), EITHER, "properties alone");
    stage.assert_refused(&connect_packet(0x06, &[], &[&id, &[0], &topic]), EITHER, "no payload");
    // Without properties the length of the topic is taken for theirs.
    stage.assert_refused(&connect_packet(0x06, &[], &[&id, &topic, &string("")]), EITHER, "no properties");
}

fn will_qos_without_will_is_refused(stage: &Stage) {
    stage.client("c").disconnect();
    for flags in [0x08, 0x10, 0x18] {
        stage.assert_refused(&stage.passing("c").flags(flags).encode(), EITHER, "will QoS");
    }
}

fn will_qos_is_at_most_2(stage: &Stage) {
    let mut observer = observer(stage);
    for qos in [0, 1, 2] {
        stage.connect(&stage.passing("c").will(stage.will("will", "x").qos(qos))).vanish();
        let publish = observer.expect_publish();
        assert_eq!(publish.qos, qos);
        observer.complete(&publish);
    }
    let connect = stage.passing("c").will(stage.will("will", "x").qos(3));
    stage.assert_refused(&connect.encode(), &[MALFORMED], "will QoS 3");
    stage.assert_nothing_came(&mut observer, "will");
}

fn will_retain_without_will_is_refused(stage: &Stage) {
    stage.client("c").disconnect();
    stage.assert_refused(&stage.passing("c").flags(0x20).encode(), EITHER, "will retain");
}

fn will_without_retain_is_not_retained(stage: &Stage) {
    let mut observer = observer(stage);
    stage.deliver(&stage.message("will", "before").qos(1).retained());
    expect_will(&mut observer, "before");
    stage.connect(&stage.passing("c").will(stage.will("will", "gone"))).vanish();
    let publish = observer.expect_publish();
    assert_eq!((publish.text(), publish.retain), ("gone", false));
    assert_eq!(stage.retained("will"), ["before"]);
}

fn will_with_retain_becomes_the_retained_message(stage: &Stage) {
    let mut observer = observer(stage);
    stage.deliver(&stage.message("will", "before").qos(1).retained());
    expect_will(&mut observer, "before");
    stage.connect(&stage.passing("c").will(stage.will("will", "gone").retained())).vanish();
    expect_will(&mut observer, "gone");
    assert_eq!(stage.retained("will"), ["gone"]);
}

fn return_within_the_will_delay_cancels_the_will(stage: &Stage) {
    let mut observer = observer(stage);
    let (connect, lasting) = (delayed(stage, "c", "cancelled", 1), stage.lasting("c"));
    stage.connect(&connect).vanish();
    let mut back = stage.connect(&lasting);
    assert!(back.session_present());
    // A take-over of the same session is a return too.
    let mut old = stage.connect(&delayed(stage, "d", "cancelled", 1));
    let _new = stage.connect(&stage.lasting("d"));
    assert_reason(&mut old, &[0x8E], "taken over");
    // Both delays run out before that of the control, which nobody cancels.
    stage.connect(&delayed(stage, "control", "control", 2)).vanish();
    expect_will(&mut observer, "control");
    back.settle();
}

fn user_properties_of_a_will_keep_their_order(stage: &Stage) {
    let mut observer = observer(stage);
    let pairs = [("b", "1"), ("a", "2"), ("b", "3"), ("", ""), ("b", "1")];
    let mut will = stage.will("will", "x");
    will.properties = pairs.iter().map(|(name, value)| Property::user(name, value)).collect();
    stage.connect(&stage.passing("c").will(will)).vanish();
    assert_eq!(observer.expect_publish().user_properties(), pairs);
}

fn will_topic_that_is_not_utf8_is_refused(stage: &Stage) {
    let mut observer = stage.subscriber("observer", "\u{E9}", 1);
    stage.connect(&stage.passing("c").will(stage.will("\u{E9}", "gone"))).vanish();
    assert_eq!(observer.expect_publish().text(), "gone");
    for bad in NOT_UTF8 {
        let connect = stage.passing("c").will(Will::new(bad, "gone"));
        stage.assert_refused(&connect.encode(), &[MALFORMED, 0x90], "will topic");
    }
}

fn disconnect_0x00_throws_the_will_away(stage: &Stage) {
    let mut observer = observer(stage);
    let connect = stage.passing("c").will(stage.will("will", "gone"));
    stage.connect(&connect).vanish();
    expect_will(&mut observer, "gone");
    stage.connect(&connect).disconnect();
    stage.connect(&connect).disconnect_with(0x00, &[]);
    stage.connect(&connect).disconnect_with(0x00, &[Property::user("a", "b")]);
    stage.assert_nothing_came(&mut observer, "will");
}

fn will_properties_travel_and_its_delay_does_not(stage: &Stage) {
    let mut observer = observer(stage);
    let properties = vec![
        Property::PayloadFormat(1),
        Property::ContentType("text".to_owned()),
        Property::ResponseTopic("r".to_owned()),
        Property::CorrelationData(vec![0, 0xFF]),
    ];
    let mut will = stage.will("will", "x");
    will.properties = properties.clone();
    will.properties.push(Property::WillDelay(0));
    stage.connect(&stage.passing("c").will(will)).vanish();
    let mut publish = observer.expect_publish();
    publish.properties.sort_by_key(Property::id);
    assert_eq!(publish.properties, properties);
}

fn will_topic_must_be_a_topic_name(stage: &Stage) {
    stage.served(&stage.passing("c").will(stage.will("t", ""))).disconnect();
    for topic in ["", "#", "a/+", "a\0"] {
        let connect = stage.passing("c").will(Will::new(topic, ""));
        stage.assert_refused(&connect.encode(), &[0x81, 0x82, 0x90], topic);
    }
}
