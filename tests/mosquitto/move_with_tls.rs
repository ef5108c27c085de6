//! A whole installation moves: a mosquitto with passwords, permissions, TLS, client certificates and
//! WebSocket is imported, and Homing gives every client the same.

use crate::broker::{Mosquitto, command};
use crate::import::homing;
use crate::kit::{self, Identity, Pki};
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Message, V5};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Bytes, WebSocket};

/// The rules are of the names in CONNECT and of those in certificates.
const ACL: &str = "topic readwrite t/anonymous\n\
                   user ann\ntopic readwrite t/ann\ntopic read t/all\n\
                   user pump-7\ntopic readwrite t/pump\ntopic write t/all\n\
                   pattern readwrite own/%u/#\n";
const TOPICS: [&str; 6] = ["t/anonymous", "t/ann", "t/pump", "t/all", "own/ann/x", "own/pump-7/x"];
const NOT_AUTHORIZED: u8 = 0x87;

/// What a client offers.
#[derive(Clone, Copy)]
struct Client<'a> {
    credentials: Option<(&'a str, &'a str)>,
    certificate: Option<&'a Identity>,
    client_id: &'a str,
    alpn: &'a [&'a str],
}

/// What a client gets.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// No answer to CONNECT.
    Closed,
    /// The code of CONNACK.
    Refused(u8),
    /// The topics to which it may publish, and those of which it gets messages.
    Entered { written: BTreeSet<&'static str>, read: BTreeSet<String> },
}

/// A stream of MQTT bytes, whatever carries them.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// MQTT bytes in the frames of a WebSocket.
struct Framed<S> {
    socket: WebSocket<S>,
    received: Vec<u8>,
}

impl<S: Stream> Framed<S> {
    /// Opens a WebSocket as a browser does.
    fn open(stream: S, address: SocketAddr) -> Option<Framed<S>> {
        let url = format!("ws://localhost:{}/mqtt", address.port());
        let mut request = url.into_client_request().expect("a URL");
        request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mqtt"));
        request.headers_mut().insert("Origin", HeaderValue::from_static("https://app.example.com"));
        let (socket, _) = tungstenite::client(request, stream).ok()?;
        Some(Framed { socket, received: Vec::new() })
    }
}

impl<S: Stream> Read for Framed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.received.is_empty() {
            match self.socket.read().map_err(std::io::Error::other)? {
                tungstenite::Message::Binary(bytes) => self.received = bytes.to_vec(),
                tungstenite::Message::Close(_) => return Ok(0),
                other => panic!("{other:?}"),
            }
        }
        let n = buffer.len().min(self.received.len());
        buffer[..n].copy_from_slice(&self.received[..n]);
        self.received.drain(..n);
        Ok(n)
    }
}

impl<S: Stream> Write for Framed<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let message = tungstenite::Message::Binary(Bytes::copy_from_slice(bytes));
        self.socket.send(message).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush().map_err(std::io::Error::other)
    }
}

impl Client<'_> {
    /// Connects over TLS. Publishes to every topic and subscribes to all of them.
    fn visits(&self, pki: &Pki, address: SocketAddr, is_websocket: bool) -> Outcome {
        let mut config = pki.client_config(self.certificate);
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tls = kit::tls_client(config, "localhost", kit::dial(address));
        if !is_websocket {
            return self.enters(tls);
        }
        match Framed::open(tls, address) {
            Some(framed) => self.enters(framed),
            None => Outcome::Closed,
        }
    }

    fn enters(&self, mut stream: impl Stream) -> Outcome {
        let mut connect = Connect::new(V5, self.client_id);
        if let Some((user, password)) = self.credentials {
            connect = connect.user_name(user).password(password.as_bytes());
        }
        // In TLS 1.3 a client learns of a refusal after its own handshake.
        if stream.write_all(&connect.encode()).is_err() || stream.flush().is_err() {
            return Outcome::Closed;
        }
        let mut first = [0];
        if stream.read_exact(&mut first).is_err() {
            return Outcome::Closed;
        }
        let (_, connack) = kit::packet(&mut (&first[..]).chain(&mut stream));
        if connack[1] != 0 {
            return Outcome::Refused(connack[1]);
        }
        let filters = [("t/#", 0), ("own/#", 0)];
        stream.write_all(&subscribe_packet(V5, 1, &[], &filters)).expect("open");
        assert_eq!(kit::packet(&mut stream).0, 0x90);
        let mut written = BTreeSet::new();
        let mut read = BTreeSet::new();
        for (topic, id) in TOPICS.into_iter().zip(2..) {
            let message = Message::new(topic, "x").qos(1);
            stream.write_all(&message.encode(V5, id)).expect("open");
            let puback = answer(&mut stream, 0x40, &mut read);
            if puback.get(2) != Some(&NOT_AUTHORIZED) {
                written.insert(topic);
            }
        }
        stream.write_all(&[0xC0, 0]).expect("open");
        answer(&mut stream, 0xD0, &mut read);
        Outcome::Entered { written, read }
    }
}

