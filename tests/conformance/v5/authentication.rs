//! Enhanced authentication (3.15, 4.12) with SCRAM-SHA-256.

use super::cases;
use super::stage::{PROTOCOL_ERROR, Stage};
use crate::harness::Target;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use homing::auth::password::scram::ScramHash;
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::packet::{
    Auth, Connect, ConnectProperties, Disconnect, Packet, ProtocolVersion, ReasonCode,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::path::PathBuf;

cases! {
    only_auth_and_disconnect_may_come_before_connack: ["MQTT-3.1.2-30"],
    auth_has_one_of_three_reason_codes: ["MQTT-3.15.2-1"],
    auth_has_no_reason_string_and_no_user_property: ["MQTT-3.15.2-2", "MQTT-3.15.2-3"],
    a_challenge_is_an_auth_with_0x18: ["MQTT-4.12.0-2"],
    an_answer_is_an_auth_with_0x18: ["MQTT-4.12.0-3"],
    every_packet_of_the_exchange_names_the_method: ["MQTT-4.12.0-5"],
    re_authentication_names_the_method_of_connect: ["MQTT-4.12.1-1"],
    re_authentication_as_another_user_is_closed: ["MQTT-4.12.1-2"],
}

const METHOD: &str = "SCRAM-SHA-256";
const V5: ProtocolVersion = ProtocolVersion::V5;

/// A broker of its own that knows Ann and Bob, with their names as passwords.
struct Guarded {
    target: Target,
    passwords: PathBuf,
}

impl Guarded {
    fn of(stage: &Stage<'_>) -> Guarded {
        let passwords = std::env::temp_dir().join(format!("{}-scram", stage.id("passwd")));
        let line =
            |user: &str| format!("{user}:{}\n", ScramHash::create(user.as_bytes(), &[7; 16]).to_text());
        std::fs::write(&passwords, ["ann", "bob"].map(line).concat()).expect("a file for the test");
        let target = stage.configured(|config| config.auth.password_file = passwords.display().to_string());
        Guarded { target, passwords }
    }

    fn open(&self) -> Peer {
        let socket = TcpStream::connect(self.target.address()).expect("the broker listens");
        socket.set_read_timeout(Some(self.target.ack_wait())).expect("a timeout");
        Peer { socket, unread: Vec::new() }
    }

    /// A client that has been challenged, with the data of its answer.
    fn challenged(&self, user: &str) -> (Peer, Vec<u8>) {
        let mut peer = self.open();
        peer.connect(user);
        let answer = peer.answer_to_challenge(user);
        (peer, answer)
    }

    /// A client that was accepted as this user.
    fn proven(&self, user: &str) -> Peer {
        let (mut peer, answer) = self.challenged(user);
        peer.auth(0x18, METHOD, &answer);
        let bytes = peer.read();
        let Packet::Connack(connack) = decoded(&bytes) else { panic!("no CONNACK: {bytes:02X?}") };
        assert_eq!(connack.reason, ReasonCode::SUCCESS);
        assert_eq!(connack.properties.authentication_method, Some(METHOD));
        assert!(connack.properties.authentication_data.is_some_and(|data| data.starts_with(b"v=")));
        peer
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.passwords));
    }
}

/// One connection, packet by packet.
struct Peer {
    socket: TcpStream,
    unread: Vec<u8>,
}

fn decoded(bytes: &[u8]) -> Packet<'_> {
    let Ok(Decoded::Packet { packet, .. }) = codec::decode(bytes, V5, u32::MAX) else {
        panic!("no packet: {bytes:02X?}")
    };
    packet
}

