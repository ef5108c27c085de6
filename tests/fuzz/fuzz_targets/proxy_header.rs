//! Any bytes before the first byte of a client: a PROXY header is read only when it is whole, and
//! the bytes behind it change nothing.
#![no_main]

use homing::net::proxy::{self, HEADER_MAX, ProxyRules, ProxyVersions};

const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [selector, rest @ ..] = input else { return };
    let versions = match selector % 3 {
        0 => ProxyVersions::V1,
        1 => ProxyVersions::V2,
        _ => ProxyVersions::Any,
    };
    let rules = ProxyRules { versions, require_tls: selector & 4 != 0 };
    let start: &[u8] = match selector >> 6 {
        0 => b"",
        1 => b"PROXY ",
        _ => V2_START,
    };
    let bytes = [start, rest].concat();
    let Ok(Some(found)) = proxy::read(&bytes, rules) else { return };
    assert!(found.used <= bytes.len() && found.used <= HEADER_MAX);
    assert!(!rules.require_tls || found.tls.is_some() || found.source.is_none());
    for end in 0..found.used {
        assert_eq!(proxy::read(&bytes[..end], rules), Ok(None), "{end} of {} bytes", found.used);
    }
    assert_eq!(proxy::read(&bytes[..found.used], rules), Ok(Some(found)));
});
