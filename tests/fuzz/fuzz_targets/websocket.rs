//! Any bytes as an HTTP upgrade with frames behind it. Frames in chunks give the same MQTT bytes
//! and the same end as the whole.
#![no_main]

use homing::net::layers::{LayerError, Layers};
use homing::net::proxy::TrustedProxies;
use homing::net::websocket::frame::Ws;
use homing::net::websocket::upgrade::{self, Origins, UpgradeRules};

const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n";

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [selector, chunk, rest @ ..] = input else { return };
    let rules = UpgradeRules {
        path: if selector & 2 == 0 { "/mqtt" } else { "*" }.to_owned(),
        origins: match selector >> 2 & 3 {
            0 => Origins::Any,
            1 => Origins::SameHost,
            _ => Origins::Listed(vec!["https://app.example.com".to_owned()]),
        },
        is_loopback: selector & 16 != 0,
        has_tls: selector & 32 != 0,
    };
    let trusted = TrustedProxies::new(vec!["10.0.0.0/8".parse().expect("a network")]);
    let start: &[u8] = if selector & 1 == 0 { REQUEST } else { b"" };
    let bytes = [start, rest].concat();
    let mut out = Vec::new();
    let frames = match upgrade::upgrade(&bytes, &rules, Some(&trusted), &mut out) {
        Ok(Some(upgraded)) => &bytes[upgraded.used..],
        Ok(None) => rest,
        Err(error) => {
            assert_eq!(error.status().is_none(), out.is_empty());
            rest
        }
    };
    let whole = open(frames, frames.len().max(1));
    let parts = open(frames, usize::from(*chunk).max(1));
    assert_eq!(whole.1, parts.1, "the same end");
    match whole.1 {
        // The bytes before a refused frame in the same call are lost with it.
        Err(_) => assert!(parts.0.starts_with(&whole.0)),
        Ok(_) => assert_eq!(whole.0, parts.0),
    }
});

type End = Result<bool, u16>;

/// Opens frames in chunks; returns the MQTT bytes, and the close or the close code of the refusal.
fn open(frames: &[u8], chunk: usize) -> (Vec<u8>, End) {
    let mut layers = Layers::new(None, Some(Ws::new()));
    let (mut plain, mut out, mut closed) = (Vec::new(), Vec::new(), false);
    for part in frames.chunks(chunk) {
        match layers.open(&mut part.to_vec(), &mut plain, &mut out) {
            Ok(opened) => {
                assert_eq!(opened.used, part.len());
                closed |= opened.closed;
            }
            Err(LayerError::Frame(error)) => {
                // The last bytes sent are the close frame with the code.
                let [high, low] = error.code().to_be_bytes();
                assert!(out.ends_with(&[0x88, 2, high, low]));
                return (plain, Err(error.code()));
            }
            Err(error) => panic!("{error}"),
        }
    }
    (plain, Ok(closed))
}
