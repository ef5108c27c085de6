//! The facts about a listener of a running broker.

use super::handshake::entrance::proxy_rules;
use super::settings::{certificates_have_names, policy_of};
use crate::config::{ClientCertificates, Config, Listener, ListenerAddress, ListenerProtocol};
use crate::session::authentication::{Anonymous, AuthMethod, AuthPolicy};
use arc_swap::ArcSwap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A listener of a running broker.
#[derive(Clone, Debug)]
pub struct OpenListener {
    /// The address. A port 0 is replaced by the port that the system chose.
    pub address: ListenerAddress,
    /// The name, if the operator gave one.
    pub name: Option<String>,
    /// The rules about the clients that may enter.
    auth: AuthPolicy,
    /// True if a certificate can name a client.
    certificates_have_names: bool,
    /// True with TLS.
    pub has_tls: bool,
    /// The rule for client certificates.
    pub client_certificates: ClientCertificates,
    /// True with WebSocket.
    pub is_websocket: bool,
    /// True if each connection begins with a PROXY header.
    pub has_proxy: bool,
}

impl OpenListener {
    /// Returns the configured facts about a listener with this address.
    pub fn of(config: &Config, listener: &Listener, address: ListenerAddress) -> OpenListener {
        OpenListener {
            address,
            name: listener.name.clone(),
            auth: policy_of(config, listener),
            certificates_have_names: certificates_have_names(listener),
            has_tls: listener.tls.is_some(),
            client_certificates: listener
                .tls
                .as_ref()
                .and_then(|tls| tls.client_certificates)
                .unwrap_or_default(),
            is_websocket: listener.protocol == Some(ListenerProtocol::WebSocket),
            has_proxy: proxy_rules(listener).is_some(),
        }
    }

    /// Returns the name, or the address of a listener without one.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }

    /// Returns the IP address if a client speaks plain MQTT there, without anything before it.
    pub fn plain_address(&self) -> Option<SocketAddr> {
        match self.address {
            ListenerAddress::Ip(address) if !(self.has_tls || self.is_websocket || self.has_proxy) => {
                Some(address)
            }
            _ => None,
        }
    }
}

/// A property of a listener that others can reach, about which the operator is warned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntranceRisk {
    /// Nothing is authenticated, and everybody may enter.
    OpenToAll,
    /// Nobody can enter.
    ClosedToAll,
    /// Passwords and messages cross the network in the clear.
    Unencrypted,
    /// Clients without a user name may enter beside authenticated ones.
    AnonymousToo,
}

/// Facts about the clients that may connect.
impl OpenListener {
    /// Returns the gravest risk of the listener; `None` if it has none, or no other machine reaches
    /// it. Behind a PROXY header the proxy is taken to have done the TLS.
    pub fn risk(&self) -> Option<EntranceRisk> {
        if self.address.is_local() {
            return None;
        }
        match (self.verifies(), self.admits_anonymous()) {
            (false, true) => Some(EntranceRisk::OpenToAll),
            (false, false) => Some(EntranceRisk::ClosedToAll),
            (true, _) if !self.has_tls && !self.has_proxy => Some(EntranceRisk::Unencrypted),
            (true, true) => Some(EntranceRisk::AnonymousToo),
            (true, false) => None,
        }
    }

    /// Returns true if some method lets clients in by this listener.
    pub fn verifies(&self) -> bool {
        self.has_passwords() || self.has_tokens() || self.has_service() || self.has_certificates()
    }

    /// Returns the listeners whose clients may send user names that nothing proves, while a
    /// listener of the same broker proves names. Such names count in no rule there.
    pub fn with_unproven_names(all: &[OpenListener]) -> impl Iterator<Item = &OpenListener> {
        let proves = all.iter().any(OpenListener::verifies);
        all.iter()
            .filter(move |listener| proves && listener.auth.methods.is_empty() && listener.admits_anonymous())
    }

    /// Returns true if clients without credentials may enter by this listener.
    pub fn admits_anonymous(&self) -> bool {
        match self.auth.anonymous {
            Anonymous::Always => true,
            Anonymous::Loopback => self.address.is_local(),
            Anonymous::Never => false,
        }
    }

    /// Returns true if users of the password file may connect by this listener.
    pub fn has_passwords(&self) -> bool {
        self.uses(AuthMethod::Password) || self.uses(AuthMethod::Scram)
    }

    /// Returns true if clients with a token may connect by this listener.
    pub fn has_tokens(&self) -> bool {
        self.uses(AuthMethod::Jwt)
    }

    /// Returns true if the HTTP service lets clients in by this listener.
    pub fn has_service(&self) -> bool {
        self.uses(AuthMethod::Http)
    }

    /// Returns true if a certificate lets a client in by this listener.
    pub fn has_certificates(&self) -> bool {
        // Without any method, a certificate counts.
        self.certificates_have_names && (self.auth.methods.is_empty() || self.uses(AuthMethod::Certificate))
    }

    fn uses(&self, method: AuthMethod) -> bool {
        self.auth.methods.contains(&method)
    }
}

/// The listeners that accept connections, for operators, in the order of the configuration. A
/// reload replaces them.
#[derive(Debug, Default)]
pub struct ListenerDirectory(ArcSwap<Vec<OpenListener>>);

