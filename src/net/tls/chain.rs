//! The chain from a server's certificate to a root, completed from a file with authorities.
//!
//! OpenSSL, and so mosquitto, also completes the chain of a file with one certificate.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, SubjectKeyIdentifier};

/// Maximum number of certificates in a completed chain. A longer one costs each handshake time.
const MOST: usize = 8;

/// Appends the issuer of the last certificate, its issuer, and so on, up to a root. Certificates
/// that cannot be read issue nothing.
pub(super) fn complete(chain: &mut Vec<CertificateDer<'static>>, authorities: &[CertificateDer<'static>]) {
    let parsed: Vec<_> =
        authorities.iter().filter_map(|der| Some((der, Certificate::from_der(der).ok()?))).collect();
    while chain.len() < MOST
        && let Some(last) = chain.last().and_then(|der| Certificate::from_der(der).ok())
        && !is_root(&last)
    {
        let issuers = parsed.iter().filter(|(_, authority)| has_issued(authority, &last));
        // An authority that was renewed is there twice. The newer certificate counts.
        let newest = issuers
            .max_by_key(|(_, authority)| authority.tbs_certificate().validity().not_after.to_unix_duration());
        let Some((der, _)) = newest else { return };
        chain.push((*der).clone());
    }
}

/// Returns the issuer that is missing at the end of a chain, as text; `None` if the last
/// certificate is a root.
pub(super) fn missing_issuer(chain: &[CertificateDer<'_>]) -> Option<String> {
    let last = Certificate::from_der(chain.last()?).ok()?;
    (!is_root(&last)).then(|| last.tbs_certificate().issuer().to_string())
}

/// Returns the name of the intermediate authority among `authorities` that has issued the last
/// certificate of a chain; `None` if none has, or a root has.
pub(super) fn intermediate_among(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
) -> Option<String> {
    let last = Certificate::from_der(chain.last()?).ok()?;
    let mut issuers = authorities
        .iter()
        .filter_map(|der| Certificate::from_der(der).ok())
        .filter(|authority| has_issued(authority, &last))
        .peekable();
    issuers.peek()?;
    // Clients may know a root, whatever else has issued the certificate.
    (!is_root(&last) && !issuers.any(|issuer| is_root(&issuer)))
        .then(|| last.tbs_certificate().issuer().to_string())
}

fn is_root(certificate: &Certificate) -> bool {
    let certificate = certificate.tbs_certificate();
    certificate.subject() == certificate.issuer()
}

/// Returns true if the names and, where both have one, the key identifiers fit. Clients verify the
/// signature.
fn has_issued(authority: &Certificate, certificate: &Certificate) -> bool {
    let (authority, certificate) = (authority.tbs_certificate(), certificate.tbs_certificate());
    if authority.subject() != certificate.issuer() {
        return false;
    }
    let own = authority.get_extension::<SubjectKeyIdentifier>().ok().flatten();
    let wanted = certificate.get_extension::<AuthorityKeyIdentifier>().ok().flatten();
    match (own, wanted.and_then(|(_, wanted)| wanted.key_identifier)) {
        (Some((_, own)), Some(wanted)) => own.0 == wanted,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_pki::Authority;
    use super::*;

    #[test]
    fn a_chain_is_completed_up_to_the_root_whatever_the_order_of_the_file() {
        let root = Authority::new("root");
        let middle = root.authority("middle");
        let issuing = middle.authority("issuing");
        // Others with the names of these, and other keys.
        let others = [Authority::new("middle"), Authority::new("issuing")];
        let leaf = issuing.server(&["localhost"]).certificate;
        let der = |authority: &Authority| authority.0.der().clone();
        let file: Vec<_> = others.iter().chain([&root, &middle, &issuing]).map(der).collect();
        let mut chain = vec![leaf.clone()];
        complete(&mut chain, &file);
        assert_eq!(chain, [leaf.clone(), der(&issuing), der(&middle), der(&root)]);
        assert_eq!(missing_issuer(&chain), None);
        // Without the root the chain ends before it.
        let mut chain = vec![leaf.clone()];
        complete(&mut chain, &[der(&issuing), der(&middle)]);
        assert_eq!((chain.len(), missing_issuer(&chain).as_deref()), (3, Some("CN=root")));
        let mut chain = vec![leaf];
        complete(&mut chain, &[CertificateDer::from(vec![0x30]), der(&root)]);
        assert_eq!((chain.len(), missing_issuer(&chain).as_deref()), (1, Some("CN=issuing")));
    }
}
