//! The settings and counters of one listener, as its acceptor and the handshake threads use them.

use crate::broker::start_error::StartError;
use crate::config::{Listener, ListenerTls};
use crate::net::tls::config::TlsServer;
use crate::net::tls::settings::{
    CertificateFiles, CertificateUser, ClientCertificates, CrlCheck, Group, MinimumVersion, TlsSettings,
};
use crate::shard::arrival::ListenerNumber;
use arc_swap::ArcSwap;
use std::path::PathBuf;

/// Everything about one listener but its socket.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// The place among all listeners.
    pub(crate) number: ListenerNumber,
    /// The name for the log.
    pub(crate) name: Box<str>,
    /// Maximum number of connections of this listener; `usize::MAX` without a limit.
    pub(crate) connections: usize,
    /// `None` for a listener without TLS. A reload replaces the server.
    pub(crate) tls: Option<ArcSwap<TlsServer>>,
}

impl Entrance {
    /// Returns the entrance of a listener. Reads its TLS files.
    ///
    /// # Errors
    /// A file of TLS cannot be used: [`StartError::Tls`].
    pub(crate) fn open(number: usize, listener: &Listener) -> Result<Entrance, StartError> {
        let name = listener_name(number, listener);
        let load = |tls: &ListenerTls| {
            TlsServer::load(&tls_settings(tls))
                .map(ArcSwap::from_pointee)
                .map_err(|cause| StartError::Tls { listener: name.clone(), cause })
        };
        Ok(Entrance {
            number: ListenerNumber(u16::try_from(number).unwrap_or(u16::MAX)),
            connections: listener.connections.map_or(usize::MAX, |most| most as usize),
            tls: listener.tls.as_ref().map(load).transpose()?,
            name,
        })
    }

    /// Returns true if a socket goes to a handshake thread before a shard.
    pub(crate) fn has_handshakes(&self) -> bool {
        self.tls.is_some()
    }
}

/// Returns the name of a listener, or its number counted from 1.
pub(crate) fn listener_name(number: usize, listener: &Listener) -> Box<str> {
    listener.name.clone().unwrap_or_else(|| format!("listener-{}", number + 1)).into_boxed_str()
}

/// Returns the settings of a TLS table that passed the checks.
fn tls_settings(tls: &ListenerTls) -> TlsSettings {
    let pairs = tls.certificates.iter().flatten();
    let files = pairs.map(|pair| CertificateFiles {
        certificate: path(pair.certificate.as_deref()),
        key: path(pair.key.as_deref()),
    });
    let defaults = TlsSettings::new(files.collect());
    TlsSettings {
        minimum: match tls.minimum.as_deref() {
            Some("1.3") => MinimumVersion::Tls13,
            _ => MinimumVersion::Tls12,
        },
        groups: match &tls.groups {
            Some(names) => names.iter().filter_map(|name| Group::named(name)).collect(),
            None => defaults.groups,
        },
        alpn: tls.alpn.clone().unwrap_or(defaults.alpn),
        record_size: tls.record_size.map_or(defaults.record_size, |size| size.as_usize()),
        tickets: tls.tickets.unwrap_or(defaults.tickets),
        client_certificates: match tls.client_certificates.as_deref() {
            Some("optional") => ClientCertificates::Optional,
            Some("required") => ClientCertificates::Required,
            _ => ClientCertificates::Off,
        },
        client_ca: tls.client_ca.as_ref().map(PathBuf::from),
        crl: tls.crl.iter().flatten().map(PathBuf::from).collect(),
        crl_check: match tls.crl_check.as_deref() {
            Some("chain") => CrlCheck::Chain,
            _ => CrlCheck::Leaf,
        },
        certificate_dates: tls.certificate_dates.unwrap_or(defaults.certificate_dates),
        certificate_user: match tls.certificate_user.as_deref() {
            Some("san_dns") => CertificateUser::SanDns,
            Some("san_uri") => CertificateUser::SanUri,
            Some("san_email") => CertificateUser::SanEmail,
            Some("subject") => CertificateUser::Subject,
            _ => CertificateUser::Cn,
        },
        certificates: defaults.certificates,
    }
}

fn path(text: Option<&str>) -> PathBuf {
    PathBuf::from(text.unwrap_or_default())
}
