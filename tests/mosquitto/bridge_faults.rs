//! Bridges to brokers and name servers that are slow, hang or never speak: only the bridge waits.

use crate::bridges::{Broker, TOPICS, bridge, subscriber, take};
use crate::broker::Mosquitto;
use crate::support::shim::shim;
use crate::support::{Connect, Message, RawClient, V5, V311};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// CONNACK of 5.0.
const ACCEPTED: [u8; 5] = [0x20, 3, 0, 0, 0];

/// SUBACK for the two filters of [`TOPICS`].
const SUBSCRIBED: [u8; 7] = [0x90, 5, 0xFF, 0xFF, 0, 2, 1];

/// Accepts connections, and gives each to a thread of its own.
fn far(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Accepts the bridge and its filters, and returns what it can write to.
fn accept(mut stream: &TcpStream) {
    // CONNECT and SUBSCRIBE are small, and the second follows CONNACK.
    let _ = stream.read(&mut [0; 1_024]);
    let _ = stream.write_all(&ACCEPTED);
    let _ = stream.read(&mut [0; 1_024]);
    let _ = stream.write_all(&SUBSCRIBED);
}

#[test]
fn a_broker_that_sends_byte_by_byte_is_a_broker_as_any_other() {
    let far = far(|mut stream| {
        let message = [&[0x30, 20, 0, 16], "plant-7/orders/1".as_bytes(), &[0, b'x']].concat();
        let _ = stream.set_nodelay(true);
        let _ = stream.read(&mut [0; 1_024]);
        for byte in ACCEPTED.iter().chain(&SUBSCRIBED).chain(&message) {
            thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(&[*byte]);
        }
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let near = Broker::started("");
    let mut reader = subscriber(near.address(), V5, "reader", &[("orders/#", 0)]);
    let mut near = near;
    near.configure(&bridge(&format!("mqtt://{far}"), "version = \"5.0\"\n", TOPICS));
    near.process().signal(rustix::process::Signal::HUP);
    near.says("bridge.established");
    assert_eq!(take(&mut reader, 1), [("orders/1".to_owned(), "x".to_owned())]);
}

#[test]
fn what_came_before_the_end_of_a_connection_is_handled_once() {
    static CONNECTIONS: AtomicU8 = AtomicU8::new(b'1');
    let far = far(|mut stream| {
        accept(&stream);
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let message = [&[0x30, 20, 0, 16], "plant-7/orders/1".as_bytes(), &[0, number]].concat();
        // A DISCONNECT of a server that shuts down, in the same segment.
        let _ = stream.write_all(&[&message[..], &[0xE0, 1, 0x8B]].concat());
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut near = Broker::started("");
    let mut reader = subscriber(near.address(), V5, "reader", &[("orders/#", 0)]);
    near.reload(&bridge(&format!("mqtt://{far}"), "version = \"5.0\"\n", TOPICS));
    let payloads: Vec<String> = take(&mut reader, 3).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, ["1", "2", "3"]);
}

#[test]
fn what_the_other_broker_keeps_comes_in_when_the_session_here_begins_and_qos_2_goes_out() {
    for (version, name) in [(V5, "5.0"), (V311, "3.1.1")] {
        let directory = tempfile::tempdir().expect("a directory");
        let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
        // The session of an earlier Homing, which is gone with its store.
        drop(subscriber(far.address, version, "plant", &[("plant-7/orders/#", 2)]));
        let mut writer = RawClient::connect(far.address, &Connect::new(V5, "writer"));
        writer.deliver(&Message::new("plant-7/orders/1", "kept").qos(2));
        let mut there = subscriber(far.address, V5, "there", &[("plant-7/sensors/#", 2)]);
        let mut near = Broker::started("");
        let mut reader = subscriber(near.address(), V5, "reader", &[("orders/#", 2)]);
        let keys = format!("version = \"{name}\"\nclient_id = \"plant\"\n");
        near.reload(&bridge(&format!("mqtt://{}", far.address), &keys, TOPICS));
        assert_eq!(take(&mut reader, 1), [("orders/1".to_owned(), "kept".to_owned())], "{name}");
        let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
        writer.deliver(&Message::new("sensors/1", "out").qos(2));
        assert_eq!(take(&mut there, 1), [("plant-7/sensors/1".to_owned(), "out".to_owned())], "{name}");
    }
}

/// Much is sent to a broker that takes little of it. Clients here have all of it meanwhile.
fn only_the_bridge_waits(serve: fn(TcpStream)) {
    const MESSAGES: usize = 100;
    let far = far(serve);
    let keys = "version = \"5.0\"\nack_timeout = \"1s\"\n";
    let mut near = Broker::bridged(far, keys, TOPICS);
    let mut reader = subscriber(near.address(), V5, "reader", &[("sensors/#", 1)]);
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    for number in 0..MESSAGES {
        writer.deliver(&Message::new("sensors/1", vec![b'x'; 100_000]).qos(1));
        let (_, payload) = take(&mut reader, 1).remove(0);
        assert_eq!(payload.len(), 100_000, "message {number}");
    }
    let line = near.says("bridge.not_connected");
    assert!(line.contains("acknowledges nothing within ack_timeout"), "{line}");
    // What was not acknowledged waits for the next connection.
    near.says("bridge.established");
}

#[test]
fn a_broker_that_reads_nothing_is_left_and_no_client_waits_for_it() {
    only_the_bridge_waits(|stream| {
        accept(&stream);
        thread::sleep(Duration::from_secs(60));
    });
}

#[test]
fn a_broker_that_reads_a_byte_each_second_is_left_and_no_client_waits_for_it() {
    only_the_bridge_waits(|mut stream| {
        accept(&stream);
        while matches!(stream.read(&mut [0]), Ok(1)) {
            thread::sleep(Duration::from_secs(1));
        }
    });
}

#[test]
fn a_name_server_that_hangs_holds_up_its_bridge_alone() {
    /// More bridges than threads that resolve names, and each tries again and again.
    const HANGING: usize = 12;
    let directory = tempfile::tempdir().expect("a directory");
    let mosquitto = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let keys = "connect_timeout = \"200ms\"\nbackoff = \"100ms\"\nmax_backoff = \"100ms\"\n";
    let bridges: String = (0..HANGING)
        .map(|number| {
            format!("[[bridges]]\nname = \"hangs-{number}\"\naddresses = [\"mqtt://hangs-{number}.example\"]\n{keys}{TOPICS}")
        })
        .collect();
    let mut near = Broker::started_with(&bridges, |serve| {
        serve.env("LD_PRELOAD", shim("mosquitto"));
    });
    for _ in 0..HANGING * 8 {
        let line = near.says("bridge.not_connected");
        assert!(line.contains("no CONNACK within connect_timeout"), "{line}");
    }
    // The name of this one is resolved by the same threads.
    let named = bridge(&format!("mqtt://localhost:{}", mosquitto.address.port()), "", TOPICS);
    near.configure(&format!("{bridges}{named}"));
    near.process().signal(rustix::process::Signal::HUP);
    near.says("bridge.established");
}