impl ListenerDirectory {
    /// Returns the listeners.
    pub fn open(&self) -> Vec<OpenListener> {
        Vec::clone(&self.0.load())
    }

    pub(super) fn replace(&self, open: Vec<OpenListener>) {
        self.0.store(Arc::new(open));
    }
}

/// Writes the address, then the layers other than plain MQTT, and the name.
impl fmt::Display for OpenListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        let parts = [(self.has_proxy, "PROXY"), (self.has_tls, "TLS"), (self.is_websocket, "WebSocket")];
        for (_, part) in parts.iter().filter(|(has, _)| *has) {
            write!(f, ", {part}")?;
        }
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Anonymous, CertificateUser, ListenerTls, ProxyProtocol};

    /// Returns who may enter by a listener: by certificate, by any method, and without a name.
    fn entrants(listener: Listener, methods: &[AuthMethod]) -> (bool, bool, bool) {
        let mut config = Config::default();
        config.auth.methods = methods.to_vec();
        config.auth.anonymous = Anonymous::Never;
        let address = ListenerAddress::Ip("192.0.2.1:1883".parse().expect("an address"));
        let open = OpenListener::of(&config, &listener, address);
        (open.has_certificates(), open.verifies(), open.admits_anonymous())
    }

    #[test]
    fn a_proxy_that_did_the_tls_names_users_by_their_certificates() {
        let proxied = Listener {
            proxy_protocol: Some(ProxyProtocol::V2),
            proxy_tls: Some(true),
            ..Listener::default()
        };
        assert_eq!(entrants(proxied.clone(), &[]), (true, true, false));
        assert_eq!(entrants(proxied.clone(), &[AuthMethod::Certificate]), (true, true, false));
        assert_eq!(entrants(proxied.clone(), &[AuthMethod::Password]), (false, true, false));
        let without_tls = Listener { proxy_tls: Some(false), ..proxied };
        assert_eq!(entrants(without_tls, &[]), (false, false, false));
        assert_eq!(entrants(Listener::default(), &[]), (false, false, false));
    }

    #[test]
    fn names_that_nothing_proves_are_reported_beside_a_listener_that_proves_them() {
        let listener = |name: &str, auth: &[AuthMethod]| Listener {
            name: Some(name.to_owned()),
            auth: Some(auth.to_vec()),
            anonymous: Some(Anonymous::Always),
            ..Listener::default()
        };
        let unproven = |listeners: &[Listener]| -> Vec<String> {
            let address = ListenerAddress::Ip("192.0.2.1:1883".parse().expect("an address"));
            let of = |listener| OpenListener::of(&Config::default(), listener, address.clone());
            let all: Vec<_> = listeners.iter().map(of).collect();
            OpenListener::with_unproven_names(&all).map(OpenListener::label).collect()
        };
        let (open, closed) = (listener("open", &[]), listener("closed", &[AuthMethod::Password]));
        assert_eq!(unproven(&[open.clone(), closed.clone()]), ["open"]);
        assert!(unproven(&[open.clone(), open.clone()]).is_empty() && unproven(&[closed]).is_empty());
        let tls =
            ListenerTls { client_certificates: Some(ClientCertificates::Optional), ..ListenerTls::default() };
        assert_eq!(unproven(&[Listener { tls: Some(tls), ..open }]), ["open"]);
    }

    #[test]
    fn a_listener_that_others_reach_needs_logins_and_encryption() {
        let risk = |listener: Listener, address: &str, method: Option<AuthMethod>, anonymous| {
            let mut config = Config::default();
            config.auth.methods = method.into_iter().collect();
            config.auth.anonymous = anonymous;
            let address = ListenerAddress::Ip(address.parse().expect("an address"));
            OpenListener::of(&config, &listener, address).risk()
        };
        let (here, far) = ("127.0.0.1:1", "192.0.2.1:1");
        let plain = Listener::default();
        let proxied = Listener { proxy_protocol: Some(ProxyProtocol::V2), ..Listener::default() };
        let (never, always) = (Anonymous::Never, Anonymous::Always);
        for (listener, address, method, anonymous, expected) in [
            (&plain, here, Some(AuthMethod::Password), always, None),
            (&plain, far, None, always, Some(EntranceRisk::OpenToAll)),
            (&plain, far, None, never, Some(EntranceRisk::ClosedToAll)),
            (&plain, far, Some(AuthMethod::Password), never, Some(EntranceRisk::Unencrypted)),
            (&proxied, far, Some(AuthMethod::Password), never, None),
            (&proxied, far, Some(AuthMethod::Password), always, Some(EntranceRisk::AnonymousToo)),
        ] {
            let found = risk(listener.clone(), address, method, anonymous);
            assert_eq!(found, expected, "{address} {method:?}");
        }
    }

    #[test]
    fn a_certificate_that_names_nobody_lets_nobody_in() {
        let of_user = |certificate_user| {
            let tls = ListenerTls {
                client_certificates: Some(ClientCertificates::Required),
                certificate_user: Some(certificate_user),
                ..ListenerTls::default()
            };
            entrants(Listener { tls: Some(tls), ..Listener::default() }, &[])
        };
        assert_eq!(of_user(CertificateUser::Cn), (true, true, false));
        assert_eq!(of_user(CertificateUser::None), (false, false, false));
    }
}
