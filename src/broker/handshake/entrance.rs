//! The settings and counters of one listener, as its acceptor and the handshake threads use them.

use crate::access::network::network;
use crate::broker::connection::PeerAddress;
use crate::config::{Listener, ListenerAddress, ListenerProtocol, ProxyProtocol};
use crate::login::listener_terms::ListenerTerms;
use crate::net::proxy::{ProxyRules, ProxyVersions, TrustedProxies};
use crate::net::tls::config::TlsServer;
use crate::net::tls::settings::{CertificateFiles, TlsSettings};
use crate::net::websocket::upgrade::{Origins, UpgradeRules};
use crate::session::authentication::Reach;
use arc_swap::ArcSwap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

/// Everything about one listener but its socket.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) settings: Listener,
    /// The settings for the clients, which each connection has.
    pub(crate) terms: Arc<ListenerTerms>,
    /// The name for the log.
    pub(crate) name: Box<str>,
    /// True if no other machine can connect: the listener is on loopback or a Unix socket.
    pub(crate) is_local: bool,
    /// The rules for the PROXY header of each connection; `None` without such a header.
    pub(crate) proxy: Option<ProxyRules>,
    /// The proxies that are believed; `None` if every peer of a local listener is.
    pub(crate) trusted: Option<TrustedProxies>,
    /// The rules of the upgrade; `None` for MQTT without WebSocket.
    pub(crate) websocket: Option<UpgradeRules>,
    /// `None` for a listener without TLS. A reload replaces the server.
    pub(crate) tls: Option<ArcSwap<TlsServer>>,
    /// True once a proxy on this machine that is not trusted was reported.
    has_reported_proxy: AtomicBool,
}

impl Entrance {
    /// Returns the entrance of a listener with these settings for its clients, which has this TLS
    /// if it has any.
    pub(crate) fn new(
        name: &str,
        listener: &Listener,
        terms: Arc<ListenerTerms>,
        tls: Option<Arc<TlsServer>>,
    ) -> Entrance {
        let is_local = listener.address.as_ref().is_some_and(ListenerAddress::is_local);
        let proxy = proxy_rules(listener);
        Entrance {
            settings: listener.clone(),
            terms,
            is_local,
            trusted: listener.trusted_proxies.as_ref().map(|networks| {
                TrustedProxies::new(networks.iter().filter_map(|text| network(text).ok()).collect())
            }),
            websocket: websocket_rules(listener, is_local && proxy.is_none()),
            proxy,
            tls: tls.map(ArcSwap::new),
            has_reported_proxy: AtomicBool::new(false),
            name: name.into(),
        }
    }

    /// Returns true if a socket goes to a handshake thread before a shard.
    pub(crate) fn has_handshakes(&self) -> bool {
        self.proxy.is_some() || self.tls.is_some() || self.websocket.is_some()
    }

    /// Returns true if a peer may send a PROXY header. `address` is `None` on a Unix socket.
    pub(crate) fn trusts(&self, address: Option<IpAddr>) -> bool {
        match (&self.trusted, address) {
            (Some(trusted), Some(address)) => trusted.contains(address),
            (Some(_), None) => true,
            (None, _) => self.is_local,
        }
    }

    /// Returns the trusted proxies, if this peer is a trusted proxy. Its X-Forwarded-For counts
    /// then.
    pub(crate) fn forwarding(&self, address: Option<IpAddr>) -> Option<&TrustedProxies> {
        self.trusted.as_ref().filter(|_| self.trusts(address))
    }

    /// Warns once if a proxy on this machine hides its clients. Failed logins count for an address,
    /// and those of this machine do not count, so such clients may guess passwords without a bound.
    pub(crate) fn report_hidden_client(&self, address: Option<IpAddr>) {
        let is_here = address.is_none_or(|address| address.to_canonical().is_loopback());
        if !is_here || self.trusted.is_some() || self.has_reported_proxy.swap(true, Ordering::Relaxed) {
            return;
        }
        warn!(
            event = "listener.hidden_clients",
            listener = &*self.name,
            "a proxy on this machine passes on clients, and failed logins of these clients are not \
             bounded: name the proxy in trusted_proxies of the listener"
        );
    }

    /// Returns the reach of a peer at this listener.
    pub(crate) fn reach(&self, peer: &PeerAddress) -> Reach {
        if self.is_local && peer.is_local() { Reach::Local } else { Reach::Network }
    }

    /// Returns the reach of a client that may have come through a proxy. `client` is its address,
    /// or that of the proxy if the client's is unknown.
    pub(crate) fn reach_through(&self, client: &PeerAddress, is_of_unknown_source: bool) -> Reach {
        // A client of unknown address may come from anywhere, though its proxy is local.
        if !is_of_unknown_source && self.reach(client) == Reach::Local {
            return Reach::Local;
        }
        let address = client.socket_address().map(|address| address.ip());
        match (&self.trusted, address) {
            (Some(trusted), Some(address)) if trusted.contains(address) => Reach::Proxy,
            _ => Reach::Network,
        }
    }
}

pub(crate) fn proxy_rules(listener: &Listener) -> Option<ProxyRules> {
    let versions = match listener.proxy_protocol? {
        ProxyProtocol::Off => return None,
        ProxyProtocol::V1 => ProxyVersions::V1,
        ProxyProtocol::V2 => ProxyVersions::V2,
        ProxyProtocol::Any => ProxyVersions::Any,
    };
    Some(ProxyRules { versions, require_tls: listener.proxy_tls == Some(true) })
}

