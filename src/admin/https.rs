//! HTTPS: the scheme of the addresses of the interface, and their certificate.

use crate::config::Admin;
use crate::named_enum::named_enum;
use crate::net::tls::config_error::TlsConfigError;
use crate::net::tls::live::LiveTls;
use crate::net::tls::settings::{CertificateFiles, TlsSettings};
use std::sync::Arc;

named_enum! {
    /// The scheme of all addresses of the interface. The name begins a URL.
    pub(super) enum Scheme {
        Http = "http",
        Https = "https",
    }
}

/// Returns the TLS settings of the interface; `None` without a certificate.
pub(crate) fn settings(options: &Admin) -> Option<TlsSettings> {
    let (certificate, key) = options.certificate_paths()?;
    Some(TlsSettings {
        // The HTTP server adds "http/1.1", the only version that it speaks.
        alpn: Vec::new(),
        // A ticket would admit a client by a certificate that has been replaced.
        tickets: false,
        ..TlsSettings::new(vec![CertificateFiles { certificate, chain: None, key }])
    })
}

/// Reads the certificate of the interface; `None` without one. Errors: a file cannot be used.
pub(super) fn load(options: &Admin) -> Result<Option<Arc<LiveTls>>, TlsConfigError> {
    settings(options).as_ref().map(LiveTls::load).transpose()
}
