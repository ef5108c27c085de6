//! rumqttc, as an application would use it, over 3.1.1 and 5.0.
//!
//! The raw client tests what rumqttc cannot do: rumqttc forgets incoming QoS 2 identifiers at every
//! error, hands a repeated QoS 2 PUBLISH to the application again, republishes with DUP 0, cannot
//! withhold PUBCOMP and does not speak 3.1.

use crate::support::launch::{TestBroker, on_one_and_three_threads, start_broker};
use crate::support::{Message, PATIENCE, V5, now};
use std::collections::HashSet;
use std::time::Duration;

/// The same flows through rumqttc's two modules, which share names but no types.
macro_rules! flows {
    ($module:ident, $($path:ident)::+, $last_will:expr, $session:expr) => {
        mod $module {
            use super::*;
            use $($path)::+::mqttbytes::QoS;
            use $($path)::+::{Client, Connection, Event, Incoming, MqttOptions};

            struct Peer {
                client: Client,
                connection: Connection,
            }

            fn options(broker: &TestBroker, id: &str) -> MqttOptions {
                let mut options = MqttOptions::new(id, "127.0.0.1", broker.address().port());
                options.set_keep_alive(Duration::from_secs(5));
                options
            }

            impl Peer {
                fn new(options: MqttOptions) -> Peer {
                    let (client, connection) = Client::new(options, 1000);
                    let mut peer = Peer { client, connection };
                    peer.wait(|incoming| matches!(incoming, Incoming::ConnAck(_)));
                    peer
                }

                /// Runs the client until a packet of the kind has come.
                fn wait(&mut self, wanted: impl Fn(&Incoming) -> bool) -> Incoming {
                    let deadline = now() + PATIENCE;
                    loop {
                        let left = deadline.saturating_duration_since(now());
                        let event = self.connection.recv_timeout(left).expect("in time").expect("connected");
                        if let Event::Incoming(incoming) = event
                            && wanted(&incoming)
                        {
                            return incoming;
                        }
                    }
                }

                fn subscribe(&mut self, filter: &str, qos: QoS) {
                    self.client.subscribe(filter, qos).expect("room for a request");
                    self.wait(|incoming| matches!(incoming, Incoming::SubAck(_)));
                }

                fn receive(&mut self) -> String {
                    let is_publish = |incoming: &Incoming| matches!(incoming, Incoming::Publish(_));
                    let Incoming::Publish(publish) = self.wait(is_publish) else { unreachable!() };
                    String::from_utf8(publish.payload.to_vec()).expect("text")
                }

                fn publish(&mut self, topic: &str, qos: QoS, retain: bool, text: &str) {
                    let text = text.as_bytes().to_vec();
                    self.client.publish(topic, qos, retain, text).expect("room for a request");
                }

                /// Publishes and waits for the end of the handshake.
                fn deliver(&mut self, topic: &str, qos: QoS, retain: bool, text: &str) {
                    self.publish(topic, qos, retain, text);
                    self.wait(|incoming| match qos {
                        QoS::AtMostOnce => unreachable!("nothing to wait for"),
                        QoS::AtLeastOnce => matches!(incoming, Incoming::PubAck(_)),
                        QoS::ExactlyOnce => matches!(incoming, Incoming::PubComp(_)),
                    });
                }

                fn disconnect(mut self) {
                    self.client.disconnect().expect("room for a request");
                    for event in self.connection.iter() {
                        if event.is_err() {
                            return;
                        }
                    }
                }
            }

            #[test]
            fn publish_and_subscribe_at_every_qos() {
                on_one_and_three_threads(|broker| {
                    let mut subscriber = Peer::new(options(broker, "subscriber"));
                    subscriber.subscribe("flow/+", QoS::ExactlyOnce);
                    let mut publisher = Peer::new(options(broker, "publisher"));
                    for qos in [QoS::ExactlyOnce, QoS::AtLeastOnce] {
                        let mut received = Vec::new();
                        for n in 0..50 {
                            publisher.deliver("flow/t", qos, false, &format!("{n}"));
                            received.push(subscriber.receive());
                        }
                        let expected: Vec<String> = (0..50).map(|n| n.to_string()).collect();
                        assert_eq!(received, expected, "{qos:?}");
                    }
                    publisher.publish("flow/t", QoS::AtMostOnce, false, "at most once");
                    publisher.deliver("elsewhere", QoS::AtLeastOnce, false, "a fence");
                    assert_eq!(subscriber.receive(), "at most once");
                });
            }

            #[test]
            fn many_messages_in_flight() {
                on_one_and_three_threads(|broker| {
                    let mut subscriber = Peer::new(options(broker, "subscriber"));
                    subscriber.subscribe("many", QoS::ExactlyOnce);
                    let mut publisher = Peer::new(options(broker, "publisher"));
                    let driving = std::thread::spawn(move || {
                        for n in 0..500 {
                            publisher.publish("many", QoS::ExactlyOnce, false, &n.to_string());
                        }
                        let mut finished = 0;
                        while finished < 500 {
                            publisher.wait(|incoming| matches!(incoming, Incoming::PubComp(_)));
                            finished += 1;
                        }
                    });
                    let received: Vec<String> = (0..500).map(|_| subscriber.receive()).collect();
                    assert_eq!(received.iter().collect::<HashSet<_>>().len(), 500, "none twice, none missing");
                    driving.join().expect("the publisher is done");
                });
            }

            #[test]
            fn retained_message_reaches_a_late_subscriber() {
                on_one_and_three_threads(|broker| {
                    let mut publisher = Peer::new(options(broker, "publisher"));
                    publisher.deliver("kept", QoS::AtLeastOnce, true, "latest");
                    let mut late = Peer::new(options(broker, "late"));
                    late.client.subscribe("kept", QoS::AtLeastOnce).expect("room for a request");
                    assert_eq!(late.receive(), "latest");
                });
            }

            #[test]
            fn will_follows_a_broken_connection() {
                on_one_and_three_threads(|broker| {
                    let mut observer = Peer::new(options(broker, "observer"));
                    observer.subscribe("will", QoS::AtLeastOnce);
                    let mut options = options(broker, "mortal");
                    options.set_last_will($last_will("will", "gone"));
                    // Dropping the connection closes its socket without a DISCONNECT.
                    drop(Peer::new(options));
                    assert_eq!(observer.receive(), "gone");
                });
            }

            #[test]
            fn session_keeps_messages_for_an_absent_client() {
                on_one_and_three_threads(|broker| {
                    let absent = || $session(options(broker, "absentee"));
                    let mut absentee = Peer::new(absent());
                    absentee.subscribe("queue", QoS::AtLeastOnce);
                    absentee.disconnect();
                    let mut publisher = Peer::new(options(broker, "publisher"));
                    for n in 0..20 {
                        publisher.deliver("queue", QoS::AtLeastOnce, false, &n.to_string());
                    }
                    let mut back = Peer::new(absent());
                    let received: Vec<String> = (0..20).map(|_| back.receive()).collect();
                    let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
                    assert_eq!(received, expected);
                });
            }
        }
    };
}