impl Peer {
    fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        codec::encode(packet, V5, &mut bytes).expect("a lawful packet");
        self.socket.write_all(&bytes).expect("the broker reads");
    }

    fn connect(&mut self, user: &str) {
        let first = format!("n,,n={user},r=nonce");
        let properties = ConnectProperties {
            authentication_method: Some(METHOD),
            authentication_data: Some(first.as_bytes()),
            ..ConnectProperties::default()
        };
        self.send(&Packet::Connect(Box::new(Connect {
            version: V5,
            clean_start: true,
            keep_alive: 0,
            properties,
            client_id: user,
            will: None,
            user_name: None,
            password: None,
        })));
    }

    fn auth(&mut self, reason: u8, method: &str, data: &[u8]) {
        let reason = ReasonCode::from_byte(reason).expect("a reason code");
        let (method, data) = (Some(method), Some(data));
        self.send(&Packet::Auth(Auth {
            reason,
            method,
            data,
            reason_string: None,
            user_properties: Vec::new(),
        }));
    }

    /// Returns the bytes of the next packet; none if the broker closes the connection.
    fn read(&mut self) -> Vec<u8> {
        loop {
            if let Ok(Decoded::Packet { length, .. }) = codec::decode(&self.unread, V5, u32::MAX) {
                let rest = self.unread.split_off(length);
                return std::mem::replace(&mut self.unread, rest);
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Vec::new(),
                Ok(read) => self.unread.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Vec::new(),
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// Begins a re-authentication as this user, and answers the challenge.
    fn re_authenticate(&mut self, user: &str) {
        self.auth(0x19, METHOD, format!("n,,n={user},r=nonce").as_bytes());
        let answer = self.answer_to_challenge(user);
        self.auth(0x18, METHOD, &answer);
    }

    /// Reads a challenge, and returns the answer to it.
    fn answer_to_challenge(&mut self, user: &str) -> Vec<u8> {
        let bytes = self.read();
        let Packet::Auth(auth) = decoded(&bytes) else { panic!("no AUTH: {bytes:02X?}") };
        assert_eq!((auth.reason.byte(), auth.method), (0x18, Some(METHOD)));
        assert_eq!((auth.reason_string, auth.user_properties.len()), (None, 0));
        let server = std::str::from_utf8(auth.data.expect("a challenge")).expect("text");
        let part = |at: usize| server.split(',').nth(at).and_then(|part| part.get(2..)).expect("a part");
        let salt = STANDARD.decode(part(1)).expect("a salt");
        let iterations: NonZeroU32 = part(2).parse().expect("a number");
        let mut salted = [0; 32];
        derive(PBKDF2_HMAC_SHA256, iterations, &salt, user.as_bytes(), &mut salted);
        let keyed = |key: &[u8], text: &[u8]| sign(&Key::new(HMAC_SHA256, key), text);
        let client_key = keyed(&salted, b"Client Key");
        let stored_key = digest(&SHA256, client_key.as_ref());
        let last = format!("c=biws,r={}", part(0));
        let signature = keyed(stored_key.as_ref(), format!("n={user},r=nonce,{server},{last}").as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, with)| key ^ with).collect();
        format!("{last},p={}", STANDARD.encode(proof)).into_bytes()
    }

    /// Asserts that the connection ends by a CONNACK or DISCONNECT with this reason, and no other
    /// packet.
    fn assert_ends(mut self, code: u8, why: &str) {
        let bytes = self.read();
        let reason = match decoded(&bytes) {
            Packet::Connack(connack) => connack.reason,
            Packet::Disconnect(Disconnect { reason, .. }) => reason,
            other => panic!("{why}: {other:?}"),
        };
        assert_eq!(reason.byte(), code, "{why}");
        assert_eq!(self.read(), [0; 0], "{why}");
    }
}

fn only_auth_and_disconnect_may_come_before_connack(stage: &Stage) {
    let guarded = Guarded::of(stage);
    let (mut peer, answer) = guarded.challenged("ann");
    peer.send(&Packet::Pingreq);
    peer.assert_ends(PROTOCOL_ERROR, "PINGREQ");
    let (mut peer, _) = guarded.challenged("ann");
    peer.connect("ann");
    peer.assert_ends(PROTOCOL_ERROR, "a second CONNECT");
    let (mut peer, _) = guarded.challenged("ann");
    peer.send(&Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION)));
    assert_eq!(peer.read(), [0; 0]);
    // The answer belongs to the first exchange alone.
    let (mut peer, _) = guarded.challenged("ann");
    peer.auth(0x18, METHOD, &answer);
    peer.assert_ends(0x87, "an answer to another challenge");
}

fn auth_has_one_of_three_reason_codes(stage: &Stage) {
    let guarded = Guarded::of(stage);
    let mut peer = guarded.proven("ann");
    peer.re_authenticate("ann");
    let bytes = peer.read();
    assert!(matches!(decoded(&bytes), Packet::Auth(auth) if auth.reason == ReasonCode::SUCCESS));
    // A reason code that AUTH does not have.
    peer.socket.write_all(&[0xF0, 2, 0x87, 0]).expect("the broker reads");
    let bytes = peer.read();
    assert!(matches!(decoded(&bytes), Packet::Disconnect(d) if matches!(d.reason.byte(), 0x81 | 0x82)));
}

fn auth_has_no_reason_string_and_no_user_property(stage: &Stage) {
    // `answer_to_challenge` looks at the challenge, whatever size the client takes.
    let guarded = Guarded::of(stage);
    drop(guarded.proven("ann"));
}

fn a_challenge_is_an_auth_with_0x18(stage: &Stage) {
    let guarded = Guarded::of(stage);
    for user in ["ann", "nobody"] {
        let (mut peer, answer) = guarded.challenged(user);
        peer.auth(0x18, METHOD, &answer);
        let bytes = peer.read();
        let Packet::Connack(connack) = decoded(&bytes) else { panic!("no CONNACK: {bytes:02X?}") };
        assert_eq!(connack.reason.byte(), if user == "ann" { 0 } else { 0x87 });
    }
}

fn an_answer_is_an_auth_with_0x18(stage: &Stage) {
    let guarded = Guarded::of(stage);
    for reason in [0x00, 0x19] {
        let (mut peer, answer) = guarded.challenged("ann");
        peer.auth(reason, METHOD, &answer);
        peer.assert_ends(PROTOCOL_ERROR, &format!("AUTH 0x{reason:02X}"));
    }
}

fn every_packet_of_the_exchange_names_the_method(stage: &Stage) {
    let guarded = Guarded::of(stage);
    drop(guarded.proven("ann"));
    let (mut peer, answer) = guarded.challenged("ann");
    peer.auth(0x18, "SCRAM-SHA-1", &answer);
    peer.assert_ends(PROTOCOL_ERROR, "another method");
}

fn re_authentication_names_the_method_of_connect(stage: &Stage) {
    let guarded = Guarded::of(stage);
    let mut peer = guarded.proven("ann");
    peer.auth(0x19, "SCRAM-SHA-1", b"n,,n=ann,r=nonce");
    peer.assert_ends(PROTOCOL_ERROR, "another method");
}

fn re_authentication_as_another_user_is_closed(stage: &Stage) {
    let guarded = Guarded::of(stage);
    let mut peer = guarded.proven("ann");
    peer.re_authenticate("bob");
    peer.assert_ends(0x87, "another user");
}
