//! Shared subscriptions: 4.8.2.

use super::cases;
use super::stage::Stage;
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Kind, Packet, RawClient, V5};

cases! {
    shared_filter_names_its_group: ["MQTT-4.8.2-1"],
    share_name_is_one_level_without_wildcards: ["MQTT-4.8.2-2"],
    delivery_honours_the_qos_granted_to_the_member: ["MQTT-4.8.2-3"],
    qos_2_delivery_is_finished_with_the_same_member: ["MQTT-4.8.2-4"],
    qos_2_delivery_of_an_ended_session_goes_to_nobody_else: ["MQTT-4.8.2-5"],
    refused_delivery_goes_to_nobody_else: ["MQTT-4.8.2-6"],
}

/// The shared filter of this test's group.
fn shared(stage: &Stage, filter: &str) -> String {
    format!("$share/group/{}", stage.topic(filter))
}

fn member(stage: &Stage, connect: &Connect, qos: u8) -> RawClient {
    let mut member = stage.connect(connect);
    assert_eq!(member.subscribe(&[(&shared(stage, "t"), qos)]), [qos]);
    member
}

fn assert_filters_are_refused(stage: &Stage, filters: &[&str]) {
    for filter in filters {
        let mut client = stage.client("c");
        client.send(&subscribe_packet(V5, 1, &[], &[(filter, 0)]));
        match client.receive() {
            Packet::Granted(suback) => {
                assert!(matches!(suback.codes[..], [0x80 | 0x83 | 0x8F]), "{filter}: {suback:?}");
            }
            Packet::Disconnect(disconnect) => {
                assert!(matches!(disconnect.code, 0x81 | 0x82 | 0x8F), "{filter}: {disconnect:?}");
            }
            other => panic!("{filter}: {other:?}"),
        }
    }
}

fn shared_filter_names_its_group(stage: &Stage) {
    let mut members: Vec<RawClient> =
        (0..3).map(|n| member(stage, &stage.passing(&format!("m{n}")), 1)).collect();
    for n in 0..12 {
        stage.deliver(&stage.message("t", n.to_string()).qos(1));
    }
    // Each message to one of them.
    let mut texts: Vec<String> = Vec::new();
    for member in &mut members {
        let publishes = member.drain();
        publishes.iter().for_each(|publish| member.complete(publish));
        texts.extend(publishes.iter().map(|publish| publish.text().to_owned()));
    }
    texts.sort_by_key(|text| text.parse::<u32>().expect("a number"));
    assert_eq!(texts, (0..12).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_filters_are_refused(stage, &["$share/", "$share//t", "$share//"]);
    // This is no shared filter. It matches the topic of the same name.
    assert_eq!(members[0].subscribe(&[("$share", 0)]), [0]);
}

fn share_name_is_one_level_without_wildcards(stage: &Stage) {
    let mut client = stage.client("ok");
    assert_eq!(client.subscribe(&[(&format!("$share/a b\u{E9}/{}", stage.topic("+")), 0)]), [0]);
    assert_filters_are_refused(
        stage,
        &["$share/+/t", "$share/#/t", "$share/a+/t", "$share/a#/t", "$share/a", "$share/a/"],
    );
    // A slash ends the name, so what follows is the filter.
    let filter = format!("$share/a//{}", stage.topic("t"));
    assert_eq!(client.subscribe(&[(&filter, 0)]), [0]);
    stage.deliver(&stage.message("t", "x").qos(1));
    assert_eq!(client.expect_publish().text(), "x");
    client.settle();
}

fn delivery_honours_the_qos_granted_to_the_member(stage: &Stage) {
    for granted in [0, 1, 2] {
        let mut member = member(stage, &stage.passing("m"), granted);
        for published in [0, 1, 2] {
            stage.deliver(&stage.message("t", "x").qos(published));
            let publish = member.expect_publish();
            assert_eq!(publish.qos, granted.min(published));
            member.complete(&publish);
        }
        member.disconnect();
    }
    // Members of one group with different grants.
    let mut members = [0, 1, 2].map(|qos| (qos, member(stage, &stage.passing(&format!("m{qos}")), qos)));
    for _ in 0..30 {
        stage.deliver(&stage.message("t", "x").qos(2));
    }
    let mut total = 0;
    for (granted, member) in &mut members {
        let publishes = member.drain();
        assert!(publishes.iter().all(|publish| publish.qos == *granted), "{publishes:?}");
        total += publishes.len();
    }
    assert_eq!(total, 30);
}

/// Left while a delivery at QoS 2 waits for PUBREC, or for PUBCOMP; another member is there all the
/// time.
fn qos_2_delivery_is_finished_with_the_same_member(stage: &Stage) {
    let mut first = member(stage, &stage.lasting("m"), 2);
    stage.deliver(&stage.message("t", "one").qos(2));
    stage.deliver(&stage.message("t", "two").qos(2));
    let sent = first.expect_publishes(2);
    first.ack(Kind::Pubrec, sent[1].id);
    first.expect_ack(Kind::Pubrel, sent[1].id);
    let mut other = member(stage, &stage.passing("other"), 2);
    first.vanish();
    let mut first = stage.connect(&stage.lasting("m"));
    // PUBLISH and PUBREL owe each other no order.
    let Packet::Publish(again) = first.wait_for(Kind::Publish) else { unreachable!() };
    assert_eq!((again.id, again.dup, again.text()), (sent[0].id, true, "one"));
    first.expect_ack(Kind::Pubrel, sent[1].id);
    first.ack(Kind::Pubcomp, sent[1].id);
    first.complete(&again);
    other.settle();
    first.settle();
}

fn qos_2_delivery_of_an_ended_session_goes_to_nobody_else(stage: &Stage) {
    let mut leaver = member(stage, &stage.passing("m"), 2);
    stage.deliver(&stage.message("t", "two").qos(2));
    assert_eq!(leaver.expect_publish().text(), "two");
    let mut other = member(stage, &stage.passing("other"), 2);
    leaver.vanish();
    stage.deliver(&stage.message("t", "marker").qos(2));
    let publish = other.expect_publish();
    assert_eq!(publish.text(), "marker");
    other.complete(&publish);
    other.settle();
}

fn refused_delivery_goes_to_nobody_else(stage: &Stage) {
    let mut refuser = member(stage, &stage.passing("m"), 2);
    for qos in [1, 2] {
        stage.deliver(&stage.message("t", "refused").qos(qos));
    }
    let sent = refuser.expect_publishes(2);
    let mut other = member(stage, &stage.passing("other"), 2);
    refuser.ack_with(Kind::Puback, sent[0].id, 0x97);
    refuser.ack_with(Kind::Pubrec, sent[1].id, 0x80);
    refuser.settle();
    refuser.vanish();
    stage.deliver(&stage.message("t", "marker").qos(1));
    let publish = other.expect_publish();
    assert_eq!(publish.text(), "marker");
    other.complete(&publish);
    other.settle();
}
