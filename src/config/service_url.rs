//! The address of an HTTP service, as an operator writes it.

use super::value::{self, Field};
use config::{Value, ValueKind};
use std::fmt;
use std::net::IpAddr;

/// The address of an HTTP service: `http://HOST[:PORT][/PATH]` or the same with `https`.
///
/// `Display` leaves out the query behind a `?`, because it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrl {
    /// True for `https`.
    pub is_tls: bool,
    /// A name or an address; an IPv6 address without its brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// Host and port, spelled as in the URL, for the header Host.
    pub authority: Box<str>,
    /// Path and query, for the first line of a request.
    pub target: Box<str>,
}

impl ServiceUrl {
    /// Reads a URL. Returns `None` if the text is invalid, or has a user name, a password or a
    /// fragment.
    pub fn parse(text: &str) -> Option<ServiceUrl> {
        let (is_tls, rest) = match text.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("http://")?),
        };
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
        if !rest.bytes().all(is_allowed) {
            return None;
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = host_and_port(authority, if is_tls { 443 } else { 80 })?;
        let target = if target.starts_with('/') { target.into() } else { format!("/{target}").into() };
        Some(ServiceUrl { is_tls, host: host.into(), port, authority: authority.into(), target })
    }

    /// Returns true if the host is this machine by its name: `localhost` or a loopback address.
    pub fn is_local(&self) -> bool {
        let is_loopback = |address: IpAddr| address.is_loopback();
        &*self.host == "localhost" || self.host.parse().is_ok_and(is_loopback)
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        let path = self.target.split('?').next().unwrap_or_default();
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

impl Field for ServiceUrl {
    fn read(value: &Value) -> Option<ServiceUrl> {
        ServiceUrl::parse(value::text(value)?)
    }

    fn write(&self) -> ValueKind {
        let ServiceUrl { is_tls, authority, target, .. } = self;
        let scheme = if *is_tls { "https" } else { "http" };
        ValueKind::String(format!("{scheme}://{authority}{target}"))
    }
}

/// Reads `HOST[:PORT]`. The host is a name or an address; an IPv6 address loses its brackets.
pub(super) fn host_and_port(authority: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            (!host.is_empty() && host.bytes().all(is_name)).then_some((host, port))?
        }
    };
    let port = match port {
        "" => default_port,
        port => {
            let digits = port.strip_prefix(':')?;
            // A sign before a number is a number to the standard library.
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|port| is_number && *port != 0)?
        }
    };
    Some((host, port))
}

/// Returns true if a value is such an address.
pub(super) fn is_service_url(value: &Value) -> bool {
    value::text(value).is_some_and(|text| ServiceUrl::parse(text).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_a_port_and_a_path() {
        for (text, is_tls, host, port, authority, target) in [
            ("http://127.0.0.1:8080/mqtt/auth", false, "127.0.0.1", 8080, "127.0.0.1:8080", "/mqtt/auth"),
            ("https://login.example", true, "login.example", 443, "login.example", "/"),
            ("http://login.example?key=1", false, "login.example", 80, "login.example", "/?key=1"),
            ("https://[::1]:8443/a?b=c%20d", true, "::1", 8443, "[::1]:8443", "/a?b=c%20d"),
        ] {
            let url = ServiceUrl::parse(text).unwrap();
            let found = (url.is_tls, &*url.host, url.port, &*url.authority, &*url.target);
            assert_eq!(found, (is_tls, host, port, authority, target), "{text}");
        }
    }

    #[test]
    fn a_url_that_could_be_misread_is_refused() {
        for text in [
            "",
            "login.example/a",
            "ftp://login.example",
            "HTTP://login.example",
            "http://",
            "http:///a",
            "http://ann:secret@login.example/",
            "http://login.example:0/",
            "http://login.example:65536/",
            "http://login.example:/",
            "http://login.example:+80/",
            "http://login.example/a b",
            "http://login.example/a#b",
            "http://[::1/",
            "http://[login.example]/",
            "http://::1/",
            "http://login.example/\r\nX: y",
        ] {
            assert_eq!(ServiceUrl::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_log_line_has_no_query() {
        let url = ServiceUrl::parse("https://login.example:8443/a?key=secret").unwrap();
        assert_eq!(url.to_string(), "https://login.example:8443/a");
    }
}
