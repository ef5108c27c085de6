//! The addresses of bridges: WebSocket, TLS, and what goes wrong with them.

use crate::bridges::{Broker, TOPICS, answering, bridge, take};
use crate::broker::Mosquitto;
use crate::kit::{self, Pki};
use crate::support::{Connect, Message, RawClient, V5};
use homing::config::{ClientCertificates, Listener, ListenerProtocol};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::net::SocketAddr;

/// Messages pass in both directions, large ones and many at once.
fn messages_pass(near: SocketAddr, far: SocketAddr) {
    let mut readers = [(near, "orders/#"), (far, "plant-7/#")].map(|(side, filter)| {
        let mut reader = RawClient::connect(side, &Connect::new(V5, "reader"));
        reader.subscribe(&[(filter, 1)]);
        reader
    });
    let mut writers = [(far, "plant-7/orders/1"), (near, "sensors/1")]
        .map(|(side, topic)| (RawClient::connect(side, &Connect::new(V5, "writer")), topic));
    for (writer, topic) in &mut writers {
        writer.deliver(&Message::new(*topic, vec![b'x'; 300_000]).qos(1));
        let ids: Vec<u16> =
            (0..50).map(|n| writer.publish(&Message::new(*topic, vec![b'y'; n * 40]).qos(1))).collect();
        ids.into_iter().for_each(|id| drop(writer.expect_ack(crate::support::Kind::Puback, id)));
    }
    for reader in &mut readers {
        let lengths: Vec<usize> = take(reader, 51).into_iter().map(|(_, payload)| payload.len()).collect();
        let expected: Vec<usize> = std::iter::once(300_000).chain((0..50).map(|n| n * 40)).collect();
        assert_eq!(lengths, expected);
    }
}

#[test]
fn messages_pass_by_websocket_to_a_mosquitto_and_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let pki = Pki::new();
    let tls = format!(
        "protocol websockets\ncertfile {}\nkeyfile {}\n",
        pki.text_path("server.pem"),
        pki.text_path("server.key"),
    );
    let listeners = ["", "protocol websockets\n", &tls];
    let far = Mosquitto::start_listeners(directory.path(), &listeners, "allow_anonymous true\n");
    let mut near = Broker::started(&bridge(&format!("ws://{}", far.addresses[1]), "", TOPICS));
    let line = near.says("bridge.established");
    assert!(line.contains(&format!("ws://{}/mqtt", far.addresses[1])), "{line}");
    messages_pass(near.address(), far.address);
    let ca = format!("ca = \"{}\"\n", pki.text_path("ca.pem"));
    let address = format!("wss://localhost:{}", far.addresses[2].port());
    near.reload(&bridge(&address, &ca, TOPICS));
    near.says("bridge.established");
    messages_pass(near.address(), far.address);
}

#[test]
fn messages_pass_by_websocket_to_another_homing_and_back() {
    let pki = Pki::new();
    let websocket = Listener {
        protocol: Some(ListenerProtocol::WebSocket),
        websocket_path: Some("/deep/mqtt".into()),
        ..kit::listener()
    };
    let with_tls = Listener { tls: Some(pki.tls()), ..websocket.clone() };
    let far = kit::start(vec![kit::listener(), websocket, with_tls]);
    let addresses: Vec<SocketAddr> = far.addresses().to_vec();
    let mut near = Broker::started(&bridge(&format!("ws://{}/deep/mqtt", addresses[1]), "", TOPICS));
    near.says("bridge.established");
    messages_pass(near.address(), addresses[0]);
    let ca = format!("ca = \"{}\"\n", pki.text_path("ca.pem"));
    near.reload(&bridge(&format!("wss://localhost:{}/deep/mqtt", addresses[2].port()), &ca, TOPICS));
    near.says("bridge.established");
    messages_pass(near.address(), addresses[0]);
    near.reload(&bridge(&format!("ws://{}/other", addresses[1]), "", TOPICS));
    near.says("the WebSocket upgrade failed: GET /other was answered with HTTP/1.1 404 Not Found");
    near.reload(&bridge(&format!("ws://{}", addresses[0]), "", TOPICS));
    near.says("the WebSocket upgrade failed");
}

