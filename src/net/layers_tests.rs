//! `Layers` against rustls's own buffered client, and against tungstenite.

use std::io::IoSlice;
use std::sync::Arc;

use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, SupportedProtocolVersion};

use super::*;
use crate::net::tls::engine::TlsHandshake;
use crate::net::tls::test_pki::{Authority, Leaf, client, received, sent, server_config, written};

/// A connection after its TLS handshake, with both ends in memory.
pub(crate) struct Pair {
    pub(crate) client: ClientConnection,
    pub(crate) layers: Layers,
    /// Wire bytes that the server did not use yet.
    kept: Vec<u8>,
}

thread_local! {
    // One key for all cases: making one takes longer than a handshake.
    static PKI: (Authority, Leaf) = {
        let authority = Authority::new("test root");
        let leaf = authority.server(&["broker.test"]);
        (authority, leaf)
    };
}

/// Runs a handshake, with at most `chunk` bytes of the client at once.
fn handshake(version: &'static SupportedProtocolVersion, record_size: Option<usize>, chunk: usize) -> Pair {
    PKI.with(|(authority, leaf)| {
        let mut config = server_config(&[version], leaf);
        config.max_fragment_size = record_size.map(|size| size + 5);
        let mut client = client(authority.client_config(&[version], None), "broker.test");
        let mut server = TlsHandshake::new(Arc::new(config)).unwrap();
        let (mut kept, mut plain) = (Vec::new(), Vec::new());
        while client.is_handshaking() || !server.is_done() {
            let wire = sent(&mut client);
            assert!(!wire.is_empty(), "both wait");
            for part in wire.chunks(chunk) {
                kept.extend_from_slice(part);
                let mut out = Vec::new();
                let progress = server.advance(&mut kept, &mut plain, &mut out).unwrap();
                kept.drain(..progress.used);
                received(&mut client, &out).unwrap();
            }
        }
        assert!(plain.is_empty() && kept.is_empty());
        Pair { client, layers: Layers::new(server.finish(), None), kept }
    })
}

impl Pair {
    /// Gives wire bytes to the server in these chunks and returns the opened bytes and the replies.
    fn open(&mut self, wire: &[u8], chunks: &[usize]) -> Result<(Vec<u8>, Vec<u8>, bool), LayerError> {
        let (mut plain, mut out, mut closed) = (Vec::new(), Vec::new(), false);
        let mut rest = wire;
        let mut chunks = chunks.iter().copied().chain(std::iter::repeat(usize::MAX));
        while !rest.is_empty() {
            let (now, later) = rest.split_at(chunks.next().unwrap().clamp(1, rest.len()));
            rest = later;
            self.kept.extend_from_slice(now);
            let opened = self.layers.open(&mut self.kept, &mut plain, &mut out)?;
            self.kept.drain(..opened.used);
            closed |= opened.closed;
        }
        Ok((plain, out, closed))
    }

