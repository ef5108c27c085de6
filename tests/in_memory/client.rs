//! Packets that clients of a [`MemoryDriver`] send, and the sessions they open. The version is 5.0
//! where no other is named.

use crate::driver::{LinkId, MemoryDriver};
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish,
    PublishProperties, QoS, Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe, WillMessage,
};
use homing::shard::shard_of;

pub const V5: ProtocolVersion = ProtocolVersion::V5;

pub fn send(driver: &mut MemoryDriver, link: LinkId, packet: &Packet<'_>) {
    driver.send(link, &encoded(packet, V5));
}

pub fn encoded(packet: &Packet<'_>, version: ProtocolVersion) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(packet, version, &mut bytes).expect("a lawful packet");
    bytes
}

/// A CONNECT of 5.0 with Clean Start, no Keep Alive and no properties.
pub fn connect(name: &str) -> Connect<'_> {
    Connect {
        version: V5,
        clean_start: true,
        keep_alive: 0,
        properties: ConnectProperties::default(),
        client_id: name,
        will: None,
        user_name: None,
        password: None,
    }
}

/// Opens a connection and sends this CONNECT on it.
pub fn enter(driver: &mut MemoryDriver, connect: Connect<'_>) -> LinkId {
    let link = driver.open();
    send(driver, link, &Packet::Connect(Box::new(connect)));
    link
}

/// Connects a client whose session ends with its connection.
pub fn client(driver: &mut MemoryDriver, name: &str, receive_maximum: u16) -> LinkId {
    let properties = ConnectProperties { receive_maximum: Some(receive_maximum), ..Default::default() };
    enter(driver, Connect { properties, ..connect(name) })
}

/// A will of QoS 1 that is not retained.
pub fn will<'a>(topic: &'a str, payload: &'a [u8], delay: u32) -> WillMessage<'a> {
    WillMessage {
        qos: QoS::AtLeastOnce,
        retain: false,
        topic,
        payload,
        delay,
        message_expiry: None,
        forwarded: Default::default(),
    }
}

pub fn subscribe(driver: &mut MemoryDriver, link: LinkId, filters: &[&str], qos: QoS) {
    let options = SubscriptionOptions { qos, ..Default::default() };
    let subscribe = Subscribe {
        packet_id: PacketId::new(1).expect("not 0"),
        subscription_id: None,
        properties: Properties::EMPTY,
        filters: filters.iter().map(|filter| SubscribeFilter { filter, options }).collect(),
    };
    send(driver, link, &Packet::Subscribe(subscribe));
}

/// The bytes of an UNSUBSCRIBE.
pub fn unsubscribe(filter: &str) -> Vec<u8> {
    let packet_id = PacketId::new(9).expect("not 0");
    let filters = [filter].into_iter().collect();
    encoded(&Packet::Unsubscribe(Unsubscribe { packet_id, filters, properties: Properties::EMPTY }), V5)
}

/// A PUBLISH at QoS 0.
pub fn publication<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: PublishProperties::default(),
        payload,
    }
}

/// Publishes `x`.
pub fn publish(driver: &mut MemoryDriver, link: LinkId, topic: &str, qos: QoS, packet_id: u16) {
    let publish = Publish { qos, packet_id: PacketId::new(packet_id), ..publication(topic, b"x") };
    send(driver, link, &Packet::Publish(publish));
}

/// Calls `look` with each packet that came on a link since the last call.
pub fn take_packets(
    driver: &mut MemoryDriver,
    link: LinkId,
    version: ProtocolVersion,
    mut look: impl FnMut(Packet<'_>),
) {
    let (received, mut at) = (std::mem::take(&mut driver.links[link].received), 0);
    while let Ok(Decoded::Packet { packet, length }) = codec::decode(&received[at..], version, u32::MAX) {
        at += length;
        look(packet);
    }
}

/// Returns the topics that came since the last call, and acknowledges them if asked to.
pub fn take(driver: &mut MemoryDriver, link: LinkId, acknowledges: bool) -> Vec<String> {
    let mut topics = Vec::new();
    loop {
        let mut ids = Vec::new();
        take_packets(driver, link, V5, |packet| {
            if let Packet::Publish(Publish { packet_id: Some(id), topic, .. }) = packet {
                ids.push(id);
                topics.push(topic.to_owned());
            }
        });
        if ids.is_empty() || !acknowledges {
            return topics;
        }
        for id in ids {
            send(driver, link, &Packet::Puback(Acknowledgement::success(id)));
        }
    }
}

/// A client identifier that begins with `role` and is placed in this shard.
pub fn named_at(role: &str, shard: u8, shards: u8) -> String {
    let mut names = (0..).map(|n: u32| format!("{role} {n}"));
    names.find(|name| shard_of(name, shards).0 == shard).expect("every shard has some")
}

/// The bytes of a packet with a body of any length.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut length = body.len();
    loop {
        let more = length > 127;
        packet.push((length % 128) as u8 | u8::from(more) << 7);
        length /= 128;
        if !more {
            return [&packet, body].concat();
        }
    }
}

/// Two bytes of length, and the bytes.
pub fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let length = u16::try_from(bytes.len()).expect("a string of MQTT");
    [&length.to_be_bytes(), bytes].concat()
}

/// The bytes of a CONNECT of 3.1.1 with Clean Session and no Keep Alive.
pub fn connect_3_1_1(name: &str) -> Vec<u8> {
    packet(0x10, &[b"\0\x04MQTT\x04\x02\0\0", &string(name)[..]].concat())
}