#[test]
fn a_server_that_breaks_the_websocket_is_left_for_the_reason() {
    const ACCEPTED: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    let with = |behind: &[u8]| [ACCEPTED, behind].concat();
    let cases = [
        (vec![], "no CONNACK within connect_timeout"),
        (b"SSH-2.0-OpenSSH".to_vec(), "the answer to the upgrade is not HTTP"),
        ([b"HTTP/1.1 ".as_slice(), &[b'x'; 9_000]].concat(), "the response to the upgrade does not end"),
        (b"HTTP/1.1 101 x\r\n\r\n".to_vec(), "no Sec-WebSocket-Accept for the key"),
        (with(b""), "no CONNACK within connect_timeout"),
        (with(b"\x82\x85abcd"), "a frame of a server must not be masked"),
        (with(b"\x81\x02hi"), "a text frame; MQTT uses binary frames"),
        (with(b"\xF2\x00"), "a reserved bit is set"),
        (with(b"\x88\x02\x03\xE9"), "closed the connection before CONNACK"),
    ];
    let (far, _open) = answering(cases.iter().map(|(bytes, _)| bytes.clone()).collect());
    let keys = "version = \"5.0\"\nconnect_timeout = \"3s\"\n";
    let mut near = Broker::started(&bridge(&format!("ws://{far}"), keys, TOPICS));
    for (_, reason) in cases {
        let line = near.says("bridge.not_connected");
        assert!(line.contains(reason), "{reason}: {line}");
    }
}

#[test]
fn a_bridge_offers_the_names_of_alpn() {
    let pki = Pki::new();
    let listener = Listener { tls: Some(pki.tls()), ..kit::listener() };
    let far = kit::start(vec![listener]);
    let address = format!("tls://localhost:{}", far.addresses()[0].port());
    let keys = |alpn: &str| format!("ca = \"{}\"\nalpn = {alpn}\n", pki.text_path("ca.pem"));
    // A listener of Homing knows the name `mqtt`, and refuses a client that offers others alone.
    let mut near = Broker::started(&bridge(&address, &keys("[\"x-amzn-mqtt-ca\"]"), TOPICS));
    near.says("the TLS handshake failed: received fatal alert: NoApplicationProtocol");
    near.reload(&bridge(&address, &keys("[\"x-amzn-mqtt-ca\", \"mqtt\"]"), TOPICS));
    near.says("bridge.established");
}

#[test]
fn each_failure_of_tls_says_its_reason() {
    let (pki, other) = (Pki::new(), Pki::named("another"));
    let mut expired = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    (expired.not_before, expired.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    pki.server_of("expired", expired, KeyPair::generate().expect("a key"));
    let foreign = other.client("bridge");
    other.write("bridge.pem", &foreign.pem);
    other.write("bridge.key", &foreign.key.serialize_pem());
    let with = |tls| Listener { tls: Some(tls), ..kit::listener() };
    let of_expired =
        homing::config::ListenerTls { certificates: Some(vec![pki.pair("expired")]), ..pki.tls() };
    let mutual = pki.mutual_tls();
    assert_eq!(mutual.client_certificates, Some(ClientCertificates::Required));
    let far = kit::start(vec![with(pki.tls()), with(of_expired), with(mutual)]);
    let address = |at: usize| format!("tls://localhost:{}", far.addresses()[at].port());
    let ca = |pki: &Pki| format!("version = \"5.0\"\nca = \"{}\"\n", pki.text_path("ca.pem"));
    let (certificate, key) = (other.text_path("bridge.pem"), other.text_path("bridge.key"));
    // What a case says once more after the next one has begun is not what the next one has to say.
    let cases = [
        (0, ca(&other), "invalid peer certificate: UnknownIssuer"),
        (2, ca(&pki), "does not accept the certificate of the bridge"),
        (0, ca(&pki) + "server_name = \"elsewhere.example\"\n", "not valid for name \"elsewhere.example\""),
        (
            2,
            format!("{}certificate = \"{certificate}\"\nkey = \"{key}\"\n", ca(&pki)),
            "does not accept the certificate of the bridge",
        ),
        (1, ca(&pki), "invalid peer certificate: certificate expired"),
    ];
    let mut near = Broker::started("");
    for (at, keys, reason) in cases {
        near.reload(&bridge(&address(at), &keys, TOPICS));
        near.says(reason);
    }
}