    fn seal(&mut self, pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut bytes: Vec<u8> = pieces.concat();
        // The first call has the pieces as they are; the others have the rest in one piece.
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut sealed = self.layers.seal(&slices, &mut out);
        while sealed < bytes.len() {
            bytes.drain(..sealed);
            sealed = self.layers.seal(&[IoSlice::new(&bytes)], &mut out);
            assert!(sealed > 0);
        }
        out
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

fn versions() -> impl Strategy<Value = &'static SupportedProtocolVersion> {
    prop_oneof![Just(&TLS12), Just(&TLS13)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_chunking_of_the_wire_gives_the_same_bytes(
        version in versions(),
        at_once in 1_usize..2000,
        messages in prop::collection::vec(0_usize..40_000, 1..6),
        chunks in prop::collection::vec(1_usize..20_000, 0..40),
    ) {
        let mut pair = handshake(version, None, at_once);
        let mut wire = Vec::new();
        let mut expected = Vec::new();
        for len in messages {
            wire.extend(written(&mut pair.client, &bytes(len)));
            expected.extend(bytes(len));
        }
        let (plain, out, closed) = pair.open(&wire, &chunks).unwrap();
        prop_assert!(plain == expected && !closed && out.is_empty());
        prop_assert!(pair.kept.is_empty());
    }

    #[test]
    fn a_client_opens_what_was_sealed_from_any_pieces(
        version in versions(),
        record_size in prop_oneof![Just(None), (512_usize..16_384).prop_map(Some)],
        pieces in prop::collection::vec(0_usize..30_000, 0..12),
    ) {
        let mut pair = handshake(version, record_size, 4096);
        let pieces: Vec<Vec<u8>> = pieces.into_iter().map(bytes).collect();
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let wire = pair.seal(&slices);
        let most = record_size.unwrap_or(16_384) + 29;
        let mut rest = wire.as_slice();
        while let [_, _, _, high, low, after @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            prop_assert!(len <= most);
            rest = &after[len..];
        }
        prop_assert_eq!(received(&mut pair.client, &wire).unwrap(), pieces.concat());
    }

    #[test]
    fn bytes_that_are_no_tls_never_panic(wire in prop::collection::vec(any::<u8>(), 0..600), at in 0_usize..600) {
        let mut pair = handshake(&TLS13, None, 4096);
        let _ = pair.open(&wire, &[at]);
        let mut out = Vec::new();
        pair.layers.seal(&[IoSlice::new(b"after")], &mut out);
        pair.layers.close(&mut out);
    }
}

#[test]
fn one_call_seals_at_most_64_kib() {
    let mut pair = handshake(&TLS13, None, 4096);
    let mut out = Vec::new();
    let (a, b) = (bytes(40_000), bytes(40_000));
    assert_eq!(pair.layers.seal(&[IoSlice::new(&a), IoSlice::new(&b)], &mut out), SEAL_MAX);
    assert_eq!(received(&mut pair.client, &out).unwrap(), [a, b].concat()[..SEAL_MAX]);
    assert_eq!(out.len(), SEAL_MAX + 4 * 22);
}

#[test]
fn close_notify_closes_and_later_bytes_are_ignored() {
    for version in [&TLS12, &TLS13] {
        let mut pair = handshake(version, None, 4096);
        let mut wire = written(&mut pair.client, b"last");
        pair.client.send_close_notify();
        wire.extend(sent(&mut pair.client));
        wire.extend_from_slice(b"garbage");
        let (plain, _, closed) = pair.open(&wire, &[]).unwrap();
        assert!(closed && plain == b"last");
        // Our side is still open: the last packets go out, and close_notify after them.
        let mut out = pair.seal(&[b"DISCONNECT"]);
        pair.layers.close(&mut out);
        pair.layers.close(&mut out);
        assert_eq!(received(&mut pair.client, &out).unwrap(), b"DISCONNECT");
        assert_eq!(pair.layers.seal(&[IoSlice::new(b"more")], &mut out), 0);
    }
}

#[test]
fn a_changed_record_gets_an_alert() {
    for version in [&TLS12, &TLS13] {
        let mut pair = handshake(version, None, 4096);
        let mut wire = written(&mut pair.client, b"a message");
        *wire.last_mut().unwrap() ^= 1;
        let mut out = Vec::new();
        let error = pair.layers.open(&mut wire, &mut Vec::new(), &mut out).unwrap_err();
        assert_eq!(error.to_string(), "TLS: cannot decrypt peer's message");
        let alert = received(&mut pair.client, &out).unwrap_err();
        assert_eq!(alert, rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac));
        assert_eq!(pair.layers.seal(&[IoSlice::new(b"more")], &mut out), 0);
    }
}

#[test]
fn a_key_update_of_the_client_is_followed() {
    let mut pair = handshake(&TLS13, None, 4096);
    for round in 0..5 {
        pair.client.refresh_traffic_keys().unwrap();
        let wire = written(&mut pair.client, b"new keys");
        assert_eq!(pair.open(&wire, &[round]).unwrap().0, b"new keys");
        // The reply, with the new keys of the server, comes before the next bytes.
        let wire = pair.seal(&[b"mine", b" too"]);
        assert_eq!(received(&mut pair.client, &wire).unwrap(), b"mine too");
    }
}

#[test]
fn a_flood_of_key_updates_or_empty_records_ends() {
    let mut pair = handshake(&TLS13, None, 4096);
    let mut wire = Vec::new();
    for _ in 0..200 {
        pair.client.refresh_traffic_keys().unwrap();
        wire.extend(sent(&mut pair.client));
    }
    assert!(matches!(pair.open(&wire, &[]), Err(LayerError::Tls(_))));
}

#[test]
fn another_protocol_is_named() {
    PKI.with(|(_, leaf)| {
        for (wire, looks) in [
            (&b"\x10\x10\x00\x04MQTT"[..], FirstBytes::Mqtt),
            (b"GET / HTTP/1.1\r\n", FirstBytes::Http),
            (b"PROXY TCP4 ", FirstBytes::Proxy),
            (b"\r\n\r\n\0\r\nQUIT\n", FirstBytes::Proxy),
            (b"\x80\x2e", FirstBytes::Other),
        ] {
            let mut server = TlsHandshake::new(Arc::new(server_config(&[&TLS13], leaf))).unwrap();
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            let error = server.advance(&mut wire.to_vec(), &mut plain, &mut out).unwrap_err();
            assert!(matches!(error, LayerError::NotTls(named) if named == looks), "{error}");
        }
        assert_eq!(FirstBytes::of(&[0x16, 0x03, 0x01]), FirstBytes::Tls);
    });
}

#[test]
fn plain_bytes_behind_the_handshake_are_returned() {
    for version in [&TLS12, &TLS13] {
        PKI.with(|(authority, leaf)| {
            let mut client = client(authority.client_config(&[version], None), "broker.test");
            let mut server = TlsHandshake::new(Arc::new(server_config(&[version], leaf))).unwrap();
            let (mut plain, mut out, mut wire) = (Vec::new(), Vec::new(), sent(&mut client));
            let mut early = Vec::new();
            while !server.is_done() {
                let progress = server.advance(&mut wire, &mut plain, &mut out).unwrap();
                wire.drain(..progress.used);
                received(&mut client, &std::mem::take(&mut out)).unwrap();
                wire.extend(sent(&mut client));
                if !client.is_handshaking() && early.is_empty() {
                    // The Finished message and the first bytes come in one read.
                    early = written(&mut client, b"CONNECT");
                    wire.extend_from_slice(&early);
                }
            }
            let mut layers = Layers::new(server.finish(), None);
            wire.extend(written(&mut client, b"PUBLISH"));
            let opened = layers.open(&mut wire, &mut plain, &mut out).unwrap();
            assert_eq!(opened, OpenedWire { used: wire.len(), closed: false });
            assert!(plain == b"PUBLISH" || plain == b"CONNECTPUBLISH");
        });
    }
}

#[test]
fn an_endless_flight_is_refused() {
    PKI.with(|(_, leaf)| {
        let mut server = TlsHandshake::new(Arc::new(server_config(&[&TLS13], leaf))).unwrap();
        // A ClientHello of 60 KB, in records of 100 bytes.
        let mut wire = Vec::new();
        for at in 0..600 {
            wire.extend_from_slice(&[0x16, 3, 1, 0, 100]);
            wire.extend_from_slice(&if at == 0 {
                [&[1, 0, 0xEA, 0][..], &[0; 96]].concat()
            } else {
                vec![0; 100]
            });
        }
        let mut kept = Vec::new();
        let mut result = Ok(());
        for part in wire.chunks(4096) {
            kept.extend_from_slice(part);
            match server.advance(&mut kept, &mut Vec::new(), &mut Vec::new()) {
                Ok(progress) => drop(kept.drain(..progress.used)),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        assert!(matches!(result, Err(LayerError::HandshakeTooLong)));
        assert!(kept.len() < 40 * 1024);
    });
}

#[test]
fn layers_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Layers>();
    is_send::<TlsHandshake>();
}

/// A WebSocket client over the TLS client of a pair.
fn websocket(wire: Vec<u8>) -> tungstenite::WebSocket<std::io::Cursor<Vec<u8>>> {
    let stream = std::io::Cursor::new(wire);
    tungstenite::WebSocket::from_raw_socket(stream, tungstenite::protocol::Role::Client, None)
}

/// A masked frame with the mask 0.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap();
    [&[first, 0x80 | len, 0, 0, 0, 0], payload].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn frames_in_records_open_and_seal(
        version in versions(),
        payloads in prop::collection::vec(0_usize..125, 1..20),
        records in prop::collection::vec(1_usize..60, 1..30),
        chunks in prop::collection::vec(1_usize..200, 0..40),
        pieces in prop::collection::vec(0_usize..20_000, 1..8),
    ) {
        let mut pair = handshake(version, None, 4096);
        pair.layers = Layers::new(pair.layers.tls.take().map(|tls| *tls), Some(Ws::new()));
        let expected: Vec<Vec<u8>> = payloads.into_iter().map(bytes).collect();
        let frames: Vec<u8> = expected.iter().flat_map(|payload| frame(0x82, payload)).collect();
        // Frames cross records, and records cross reads.
        let (mut wire, mut rest) = (Vec::new(), frames.as_slice());
        for len in records.into_iter().cycle() {
            let (now, later) = rest.split_at(len.min(rest.len()));
            wire.extend(written(&mut pair.client, now));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let (plain, out, closed) = pair.open(&wire, &chunks).unwrap();
        prop_assert!(plain == expected.concat() && out.is_empty() && !closed);

        let pieces: Vec<Vec<u8>> = pieces.into_iter().map(bytes).collect();
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let wire = pair.seal(&slices);
        let mut socket = websocket(received(&mut pair.client, &wire).unwrap());
        let mut read = Vec::new();
        while let Ok(message) = socket.read() {
            prop_assert!(message.is_binary());
            read.extend_from_slice(&message.into_data());
        }
        prop_assert!(read == pieces.concat());
    }
}

#[test]
fn replies_of_websocket_go_through_tls() {
    for version in [&TLS12, &TLS13] {
        let mut pair = handshake(version, None, 4096);
        pair.layers = Layers::new(pair.layers.tls.take().map(|tls| *tls), Some(Ws::new()));
        let wire = written(&mut pair.client, &[frame(0x89, b"ping"), frame(0x82, b"mqtt")].concat());
        let (plain, out, _) = pair.open(&wire, &[]).unwrap();
        assert_eq!(plain, b"mqtt");
        assert_eq!(received(&mut pair.client, &out).unwrap(), b"\x8A\x04ping");
        // A text frame: close frame 1003, then close_notify.
        let wire = written(&mut pair.client, &[frame(0x82, b"before"), frame(0x81, b"text")].concat());
        let mut kept = wire.clone();
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let error = pair.layers.open(&mut kept, &mut plain, &mut out).unwrap_err();
        assert!(matches!(error, LayerError::Frame(error) if error.code() == 1003));
        assert_eq!(received(&mut pair.client, &out).unwrap(), [0x88, 2, 0x03, 0xEB]);
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
        pair.layers.close(&mut out);
        assert_eq!(pair.layers.seal(&[IoSlice::new(b"more")], &mut out), 0);
    }
}

#[test]
fn websocket_without_tls_seals_one_frame_for_each_call() {
    let mut layers = Layers::new(None, Some(Ws::new()));
    let mut out = Vec::new();
    assert_eq!(layers.seal(&[IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")], &mut out), 6);
    assert_eq!(out, b"\x82\x06onetwo");
    let long = bytes(SEAL_MAX + 1);
    out.clear();
    assert_eq!(layers.seal(&[IoSlice::new(&long)], &mut out), SEAL_MAX);
    assert_eq!(out.len(), SEAL_MAX + 10);
    out.clear();
    layers.close(&mut out);
    layers.close(&mut out);
    assert_eq!(out, [0x88, 2, 0x03, 0xE8]);
    assert_eq!(layers.seal(&[IoSlice::new(b"more")], &mut out), 0);
    assert!(layers.tls().is_none() && layers.ws.is_some() && !layers.must_close());
}

#[test]
fn a_client_that_pings_and_does_not_read_gets_one_pong() {
    let mut pair = handshake(&TLS13, None, 4096);
    pair.layers = Layers::new(pair.layers.tls.take().map(|tls| *tls), Some(Ws::new()));
    let mut plain_ws = Layers::new(None, Some(Ws::new()));
    let (mut pending, mut pending_tls, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..1000_u16 {
        let ping = frame(0x89, &round.to_be_bytes());
        plain_ws.open(&mut ping.clone(), &mut plain, &mut pending).unwrap();
        let mut wire = written(&mut pair.client, &ping);
        pair.layers.open(&mut wire, &mut plain, &mut pending_tls).unwrap();
    }
    assert_eq!(pending, [0x8A, 2, 0, 0]);
    assert_eq!(received(&mut pair.client, &pending_tls).unwrap(), [0x8A, 2, 0, 0]);
    // The newest ping gets its pong once the socket has taken the older bytes.
    pending.clear();
    plain_ws.open(&mut [], &mut plain, &mut pending).unwrap();
    assert_eq!(pending, [0x8A, 2, 0x03, 0xE7]);
}
