//! The HTTP upgrade of a connection to WebSocket (RFC 6455 section 4.2; MQTT 5.0 section 6).
//!
//! A browser lets every web page open a WebSocket to every host, also to localhost. Two headers
//! show it: `Origin` names the page, and `Host` the name that the browser resolved. See [`Origins`]
//! and [`UpgradeRules::is_loopback`].

use crate::named_enum::named_enum;
use std::net::IpAddr;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use httparse::{Header, Request, Status};
use thiserror::Error;

use crate::net::layers::FirstBytes;
use crate::net::proxy::TrustedProxies;

/// Longest request, with all its headers, in bytes.
pub const REQUEST_MAX: usize = 8 * 1024;

/// Most headers of a request.
pub const HEADERS_MAX: usize = 64;

/// The headers by which a proxy says that it passes a request on for somebody else.
pub const FORWARDING_HEADERS: [&str; 3] = ["X-Forwarded-For", "Forwarded", "X-Real-IP"];

/// RFC 6455 1.3: the constant that the key is hashed with.
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The rules of a listener for upgrades.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeRules {
    /// The path of the request, without its query; `*` accepts any.
    pub path: String,
    /// The web pages that may connect.
    pub origins: Origins,
    /// True if the listener is bound to a loopback address. `Host` must be a loopback name then:
    /// with DNS rebinding, a page of another host reaches localhost under the name of that host.
    pub is_loopback: bool,
    /// True if the listener has TLS: then the certificate proves the name in `Host` to a browser.
    pub has_tls: bool,
}

/// The web pages that may connect, by `Origin` (RFC 6454). A request without `Origin` is not from a
/// browser, and passes in each case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Every page.
    Any,
    /// A page of the host that the request names in `Host`; the port may differ. Without TLS, a
    /// page of a host with a public name must be listed, because DNS rebinding can forge the name.
    SameHost,
    /// The pages of these origins, for example `https://app.example.com`.
    Listed(Vec<String>),
}

/// A request that was accepted. The reply is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// Number of bytes of the request. The bytes behind it are frames.
    pub used: usize,
    /// The selected subprotocol.
    pub subprotocol: Subprotocol,
    /// The client that `X-Forwarded-For` names.
    pub client: ForwardedClient,
}

/// The client of a request, as a trusted proxy names it in `X-Forwarded-For`. Without trusted
/// proxies, one of [`FORWARDING_HEADERS`] still shows that the peer is not the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedClient {
    /// The peer is the client: it forwards for nobody.
    Peer,
    /// The client has this address.
    Address(IpAddr),
    /// The peer forwards a client whose address it does not know, does not tell, or tells without
    /// being trusted.
    Unknown,
}

named_enum! {
    /// The subprotocol of a WebSocket connection, with its name on the wire.
    pub enum Subprotocol {
        /// MQTT 3.1.1 and 5.0 [MQTT-6.0.0-3].
        Mqtt = "mqtt",
        /// MQTT 3.1.
        MqttV31 = "mqttv3.1",
    }
}

