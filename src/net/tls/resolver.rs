//! The certificate that a client gets, by the server name and the signature schemes of its
//! ClientHello.
//!
//! In this order: a certificate with exactly this name (RFC 6066 section 3), one with a wildcard
//! for this name (RFC 9525 section 6.3: `*` is the whole first label), any certificate. In each
//! group the first counts whose key fits the client's signature schemes. So an ECDSA certificate is
//! possible beside an RSA certificate for old clients.

use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificates of one listener.
#[derive(Debug)]
pub struct Resolver {
    certificates: Vec<NamedCertificate>,
}

/// A certificate with its key and the DNS names that it is for, in lower case.
#[derive(Clone, Debug)]
pub struct NamedCertificate {
    /// The chain and the key.
    pub certificate: Arc<CertifiedKey>,
    /// The DNS names in the subject alternative names, in lower case; `*.` begins a wildcard.
    pub names: Vec<String>,
}

impl Resolver {
    /// Returns a resolver over these certificates, in the order of the configuration.
    pub fn new(certificates: Vec<NamedCertificate>) -> Resolver {
        Resolver { certificates }
    }

    /// Returns the certificate for a client that asks for `name` and can check `schemes`. `None` if
    /// no key fits; the handshake fails then.
    ///
    /// Costs one comparison for each name of each certificate.
    pub fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // rustls returns the name in lower case and without a final dot.
        let name = name.unwrap_or_default();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        let exact = |of: &NamedCertificate| of.names.iter().any(|own| own == name);
        let wildcard = |of: &NamedCertificate| {
            parent.is_some() && of.names.iter().any(|own| own.strip_prefix("*.") == parent)
        };
        let fits = |of: &NamedCertificate| of.certificate.key.choose_scheme(schemes).is_some();
        let mut all = self.certificates.iter();
        let found = all
            .clone()
            .find(|of| exact(of) && fits(of))
            .or_else(|| all.clone().find(|of| wildcard(of) && fits(of)))
            .or_else(|| all.find(|of| fits(of)));
        found.map(|of| Arc::clone(&of.certificate))
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}
