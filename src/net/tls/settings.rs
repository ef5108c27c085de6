//! The TLS settings of one listener, as plain values.

use crate::named_enum::named_enum;
use std::path::PathBuf;

/// The TLS settings of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificates of the listener with their keys. At least one is needed; the order decides
    /// between those that fit a client equally.
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
    /// Whether clients are asked for a certificate.
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

/// The lowest version of TLS. 1.0 and 1.1 are not offered (RFC 8996).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinimumVersion {
    /// TLS 1.2 and 1.3.
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

named_enum! {
    /// A key exchange group.
    pub enum Group {
        /// X25519 with ML-KEM-768, safe against a quantum computer; TLS 1.3 only.
        X25519MlKem768 = "X25519MLKEM768",
        /// P-256 with ML-KEM-768; TLS 1.3 only.
        P256MlKem768 = "SecP256r1MLKEM768",
        /// X25519 (RFC 7748).
        X25519 = "X25519",
        /// NIST P-256.
        P256 = "P-256",
        /// NIST P-384.
        P384 = "P-384",
    }
}

impl Group {
    /// The default groups, best first.
    pub const DEFAULT: [Group; 3] = [Group::X25519MlKem768, Group::X25519, Group::P256];

    /// True for a group with ML-KEM, which only TLS 1.3 has.
    pub fn is_hybrid(self) -> bool {
        matches!(self, Group::X25519MlKem768 | Group::P256MlKem768)
    }

    /// Returns the group with this name, in upper or lower case; `None` if there is none.
    pub fn named(name: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.name().eq_ignore_ascii_case(name))
    }
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are not asked.
    Off,
    /// Clients are asked. One without a certificate passes; a wrong certificate is refused.
    Optional,
    /// A client without a valid certificate is refused in the handshake.
    Required,
}

/// The certificates of a client's chain that are looked up in the revocation lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrlCheck {
    /// The client's own certificate, as OpenSSL does with `X509_V_FLAG_CRL_CHECK`.
    Leaf,
    /// Every certificate but the root.
    Chain,
}

/// The part of a client's certificate that is its user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUser {
    /// The common name in the subject.
    Cn,
    /// The first DNS name in the subject alternative names.
    SanDns,
    /// The first URI in the subject alternative names.
    SanUri,
    /// The first e-mail address in the subject alternative names.
    SanEmail,
    /// The whole subject as text (RFC 2253), in the form that OpenSSL and mosquitto write.
    Subject,
    /// No part. The certificate is verified, but it names nobody.
    None,
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
