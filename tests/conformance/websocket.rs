//! MQTT over WebSocket (section 6 of both standards). A test is for a version, whose CONNECT it
//! sends.

use crate::harness::Target;
use crate::support::{Connect, Version};
use homing::config::{Listener, ListenerProtocol};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Bytes, Message, WebSocket};

const PING: [u8; 2] = [0xC0, 0];
const PONG: [u8; 2] = [0xD0, 0];

/// An upgraded connection to a broker of its own.
struct Upgraded {
    socket: WebSocket<TcpStream>,
    _target: Target,
}

impl Upgraded {
    /// Upgrades. The reply names the subprotocol.
    fn new(target: &Target) -> Upgraded {
        let target = target.configured(|config| {
            let plain = Listener::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            config.network.listen.clear();
            config.listeners = vec![Listener { protocol: Some(ListenerProtocol::WebSocket), ..plain }];
        });
        let stream = TcpStream::connect(target.address()).expect("it listens");
        stream.set_read_timeout(Some(target.ack_wait())).expect("a timeout");
        let url = format!("ws://localhost:{}/mqtt", target.address().port());
        let mut request = url.into_client_request().expect("a URL");
        let offered = HeaderValue::from_static("other, mqtt");
        request.headers_mut().insert("Sec-WebSocket-Protocol", offered);
        let (socket, response) = tungstenite::client(request, stream).expect("an upgrade");
        let named = response.headers().get("Sec-WebSocket-Protocol");
        assert_eq!(named, Some(&HeaderValue::from_static("mqtt")));
        Upgraded { socket, _target: target }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.send(Message::Binary(Bytes::copy_from_slice(bytes))).expect("open");
    }

    /// Returns as many bytes, whatever frames they come in. Each frame is binary.
    fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < count {
            match self.socket.read().expect("open") {
                Message::Binary(bytes) => received.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        received
    }

    fn connect(&mut self, version: Version) {
        self.send(&Connect::new(version, "c").encode());
        let first = self.receive(2);
        let whole = usize::from(first[1]) + 2;
        let rest = self.receive(whole.saturating_sub(first.len()));
        assert_eq!((first[0], [first, rest].concat()[3]), (0x20, 0));
    }
}

pub fn handshake_reply_names_the_subprotocol(target: &Target, version: Version) {
    Upgraded::new(target).connect(version);
}

pub fn borders_of_frames_mean_nothing(target: &Target, version: Version) {
    let mut client = Upgraded::new(target);
    let connect = Connect::new(version, "c").encode();
    let (last, others) = connect.split_last().expect("a CONNECT");
    for byte in others {
        client.send(&[*byte]);
    }
    client.send(&[&[*last][..], &PING, &PING[..1]].concat());
    client.send(&PING[1..]);
    let received = client.receive(6);
    let connack = usize::from(received[1]) + 2;
    let rest = client.receive((connack + 4).saturating_sub(received.len()));
    let received = [received, rest].concat();
    assert_eq!((received[0], &received[connack..]), (0x20, &[PONG, PONG].concat()[..]));
}

pub fn a_text_frame_closes(target: &Target, version: Version) {
    let mut client = Upgraded::new(target);
    client.connect(version);
    client.socket.send(Message::text("\u{0}")).expect("open");
    assert!(matches!(client.socket.read(), Ok(Message::Close(_))));
}