/// A request that is refused. The reply with the status and one line of text is written.
///
/// No variant has bytes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UpgradeError {
    /// The first bytes are not HTTP. Nothing is replied.
    #[error("no HTTP on a WebSocket listener: {0}")]
    NotHttp(FirstBytes),
    /// 400: the request is not valid.
    #[error("HTTP 400: {0}")]
    BadRequest(&'static str),
    /// 403: the page, or the host name in the request, is not allowed (RFC 6455 4.2.2).
    #[error("HTTP 403: {0}")]
    Forbidden(&'static str),
    /// 404: another path.
    #[error("HTTP 404: another path than the listener's websocket_path")]
    NotFound,
    /// 405: another method than GET.
    #[error("HTTP 405: the method is not GET")]
    MethodNotAllowed,
    /// 426: no request for WebSocket version 13.
    #[error("HTTP 426: {0}")]
    UpgradeRequired(&'static str),
    /// 431: more than 8 KiB or 64 headers.
    #[error("HTTP 431: the request has more than 8 KiB or 64 headers")]
    TooLarge,
}

impl UpgradeError {
    /// Returns the HTTP status, or `None` if nothing is replied.
    pub fn status(self) -> Option<u16> {
        Some(match self {
            UpgradeError::NotHttp(_) => return None,
            UpgradeError::BadRequest(_) => 400,
            UpgradeError::Forbidden(_) => 403,
            UpgradeError::NotFound => 404,
            UpgradeError::MethodNotAllowed => 405,
            UpgradeError::UpgradeRequired(_) => 426,
            UpgradeError::TooLarge => 431,
        })
    }

    fn write_reply(self, out: &mut Vec<u8>) {
        let (status, more) = match self {
            UpgradeError::NotHttp(_) => return,
            UpgradeError::BadRequest(_) => ("400 Bad Request", ""),
            UpgradeError::Forbidden(_) => ("403 Forbidden", ""),
            UpgradeError::NotFound => ("404 Not Found", ""),
            UpgradeError::MethodNotAllowed => ("405 Method Not Allowed", "Allow: GET\r\n"),
            UpgradeError::UpgradeRequired(_) => {
                ("426 Upgrade Required", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n")
            }
            UpgradeError::TooLarge => ("431 Request Header Fields Too Large", ""),
        };
        let text = self.to_string();
        let text = text.strip_prefix("HTTP ").unwrap_or(&text);
        let length = text.len() + 1;
        let head = format!(
            "HTTP/1.1 {status}\r\n{more}Connection: close\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
}

/// Reads an upgrade request at the begin of a connection and appends the reply to `out`. Returns
/// `None` if the request is not whole; the caller calls again with all bytes so far and more.
///
/// `forwarding` has the trusted proxies if the peer is one of them: only then `X-Forwarded-For`
/// counts.
///
/// # Errors
/// The request is refused. The reply is in `out`; the caller sends it and closes.
pub fn upgrade(
    bytes: &[u8],
    rules: &UpgradeRules,
    forwarding: Option<&TrustedProxies>,
    out: &mut Vec<u8>,
) -> Result<Option<Upgraded>, UpgradeError> {
    let result = parse(bytes, rules, forwarding);
    match &result {
        Ok(Some((upgraded, accept))) => {
            let reply = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {}\r\n\r\n",
                upgraded.subprotocol.name() // [MQTT-6.0.0-4]
            );
            out.extend_from_slice(reply.as_bytes());
        }
        Ok(None) => {}
        Err(error) => error.write_reply(out),
    }
    result.map(|found| found.map(|(upgraded, _)| upgraded))
}

fn parse(
    bytes: &[u8],
    rules: &UpgradeRules,
    forwarding: Option<&TrustedProxies>,
) -> Result<Option<(Upgraded, String)>, UpgradeError> {
    let Some(first) = bytes.first() else { return Ok(None) };
    if !first.is_ascii_uppercase() {
        return Err(UpgradeError::NotHttp(FirstBytes::of(bytes)));
    }
    // A request that drips in is parsed once, when its empty line is there.
    let bounded = bytes.get(..REQUEST_MAX).unwrap_or(bytes);
    let is_whole =
        bounded.windows(2).any(|pair| pair == b"\n\n") || bounded.windows(3).any(|three| three == b"\n\r\n");
    if !is_whole {
        return if bytes.len() > REQUEST_MAX { Err(UpgradeError::TooLarge) } else { Ok(None) };
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let used = match request.parse(bounded) {
        Ok(Status::Complete(used)) => used,
        Ok(Status::Partial) => return Err(UpgradeError::BadRequest("the request has no end")),
        Err(httparse::Error::TooManyHeaders) => return Err(UpgradeError::TooLarge),
        Err(_) => return Err(UpgradeError::BadRequest("the request is not HTTP/1.1")),
    };
    let headers = Headers(request.headers);
    check_request_line(request.method, request.path, request.version, rules)?;
    let key = headers.check_websocket()?;
    headers.check_host_and_origin(rules)?;
    let upgraded = Upgraded { used, subprotocol: headers.subprotocol()?, client: headers.client(forwarding) };
    Ok(Some((upgraded, accept(key))))
}

fn check_request_line(
    method: Option<&str>,
    target: Option<&str>,
    minor: Option<u8>,
    rules: &UpgradeRules,
) -> Result<(), UpgradeError> {
    if method != Some("GET") {
        return Err(UpgradeError::MethodNotAllowed);
    }
    // RFC 6455 4.1: HTTP/1.1 or higher.
    if minor != Some(1) {
        return Err(UpgradeError::BadRequest("the version is not HTTP/1.1"));
    }
    let path = target.and_then(|target| target.split('?').next()).unwrap_or_default();
    match rules.path == "*" || rules.path == path {
        true => Ok(()),
        false => Err(UpgradeError::NotFound),
    }
}

struct Headers<'a, 'b>(&'a [Header<'b>]);

impl<'b> Headers<'_, 'b> {
    /// Returns the values of a header, trimmed. A value with bytes beyond ASCII counts as empty.
    fn values(&self, name: &str) -> impl DoubleEndedIterator<Item = &'b str> {
        self.0
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| std::str::from_utf8(header.value).unwrap_or_default().trim())
    }

    /// Returns the value of a header that must not come twice.
    fn single(&self, name: &str, twice: &'static str) -> Result<Option<&'b str>, UpgradeError> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(UpgradeError::BadRequest(twice)),
        }
    }

    /// Returns the elements of a header with a comma-separated list.
    fn list(&self, name: &str) -> impl DoubleEndedIterator<Item = &'b str> {
        let values: Vec<&str> = self.values(name).collect();
        values.into_iter().flat_map(|value| value.split(',').map(str::trim))
    }

    fn has_token(&self, name: &str, token: &str) -> bool {
        self.list(name).any(|element| element.eq_ignore_ascii_case(token))
    }

    /// Checks the headers of RFC 6455 4.2.1 and returns the key.
    fn check_websocket(&self) -> Result<&'b str, UpgradeError> {
        if !self.has_token("Upgrade", "websocket") || !self.has_token("Connection", "Upgrade") {
            return Err(UpgradeError::UpgradeRequired(
                "the request does not ask for an upgrade to websocket",
            ));
        }
        let version =
            self.single("Sec-WebSocket-Version", "Sec-WebSocket-Version is in the request twice")?;
        if version != Some("13") {
            return Err(UpgradeError::UpgradeRequired("Sec-WebSocket-Version is not 13"));
        }
        let has_body = self.values("Content-Length").any(|length| length != "0");
        if has_body || self.values("Transfer-Encoding").next().is_some() {
            return Err(UpgradeError::BadRequest("the request has a body"));
        }
        let key = self.single("Sec-WebSocket-Key", "Sec-WebSocket-Key is in the request twice")?;
        match key {
            Some(key) if STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16) => Ok(key),
            _ => Err(UpgradeError::BadRequest("Sec-WebSocket-Key is not 16 bytes in base64")),
        }
    }

    fn check_host_and_origin(&self, rules: &UpgradeRules) -> Result<(), UpgradeError> {
        // RFC 9112 3.2: one Host header, or 400.
        let host = self.single("Host", "Host is in the request twice")?;
        let host = host.ok_or(UpgradeError::BadRequest("Host is missing"))?;
        if rules.is_loopback && !is_loopback(host_name(host)) {
            return Err(UpgradeError::Forbidden(
                "Host is not a loopback name, but the listener is bound to loopback",
            ));
        }
        let Some(origin) = self.single("Origin", "Origin is in the request twice")? else { return Ok(()) };
        let rebinding = UpgradeError::Forbidden(
            "the page's host has a public name, which DNS rebinding can forge without TLS: \
             list the Origin in the listener's origins",
        );
        let allowed = match &rules.origins {
            Origins::Any => true,
            Origins::Listed(list) => {
                let same = |listed: &String| listed.trim_end_matches('/').eq_ignore_ascii_case(origin);
                list.iter().any(|listed| listed == "*" || same(listed))
            }
            Origins::SameHost => {
                let (scheme, authority) = origin.split_once("://").unwrap_or_default();
                let page = host_name(authority);
                let is_same = !page.is_empty() && page.eq_ignore_ascii_case(host_name(host));
                // A browser does not let a page of https open an unencrypted WebSocket. So a proxy
                // with the certificate of this name is in between.
                let is_proven = rules.has_tls || scheme.eq_ignore_ascii_case("https");
                if is_same && !is_proven && !is_private_name(page) {
                    return Err(rebinding);
                }
                is_same
            }
        };
        match allowed {
            true => Ok(()),
            false => Err(UpgradeError::Forbidden("Origin is not in the listener's origins")),
        }
    }

    /// Returns the first subprotocol of the client that the broker speaks.
    fn subprotocol(&self) -> Result<Subprotocol, UpgradeError> {
        self.list("Sec-WebSocket-Protocol")
            .find_map(|name| match name {
                "mqtt" => Some(Subprotocol::Mqtt),
                "mqttv3.1" => Some(Subprotocol::MqttV31),
                _ => None,
            })
            // [MQTT-6.0.0-3]: the client must offer it.
            .ok_or(UpgradeError::BadRequest("Sec-WebSocket-Protocol does not offer mqtt"))
    }

    /// Returns the client of the request. `X-Forwarded-For` of a trusted proxy names the client. A
    /// proxy that says in another header, or without being trusted, that it forwards, hides the
    /// client.
    fn client(&self, forwarding: Option<&TrustedProxies>) -> ForwardedClient {
        let named = forwarding.map_or(ForwardedClient::Peer, |trusted| self.forwarded_for(trusted));
        let is_forwarded = || FORWARDING_HEADERS.iter().any(|name| self.values(name).next().is_some());
        match named {
            ForwardedClient::Peer if is_forwarded() => ForwardedClient::Unknown,
            named => named,
        }
    }

    fn forwarded_for(&self, trusted: &TrustedProxies) -> ForwardedClient {
        forwarded_client(self.list("X-Forwarded-For"), trusted)
    }
}

