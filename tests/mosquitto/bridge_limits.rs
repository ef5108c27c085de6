//! The limits that another broker announces, and the servers that it names.

use crate::bridges::{Broker, TOPICS, bridge};
use crate::support::{Connect, Message, PATIENCE, RawClient, V5};
use homing::mqtt::codec::{Decoded, decode, encode};
use homing::mqtt::packet::{
    Acknowledgement, Connack, ConnackProperties, Disconnect, Packet, PacketId, Properties, ProtocolVersion,
    QoS, ReasonCode, Suback,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Another broker that says what a test lets it say.
struct FarBroker {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl FarBroker {
    fn accept(listener: &TcpListener) -> FarBroker {
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        FarBroker { stream, bytes: Vec::new() }
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        encode(packet, ProtocolVersion::V5, &mut bytes).expect("a lawful packet");
        self.stream.write_all(&bytes).expect("room");
    }

    /// Returns what `of` finds in the next packet.
    fn next<T>(&mut self, of: impl FnOnce(&Packet<'_>) -> T) -> T {
        loop {
            if let Decoded::Packet { packet, length } =
                decode(&self.bytes, ProtocolVersion::V5, 1 << 20).expect("packets")
            {
                let found = of(&packet);
                self.bytes.drain(..length);
                return found;
            }
            let mut part = [0; 4_096];
            let read = self.stream.read(&mut part).expect("a packet in time");
            assert!(read > 0, "the bridge has closed the connection");
            self.bytes.extend_from_slice(&part[..read]);
        }
    }

    /// Returns the topic and the identifier of the next packet, which is a PUBLISH of QoS 1 without
    /// RETAIN and Topic Alias.
    fn message(&mut self) -> (String, PacketId) {
        self.next(|packet| {
            let Packet::Publish(publish) = packet else { panic!("{}", packet.name()) };
            let form = (publish.qos, publish.retain, publish.properties.topic_alias);
            assert_eq!(form, (QoS::AtLeastOnce, false, None));
            (publish.topic.to_owned(), publish.packet_id.expect("QoS 1"))
        })
    }

    fn acknowledge(&mut self, id: PacketId) {
        self.send(&Packet::Puback(Acknowledgement::success(id)));
    }
}

fn connack(reason: ReasonCode, properties: ConnackProperties<'_>) -> Packet<'_> {
    Packet::Connack(Box::new(Connack { session_present: false, reason, properties }))
}

#[test]
fn each_limit_of_the_other_broker_holds_and_another_server_is_named_but_not_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("mqtt://{}", listener.local_addr().expect("an address"));
    let topics = format!("{TOPICS}[[bridges.topics]]\ndirection = \"in\"\nfilter = \"plain\"\nqos = 2\n");
    let mut near = Broker::started(&bridge(&address, "version = \"5.0\"\n", &topics));
    let mut far = FarBroker::accept(&listener);
    far.next(|packet| assert!(matches!(packet, Packet::Connect(_)), "{}", packet.name()));
    far.send(&connack(
        ReasonCode::SUCCESS,
        ConnackProperties {
            receive_maximum: Some(2),
            maximum_packet_size: Some(200),
            maximum_qos: Some(1),
            retain_available: Some(false),
            topic_alias_maximum: Some(5),
            server_keep_alive: Some(1),
            assigned_client_id: Some("another"),
            wildcard_subscription_available: Some(false),
            ..ConnackProperties::default()
        },
    ));
    let packet_id = far.next(|packet| {
        let Packet::Subscribe(subscribe) = packet else { panic!("{}", packet.name()) };
        let filters: Vec<_> = subscribe.filters.iter().map(|f| (f.filter, f.options.qos)).collect();
        assert_eq!(filters, [("plain", QoS::AtLeastOnce)]);
        subscribe.packet_id
    });
    far.send(&Packet::Suback(Suback {
        packet_id,
        properties: Properties::EMPTY,
        reasons: vec![ReasonCode::GRANTED_QOS_1],
    }));
    near.says("bridge.established");
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    for number in 0..3 {
        let message = Message::new(format!("sensors/{number}"), "x").qos(2).retained();
        assert_eq!(writer.deliver(&message), 0);
    }
    let [first, second] = [far.message(), far.message()];
    // The third one waits for Receive Maximum, and Server Keep Alive is one second.
    far.next(|packet| assert!(matches!(packet, Packet::Pingreq), "{}", packet.name()));
    far.send(&Packet::Pingresp);
    far.acknowledge(first.1);
    let third = far.message();
    assert_eq!([first.0, second.0, third.0], [0, 1, 2].map(|number| format!("plant-7/sensors/{number}")));
    far.acknowledge(second.1);
    far.acknowledge(third.1);
    writer.deliver(&Message::new("sensors/large", vec![b'x'; 200]).qos(1));
    writer.deliver(&Message::new("sensors/small", "x").qos(1));
    let small = far.message();
    assert_eq!(small.0, "plant-7/sensors/small");
    far.acknowledge(small.1);
    let server_reference = Some("other.example:1883");
    far.send(&Packet::Disconnect(Disconnect {
        server_reference,
        ..Disconnect::new(ReasonCode::SERVER_MOVED)
    }));
    near.says("Server moved (another server: other.example:1883)");
    let mut far = FarBroker::accept(&listener);
    far.next(|packet| assert!(matches!(packet, Packet::Connect(_)), "{}", packet.name()));
    let properties = ConnackProperties { server_reference, ..ConnackProperties::default() };
    far.send(&connack(ReasonCode::USE_ANOTHER_SERVER, properties));
    near.says("Use another server (another server: other.example:1883)");
    FarBroker::accept(&listener);
}
