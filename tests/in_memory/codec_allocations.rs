//! Decoding and encoding of PUBLISH and its acknowledgements allocate nothing.

use homing::mqtt::codec::{AckKind, PublishHead, decode, put_acknowledgement};
use homing::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};

/// Bytes that this thread allocates within `work`.
fn allocated(work: impl FnOnce()) -> u64 {
    let counter = tikv_jemalloc_ctl::thread::allocatedp::read().expect("jemalloc has statistics");
    let before = counter.get();
    work();
    counter.get() - before
}

#[test]
fn decoding_publish_and_acknowledgements_allocates_nothing() {
    let packets: [(ProtocolVersion, &[u8]); 5] = [
        (ProtocolVersion::V3_1_1, b"\x32\x07\0\x01t\x12\x34hi"),
        (ProtocolVersion::V5, b"\x32\x08\0\x01t\x12\x34\0hi"),
        // Topic Alias, Payload Format Indicator, Content Type
        (ProtocolVersion::V5, b"\x30\x0D\0\x01t\x09\x23\0\x01\x01\x01\x03\0\x01c"),
        (ProtocolVersion::V5, b"\x40\x02\x12\x34"),
        (ProtocolVersion::V5, b"\x62\x08\x12\x34\x92\x04\x1F\0\x01x"),
    ];
    for (version, bytes) in packets {
        let bytes_allocated = allocated(|| assert!(decode(bytes, version, 1_024).is_ok()));
        assert_eq!(bytes_allocated, 0, "{bytes:02X?}");
    }
    // The counter counts: the filters of a SUBSCRIBE are a Vec.
    let subscribe = b"\x82\x08\0\x01\0\x03a/#\x02";
    assert_ne!(allocated(|| assert!(decode(subscribe, ProtocolVersion::V3_1_1, 1_024).is_ok())), 0);
}

#[test]
fn writing_into_a_buffer_with_room_allocates_nothing() {
    let packet_id = PacketId::new(7);
    let head = PublishHead {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: "a/b",
        packet_id,
        topic_alias: None,
        message_expiry: Some(60),
        subscription_ids: &[1, 300],
        forwarded: b"\x01\x01",
    };
    let mut out = Vec::with_capacity(1_024);
    let bytes_allocated = allocated(|| {
        head.put(ProtocolVersion::V5, 64, &mut out);
        let ack = packet_id.expect("not 0");
        put_acknowledgement(&mut out, AckKind::Puback, ack, ReasonCode::SUCCESS, ProtocolVersion::V5);
    });
    assert_eq!(bytes_allocated, 0);
}