/// Returns the last address in `X-Forwarded-For` that is no trusted proxy, or the first address if
/// all are. The client is unknown if something behind that address is no address.
pub fn forwarded_client<'a>(
    hops: impl DoubleEndedIterator<Item = &'a str>,
    trusted: &TrustedProxies,
) -> ForwardedClient {
    let mut client = ForwardedClient::Peer;
    for hop in hops.rev() {
        let Ok(address) = host_name(hop).parse::<IpAddr>().or_else(|_| hop.parse()) else {
            return ForwardedClient::Unknown;
        };
        client = ForwardedClient::Address(address.to_canonical());
        if !trusted.contains(address) {
            break;
        }
    }
    client
}

/// Returns the host in `HOST`, `HOST:PORT` or `[IPv6]:PORT`, without brackets and final dot.
fn host_name(authority: &str) -> &str {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns true for a loopback address and for the names that RFC 6761 6.3 keeps for loopback.
fn is_loopback(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let address = host.parse::<IpAddr>();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns true for a host without a public DNS name: an address, a name of one label, and the
/// domains kept for private networks (RFC 6762, RFC 8375, and ICANN for `internal`).
fn is_private_name(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let private = [".local", ".internal", ".home.arpa", ".localhost"];
    host.parse::<IpAddr>().is_ok()
        || !host.contains('.')
        || private.iter().any(|domain| host.ends_with(domain))
}

/// Returns the value of Sec-WebSocket-Accept (RFC 6455 4.2.2). SHA-1 protects nothing here.
fn accept(key: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key.as_bytes());
    context.update(ACCEPT_GUID);
    STANDARD.encode(context.finish())
}

#[cfg(test)]
#[path = "upgrade_tests.rs"]
mod tests;
