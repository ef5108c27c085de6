//! Decoding and encoding, for each kind of packet and each version, with 64 B and 1 KiB of payload.
//!
//! Run `cargo bench --bench codec`.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use homing::mqtt::codec::{
    AckKind, Decoded, PublishHead, decode, decode_connect, decode_next, encode, put_acknowledgement,
};
use homing::mqtt::packet::{Packet, PacketId, ProtocolVersion, QoS, ReasonCode};
use std::hint::black_box;

const V3: ProtocolVersion = ProtocolVersion::V3_1_1;
const V5: ProtocolVersion = ProtocolVersion::V5;
const TOPIC: &str = "site/7/line/3/sensor/temperature";
/// Payload Format Indicator, Content Type, one User Property.
const FORWARDED: &[u8] = b"\x01\x01\x03\0\x10application/json\x26\0\x05trace\0\x08deadbeef";

fn head(qos: QoS, forwarded: &[u8]) -> PublishHead<'_> {
    PublishHead {
        dup: false,
        qos,
        retain: false,
        topic: TOPIC,
        packet_id: if qos == QoS::AtMostOnce { None } else { PacketId::new(4711) },
        topic_alias: None,
        message_expiry: None,
        subscription_ids: &[],
        forwarded,
    }
}

fn publish(version: ProtocolVersion, qos: QoS, forwarded: &[u8], payload: usize) -> Vec<u8> {
    let mut out = Vec::new();
    head(qos, forwarded).put(version, payload, &mut out);
    out.resize(out.len() + payload, b'x');
    out
}

fn packet(bytes: &[u8], version: ProtocolVersion) -> Packet<'_> {
    match decode(bytes, version, u32::MAX) {
        Ok(Decoded::Packet { packet, .. }) => packet,
        other => panic!("{other:?}"),
    }
}

/// Returns name, version and bytes of a packet of each kind.
fn packets() -> Vec<(String, ProtocolVersion, Vec<u8>)> {
    let mut packets = Vec::new();
    for (version, name) in [(V3, "3.1.1"), (V5, "5.0")] {
        for (size, size_name) in [(64, "64 B"), (1024, "1 KiB")] {
            let qos_0 = publish(version, QoS::AtMostOnce, &[], size);
            packets.push((format!("publish qos 0 {size_name} {name}"), version, qos_0));
            let qos_1 = publish(version, QoS::AtLeastOnce, &[], size);
            packets.push((format!("publish qos 1 {size_name} {name}"), version, qos_1));
        }
    }
    let with_properties = publish(V5, QoS::AtLeastOnce, FORWARDED, 64);
    packets.push(("publish qos 1 64 B 5.0, properties".to_owned(), V5, with_properties));
    let others: [(&str, ProtocolVersion, &[u8]); 7] = [
        ("puback 3.1.1", V3, b"\x40\x02\x12\x34"),
        ("puback 5.0", V5, b"\x40\x02\x12\x34"),
        ("puback with reason 5.0", V5, b"\x40\x03\x12\x34\x10"),
        ("subscribe 3.1.1", V3, b"\x82\x12\0\x01\0\x0Dsite/7/line/#\x01"),
        ("subscribe 5.0", V5, b"\x82\x13\0\x01\0\0\x0Dsite/7/line/#\x01"),
        ("suback 5.0", V5, b"\x90\x04\0\x01\0\x01"),
        ("pingreq", V3, b"\xC0\0"),
    ];
    packets.extend(others.map(|(name, version, bytes)| (name.to_owned(), version, bytes.to_vec())));
    packets
}

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for (name, version, bytes) in packets() {
        // The bytes must be a packet, because an error would be found faster.
        packet(&bytes, version);
        group.throughput(Throughput::Elements(1));
        group.bench_function(name, |bencher| {
            bencher.iter(|| decode(black_box(&bytes), black_box(version), 1 << 20).is_ok());
        });
    }
    let burst = publish(V3, QoS::AtMostOnce, &[], 64);
    group.bench_function("publish 3.1.1, the topic before", |bencher| {
        bencher.iter(|| decode_next(black_box(&burst), black_box(V3), 1 << 20, black_box(TOPIC)).is_ok());
    });
    let connect = b"\x10\x17\0\x04MQTT\x05\x02\0\x3C\x03\x21\0\x14\0\x07meter-7";
    assert!(matches!(decode_connect(connect, 1 << 20), Ok(Decoded::Packet { .. })));
    group.bench_function("connect 5.0", |bencher| {
        bencher.iter(|| decode_connect(black_box(connect), 1 << 20).is_ok());
    });
    group.finish();
}

/// Number of packets that are appended to one buffer, as to an outbox.
const BATCH: u64 = 64;

fn encoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode, 64 packets");
    group.throughput(Throughput::Elements(BATCH));
    for (name, version, bytes) in packets() {
        let packet = packet(&bytes, version);
        group.bench_function(name, |bencher| {
            let buffer = || Vec::with_capacity(128 << 10);
            let fill = |out: &mut Vec<u8>| {
                (0..BATCH).for_each(|_| encode(black_box(&packet), version, out).expect("legal"));
            };
            bencher.iter_batched_ref(buffer, fill, BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn heads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("put, 64 packets");
    group.throughput(Throughput::Elements(BATCH));
    let buffer = || Vec::with_capacity(128 << 10);
    let payload = [b'x'; 64];
    for (name, version, forwarded) in
        [("3.1.1", V3, &[][..]), ("5.0", V5, &[][..]), ("5.0, properties", V5, FORWARDED)]
    {
        group.bench_function(format!("publish head and 64 B, {name}"), |bencher| {
            let head = head(QoS::AtLeastOnce, forwarded);
            let fill = |out: &mut Vec<u8>| {
                for _ in 0..BATCH {
                    black_box(&head).put(version, payload.len(), out);
                    out.extend_from_slice(black_box(&payload));
                }
            };
            bencher.iter_batched_ref(buffer, fill, BatchSize::SmallInput);
        });
    }
    let id = PacketId::new(4711).expect("not 0");
    group.bench_function("puback", |bencher| {
        let fill = |out: &mut Vec<u8>| {
            (0..BATCH).for_each(|_| {
                put_acknowledgement(out, AckKind::Puback, black_box(id), ReasonCode::SUCCESS, V5);
            });
        };
        bencher.iter_batched_ref(buffer, fill, BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(std::time::Duration::from_millis(300)).measurement_time(std::time::Duration::from_secs(1));
    targets = decoding, encoding, heads
}
criterion_main!(benches);
