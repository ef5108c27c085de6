//! Certificates and TLS clients of the tests.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::engine::TlsHandshake;
use super::settings::CertificateFiles;
use crate::net::layers::LayerError;

/// A certificate authority.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Leaf {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(ca_params(name), key).expect("a certificate"))
    }

    /// Returns an intermediate authority.
    pub(crate) fn authority(&self, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::signed_by(ca_params(name), key, &self.0).expect("a certificate"))
    }

    /// Issues a server's certificate for these names.
    pub(crate) fn server(&self, names: &[&str]) -> Leaf {
        self.issue(KeyPair::generate().expect("a key"), |params| {
            *params = CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>())
                .expect("DNS names");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        })
    }

    /// Issues a client's certificate with this CN.
    pub(crate) fn client(&self, name: &str) -> Leaf {
        self.issue(KeyPair::generate().expect("a key"), |params| {
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    /// Issues a certificate for `key`; `change` sets its parameters.
    pub(crate) fn issue(&self, key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = CertificateParams::default();
        change(&mut params);
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Leaf { certificate: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// Returns a revocation list as PEM, valid from 2020 to this year.
    pub(crate) fn revokes(&self, serials: &[u64], until_year: i32) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(until_year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).expect("a list").pem().expect("PEM")
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

/// Writes a file of a test and returns its path.
pub(crate) fn write(dir: &Path, name: &str, content: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).expect("a file of the test");
    path
}

/// Writes a certificate with its key, as `NAME.pem` and `NAME.key`.
pub(crate) fn write_leaf(dir: &Path, name: &str, leaf: &Leaf) -> CertificateFiles {
    CertificateFiles {
        certificate: write(dir, &format!("{name}.pem"), &leaf.pem),
        chain: None,
        key: write(dir, &format!("{name}.key"), &leaf.key.serialize_pem()),
    }
}

/// The reason why a handshake failed, on the side that saw it first.
#[derive(Debug)]
pub(crate) enum Failed {
    Server(Box<LayerError>, Option<rustls::Error>),
    Client(Box<rustls::Error>),
}

/// Runs a handshake to its end. A refused client has read the alert.
pub(crate) fn shake_hands(client: &mut ClientConnection, server: &mut TlsHandshake) -> Result<(), Failed> {
    let (mut kept, mut plain) = (Vec::new(), Vec::new());
    while client.is_handshaking() || !server.is_done() {
        kept.extend(sent(client));
        let mut out = Vec::new();
        match server.advance(&mut kept, &mut plain, &mut out) {
            Ok(progress) => kept.drain(..progress.used),
            Err(error) => return Err(Failed::Server(Box::new(error), received(client, &out).err())),
        };
        received(client, &out).map_err(|error| Failed::Client(Box::new(error)))?;
    }
    Ok(())
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
