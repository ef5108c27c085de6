//! Certificates and TLS clients of the tests.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// A certificate authority.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Leaf {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(ca_params(name), key).expect("a certificate"))
    }

    /// Issues a server's certificate for these names.
    pub(crate) fn server(&self, names: &[&str]) -> Leaf {
        self.issue(KeyPair::generate().expect("a key"), |params| {
            *params = CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>())
                .expect("DNS names");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })
    }

    /// Issues a certificate for `key`; `change` sets its parameters.
    pub(crate) fn issue(&self, key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = CertificateParams::default();
        change(&mut params);
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Leaf { certificate: certificate.der().clone(), key }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        roots
    }

    /// Returns a client's configuration that trusts this authority.
    pub(crate) fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&Leaf>,
    ) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(self.roots());
        let mut config = match identity {
            Some(leaf) => builder
                .with_client_auth_cert(vec![leaf.certificate.clone()], leaf.private_key())
                .expect("an identity"),
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::in_memory_sessions(8);
        config
    }
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Leaf {
    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key")
    }
}

/// Returns a server's configuration without client certificates, for one certificate.
pub(crate) fn server_config(versions: &[&'static SupportedProtocolVersion], leaf: &Leaf) -> ServerConfig {
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.certificate.clone()], leaf.private_key())
        .expect("a certificate")
}

/// Returns a client that connects to `name`.
pub(crate) fn client(config: ClientConfig, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// Returns all bytes that the client wants to send.
pub(crate) fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("a vector takes all");
    }
    bytes
}

/// Gives `bytes` to the client and returns the plain bytes that it can read now.
pub(crate) fn received(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("a slice has all");
        client.process_new_packets()?;
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = client.reader().read(&mut part) {
            plain.extend_from_slice(&part[..read]);
        }
    }
    Ok(plain)
}

/// Encrypts `plain` as the client.
pub(crate) fn written(client: &mut ClientConnection, plain: &[u8]) -> Vec<u8> {
    client.set_buffer_limit(None);
    client.writer().write_all(plain).expect("no limit");
    sent(client)
}
