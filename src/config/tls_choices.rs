//! The words of the TLS settings of a listener.

use crate::named_enum::named_enum;

named_enum! {
    /// The lowest version of TLS. 1.0 and 1.1 are not offered (RFC 8996).
    #[derive(Default)]
    pub enum MinimumVersion {
        /// TLS 1.2 and 1.3.
        #[default]
        Tls12 = "1.2",
        /// TLS 1.3 only.
        Tls13 = "1.3",
    }

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

    /// The rule for client certificates.
    #[derive(Default)]
    pub enum ClientCertificates {
        /// Clients are not asked.
        #[default]
        Off = "off",
        /// Clients are asked. Clients without a certificate pass; a wrong certificate is refused.
        Optional = "optional",
        /// A client without a valid certificate is refused in the handshake.
        Required = "required",
    }

    /// The certificates of a client's chain that are looked up in the revocation lists.
    #[derive(Default)]
    pub enum CrlCheck {
        /// The client's own certificate, as OpenSSL does with `X509_V_FLAG_CRL_CHECK`.
        #[default]
        Leaf = "leaf",
        /// Every certificate but the root.
        Chain = "chain",
    }

    /// The part of a client's certificate that is its user name.
    #[derive(Default)]
    pub enum CertificateUser {
        /// The common name in the subject.
        #[default]
        Cn = "cn",
        /// The first DNS name in the subject alternative names.
        SanDns = "san_dns",
        /// The first URI in the subject alternative names.
        SanUri = "san_uri",
        /// The first e-mail address in the subject alternative names.
        SanEmail = "san_email",
        /// The whole subject as text (RFC 2253), in the form that OpenSSL and mosquitto write.
        Subject = "subject",
        /// No part. The certificate is verified, but it names nobody.
        None = "none",
    }
}

impl Group {
    /// The default groups, best first.
    pub const DEFAULT: [Group; 3] = [Group::X25519MlKem768, Group::X25519, Group::P256];

    /// True for a group with ML-KEM, which only TLS 1.3 has.
    pub fn is_hybrid(self) -> bool {
        matches!(self, Group::X25519MlKem768 | Group::P256MlKem768)
    }
}

super::value::named_fields! { CertificateUser, ClientCertificates, CrlCheck, Group, MinimumVersion }
