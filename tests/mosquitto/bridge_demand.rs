//! Bridges that are not always connected: on demand, and by the order of an operator.

use crate::bridges::{Broker, TOPICS, bridge, subscriber, take};
use crate::broker::Mosquitto;
use crate::support::{Connect, Message, RawClient, V5, until};

const QUOTA_EXCEEDED: u8 = 0x97;

/// Waits until the bridge has this state.
fn is(near: &Broker, state: &str) {
    until(state, || near.ctl(&["bridges"]).contains(state).then_some(()));
}

#[test]
fn a_bridge_on_demand_connects_for_a_message_and_disconnects_when_nothing_passes() {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let keys = "connect = \"on_demand\"\nidle_timeout = \"1s\"\n";
    let mut near = Broker::started(&bridge(&format!("mqtt://{}", far.address), keys, TOPICS));
    is(&near, "idle");
    let mut reader = subscriber(far.address, V5, "reader", &[("plant-7/#", 2)]);
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    for round in 0..3 {
        for qos in [1, 2] {
            writer.deliver(&Message::new("sensors/1", format!("{round} {qos}")).qos(qos));
        }
        near.says("bridge.established");
        let payloads: Vec<String> = take(&mut reader, 2).into_iter().map(|(_, payload)| payload).collect();
        assert_eq!(payloads, [format!("{round} 1"), format!("{round} 2")]);
        near.says("bridge.disconnected");
        is(&near, "idle");
    }
    // What came meanwhile waited at the other broker.
    let mut there = RawClient::connect(far.address, &Connect::new(V5, "writer"));
    there.deliver(&Message::new("plant-7/orders/1", "waits").qos(1));
    let mut here = subscriber(near.address(), V5, "reader", &[("orders/#", 1)]);
    near.ctl(&["bridge", "connect", "far"]);
    assert_eq!(take(&mut here, 1), [("orders/1".to_owned(), "waits".to_owned())]);
    near.says("bridge.disconnected");
    is(&near, "idle");
}

#[test]
fn a_manual_bridge_connects_and_disconnects_by_order_and_its_session_can_be_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let address = format!("mqtt://{}", far.address);
    let mut near = Broker::started(&bridge(&address, "connect = \"manual\"\n", TOPICS));
    is(&near, "idle");
    let mut reader = subscriber(far.address, V5, "reader", &[("plant-7/#", 2)]);
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    writer.deliver(&Message::new("sensors/1", "lost").qos(1));
    let end = near.ctl(&["bridge", "end", "far"]);
    assert!(end.contains("ended"), "{end}");
    near.ctl(&["bridge", "connect", "far"]);
    near.says("bridge.established");
    // Of QoS 1 it might come again, if the bridge is told to disconnect before it has the PUBACK.
    writer.deliver(&Message::new("sensors/1", "first").qos(2));
    assert_eq!(take(&mut reader, 1)[0].1, "first");
    near.ctl(&["bridge", "disconnect", "far", "--note", "the cloud is serviced"]);
    near.says("bridge.disconnected");
    is(&near, "idle");
    writer.deliver(&Message::new("sensors/1", "second").qos(1));
    near.ctl(&["bridge", "connect", "far"]);
    assert_eq!(take(&mut reader, 1)[0].1, "second");
}

#[test]
fn an_order_ends_a_wait_and_an_attempt_that_hangs() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("mqtt://{}", silent.local_addr().expect("an address"));
    let long = bridge(&address, "connect_timeout = \"600s\"\n", TOPICS);
    let mut near = Broker::started(&long);
    is(&near, "awaiting_connack");
    near.ctl(&["bridge", "disconnect", "far"]);
    near.says("bridge.disconnected");
    is(&near, "idle");
    near.ctl(&["bridge", "connect", "far"]);
    is(&near, "awaiting_connack");
    drop(silent);
    near.says("bridge.not_connected");
}

#[test]
fn the_session_of_a_connected_bridge_that_is_ended_begins_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let mut near = Broker::bridged(far.address, "", TOPICS);
    near.ctl(&["bridge", "end", "far"]);
    near.says("bridge.not_connected");
    near.says("bridge.established");
    let mut reader = subscriber(far.address, V5, "reader", &[("plant-7/#", 2)]);
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    writer.deliver(&Message::new("sensors/1", "again").qos(2));
    assert_eq!(take(&mut reader, 1)[0].1, "again");
}

#[test]
fn the_queue_of_a_bridge_has_bounds_of_its_own_also_behind_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let mut reader = subscriber(far.address, V5, "reader", &[("plant-7/#", 1)]);
    let keys = "connect = \"manual\"\nqueue_messages = 3\nqueue_bytes = \"100 KiB\"\n";
    let mut near = Broker::started(&bridge(&format!("mqtt://{}", far.address), keys, TOPICS));
    is(&near, "idle");
    let publish = |near: &Broker, payload: &[u8]| {
        let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
        writer.deliver(&Message::new("sensors/1", payload).qos(1))
    };
    assert_eq!(publish(&near, &[b'x'; 101 << 10]), QUOTA_EXCEEDED);
    for number in 0..5 {
        let expected = if number < 3 { 0 } else { QUOTA_EXCEEDED };
        assert_eq!(publish(&near, number.to_string().as_bytes()), expected, "{number}");
    }
    near.process().kill();
    near.start();
    is(&near, "idle");
    assert_eq!(publish(&near, b"5"), QUOTA_EXCEEDED);
    near.ctl(&["bridge", "connect", "far"]);
    let payloads: Vec<String> = take(&mut reader, 3).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, ["0", "1", "2"]);
}
