//! The PROXY protocol header (HAProxy's `proxy-protocol.txt`, versions 1 and 2).
//!
//! A proxy puts the header before the first byte of the client, and says in it who the client is.
//! So the header is believed only if its sender is trusted, and a listener either requires it or
//! does not read it: the broker never guesses.
//!
//! The crate `proxy-header` parses. This module bounds the header to 4 KiB, and refuses the things
//! that the crate lets pass: a line of version 1 that is not in its exact form, a damaged field, a
//! wrong checksum, and a datagram.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use proxy_header::{ParseConfig, Protocol, ProxyHeader, SslInfo, Tlv};
use thiserror::Error;

use super::layers::FirstBytes;
use super::tls::identity::{self, NoIdentity};

/// Longest header, in bytes.
pub const HEADER_MAX: usize = 4 * 1024;

/// Section 2.1: a line of version 1 has at most 107 bytes.
const V1_MAX: usize = 107;

const V1_START: &[u8] = b"PROXY ";

/// Section 2.2: the signature of version 2.
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes of version 2 up to its length: signature, command, family, length.
const V2_FIXED: usize = 16;

/// Section 2.2: the byte with the version, 2, and the command LOCAL. The receiver must accept such
/// a header and ignore its remaining fields.
const V2_LOCAL: u8 = 0x20;

/// Section 2.2.3: the type of the checksum.
const TYPE_CRC32C: u8 = 0x03;

/// The rules of a listener for PROXY headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyRules {
    /// The accepted versions.
    pub versions: ProxyVersions,
    /// True if the header must say that the client used TLS (`proxy_tls`). A LOCAL header passes:
    /// it is a health check of the proxy itself, not a client.
    pub require_tls: bool,
}

/// The accepted versions of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersions {
    /// Version 1, a line of text.
    V1,
    /// Version 2, binary.
    V2,
    /// Both.
    Any,
}

/// A header that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxied {
    /// Number of bytes of the header. The bytes behind it are the client's.
    pub used: usize,
    /// The address of the client; an IPv4 address in IPv6 form is written as IPv4. `None` means the
    /// real peer: a health check of the proxy (LOCAL), or a client of unknown address.
    pub source: Option<SocketAddr>,
    /// True for a connection of the proxy itself, such as a health check (LOCAL).
    pub is_local: bool,
    /// The proxy's facts about the client's TLS, if the client used TLS.
    pub tls: Option<ProxiedTls>,
}

/// The TLS between client and proxy, as the proxy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedTls {
    /// The version, for example `TLSv1.3`, if the proxy says it.
    pub version: Option<String>,
    /// The common name in the client's certificate that the proxy verified.
    pub user: Result<String, NoIdentity>,
}

/// A header that is refused. The connection is closed without a reply (section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyError {
    /// The first bytes are no PROXY header.
    #[error("no PROXY header: {0}")]
    Missing(FirstBytes),
    /// A header of the other version.
    #[error("a PROXY header of version {0}, which proxy_protocol does not accept")]
    Version(u8),
    /// The header is longer than it may be.
    #[error("a PROXY header of more than {0} bytes")]
    TooLong(usize),
    /// The header is not valid.
    #[error("an invalid PROXY header: {0}")]
    Invalid(&'static str),
    /// The checksum of the header is wrong.
    #[error("a PROXY header with a wrong checksum")]
    Checksum,
    /// The header does not say that the client used TLS.
    #[error("the PROXY header does not say that the client used TLS, which proxy_tls requires")]
    NoTls,
    /// The proxy could not verify the certificate of the client.
    #[error("the PROXY header says that the client's certificate is not verified")]
    Unverified,
}

/// The proxies whose headers are believed (`trusted_proxies`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Returns the set of these networks.
    pub fn new(networks: Vec<IpNet>) -> TrustedProxies {
        TrustedProxies(networks)
    }

    /// Returns true if the address is in one of the networks. An IPv4 address in IPv6 form counts
    /// as IPv4. Costs one comparison for each network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Reads a PROXY header at the begin of a connection. Returns `None` if it is not whole; the caller
/// calls again with all bytes so far and more.
///
/// # Errors
/// There is no header, or it is refused.
pub fn read(bytes: &[u8], rules: ProxyRules) -> Result<Option<Proxied>, ProxyError> {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, expected)| byte == expected);
    let (end, version) = match bytes {
        [] => return Ok(None),
        _ if begins(V1_START) => (v1_end(bytes)?, 1),
        _ if begins(V2_START) => (v2_end(bytes)?, 2),
        _ => return Err(ProxyError::Missing(FirstBytes::of(bytes))),
    };
    match (version, rules.versions) {
        (_, ProxyVersions::Any) | (1, ProxyVersions::V1) | (2, ProxyVersions::V2) => {}
        _ => return Err(ProxyError::Version(version)),
    }
    let Some(header) = end.and_then(|end| bytes.get(..end)) else { return Ok(None) };
    if version == 2 && header.get(12) == Some(&V2_LOCAL) {
        return Ok(Some(Proxied { used: header.len(), source: None, is_local: true, tls: None }));
    }
    let config = ParseConfig { include_tlvs: true, allow_v1: version == 1, allow_v2: version == 2 };
    let (parsed, used) =
        ProxyHeader::parse(header, config).map_err(|_| ProxyError::Invalid("it cannot be read"))?;
    if used != header.len() {
        return Err(ProxyError::Invalid("its length is wrong"));
    }
    let source = match (parsed.proxied_address(), version) {
        (Some(address), _) if address.protocol != Protocol::Stream => {
            return Err(ProxyError::Invalid("the client is said to use datagrams"));
        }
        (Some(address), 1) if !is_exact(header, address.source, address.destination) => {
            return Err(ProxyError::Invalid("an address or a port is not in its usual form"));
        }
        (address, _) => {
            address.map(|found| SocketAddr::new(found.source.ip().to_canonical(), found.source.port()))
        }
    };
    let tls = check_fields(header, &parsed)?;
    if rules.require_tls && tls.is_none() {
        return Err(ProxyError::NoTls);
    }
    Ok(Some(Proxied { used, source, is_local: false, tls }))
}

