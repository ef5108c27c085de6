//! MQTT 3.1.1 of rumqttc: its options, and its events in the words of [`super`].

use super::{Acks, Broken, Event, Options, REQUESTS, ReceivedPublish, SessionLife};
use bytes::Bytes;
use homing_core::mqtt::packet::QoS;
use rumqttc::{
    AsyncClient, ConnectionError, EventLoop, MqttOptions, Outgoing, Packet, Publish, StateError,
    SubscribeReasonCode, Transport,
};

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
    let packet = super::packet_size(options.payload);
    mqtt.set_keep_alive(options.keep_alive)
        .set_clean_session(options.session == SessionLife::Clean)
        .set_manual_acks(options.acks == Acks::ByHand)
        .set_inflight(super::identifier_range(options.window))
        .set_max_packet_size(packet, packet);
    let (client, mut event_loop) = AsyncClient::new(mqtt, REQUESTS);
    let mut network = rumqttc::NetworkOptions::new();
    network.set_tcp_nodelay(true);
    event_loop.set_network_options(network);
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
    let mut publish = Publish::from_bytes(String::new(), self::qos(qos), Bytes::new());
    publish.pkid = id;
    publish
}

/// Returns the QoS as the type of rumqttc.
pub(super) fn qos(qos: QoS) -> rumqttc::QoS {
    match qos {
        QoS::AtMostOnce => rumqttc::QoS::AtMostOnce,
        QoS::AtLeastOnce => rumqttc::QoS::AtLeastOnce,
        QoS::ExactlyOnce => rumqttc::QoS::ExactlyOnce,
    }
}

fn our_qos(qos: rumqttc::QoS) -> QoS {
    match qos {
        rumqttc::QoS::AtMostOnce => QoS::AtMostOnce,
        rumqttc::QoS::AtLeastOnce => QoS::AtLeastOnce,
        rumqttc::QoS::ExactlyOnce => QoS::ExactlyOnce,
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
pub(super) fn translate(event: rumqttc::Event) -> Event {
    match event {
        rumqttc::Event::Incoming(packet) => incoming(packet),
        rumqttc::Event::Outgoing(Outgoing::Publish(id)) => Event::Sent { id },
        rumqttc::Event::Outgoing(Outgoing::PingReq) => Event::Pinged,
        rumqttc::Event::Outgoing(Outgoing::Disconnect) => Event::Left,
        rumqttc::Event::Outgoing(_) => Event::Other,
    }
}

fn incoming(packet: Packet) -> Event {
    match packet {
        Packet::ConnAck(connack) => Event::Connected { session_present: connack.session_present },
        Packet::SubAck(suback) => {
            let refused = suback.return_codes.contains(&SubscribeReasonCode::Failure);
            Event::Subscribed { refused }
        }
        Packet::Publish(publish) => Event::Message(ReceivedPublish {
            payload: publish.payload,
            qos: our_qos(publish.qos),
            dup: publish.dup,
            retain: publish.retain,
            id: publish.pkid,
        }),
        Packet::PubAck(puback) => Event::Finished { id: puback.pkid, refused: false },
        Packet::PubComp(pubcomp) => Event::Finished { id: pubcomp.pkid, refused: false },
        Packet::PubRel(pubrel) => Event::Released { id: pubrel.pkid },
        Packet::PingResp => Event::Ponged,
        _ => Event::Other,
    }
}
