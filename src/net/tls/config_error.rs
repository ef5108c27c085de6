//! The reasons why the TLS of a listener cannot be configured, for an operator: the file or key,
//! the problem, and the way out.

use std::path::PathBuf;

use thiserror::Error;

use super::pem::ContentError;

/// A TLS setting or file of a listener cannot be used.
#[derive(Debug, Error)]
pub enum TlsConfigError {
    /// A file cannot be used.
    #[error("{}: {problem}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: FileProblem,
    },
    /// The settings contradict each other, or one is out of its bounds.
    #[error("{0}")]
    Setting(&'static str),
    /// rustls refuses the settings as a whole.
    #[error("TLS: {0}")]
    Refused(rustls::Error),
}

/// The problem with one file. No variant has a part of a private key.
#[derive(Debug, Error)]
pub enum FileProblem {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    /// The file has more than 64 MiB.
    #[error("has more than 64 MiB")]
    TooBig,
    /// The content is not as expected.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The certificate is not a certificate.
    #[error("certificate {0} in it is not a valid X.509 certificate: {1}")]
    NotACertificate(usize, String),
    /// The certificate has no extensions, and clients of TLS refuse it.
    #[error(
        "certificate 1 in it has version 1 of X.509, which has no names of the server; issue it again with version 3, as `openssl x509 -req -extfile FILE` does with subjectAltName in the file"
    )]
    VersionOne,
    /// The key is of a kind that is not supported.
    #[error(
        "the private key cannot be used: {0}; RSA (2048 to 8192 bits), ECDSA (P-256, P-384, P-521) and Ed25519 keys can"
    )]
    UnusableKey(String),
    /// The key is not that of the certificate.
    #[error("the key does not belong to the first certificate in {}; put the server's own certificate first in that file", .0.display())]
    KeyOfAnother(PathBuf),
    /// A revocation list is not valid.
    #[error("is not a valid revocation list: {0}")]
    NotARevocationList(String),
}