flows!(
    mqtt311,
    rumqttc,
    |topic, text| rumqttc::LastWill::new(topic, text, rumqttc::QoS::AtLeastOnce, false),
    |mut options: rumqttc::MqttOptions| {
        options.set_clean_session(false);
        options
    }
);

flows!(
    mqtt5,
    rumqttc::v5,
    |topic, text| rumqttc::v5::mqttbytes::v5::LastWill::new(
        topic,
        text,
        rumqttc::v5::mqttbytes::QoS::AtLeastOnce,
        false,
        None
    ),
    |mut options: rumqttc::v5::MqttOptions| {
        options.set_clean_start(false);
        options.set_connect_properties(rumqttc::v5::mqttbytes::v5::ConnectProperties {
            session_expiry_interval: Some(3600),
            ..rumqttc::v5::mqttbytes::v5::ConnectProperties::new()
        });
        options
    }
);

/// It reconnects by itself, as an application would see it: an error, then the message again.
#[test]
fn v5_rumqttc_comes_back_after_an_ack_timeout_and_receives_the_message() {
    use rumqttc::v5::mqttbytes::QoS;
    use rumqttc::v5::mqttbytes::v5::ConnectProperties;
    use rumqttc::v5::{Client, Event, Incoming, MqttOptions};

    let broker = start_broker(|config| config.redelivery.ack_timeout = Duration::from_millis(500));
    let mut options = MqttOptions::new("forgetful", "127.0.0.1", broker.address().port());
    options.set_manual_acks(true);
    options.set_clean_start(false);
    let session = ConnectProperties { session_expiry_interval: Some(60), ..ConnectProperties::new() };
    options.set_connect_properties(session);
    let (client, mut connection) = Client::new(options, 10);
    client.subscribe("t", QoS::AtLeastOnce).expect("room for a request");
    let (mut deliveries, mut connections, deadline) = (Vec::new(), 0, now() + PATIENCE);
    while deliveries.len() < 2 {
        let left = deadline.saturating_duration_since(now());
        match connection.recv_timeout(left).expect("in time") {
            Ok(Event::Incoming(Incoming::ConnAck(_))) => connections += 1,
            Ok(Event::Incoming(Incoming::SubAck(_))) => {
                broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
            }
            // Forgotten on the first connection.
            Ok(Event::Incoming(Incoming::Publish(publish))) => deliveries.push((connections, publish)),
            Ok(_) | Err(_) => {}
        }
    }
    let [(1, first), (2, again)] = deliveries.as_slice() else { panic!("{deliveries:?}") };
    assert_eq!((first.dup, again.dup), (false, true));
    assert_eq!((first.pkid, &first.payload), (again.pkid, &again.payload));
    client.ack(again).expect("room for a request");
    // Acknowledged this time: the client is not disconnected for it again.
    let quiet = now() + Duration::from_millis(1500);
    while let Ok(event) = connection.recv_timeout(quiet.saturating_duration_since(now())) {
        event.expect("connected");
    }
}
