//! Keep Alive: 3.1.2.10, 3.2.2.3.14 and 3.12.

use super::cases;
use super::stage::{Stage, assert_reason, find};
use crate::support::{Packet, Property, RawClient, now};
use std::time::{Duration, Instant};

cases! {
    silent_client_is_disconnected_after_one_and_a_half_times_its_keep_alive: ["MQTT-3.1.2-22"],
    client_that_speaks_is_not_disconnected: ["MQTT-3.1.2-22"],
    clients_own_value_holds_where_the_broker_names_none: ["MQTT-3.2.2-22"],
    server_keep_alive_is_enforced: [],
    pingreq_is_answered_by_pingresp: ["MQTT-3.12.4-1"],
}

/// The broker may take its reading of the clock a little before we take ours.
const EARLY: Duration = Duration::from_millis(5);
/// One expiry tick, and what a busy machine may add.
const LATE: Duration = Duration::from_millis(250 + 1750);

fn assert_disconnected_after(client: &mut RawClient, since: Instant, time: Duration) {
    assert_reason(client, &[0x8D], "silent for too long");
    let passed = since.elapsed();
    assert!(passed + EARLY >= time, "early: {passed:?} of {time:?}");
    assert!(passed <= time + LATE, "late: {passed:?} of {time:?}");
}

fn silent_client_is_disconnected_after_one_and_a_half_times_its_keep_alive(stage: &Stage) {
    let mut observer = stage.subscriber("o", "will", 1);
    let connect = stage.passing("c").keep_alive(1).will(stage.will("will", "silent"));
    let mut client = stage.connect(&connect);
    // Any packet moves the deadline; what is sent to the client does not.
    client.expect_nothing_for(Duration::from_millis(700));
    let since = now();
    client.settle();
    assert_disconnected_after(&mut client, since, Duration::from_millis(1500));
    // As a network failure.
    assert_eq!(observer.expect_publish().text(), "silent");
}

fn client_that_speaks_is_not_disconnected(stage: &Stage) {
    let mut pinging = stage.served(&stage.passing("p").keep_alive(1));
    let mut publishing = stage.served(&stage.passing("q").keep_alive(1));
    let mut never = stage.served(&stage.passing("n").keep_alive(0));
    for _ in 0..4 {
        pinging.settle();
        publishing.publish(&stage.message("t", ""));
        // 3.2 s in all: past every deadline that would not move.
        pinging.expect_nothing_for(Duration::from_millis(800));
    }
    pinging.settle();
    publishing.settle();
    never.settle();
}

/// Returns the Server Keep Alive of CONNACK, if it has one.
fn server_keep_alive(client: &RawClient) -> Option<u16> {
    find(&client.connack().properties, |p| if let Property::ServerKeepAlive(s) = p { Some(*s) } else { None })
}

fn clients_own_value_holds_where_the_broker_names_none(stage: &Stage) {
    let since = now();
    let mut client = stage.served(&stage.passing("c").keep_alive(2));
    assert_eq!(server_keep_alive(&client), None);
    assert_disconnected_after(&mut client, since, Duration::from_millis(3000));
}

fn server_keep_alive_is_enforced(stage: &Stage) {
    let broker = stage.configured(|config| config.keep_alive.maximum = Duration::from_secs(1));
    let stage = &Stage::of(&broker);
    for asked in [0, 600] {
        let since = now();
        let mut client = stage.served(&stage.passing("c").keep_alive(asked));
        assert_eq!(server_keep_alive(&client), Some(1));
        assert_disconnected_after(&mut client, since, Duration::from_millis(1500));
    }
    // A client that asks for no more than the maximum keeps its own value.
    assert!(
        server_keep_alive(&stage.served(&stage.passing("c").keep_alive(1)))
            .is_none_or(|seconds| seconds == 1)
    );
}

fn pingreq_is_answered_by_pingresp(stage: &Stage) {
    let mut client = stage.client("c");
    client.send(&[0xC0, 0].repeat(100));
    for _ in 0..100 {
        assert_eq!(client.receive(), Packet::Pingresp);
    }
    client.settle();
    stage.assert_disconnected(&[0xC0, 1, 0], &[0x81], "PINGREQ with a body");
}
