//! The content of certificate, key and revocation list files.
//!
//! A certificate or revocation list may be PEM (RFC 7468) or DER. A file begins with `-----BEGIN`
//! in some line, or it is DER. A private key is PEM: PKCS#8, PKCS#1 or SEC1.

use std::collections::BTreeSet;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use thiserror::Error;

/// The reason why the content of a file cannot be used. No variant has bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContentError {
    /// The file has no bytes.
    #[error("the file is empty; {wanted} is expected")]
    Empty {
        /// The expected content.
        wanted: &'static str,
    },
    /// The PEM file has sections, but none of the expected kind.
    #[error("{wanted} is expected; the file has {found}")]
    Missing {
        /// The expected content.
        wanted: &'static str,
        /// The labels of the sections that are there.
        found: String,
    },
    /// The private key is encrypted with a passphrase.
    #[error("the private key is encrypted; decrypt it, for example with `openssl pkey -in KEY -out NEW-KEY`")]
    Encrypted,
    /// The PEM text is damaged.
    #[error("the PEM text is damaged: {0}")]
    Damaged(String),
    /// The file has more than one private key.
    #[error("{0} private keys in it; one is expected")]
    SeveralKeys(usize),
}

/// Returns the certificates of a PEM or DER file, in their order; at least one.
///
/// # Errors
/// The file is empty, damaged, or has no certificate.
pub fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, ContentError> {
    items(bytes, "a certificate (-----BEGIN CERTIFICATE-----)", CertificateDer::from)
}

/// Returns the certificate revocation lists of a PEM or DER file; at least one.
///
/// # Errors
/// The file is empty, damaged, or has no list.
pub fn revocation_lists(bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, ContentError> {
    items(bytes, "a revocation list (-----BEGIN X509 CRL-----)", CertificateRevocationListDer::from)
}

/// Returns the one private key of a PEM file: PKCS#8, PKCS#1 or SEC1. Other sections, such as EC
/// parameters or a certificate, are skipped.
///
/// # Errors
/// The file is empty, damaged, has no key or several, or its key is encrypted.
pub fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, ContentError> {
    const WANTED: &str = "a private key (-----BEGIN PRIVATE KEY-----)";
    if is_blank(bytes) {
        return Err(ContentError::Empty { wanted: WANTED });
    }
    // PKCS#8 has a label of its own; PKCS#1 and SEC1 have a header line (RFC 1421).
    if has(bytes, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(bytes, b"Proc-Type: 4,ENCRYPTED") {
        return Err(ContentError::Encrypted);
    }
    let mut keys = PrivateKeyDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    match (keys.pop(), keys.len()) {
        (None, _) => Err(ContentError::Missing { wanted: WANTED, found: labels(bytes) }),
        (Some(key), 0) => Ok(key),
        (Some(_), more) => Err(ContentError::SeveralKeys(more + 1)),
    }
}

fn items<T: PemObject>(
    bytes: &[u8],
    wanted: &'static str,
    der: impl FnOnce(Vec<u8>) -> T,
) -> Result<Vec<T>, ContentError> {
    if is_blank(bytes) {
        return Err(ContentError::Empty { wanted });
    }
    // A DER certificate or list is a SEQUENCE.
    if bytes.first() == Some(&0x30) {
        return Ok(vec![der(bytes.to_vec())]);
    }
    let items = T::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>().map_err(damaged)?;
    if items.is_empty() {
        return Err(ContentError::Missing { wanted, found: labels(bytes) });
    }
    Ok(items)
}

fn damaged(error: pem::Error) -> ContentError {
    ContentError::Damaged(match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no -----END----- line".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a -----BEGIN line is not complete".to_owned(),
        pem::Error::Base64Decode(_) => "a section is not base64".to_owned(),
        _ => "it cannot be read as PEM".to_owned(),
    })
}

/// Returns the labels of the PEM sections, each once, or a remark if the file has no section.
fn labels(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let labels: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
        .filter(|label| label.len() < 40 && label.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '))
        .collect();
    match labels.is_empty() {
        true => "no PEM section".to_owned(),
        false => Vec::from_iter(labels).join(", "),
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