/// Returns the end of a line of version 1, if it has arrived.
fn v1_end(bytes: &[u8]) -> Result<Option<usize>, ProxyError> {
    let bounded = bytes.get(..V1_MAX).unwrap_or(bytes);
    match bounded.iter().position(|byte| *byte == b'\n') {
        Some(at) => Ok(Some(at + 1)),
        None if bytes.len() >= V1_MAX => Err(ProxyError::TooLong(V1_MAX)),
        None => Ok(None),
    }
}

/// Returns the end of a header of version 2, as soon as its length has arrived.
fn v2_end(bytes: &[u8]) -> Result<Option<usize>, ProxyError> {
    let Some([high, low]) = bytes.get(V2_FIXED - 2..V2_FIXED) else { return Ok(None) };
    let end = V2_FIXED + usize::from(u16::from_be_bytes([*high, *low]));
    if end > HEADER_MAX {
        return Err(ProxyError::TooLong(HEADER_MAX));
    }
    Ok(Some(end).filter(|end| bytes.len() >= *end))
}

/// Returns true if the line of version 1 is exactly the line for these addresses. The crate accepts
/// `+1` as a port, and any byte behind `PROXY`.
fn is_exact(line: &[u8], source: SocketAddr, destination: SocketAddr) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let mut fields = line.trim_end_matches("\r\n").split(' ').skip(2);
    // An IPv6 address has several forms, so only the ports are compared as text.
    let addresses = [fields.next(), fields.next()];
    let ports = [fields.next(), fields.next()];
    let expected = [source.port().to_string(), destination.port().to_string()];
    line.starts_with("PROXY TCP")
        && addresses.iter().all(Option::is_some)
        && ports.iter().zip(&expected).all(|(port, expected)| *port == Some(expected.as_str()))
        && fields.next().is_none()
}

/// Checks all fields (TLVs) of a header, and returns their facts about TLS.
fn check_fields(header: &[u8], parsed: &ProxyHeader<'_>) -> Result<Option<ProxiedTls>, ProxyError> {
    let (mut ssl_fields, mut tls) = (0, None);
    for field in parsed.tlvs() {
        match field.map_err(|_| ProxyError::Invalid("a field is damaged"))? {
            Tlv::Crc32c(sum) => check_sum(header, sum)?,
            Tlv::Ssl(ssl) => {
                ssl_fields += 1;
                tls = if ssl.client_ssl() { Some(proxied_tls(&ssl)?) } else { None };
            }
            _ => {}
        }
    }
    match ssl_fields > 1 {
        true => Err(ProxyError::Invalid("the field about TLS comes twice")),
        false => Ok(tls),
    }
}

fn proxied_tls(ssl: &SslInfo<'_>) -> Result<ProxiedTls, ProxyError> {
    let has_certificate = ssl.client_cert_conn() || ssl.client_cert_sess();
    // Section 2.2.5: zero means that the certificate was verified.
    if has_certificate && ssl.verify() != 0 {
        return Err(ProxyError::Unverified);
    }
    let (mut version, mut names) = (None, Vec::new());
    for field in ssl.tlvs() {
        match field.map_err(|_| ProxyError::Invalid("a field about TLS is damaged"))? {
            Tlv::SslVersion(text) => {
                version = Some(text.chars().filter(char::is_ascii_graphic).take(20).collect())
            }
            Tlv::SslCn(name) => names.push(name.into_owned()),
            _ => {}
        }
    }
    let user = match names.as_slice() {
        _ if !has_certificate => Err(NoIdentity::NoCertificate),
        [] => Err(NoIdentity::Missing),
        [name] => identity::checked(name),
        _ => Err(NoIdentity::SeveralCommonNames),
    };
    Ok(ProxiedTls { version, user })
}

/// Checks the checksum of a header of version 2 (section 2.2.3): CRC32C of the whole header with
/// the checksum's four bytes as zero.
fn check_sum(header: &[u8], sum: u32) -> Result<(), ProxyError> {
    let mut copy = header.to_vec();
    let value = sum_place(header).and_then(|at| copy.get_mut(at..at + 4));
    let value = value.ok_or(ProxyError::Checksum)?;
    value.fill(0);
    match crc32c(&copy) == sum {
        true => Ok(()),
        false => Err(ProxyError::Checksum),
    }
}

/// Returns the place of the first checksum's value in a header of version 2.
fn sum_place(header: &[u8]) -> Option<usize> {
    let addresses = match header.get(13)? >> 4 {
        1 => 12,
        2 => 36,
        3 => 216,
        _ => 0,
    };
    let mut at = V2_FIXED + addresses;
    loop {
        let [kind, high, low] = *header.get(at..at + 3)? else { return None };
        if kind == TYPE_CRC32C {
            return Some(at + 3);
        }
        at += 3 + usize::from(u16::from_be_bytes([high, low]));
    }
}

/// Returns the CRC32C (Castagnoli) of `bytes` (RFC 9260 appendix A). At most 4 KiB, once for each
/// connection, so it needs no table.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { 0x82F6_3B78 } else { 0 })
    })
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