/// `is_loopback` is true if a browser reaches the listener under a loopback name only.
fn websocket_rules(listener: &Listener, is_loopback: bool) -> Option<UpgradeRules> {
    if listener.protocol != Some(ListenerProtocol::WebSocket) {
        return None;
    }
    let is_tcp = matches!(listener.address, Some(ListenerAddress::Ip(_)));
    Some(UpgradeRules {
        path: listener.websocket_path.clone().unwrap_or_else(|| "/mqtt".to_owned()),
        origins: match &listener.origins {
            None => Origins::SameHost,
            Some(list) => Origins::Listed(list.clone()),
        },
        is_loopback: is_loopback && is_tcp,
        has_tls: listener.tls.is_some(),
    })
}

/// Returns the name of a listener, or its address without one. Several listeners may have port 0.
/// So one of these without a name has its place in the list, counted from 1.
pub(crate) fn listener_name(place: usize, listener: &Listener) -> Box<str> {
    let has_free_port = match &listener.address {
        Some(ListenerAddress::Ip(address)) => address.port() == 0,
        Some(ListenerAddress::Unix(_)) => false,
        None => true,
    };
    match listener.name.is_none() && has_free_port {
        true => format!("listener-{}", place + 1).into_boxed_str(),
        false => listener.label().into_boxed_str(),
    }
}

/// Returns the names of the listeners with TLS, and their settings.
pub(crate) fn all_tls_settings(listeners: &[Listener]) -> Vec<(String, TlsSettings)> {
    let with_tls = listeners.iter().enumerate();
    let settings = |(place, listener): (usize, &Listener)| {
        Some((listener_name(place, listener).into(), tls_settings(listener)?))
    };
    with_tls.filter_map(settings).collect()
}

/// Returns the TLS settings of a listener that passed the checks; `None` without TLS.
pub(crate) fn tls_settings(listener: &Listener) -> Option<TlsSettings> {
    let tls = listener.tls.as_ref()?;
    let pairs = tls.certificates.iter().flatten();
    let files = pairs.map(|pair| CertificateFiles {
        certificate: path(pair.certificate.as_deref()),
        chain: pair.chain.as_ref().map(PathBuf::from),
        key: path(pair.key.as_deref()),
    });
    let defaults = TlsSettings::new(files.collect());
    Some(TlsSettings {
        minimum: tls.minimum.unwrap_or_default(),
        groups: tls.groups.clone().unwrap_or(defaults.groups),
        alpn: tls.alpn.clone().unwrap_or_else(|| vec![default_alpn(listener).to_owned()]),
        record_size: tls.record_size.map_or(defaults.record_size, |size| size.as_usize()),
        tickets: tls.tickets.unwrap_or(defaults.tickets),
        client_certificates: tls.client_certificates.unwrap_or_default(),
        client_ca: tls.client_ca.as_ref().map(PathBuf::from),
        crl: tls.crl.iter().flatten().map(PathBuf::from).collect(),
        crl_check: tls.crl_check.unwrap_or_default(),
        certificate_dates: tls.certificate_dates.unwrap_or(defaults.certificate_dates),
        certificate_user: tls.certificate_user.unwrap_or_default(),
        certificates: defaults.certificates,
    })
}

/// Returns the application protocol of a listener. A browser that opens a WebSocket offers
/// "http/1.1" and nothing else, because the upgrade is a request of HTTP (RFC 6455, section 4.1).
fn default_alpn(listener: &Listener) -> &'static str {
    match listener.protocol.unwrap_or_default() {
        ListenerProtocol::WebSocket => "http/1.1",
        ListenerProtocol::Mqtt => "mqtt",
    }
}

fn path(text: Option<&str>) -> PathBuf {
    PathBuf::from(text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reach of a client through a proxy, by a listener that trusts these proxies.
    fn reach(listener: &str, trusted: Option<&str>, client: &str, is_unknown: bool) -> Reach {
        let listener = Listener {
            trusted_proxies: trusted.map(|network| vec![network.to_owned()]),
            ..Listener::plain(listener.parse().unwrap())
        };
        let entrance = Entrance::new("door", &listener, Arc::default(), None);
        entrance.reach_through(&PeerAddress::ip(client.parse().unwrap()), is_unknown)
    }

    #[test]
    fn a_trusted_proxy_that_does_not_name_its_client_is_a_proxy_and_never_local() {
        let (local, open) = ("127.0.0.1:1", "192.0.2.1:1");
        for (listener, trusted, client, is_unknown, expected) in [
            (open, Some("10.0.0.0/8"), "10.0.0.1:1", true, Reach::Proxy),
            (open, Some("10.0.0.0/8"), "10.0.0.1:1", false, Reach::Proxy),
            (open, Some("10.0.0.0/8"), "192.0.2.7:1", false, Reach::Network),
            (open, None, "10.0.0.1:1", true, Reach::Network),
            (local, None, "127.0.0.1:1", false, Reach::Local),
            (local, None, "127.0.0.1:1", true, Reach::Network),
            (local, Some("127.0.0.1"), "127.0.0.1:1", false, Reach::Local),
            (local, Some("127.0.0.1"), "127.0.0.1:1", true, Reach::Proxy),
        ] {
            let reach = reach(listener, trusted, client, is_unknown);
            assert_eq!(reach, expected, "{listener} {trusted:?} {client} {is_unknown}");
        }
    }
}
