//! Records that no ordinary client sends, and the limit of the keys of TLS 1.2.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, ConnectionTrafficSecrets, SupportedProtocolVersion};

use super::*;
use crate::net::tls::test_pki::{Authority, client, received, server_config, shake_hands};

fn pair(version: &'static SupportedProtocolVersion) -> (ClientConnection, Tls) {
    let authority = Authority::new("test root");
    let config = server_config(&[version], &authority.server(&["broker.test"]));
    let mut client_config = authority.client_config(&[version], None);
    client_config.enable_secret_extraction = true;
    let mut client = client(client_config, "broker.test");
    let mut server = TlsHandshake::new(Arc::new(config)).unwrap();
    shake_hands(&mut client, &mut server).unwrap();
    (client, server.finish().unwrap())
}

/// The sending half of a TLS 1.3 client, for records that rustls would not send.
struct Sealer {
    key: LessSafeKey,
    iv: [u8; 12],
    number: u64,
}

impl Sealer {
    fn new(client: ClientConnection) -> Sealer {
        let (number, secrets) = client.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("another suite") };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
        Sealer { key, iv: iv.as_ref().try_into().unwrap(), number }
    }

    /// Returns a record with this content (RFC 8446 5.2).
    fn record(&mut self, content: &[u8], content_type: u8) -> Vec<u8> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number += 1;
        let mut inner = [content, &[content_type]].concat();
        let [high, low] = u16::try_from(inner.len() + 16).unwrap().to_be_bytes();
        let header = [0x17, 3, 3, high, low];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut inner).unwrap();
        [&header[..], &inner].concat()
    }
}

/// Returns a ClientHello without extensions, as old clients send it (RFC 4346 7.4.1.2).
fn old_hello(version: [u8; 2]) -> Vec<u8> {
    let body = [&version[..], &[7; 32], &[0], &[0, 2, 0, 0x2F], &[1, 0]].concat();
    let message = [&[1, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat();
    [&[0x16, 3, 1, 0, u8::try_from(message.len()).unwrap()][..], &message].concat()
}

#[test]
fn the_refusal_of_an_old_client_names_its_version() {
    let authority = Authority::new("test root");
    let both: &[&'static SupportedProtocolVersion] = &[&TLS12, &TLS13];
    let newest: &[&'static SupportedProtocolVersion] = &[&TLS13];
    for (version, versions, offered) in [
        ([3, 0], both, "SSL 3.0"),
        ([3, 1], both, "TLS 1.0"),
        ([3, 2], both, "TLS 1.1"),
        ([3, 2], newest, "TLS 1.1"),
    ] {
        // The ClientHello comes in two parts.
        for split in [0, 7, 20] {
            let config = server_config(versions, &authority.server(&["broker.test"]));
            let mut server = TlsHandshake::new(Arc::new(config)).unwrap();
            let mut hello = old_hello(version);
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            if split > 0 {
                server.advance(&mut hello[..split], &mut plain, &mut out).unwrap();
            }
            let error = server.advance(&mut hello, &mut plain, &mut out).unwrap_err().to_string();
            let expected =
                format!("TLS: the client offers {offered} at most, and the listener takes 1.2 and 1.3");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}

/// rustls 0.23 panics if it may encrypt while it holds a part of a handshake message whose bytes
/// the caller does not present. So any client could end the broker.
#[test]
fn a_split_handshake_message_ends_the_connection_and_nothing_else() {
    for first in [&[24, 0, 0][..], &[24, 0, 0, 1], &[24]] {
        let (client, mut tls) = pair(&TLS13);
        let mut sealer = Sealer::new(client);
        let mut wire = sealer.record(b"before", 0x17);
        wire.extend(sealer.record(first, 0x16));
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let error = tls.open(&mut wire, &mut plain, &mut out).unwrap_err();
        assert!(matches!(error, LayerError::SplitHandshakeMessage), "{error}");
        assert_eq!(plain, b"before");
        assert_eq!(tls.seal([&b"more"[..]].into_iter(), 100, &mut out), 0);
        tls.close(&mut out);
        assert!(tls.open(&mut wire, &mut plain, &mut out).unwrap().closed);
    }
}

#[test]
fn whole_messages_in_one_record_are_followed() {
    let (client, mut tls) = pair(&TLS13);
    let mut sealer = Sealer::new(client);
    // An alert that TLS 1.3 ignores, an empty record, and bytes.
    let mut wire = sealer.record(&[1, 90], 0x15);
    wire.extend(sealer.record(b"", 0x17));
    wire.extend(sealer.record(b"bytes", 0x17));
    let mut plain = Vec::new();
    let opened = tls.open(&mut wire, &mut plain, &mut Vec::new()).unwrap();
    assert_eq!((opened.used, plain.as_slice()), (wire.len(), &b"bytes"[..]));
}

#[test]
fn empty_records_without_end_are_refused() {
    let (client, mut tls) = pair(&TLS13);
    let mut sealer = Sealer::new(client);
    let mut wire: Vec<u8> = (0..100).flat_map(|_| sealer.record(b"", 0x17)).collect();
    let error = tls.open(&mut wire, &mut Vec::new(), &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "TLS: peer misbehaved: TooManyEmptyFragments");
}

#[test]
fn the_last_records_of_tls_1_2_are_kept_for_the_end() {
    let (mut client, mut tls) = pair(&TLS12);
    assert_eq!(tls.records_left, 1 << 24);
    tls.records_left = RECORDS_RESERVED + 2;
    let mut out = Vec::new();
    let bytes = vec![7; 2 * RECORD_MAX];
    tls.seal([&bytes[..RECORD_MAX]].into_iter(), usize::MAX, &mut out);
    assert!(!tls.must_close());
    tls.seal([bytes.as_slice()].into_iter(), usize::MAX, &mut out);
    assert!(tls.must_close());
    assert_eq!(received(&mut client, &out).unwrap().len(), 3 * RECORD_MAX);
    assert_eq!(pair(&TLS13).1.records_left, u64::MAX);
}

#[test]
fn a_handshake_that_failed_stays_failed() {
    let authority = Authority::new("test root");
    let config = server_config(&[&TLS13], &authority.server(&["broker.test"]));
    let mut server = TlsHandshake::new(Arc::new(config)).unwrap();
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    // A ClientHello of two bytes.
    let mut wire = vec![0x16, 3, 1, 0, 6, 1, 0, 0, 2, 3, 3];
    server.advance(&mut wire, &mut plain, &mut out).unwrap_err();
    assert_eq!(out, [0x15, 3, 3, 0, 2, 2, 50], "a fatal alert: decode_error");
    let again = server.advance(&mut wire, &mut plain, &mut out).unwrap();
    assert_eq!(again, Progress { used: wire.len(), done: false, closed: true });
    assert!(!server.is_done() && server.finish().is_none());
}
