//! PROXY headers: what is believed, and the abuse of a listener that reads them.

use proptest::prelude::*;
use proxy_header::ProxiedAddress;

use super::*;

const ANY: ProxyRules = ProxyRules { versions: ProxyVersions::Any, require_tls: false };
const TLS: ProxyRules = ProxyRules { versions: ProxyVersions::V2, require_tls: true };

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn pair() -> ProxiedAddress {
    ProxiedAddress::stream(address("192.0.2.7:40000"), address("198.51.100.1:8883"))
}

/// Returns a header of version 2 with these fields, and with a checksum if one is among them.
fn v2(address: Option<ProxiedAddress>, fields: &[Tlv<'_>]) -> Vec<u8> {
    let mut header = ProxyHeader::with_tlvs(address, []);
    for field in fields {
        header.append_tlv(field.clone());
    }
    let mut bytes = Vec::new();
    header.encode_v2(&mut bytes).unwrap();
    if let Some(at) = sum_place(&bytes) {
        let sum = crc32c(&bytes);
        bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

fn ssl(has_certificate: bool, verify: u32, names: &[&str]) -> Tlv<'static> {
    let mut ssl = SslInfo::new(true, has_certificate, has_certificate, verify);
    ssl.append_tlv(Tlv::SslVersion("TLSv1.3".into()));
    for name in names {
        ssl.append_tlv(Tlv::SslCn((*name).to_owned().into()));
    }
    Tlv::Ssl(ssl.into_owned())
}

fn source(bytes: &[u8]) -> Result<Option<SocketAddr>, ProxyError> {
    read(bytes, ANY).map(|found| found.expect("a whole header").source)
}

#[test]
fn the_source_is_the_client() {
    for (line, expected) in [
        ("PROXY TCP4 192.0.2.7 198.51.100.1 40000 8883\r\n", Some("192.0.2.7:40000")),
        ("PROXY TCP6 2001:db8::7 2001:DB8:0::1 40000 8883\r\n", Some("[2001:db8::7]:40000")),
        ("PROXY TCP6 ::ffff:192.0.2.7 ::ffff:192.0.2.1 1 0\r\n", Some("192.0.2.7:1")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff:f...f:ffff 1 2\r\n", None),
    ] {
        let bytes = format!("{line}CONNECT");
        let found = read(bytes.as_bytes(), ANY).unwrap().unwrap();
        assert_eq!((found.source, found.used), (expected.map(address), line.len()));
    }
    let header = v2(Some(pair()), &[Tlv::Authority("broker.test".into()), Tlv::Noop(7), Tlv::Crc32c(0)]);
    assert_eq!(source(&header), Ok(Some(address("192.0.2.7:40000"))));
    let mapped = ProxiedAddress::stream(address("[::ffff:192.0.2.7]:1"), address("[::1]:2"));
    assert_eq!(source(&v2(Some(mapped), &[])), Ok(Some(address("192.0.2.7:1"))));
}

#[test]
fn a_header_in_pieces_waits_for_its_end() {
    for header in
        [v2(Some(pair()), &[ssl(true, 0, &["device"])]), b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n".to_vec()]
    {
        for end in 0..header.len() {
            assert_eq!(read(&header[..end], ANY), Ok(None), "{end} bytes");
        }
        assert!(read(&header, ANY).unwrap().is_some());
    }
}

/// Section 14 of the design, row by row.
#[test]
fn abuse_is_refused_and_no_address_is_taken() {
    let v1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 8883\r\n".as_slice();
    let two = v2(Some(pair()), &[]);
    let only = |versions| ProxyRules { versions, require_tls: false };
    // Version 1 where 2 is expected, and the other way round.
    assert_eq!(read(v1, only(ProxyVersions::V2)), Err(ProxyError::Version(1)));
    assert_eq!(read(&two, only(ProxyVersions::V1)), Err(ProxyError::Version(2)));
    // No header: the first bytes of the client.
    for (bytes, looks) in [
        (&b"\x10\x0C\x00\x04MQTT"[..], FirstBytes::Mqtt),
        (b"\x16\x03\x01\x02\x00", FirstBytes::Tls),
        (b"GET /mqtt HTTP/1.1\r\n", FirstBytes::Http),
        (b"PROXYTCP4", FirstBytes::Http),
        (b"proxy TCP4 ", FirstBytes::Other),
    ] {
        assert_eq!(read(bytes, ANY), Err(ProxyError::Missing(looks)));
    }
    // Twice: the second header is left for the next layer, which refuses it.
    let found = read(&[v1, v1].concat(), ANY).unwrap().unwrap();
    assert_eq!(found.used, v1.len());
    assert_eq!(FirstBytes::of(v1), FirstBytes::Proxy);
    // 64 KiB, seen by its length at once.
    let long = [V2_START, &[0x21, 0x11, 0xFF, 0xFF]].concat();
    assert_eq!(read(&long, ANY), Err(ProxyError::TooLong(HEADER_MAX)));
    let most = v2(Some(pair()), &[Tlv::Noop(HEADER_MAX - 16 - 12 - 3)]);
    assert_eq!((most.len(), source(&most).is_ok()), (HEADER_MAX, true));
    let more = v2(Some(pair()), &[Tlv::Noop(HEADER_MAX - 16 - 12 - 2)]);
    assert_eq!(read(&more, ANY), Err(ProxyError::TooLong(HEADER_MAX)));
    // Version 1 with 200 characters, with and without an end.
    let line = format!("PROXY UNKNOWN {}\r\n", "x".repeat(184));
    assert_eq!(read(line.as_bytes(), ANY), Err(ProxyError::TooLong(V1_MAX)));
    assert_eq!(read(&line.as_bytes()[..107], ANY), Err(ProxyError::TooLong(V1_MAX)));
    assert_eq!(read(&line.as_bytes()[..106], ANY), Ok(None));
    // LOCAL with an address: the real peer.
    let mut local = two.clone();
    local[12] = 0x20;
    assert_eq!(source(&local), Ok(None));
    // What else a LOCAL header says is ignored, whatever it is.
    local[13..].fill(0xFF);
    local[14..16].copy_from_slice(&[0, 12]);
    assert_eq!(source(&local), Ok(None));
    // A wrong checksum, and a changed byte under a right one.
    let mut summed = v2(Some(pair()), &[Tlv::Crc32c(0), Tlv::UniqueId(b"id"[..].into())]);
    assert!(source(&summed).is_ok());
    summed[16] ^= 1;
    assert_eq!(source(&summed), Err(ProxyError::Checksum));
}

#[test]
fn headers_that_are_not_exact_are_refused() {
    for line in [
        "PROXY TCP4 192.0.2.7 198.51.100.1 +1 8883\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 01 8883\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 65536 8883\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 8883 \r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 1 8883\r\n",
        "PROXY TCP4  192.0.2.7 198.51.100.1 1 8883\r\n",
        "PROXY TCP4 ::1 ::1 1 8883\r\n",
        "PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n",
        "PROXY \n",
        "PROXY UNKNOWN\n",
    ] {
        assert!(matches!(read(line.as_bytes(), ANY), Err(ProxyError::Invalid(_))), "{line:?}");
    }
    let datagram = ProxiedAddress::datagram(address("192.0.2.7:1"), address("192.0.2.1:2"));
    assert!(matches!(source(&v2(Some(datagram), &[])), Err(ProxyError::Invalid(_))));
    for (at, byte) in [(12, 0x11), (12, 0x22), (13, 0x41), (13, 0x10), (15, 5)] {
        let mut bytes = v2(Some(pair()), &[Tlv::Noop(3)]);
        bytes[at] = byte;
        assert!(matches!(read(&bytes, ANY), Err(ProxyError::Invalid(_))), "byte {at} is {byte:#x}");
    }
    let mut field = v2(Some(pair()), &[Tlv::Noop(3)]);
    *field.iter_mut().rev().nth(3).unwrap() = 200;
    assert_eq!(read(&field, ANY), Err(ProxyError::Invalid("a field is damaged")));
}

#[test]
fn the_proxy_says_who_the_client_is() {
    let tls = |fields: &[Tlv<'_>]| read(&v2(Some(pair()), fields), TLS).map(|found| found.unwrap().tls);
    let user = |field| tls(&[field]).map(|found| found.unwrap().user);
    assert_eq!(user(ssl(true, 0, &["device 7"])), Ok(Ok("device 7".to_owned())));
    assert_eq!(tls(&[ssl(false, 0, &[])]).unwrap().unwrap().version.as_deref(), Some("TLSv1.3"));
    assert_eq!(user(ssl(false, 0, &["device"])), Ok(Err(NoIdentity::NoCertificate)));
    assert_eq!(user(ssl(true, 0, &[])), Ok(Err(NoIdentity::Missing)));
    assert_eq!(user(ssl(true, 0, &["a", "b"])), Ok(Err(NoIdentity::SeveralCommonNames)));
    assert_eq!(user(ssl(true, 0, &["admin\0x"])), Ok(Err(NoIdentity::ControlCharacter)));
    assert_eq!(user(ssl(true, 19, &["device"])), Err(ProxyError::Unverified));
    assert_eq!(tls(&[]), Err(ProxyError::NoTls));
    assert_eq!(tls(&[Tlv::Ssl(SslInfo::new(false, true, true, 0))]), Err(ProxyError::NoTls));
    assert!(matches!(tls(&[ssl(false, 0, &[]), ssl(true, 0, &["x"])]), Err(ProxyError::Invalid(_))));
    // A health check of the proxy passes, and has no identity.
    let found = read(&v2(None, &[ssl(true, 0, &["device"])]), TLS).unwrap().unwrap();
    assert_eq!((found.source, found.tls), (None, None));
    assert_eq!(read(b"PROXY UNKNOWN\r\n", ProxyRules { require_tls: true, ..ANY }), Err(ProxyError::NoTls));
}

#[test]
fn trusted_proxies_are_networks() {
    let networks = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"].map(|net| net.parse().unwrap());
    let trusted = TrustedProxies::new(networks.to_vec());
    for (text, expected) in [
        ("10.255.0.1", true),
        ("::ffff:10.0.0.1", true),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("2001:db8:1::1", true),
        ("2001:db9::1", false),
    ] {
        assert_eq!(trusted.contains(text.parse().unwrap()), expected, "{text}");
    }
    assert!(!TrustedProxies::default().contains("127.0.0.1".parse().unwrap()));
}

#[test]
fn the_checksum_is_crc32c() {
    // RFC 3720 B.4.
    assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(
        version in 0..3,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let start: &[u8] = match version {
            0 => b"",
            1 => V1_START,
            _ => V2_START,
        };
        let bytes = [start, &bytes].concat();
        if let Ok(Some(found)) = read(&bytes, ANY) {
            prop_assert!(found.used <= bytes.len());
            // More bytes behind the header change nothing.
            prop_assert_eq!(read(&[&bytes[..], b"more"].concat(), ANY), Ok(Some(found)));
        }
    }
}
