//! The certificate chain of a client: verified in the handshake, verified again when a session is
//! resumed, and again for live connections after a reload.
//!
//! TLS does not verify the chain of a resumed session again (RFC 8446 section 2.2). So a client
//! whose certificate was revoked could come back with its ticket. [`ClientVerifier::check`] closes
//! this gap. One check costs about 50 us.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, SignatureScheme,
};
use thiserror::Error;
use x509_cert::Certificate;
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode as _;
use x509_cert::name::Name;

use super::settings::CrlCheck;

/// Most certificates between a client's own and an authority. webpki follows six.
const INTERMEDIATES_MAX: usize = 8;

/// Most intermediate certificates whose subject another one of the chain has too. A chain in the
/// middle of a change of authorities has one or two.
const TWINS_MAX: usize = 2;

/// The rules for the chains of clients on one listener.
#[derive(Debug)]
pub struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    /// The dates of the revocation lists, if the dates of a client's certificate do not count.
    /// Then `inner` does not look at the dates of the lists either.
    list_dates: Option<ListDates>,
}

/// The ends of revocation lists.
#[derive(Debug)]
struct ListDates {
    /// The issuer of each list that ends, and its end in seconds since 1970.
    ends: Vec<(Name, u64)>,
    /// The certificates that are looked up.
    crl_check: CrlCheck,
}

impl ListDates {
    /// Returns the dates of these lists. The verifier refuses a list that cannot be read.
    fn of(lists: &[CertificateRevocationListDer<'_>], crl_check: CrlCheck) -> ListDates {
        let end = |list: &CertificateRevocationListDer<'_>| {
            let list = CertificateList::<Rfc5280>::from_der(list).ok()?.tbs_cert_list;
            Some((list.issuer, list.next_update?.to_unix_duration().as_secs()))
        };
        ListDates { ends: lists.iter().filter_map(end).collect(), crl_check }
    }

    /// Checks that no list of the issuers of a chain has ended.
    fn check(&self, chain: &[&CertificateDer<'_>], now: UnixTime) -> Result<(), rustls::Error> {
        let looked_up = if self.crl_check == CrlCheck::Leaf { 1 } else { chain.len() };
        for certificate in chain.iter().take(looked_up) {
            let Ok(certificate) = Certificate::from_der(certificate) else { continue };
            let issuer = certificate.tbs_certificate().issuer();
            let ended = self.ends.iter().find(|(of, end)| of == issuer && *end < now.as_secs());
            if let Some((_, end)) = ended {
                let next_update = UnixTime::since_unix_epoch(Duration::from_secs(*end));
                let why = CertificateError::ExpiredRevocationListContext { time: now, next_update };
                return Err(why.into());
            }
        }
        Ok(())
    }
}

/// The rules of [`ClientVerifier`], beside its authorities and revocation lists.
#[derive(Clone, Copy, Debug)]
pub struct ClientRules {
    /// True if a client without a certificate is refused.
    pub required: bool,
    /// The certificates that are looked up in the revocation lists.
    pub crl_check: CrlCheck,
    /// False if the dates of a client's certificate do not count.
    pub dates: bool,
}

/// A chain that would cost too much to verify, so it was not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
enum ChainShape {
    #[error("the chain has more than {INTERMEDIATES_MAX} intermediate certificates")]
    TooLong,
    #[error("more than {TWINS_MAX} intermediate certificates have the subject of another one")]
    TooManyTwins,
}

impl fmt::Debug for ChainShape {
    /// Writes the text, because rustls shows this form of an error that is not its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The chain of a client is not valid, or not valid any more.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ChainError {
    /// The listener requires a certificate, and the client has none.
    #[error("the client has no certificate")]
    NoCertificate,
    /// The chain does not lead to an authority, or it is expired or revoked.
    #[error("the client's certificate is refused: {0}")]
    Refused(rustls::Error),
    /// The handshake is not done.
    #[error("the TLS handshake is not done")]
    Unfinished,
}

impl ClientVerifier {
    /// Returns a verifier. A certificate of unknown status and an expired revocation list mean
    /// refusal, if there are any lists.
    ///
    /// # Errors
    /// There is no authority, or a revocation list cannot be read.
    pub fn new(
        authorities: Arc<RootCertStore>,
        lists: Vec<CertificateRevocationListDer<'static>>,
        rules: ClientRules,
        provider: Arc<CryptoProvider>,
    ) -> Result<ClientVerifier, VerifierBuilderError> {
        let list_dates = (!rules.dates).then(|| ListDates::of(&lists, rules.crl_check));
        let mut builder = WebPkiClientVerifier::builder_with_provider(authorities, provider).with_crls(lists);
        if rules.dates {
            builder = builder.enforce_revocation_expiration();
        }
        if rules.crl_check == CrlCheck::Leaf {
            builder = builder.only_check_end_entity_revocation();
        }
        if !rules.required {
            builder = builder.allow_unauthenticated();
        }
        Ok(ClientVerifier { inner: builder.build()?, list_dates })
    }

    /// Checks a client's chain, its own certificate first, at `unix_ms` milliseconds since 1970. An
    /// empty chain passes unless a certificate is required.
    ///
    /// # Errors
    /// The chain is not valid with today's authorities, revocation lists and date.
    pub fn check(&self, chain: &[CertificateDer<'_>], unix_ms: u64) -> Result<(), ChainError> {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return match self.inner.client_auth_mandatory() {
                true => Err(ChainError::NoCertificate),
                false => Ok(()),
            };
        };
        let now = UnixTime::since_unix_epoch(Duration::from_millis(unix_ms));
        self.verify_client_cert(leaf, intermediates, now).map(drop).map_err(ChainError::Refused)
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        check_shape(intermediates)?;
        let Some(list_dates) = &self.list_dates else {
            return self.inner.verify_client_cert(end_entity, intermediates, now);
        };
        let at = within_validity(end_entity, now);
        let verified = self.inner.verify_client_cert(end_entity, intermediates, at)?;
        // The lists have dates of their own, which count.
        let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).collect();
        list_dates.check(&chain, now)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Refuses a chain that is costly to verify. webpki tries every path from the client's certificate
/// to an authority. With n intermediates of one subject there are up to n! paths, which took 40 to
/// 100 ms; with these bounds a dozen, which take less than 2 ms.
fn check_shape(intermediates: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
    let refused = |shape: ChainShape| Err(CertificateError::Other(OtherError(Arc::new(shape))).into());
    if intermediates.len() > INTERMEDIATES_MAX {
        return refused(ChainShape::TooLong);
    }
    if intermediates.len() <= TWINS_MAX + 1 {
        return Ok(());
    }
    let mut subjects = Vec::with_capacity(intermediates.len());
    for certificate in intermediates {
        let parsed = Certificate::from_der(certificate);
        let parsed = parsed.map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
        let subject = parsed.tbs_certificate().subject().clone();
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    if intermediates.len() - subjects.len() > TWINS_MAX {
        return refused(ChainShape::TooManyTwins);
    }
    Ok(())
}

/// Returns the instant nearest to `now` at which the certificate is valid; `now` if its dates
/// cannot be read, so that the verifier reports that.
fn within_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> UnixTime {
    let Ok(certificate) = Certificate::from_der(certificate) else { return now };
    let validity = certificate.tbs_certificate().validity();
    let first = validity.not_before.to_unix_duration().as_secs();
    let last = validity.not_after.to_unix_duration().as_secs();
    UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs().max(first).min(last)))
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
