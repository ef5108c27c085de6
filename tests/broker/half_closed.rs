//! A client that has closed its side of the connection, and still reads: what it is owed comes before
//! the end.

use crate::support::launch::{TestBroker, on_configured_threads, on_one_and_three_threads, versions};
use crate::support::{Connect, Kind, Message, Packet, RawClient, Version, Will};
use std::net::Shutdown;
use std::time::Duration;

/// Closes the client's side, and returns what comes before the end.
fn half_closed(mut client: RawClient) -> Vec<Packet> {
    client.stream().shutdown(Shutdown::Write).expect("a socket that is open");
    client.read_to_end()
}

fn kinds(packets: &[Packet]) -> Vec<Kind> {
    packets.iter().map(Packet::kind).collect()
}

fn connack_comes_whatever_thread_the_session_lives_on(version: Version) {
    on_one_and_three_threads(|broker| {
        for n in 0..20 {
            let mut client = broker.open(version);
            client.send(&Connect::new(version, &format!("c{n}")).encode());
            assert_eq!(kinds(&half_closed(client)), [Kind::Connack], "{n}");
        }
    });
}
// 3.1.1 [MQTT-3.2.0-1]; 5.0 [MQTT-3.2.0-1]
versions!(connack_comes_whatever_thread_the_session_lives_on: v311, v5);

/// Returns true if a subscriber of any thread gets each message.
fn subscribers(broker: &TestBroker, version: Version) -> Vec<RawClient> {
    let subscriber = |n| {
        let mut client = broker.client(version, &format!("s{n}"));
        client.subscribe(&[("t", 1), ("gone", 1)]);
        client
    };
    (0..4).map(subscriber).collect()
}

fn acknowledgements_come_and_then_the_will(version: Version) {
    on_one_and_three_threads(|broker| {
        let mut subscribers = subscribers(broker, version);
        for n in 0..10 {
            let will = Will::new("gone", "");
            let mut client = broker.connect(&Connect::new(version, &format!("p{n}")).will(will));
            client.publish(&Message::new("t", "").qos(1));
            client.publish(&Message::new("t", "").qos(2));
            assert_eq!(kinds(&half_closed(client)), [Kind::Puback, Kind::Pubrec], "{n}");
            for subscriber in &mut subscribers {
                for topic in ["t", "t", "gone"] {
                    let publish = subscriber.expect_publish();
                    assert_eq!(publish.topic, topic);
                    subscriber.complete(&publish);
                }
            }
        }
    });
}
// 3.1.1 [MQTT-4.3.2-2], [MQTT-4.3.3-2]; 5.0 [MQTT-4.3.2-4], [MQTT-4.3.3-8]
versions!(acknowledgements_come_and_then_the_will: v311, v5);

fn suback_comes(version: Version) {
    on_one_and_three_threads(|broker| {
        for n in 0..10 {
            let mut client = broker.client(version, &format!("c{n}"));
            client.send(&crate::support::client::subscribe_packet(version, 1, &[], &[("t", 1)]));
            assert_eq!(kinds(&half_closed(client)), [Kind::Suback], "{n}");
        }
    });
}
// 3.1.1 [MQTT-3.8.4-1]; 5.0 [MQTT-3.8.4-1]
versions!(suback_comes: v311, v5);

/// What was on its way when the client closed its side is written, as far as the client reads.
fn deliveries_that_wait_for_the_socket_come(version: Version) {
    on_configured_threads(
        |config| config.limits.queue_bytes = "64 MiB".parse().expect("a size"),
        |broker| {
            let mut client = broker.client(version, "c");
            client.subscribe(&[("t", 0)]);
            let mut publisher = broker.client(version, "p");
            // More than the buffers of both kernels take.
            for _ in 0..40 {
                publisher.deliver(&Message::new("t", vec![b'x'; 256 << 10]).qos(1));
            }
            let publishes = half_closed(client);
            assert!(!publishes.is_empty());
            assert!(kinds(&publishes).iter().all(|kind| *kind == Kind::Publish));
        },
    );
}
versions!(deliveries_that_wait_for_the_socket_come: v311, v5);

/// The will shows when the connection ends: the client itself reads nothing.
fn a_half_closed_client_that_reads_nothing_ends_at_the_write_timeout(version: Version) {
    on_configured_threads(
        |config| config.network.write_timeout = Duration::from_secs(1),
        |broker| {
            let mut observer = broker.client(version, "observer");
            observer.subscribe(&[("gone", 1)]);
            let connect = Connect::new(version, "c").keep_alive(0).will(Will::new("gone", ""));
            let mut client = broker.connect(&connect);
            client.subscribe(&[("t", 0)]);
            let mut publisher = broker.client(version, "p");
            for _ in 0..40 {
                publisher.deliver(&Message::new("t", vec![b'x'; 256 << 10]).qos(1));
            }
            client.stream().shutdown(Shutdown::Write).expect("a socket that is open");
            assert_eq!(observer.expect_publish().topic, "gone");
        },
    );
}
versions!(a_half_closed_client_that_reads_nothing_ends_at_the_write_timeout: v311, v5);
