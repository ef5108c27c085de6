//! CONNECT accepted and refused.

use crate::harness::{Target, cases};
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Message, V31, V311, Version};

cases![
    mqtt311_3_1_0_1_connection_that_opens_with_another_packet_is_closed,
    mqtt311_3_1_0_2_second_connect_is_closed,
    mqtt31_second_connect_is_closed,
];

fn mqtt311_3_1_0_1_connection_that_opens_with_another_packet_is_closed(broker: &Target) {
    broker.serves(V311);
    let publish = Message::new(broker.topic("t"), "x").qos(1).encode(V311, 1);
    let subscribe = subscribe_packet(V311, 1, &[], &[("t", 0)]);
    for bytes in [publish, subscribe, vec![0xC0, 0], vec![0xE0, 0], vec![0x20, 2, 0, 0], vec![0x40, 2, 0, 1]]
    {
        let mut client = broker.open(V311);
        client.send(&bytes);
        client.expect_closed();
    }
}

fn second_connect_is_closed(broker: &Target, version: Version) {
    let mut client = broker.client(version, "c");
    client.settle();
    client.send(&Connect::new(version, &broker.id("c")).encode());
    client.expect_closed();
}

fn mqtt311_3_1_0_2_second_connect_is_closed(broker: &Target) {
    second_connect_is_closed(broker, V311);
}

fn mqtt31_second_connect_is_closed(broker: &Target) {
    second_connect_is_closed(broker, V31);
}
