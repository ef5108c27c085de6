//! The TLS settings of one listener, as plain values.

pub use crate::config::{CertificateUser, ClientCertificates, CrlCheck, Group, MinimumVersion};
use std::path::PathBuf;

/// The TLS settings of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificates of the listener with their keys. At least one is needed. The order decides
    /// between certificates that fit a client equally.
    pub certificates: Vec<CertificateFiles>,
    /// The lowest version that a client may use.
    pub minimum: MinimumVersion,
    /// The key exchange groups, best first.
    pub groups: Vec<Group>,
    /// The ALPN protocols (RFC 7301), best first. A client that offers only others is refused; a
    /// client that offers none passes. Empty: ALPN is not checked.
    pub alpn: Vec<String>,
    /// Most plain bytes in a record, 512 to 16,384. Lower it for clients with small buffers.
    pub record_size: usize,
    /// True if clients may resume a session with a ticket.
    pub tickets: bool,
    /// The rule for client certificates.
    pub client_certificates: ClientCertificates,
    /// The file with the authorities that may issue a client's certificate (PEM or DER).
    pub client_ca: Option<PathBuf>,
    /// The files with certificate revocation lists (PEM or DER).
    pub crl: Vec<PathBuf>,
    /// The certificates of a chain that must be in good standing with the revocation lists.
    pub crl_check: CrlCheck,
    /// False if a client's certificate is accepted before and after its dates of validity.
    pub certificate_dates: bool,
    /// The part of a client's certificate that is its user name.
    pub certificate_user: CertificateUser,
}

/// A certificate chain and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain as PEM: the certificate of the server first, then the intermediate ones.
    pub certificate: PathBuf,
    /// The authorities from which the chain is completed, if `certificate` has one certificate.
    pub chain: Option<PathBuf>,
    /// The private key as PEM: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

impl TlsSettings {
    /// Returns the settings of a listener with these certificates, everything else as by default.
    pub fn new(certificates: Vec<CertificateFiles>) -> TlsSettings {
        TlsSettings {
            certificates,
            minimum: MinimumVersion::Tls12,
            groups: Group::DEFAULT.to_vec(),
            alpn: vec!["mqtt".to_owned()],
            record_size: super::engine::RECORD_MAX,
            tickets: true,
            client_certificates: ClientCertificates::Off,
            client_ca: None,
            crl: Vec::new(),
            crl_check: CrlCheck::Leaf,
            certificate_dates: true,
            certificate_user: CertificateUser::Cn,
        }
    }
}
