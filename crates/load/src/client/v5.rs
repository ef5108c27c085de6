//! MQTT 5.0 of rumqttc: its options, and its events in the words of [`super`].

use super::{Acks, Broken, Event, Options, REQUESTS, ReceivedPublish, SessionLife};
use bytes::Bytes;
use homing_core::mqtt::packet::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAckReason, PubRecReason, Publish, SubscribeReasonCode};
use rumqttc::v5::{AsyncClient, ConnectionError, EventLoop, MqttOptions, StateError};
use rumqttc::{Outgoing, Transport};

/// rumqttc's limit for received packets if Maximum Packet Size is not set, in bytes.
const DEFAULT_PACKET_SIZE: usize = 10 * 1024;

/// Returns a client that connects when its event loop runs: to the broker, or to the Unix socket
/// `relay`.
pub(super) fn open(options: &Options, relay: Option<&str>) -> (AsyncClient, EventLoop) {
    let address = relay.map_or_else(|| super::host(options), str::to_owned);
    let mut mqtt = MqttOptions::new(options.client_id.clone(), address, options.port);
    if relay.is_some() {
        mqtt.set_transport(Transport::unix());
    }
    if let Some(credentials) = &options.credentials {
        mqtt.set_credentials(credentials.user.as_str(), credentials.password.as_str());
    }
    mqtt.set_keep_alive(options.keep_alive)
        .set_clean_start(options.session == SessionLife::Clean)
        .set_manual_acks(options.acks == Acks::ByHand)
        // Without this limit every client has room for 65,535 messages in flight: 13.8 MiB.
        .set_outgoing_inflight_upper_limit(super::identifier_range(options.window));
    let mut network = rumqttc::NetworkOptions::new();
    network.set_tcp_nodelay(true);
    mqtt.set_network_options(network);
    let packet = super::packet_size(options.payload);
    if packet > DEFAULT_PACKET_SIZE {
        mqtt.set_max_packet_size(Some(u32::try_from(packet).unwrap_or(u32::MAX)));
    }
    if options.session == SessionLife::Kept {
        mqtt.set_session_expiry_interval(Some(super::SESSION_EXPIRY_S));
    }
    let (client, mut event_loop) = AsyncClient::new(mqtt, REQUESTS);
    for id in &options.known_ids {
        let known = Packet::Publish(placeholder(QoS::ExactlyOnce, *id));
        drop(event_loop.state.handle_incoming_packet(known));
    }
    // The queue of rumqttc has room for 100 events, which is much for one of ten thousand idle
    // clients. An empty queue grows where it is needed.
    event_loop.state.events = std::collections::VecDeque::new();
    (client, event_loop)
}

/// Returns a PUBLISH that has just the fields from which rumqttc makes an acknowledgement.
pub(super) fn placeholder(qos: QoS, id: u16) -> Publish {
    let mut publish = Publish::new("", self::qos(qos), Bytes::new(), None);
    publish.pkid = id;
    publish
}

/// Returns the QoS as the type of rumqttc.
pub(super) fn qos(qos: QoS) -> rumqttc::v5::mqttbytes::QoS {
    use rumqttc::v5::mqttbytes::QoS as Theirs;
    match qos {
        QoS::AtMostOnce => Theirs::AtMostOnce,
        QoS::AtLeastOnce => Theirs::AtLeastOnce,
        QoS::ExactlyOnce => Theirs::ExactlyOnce,
    }
}

fn our_qos(qos: rumqttc::v5::mqttbytes::QoS) -> QoS {
    use rumqttc::v5::mqttbytes::QoS as Theirs;
    match qos {
        Theirs::AtMostOnce => QoS::AtMostOnce,
        Theirs::AtLeastOnce => QoS::AtLeastOnce,
        Theirs::ExactlyOnce => QoS::ExactlyOnce,
    }
}

/// Waits for the next event.
///
/// # Errors
/// The connection is over.
pub(super) async fn next(event_loop: &mut EventLoop) -> Result<Event, Broken> {
    match event_loop.poll().await {
        Ok(event) => Ok(translate(event)),
        Err(ConnectionError::Io(cause) | ConnectionError::MqttState(StateError::Io(cause))) => {
            Err(Broken(cause.to_string()))
        }
        Err(cause) => Err(Broken(cause.to_string())),
    }
}

/// Returns an event of rumqttc as an event of this interface.
pub(super) fn translate(event: rumqttc::v5::Event) -> Event {
    match event {
        rumqttc::v5::Event::Incoming(packet) => incoming(packet),
        rumqttc::v5::Event::Outgoing(Outgoing::Publish(id)) => Event::Sent { id },
        rumqttc::v5::Event::Outgoing(Outgoing::PingReq) => Event::Pinged,
        rumqttc::v5::Event::Outgoing(Outgoing::Disconnect) => Event::Left,
        rumqttc::v5::Event::Outgoing(_) => Event::Other,
    }
}

fn incoming(packet: Packet) -> Event {
    match packet {
        Packet::ConnAck(connack) => Event::Connected { session_present: connack.session_present },
        Packet::SubAck(suback) => {
            let granted = |code: &SubscribeReasonCode| matches!(code, SubscribeReasonCode::Success(_));
            Event::Subscribed { refused: !suback.return_codes.iter().all(granted) }
        }
        Packet::Publish(publish) => Event::Message(ReceivedPublish {
            payload: publish.payload,
            qos: our_qos(publish.qos),
            dup: publish.dup,
            retain: publish.retain,
            id: publish.pkid,
        }),
        Packet::PubAck(puback) => {
            let taken = [PubAckReason::Success, PubAckReason::NoMatchingSubscribers].contains(&puback.reason);
            Event::Finished { id: puback.pkid, refused: !taken }
        }
        Packet::PubRec(pubrec) => {
            let taken = [PubRecReason::Success, PubRecReason::NoMatchingSubscribers].contains(&pubrec.reason);
            if taken { Event::Other } else { Event::Finished { id: pubrec.pkid, refused: true } }
        }
        Packet::PubComp(pubcomp) => Event::Finished { id: pubcomp.pkid, refused: false },
        Packet::PubRel(pubrel) => Event::Released { id: pubrel.pkid },
        Packet::PingResp(_) => Event::Ponged,
        _ => Event::Other,
    }
}
