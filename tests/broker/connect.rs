//! CONNECT accepted and refused, and what is pipelined behind it.

use crate::support::client::subscribe_packet;
use crate::support::launch::{on_one_and_three_threads, start_broker, versions};
use crate::support::{Connect, Kind, Message, Packet, Property, V5, Version};

// 5.0 [MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16]
#[test]
fn v5_empty_client_id_is_assigned_a_unique_one() {
    on_one_and_three_threads(|broker| {
        let mut ids = Vec::new();
        let mut clients: Vec<_> = (0..5).map(|_| broker.client(V5, "")).collect();
        for client in &mut clients {
            let id =
                |p: &Property| if let Property::AssignedClientId(id) = p { Some(id.clone()) } else { None };
            ids.extend(client.connack().properties.iter().find_map(id));
            client.settle();
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 5, "{ids:?}");
    });
}

/// The constants of splitmix64, the generator that made the identifiers once.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const FACTORS: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    let z = (*state ^ (*state >> 30)).wrapping_mul(FACTORS[0]);
    let z = (z ^ (z >> 27)).wrapping_mul(FACTORS[1]);
    z ^ (z >> 31)
}

/// Returns the state behind a number of splitmix64.
fn state_behind(number: u64) -> u64 {
    let unshifted = |z: u64, by: u32| z ^ (z >> by) ^ (z >> (2 * by));
    // Newton's method finds the inverse of an odd number.
    let inverse = |x: u64| (0..6).fold(x, |y, _| y.wrapping_mul(2_u64.wrapping_sub(x.wrapping_mul(y))));
    let z = unshifted(number, 31).wrapping_mul(inverse(FACTORS[1]));
    unshifted(unshifted(z, 27).wrapping_mul(inverse(FACTORS[0])), 30)
}

#[test]
fn an_assigned_client_id_is_not_computed_from_another_one() {
    let broker = start_broker(|config| config.runtime.threads = 1);
    let assigned = || {
        let client = broker.client(V5, "");
        let id = |p: &Property| if let Property::AssignedClientId(id) = p { Some(id.clone()) } else { None };
        client.connack().properties.iter().find_map(id).expect("an assigned client id")
    };
    let (first, second) = (assigned(), assigned());
    let digits = |id: &str| id.strip_prefix("homing-").expect("the prefix").to_owned();
    let number = u64::from_str_radix(&digits(&first)[..16], 16).expect("hexadecimal");
    let mut state = state_behind(number);
    assert_eq!(splitmix64(&mut state.wrapping_sub(STEP)), number, "the inverse is right");
    let computed = (0..1_000).any(|_| second.contains(&format!("{:016x}", splitmix64(&mut state))));
    assert!(!computed, "{second} follows from {first}");
    assert_eq!(digits(&second).len(), 32, "{second} has 128 bits");
}

fn a_client_id_beyond_the_limit_is_refused(version: Version) {
    let broker = start_broker(|_| {});
    broker.client(version, &"c".repeat(1_024)).settle();
    let mut long = broker.open(version);
    long.send(&Connect::new(version, &"c".repeat(1_025)).encode());
    assert_eq!(long.expect_connack().code, if version == V5 { 0x85 } else { 2 });
}
versions!(a_client_id_beyond_the_limit_is_refused: v31, v311, v5);

#[test]
fn connack_of_5_0_announces_the_limits_that_hold() {
    let broker = start_broker(|config| {
        config.limits.receive_maximum = 7;
        config.limits.topic_alias_maximum = 3;
        config.limits.packet_size = "2 KiB".parse().expect("a size");
        config.limits.session_expiry = std::time::Duration::from_secs(50);
    });
    let client = broker.connect(&Connect::new(V5, "c").with(Property::SessionExpiry(51)));
    for property in [
        Property::ReceiveMaximum(7),
        Property::TopicAliasMaximum(3),
        Property::MaximumPacketSize(2048),
        Property::SessionExpiry(50),
    ] {
        assert!(client.connack().properties.contains(&property), "{property:?}: {:?}", client.connack());
    }
    let within = broker.connect(&Connect::new(V5, "d").with(Property::SessionExpiry(50)));
    // Absent means: as the client asked.
    let other = |p: &Property| matches!(p, Property::SessionExpiry(s) if *s != 50);
    assert!(!within.connack().properties.iter().any(other), "{:?}", within.connack());
}

fn packets_pipelined_behind_connect_are_handled_in_order(version: Version) {
    on_one_and_three_threads(|broker| {
        // Ids enough that some of them live on another thread than the one that accepts.
        for id in ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"] {
            let mut bytes = Connect::new(version, id).encode();
            bytes.extend(subscribe_packet(version, 10, &[], &[("pipelined", 1)]));
            bytes.extend(Message::new("pipelined", "x").qos(1).encode(version, 11));
            bytes.extend([0xC0, 0]);
            let mut client = broker.open(version);
            client.send(&bytes);
            assert_eq!(client.expect_connack().code, 0);
            // The answers owe each other no order (a SUBACK may wait for other threads); that the
            // publish came after the subscription shows in its delivery.
            let mut kinds = [(); 4].map(|()| client.receive().kind());
            kinds.sort_by_key(|kind| *kind as u8);
            assert_eq!(kinds, [Kind::Publish, Kind::Puback, Kind::Suback, Kind::Pingresp]);
        }
    });
}
// 3.1.1 [MQTT-3.2.0-1]; 5.0 [MQTT-3.2.0-1]
versions!(packets_pipelined_behind_connect_are_handled_in_order: v31, v311, v5);

fn packets_arriving_byte_by_byte_are_understood(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut client = broker.open(version);
        let mut bytes = Connect::new(version, "bytewise").encode();
        bytes.extend(subscribe_packet(version, 1, &[], &[("t", 0)]));
        bytes.extend(Message::new("t", "payload").encode(version, 0));
        for byte in bytes {
            client.send(&[byte]);
        }
        assert_eq!(client.expect_connack().code, 0);
        client.wait_for(Kind::Suback);
        assert_eq!(client.expect_publish().text(), "payload");
    });
}
versions!(packets_arriving_byte_by_byte_are_understood: v311, v5);

fn connections_beyond_the_limit_are_refused_and_a_freed_place_is_given_again(version: Version) {
    let broker = start_broker(|config| config.limits.connections = 2);
    let mut first = broker.client(version, "a");
    let second = broker.client(version, "b");
    let mut third = broker.open(version);
    third.send(&Connect::new(version, "c").encode());
    let received = third.read_to_end();
    let refused = match received.as_slice() {
        [] => true,
        [Packet::Connack(connack)] => connack.code != 0,
        _ => false,
    };
    assert!(refused, "{received:?}");
    first.settle();
    second.disconnect();
    broker.client(version, "d").settle();
}
versions!(connections_beyond_the_limit_are_refused_and_a_freed_place_is_given_again: v311, v5);