/// Returns the body of the next packet of this kind. Collects the topics of the messages before it.
fn answer(stream: &mut impl Stream, kind: u8, read: &mut BTreeSet<String>) -> Vec<u8> {
    loop {
        let (first, body) = kit::packet(stream);
        if first & 0xF0 == kind {
            return body;
        }
        assert_eq!(first & 0xF0, 0x30, "a message");
        let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
        read.insert(String::from_utf8(body[2..2 + length].to_vec()).expect("text"));
    }
}

/// Runs mosquitto_pub or mosquitto_sub. Returns its exit code and what it prints.
fn run(program: &str, address: SocketAddr, pki: &Pki, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = command(program);
    command.args(["-V", "mqttv5", "-h", "127.0.0.1", "-p", &address.port().to_string()]);
    command.arg("--cafile").arg(pki.path("ca.pem")).args(arguments);
    let output = command.output().expect("tests/run installs it");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

fn password_file(path: &Path) {
    let arguments = ["-c", "-b"];
    let status = command("mosquitto_passwd").args(arguments).arg(path).args(["ann", "secret"]).status();
    assert!(status.expect("tests/run installs it").success());
}

/// Starts a mosquitto with TLS, with two kinds of client certificates, and with WebSocket.
fn mosquitto(pki: &Pki, configuration: &str) -> Mosquitto {
    let path = |name| pki.text_path(name);
    let tls = format!("certfile {}\nkeyfile {}\n", path("server.pem"), path("server.key"));
    let required = format!("{tls}cafile {}\nrequire_certificate true\n", path("ca.pem"));
    let named = format!("{required}use_identity_as_username true\n");
    let websockets = format!("{tls}protocol websockets\n");
    let listeners = [tls.as_str(), &required, &named, &websockets];
    // Otherwise the kernel holds each PUBACK back for 40 ms.
    let configuration = format!("set_tcp_nodelay true\n{configuration}");
    Mosquitto::start_listeners(pki.path(".").as_path(), &listeners, &configuration)
}

#[test]
fn a_moved_installation_gives_every_client_the_same_as_mosquitto() {
    let pki = Pki::new();
    let strangers = Pki::named("strangers");
    let (pump, ann, stranger) = (pki.client("pump-7"), pki.client("ann"), strangers.client("pump-7"));
    pki.write("acl", ACL);
    password_file(&pki.path("passwd"));
    let acl = format!("acl_file {}\n", pki.text_path("acl"));
    let passwords = format!("password_file {}\n", pki.text_path("passwd"));
    let (mut visits, mut entered, mut refused, mut closed) = (0, 0, 0, 0);
    for configuration in [
        format!("allow_anonymous false\n{passwords}{acl}"),
        format!("allow_anonymous true\n{passwords}{acl}"),
        format!("allow_anonymous true\n{acl}"),
        format!("allow_anonymous false\n{acl}"),
    ] {
        let mosquitto = mosquitto(&pki, &configuration);
        let (_process, addresses) = homing(pki.path(".").as_path(), &mosquitto);
        for (at, (theirs, ours)) in mosquitto.addresses.iter().zip(addresses).enumerate() {
            let is_websocket = at == 3;
            // For a WebSocket browsers offer http/1.1 alone.
            let alpn: &[&[&str]] = match is_websocket {
                true => &[&[], &["http/1.1"]],
                false => &[&[], &["mqtt"], &["x-amzn-mqtt-ca"]],
            };
            // The first listener and that of WebSocket ask for no certificate.
            let certificates: &[Option<&Identity>] = match at {
                0 | 3 => &[None],
                _ => &[None, Some(&pump), Some(&ann), Some(&stranger)],
            };
            for &certificate in certificates {
                for credentials in [None, Some(("ann", "secret")), Some(("ann", "wrong"))] {
                    for alpn in alpn {
                        // Homing gives a session to its user alone, and the one before may not have ended yet.
                        visits += 1;
                        let client_id = &format!("client-{visits}");
                        let client = Client { credentials, certificate, client_id, alpn };
                        // The third listener verifies names. So a name that nothing verifies has
                        // the rights of anonymous clients in Homing.
                        let is_claim = configuration.starts_with("allow_anonymous true\nacl") && at != 2;
                        let named = if is_claim { None } else { credentials };
                        let theirs =
                            Client { credentials: named, ..client }.visits(&pki, *theirs, is_websocket);
                        let ours = client.visits(&pki, ours, is_websocket);
                        let named = certificate.map(|one| &one.pem);
                        assert_eq!(
                            ours, theirs,
                            "{configuration}listener {at}, {credentials:?}, {alpn:?}, {named:?}"
                        );
                        *match ours {
                            Outcome::Entered { .. } => &mut entered,
                            Outcome::Refused(_) => &mut refused,
                            Outcome::Closed => &mut closed,
                        } += 1;
                    }
                }
            }
        }
    }
    println!("{entered} clients entered, {refused} were refused, {closed} had no connection");
    assert!(entered > 50 && refused > 50 && closed > 20, "all are tested: {entered}, {refused}, {closed}");
}

#[test]
fn mosquittos_clients_do_the_same_at_a_moved_installation() {
    let pki = Pki::new();
    let pump = pki.client("pump-7");
    pki.write("pump.pem", &pump.pem);
    pki.write("pump.key", &pump.key.serialize_pem());
    pki.write("acl", ACL);
    password_file(&pki.path("passwd"));
    let files = format!("acl_file {}\npassword_file {}\n", pki.text_path("acl"), pki.text_path("passwd"));
    let mosquitto = mosquitto(&pki, &format!("allow_anonymous false\n{files}"));
    let (_process, addresses) = homing(pki.path(".").as_path(), &mosquitto);
    let (certificate, key) = (pki.text_path("pump.pem"), pki.text_path("pump.key"));
    let ann = ["-u", "ann", "-P", "secret"];
    let with_certificate = ["--cert", &certificate, "--key", &key];
    let publish = ["-q", "1", "-r", "-m", "hello", "-t"];
    let subscribe = ["-C", "1", "-W", "2", "-t"];
    let results = |addresses: &[SocketAddr]| {
        let [tls, required, named] = [addresses[0], addresses[1], addresses[2]];
        [
            run("mosquitto_pub", tls, &pki, &[&ann[..], &publish, &["t/ann"]].concat()),
            run("mosquitto_sub", tls, &pki, &[&ann[..], &subscribe, &["t/ann"]].concat()),
            run("mosquitto_pub", tls, &pki, &[&["-u", "ann", "-P", "no"][..], &publish, &["t/ann"]].concat()),
            run(
                "mosquitto_sub",
                required,
                &pki,
                &[&ann[..], &with_certificate, &subscribe, &["t/ann"]].concat(),
            ),
            run("mosquitto_pub", named, &pki, &[&with_certificate[..], &publish, &["own/pump-7/a"]].concat()),
            run("mosquitto_sub", named, &pki, &[&with_certificate[..], &subscribe, &["own/#"]].concat()),
            run("mosquitto_sub", named, &pki, &[&with_certificate[..], &subscribe, &["t/ann"]].concat()),
        ]
    };
    let theirs = results(&mosquitto.addresses);
    assert_eq!(results(&addresses), theirs);
    let hello = (Some(0), "hello\n".to_owned());
    assert_eq!([&theirs[1], &theirs[3], &theirs[5]], [&hello; 3], "{theirs:?}");
    assert!([&theirs[2], &theirs[6]].iter().all(|(code, _)| *code != Some(0)), "{theirs:?}");
    // Its exit code depends on the moment at which it reads the alert of TLS.
    for required in [mosquitto.addresses[1], addresses[1]] {
        let (code, _) = run("mosquitto_pub", required, &pki, &[&ann[..], &publish, &["t/ann"]].concat());
        assert_ne!(code, Some(0), "a certificate is required");
    }
}

#[test]
fn the_chain_of_the_broker_is_completed_from_cafile_as_mosquitto_does() {
    let pki = Pki::new();
    pki.server_below_intermediate("leaf");
    let path = |name| pki.text_path(name);
    let tls = format!("certfile {}\nkeyfile {}\n", path("leaf.pem"), path("leaf.key"));
    let completed = format!("{tls}cafile {}\n", path("leaf-ca.pem"));
    let mosquitto = Mosquitto::start_listeners(
        pki.path(".").as_path(),
        &[&completed, &format!("{completed}require_certificate true\n"), &tls],
        "allow_anonymous true\n",
    );
    let (_process, addresses) = homing(pki.path(".").as_path(), &mosquitto);
    for (at, (theirs, ours)) in mosquitto.addresses.iter().zip(addresses).enumerate() {
        // The client knows the root alone. Without the intermediate certificate it refuses.
        let sent = [*theirs, ours].map(|address| {
            let client = pki.client_config(None);
            let mut stream = kit::tls_client(client, "localhost", kit::dial(address));
            while stream.conn.is_handshaking() {
                if stream.conn.complete_io(&mut stream.sock).is_err() {
                    break;
                }
            }
            stream.conn.peer_certificates().map(<[_]>::to_vec)
        });
        assert_eq!(sent[1], sent[0], "listener {at}");
        assert_eq!(sent[1].as_ref().map(Vec::len), (at < 2).then_some(3), "listener {at}");
    }
}
