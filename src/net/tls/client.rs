//! The client side of TLS, for the commands that connect to a broker: `homing health`,
//! `homing load`, `homing ctl` and `homing trace`.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::ServerName;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

use super::config::{Digests, at, load_certificate, provider, read};
use super::config_error::{FileProblem, TlsConfigError};
use super::pem;
use super::settings::{CertificateFiles, Group};

/// The authorities that the system trusts: Debian and Alpine, then Fedora.
const SYSTEM_AUTHORITIES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Returns the configuration of a client for TLS 1.2 and 1.3. The client trusts the authorities in
/// `ca`, or those of the system. `identity` is its own certificate, for brokers that ask for one.
///
/// # Errors
/// A file cannot be used, or there is neither `ca` nor a file of the system.
pub fn client_config(
    ca: Option<&Path>,
    identity: Option<&CertificateFiles>,
) -> Result<Arc<ClientConfig>, TlsConfigError> {
    let provider = every_group();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(TlsConfigError::Refused)?
        .with_root_certificates(authorities(ca)?);
    let config = match identity {
        Some(files) => {
            let (certified, _) = load_certificate(files, &provider, &mut Digests::default())?;
            let certified = SingleCertAndKey::from(Arc::unwrap_or_clone(certified));
            builder.with_client_cert_resolver(Arc::new(certified))
        }
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Returns the configuration of a client that takes every certificate, for a check that the server
/// answers. The connection is not protected against an attacker in the middle.
///
/// # Errors
/// The library refuses the versions.
pub fn config_for_any_certificate() -> Result<Arc<ClientConfig>, TlsConfigError> {
    let provider = every_group();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(TlsConfigError::Refused)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A server may have other groups than the default ones.
fn every_group() -> Arc<CryptoProvider> {
    let others = Group::ALL.into_iter().filter(|group| !Group::DEFAULT.contains(group));
    provider(&Group::DEFAULT.into_iter().chain(others).collect::<Vec<_>>())
}

/// Takes every certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn authorities(ca: Option<&Path>) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = ca {
        let certificates = pem::certificates(&read(file)?).map_err(|error| at(file, error.into()))?;
        for (index, certificate) in certificates.into_iter().enumerate() {
            roots
                .add(certificate)
                .map_err(|error| at(file, FileProblem::NotACertificate(index + 1, error.to_string())))?;
        }
        return Ok(roots);
    }
    let file = SYSTEM_AUTHORITIES.map(Path::new).into_iter().find(|file| file.exists()).ok_or(
        TlsConfigError::Setting("the system has no file of trusted authorities: name one with --ca"),
    )?;
    // A few old roots of the system may be in a form that cannot be used; the others count.
    let certificates = pem::certificates(&read(file)?).map_err(|error| at(file, error.into()))?;
    roots.add_parsable_certificates(certificates);
    Ok(roots)
}

/// Does the handshake of a client with the server `name` over a blocking stream. Returns the stream
/// of plain bytes.
///
/// # Errors
/// The stream fails, or the peers do not agree; the inner error is then a [`rustls::Error`].
pub fn connect<S: Read + Write>(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    mut socket: S,
) -> std::io::Result<impl Read + Write + use<S>> {
    let mut connection = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}

/// Returns true if the server broke the connection because this client has no certificate.
pub fn asks_for_certificate(error: &std::io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired)))
}

/// Returns true if the server broke the connection because of the certificate of this client, or
/// because the client has none (RFC 8446 6.2).
pub fn is_about_certificate(error: &std::io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = cause else { return false };
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
    )
}

/// Returns the suggested fix of a failed handshake; `None` if the cause is something else.
pub fn remedy(error: &std::io::Error) -> Option<&'static str> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("use a name or an address that the certificate has"),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some("name the file of the authority that issued the certificate with --ca")
        }
        rustls::Error::InvalidMessage(_) => Some("what answers there does not speak TLS; is it http://?"),
        _ => None,
    }
}
