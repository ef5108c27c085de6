//! Where the servers are, and what can be wrong with that.

use crate::file_thread::{opens, read_within};
use std::path::PathBuf;
use thiserror::Error;
use zeroize::Zeroizing;

/// The largest file of certificates in bytes, as for a listener.
const LARGEST: u64 = 64 << 20;

/// Where the servers are, and who this node is to them.
#[derive(Clone, Debug, Default)]
pub struct NatsSettings {
    /// The name of the cluster: letters, digits, `-` and `_`, at most 32 (`cluster.name`).
    pub cluster: String,
    /// The number of the cell.
    pub cell: u16,
    /// The name of this node, by which the servers list its connection.
    pub node: String,
    /// The servers, `nats://HOST:PORT` or `tls://HOST:PORT`. The first is tried first
    /// (`cluster.nats`).
    pub servers: Vec<String>,
    /// The user and the password.
    pub user: Option<(String, Zeroizing<String>)>,
    /// The file with the authorities of the servers' certificates (PEM). `None`: those of the
    /// system.
    pub ca: Option<PathBuf>,
    /// The files with the certificate of this node and its key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The monitor of a server, `http://HOST:PORT` (`cluster.monitor`).
    pub monitor: Option<String>,
}

/// The reason why settings cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The name cannot be part of the name of a stream.
    #[error("cluster.name {0:?} needs 1 to 32 letters of ASCII, digits, - or _")]
    Name(String),
    /// There is no server.
    #[error("cluster.nats names no server")]
    NoServer,
    /// The address of a server is none.
    #[error("cluster.nats {0:?} is not nats://HOST:PORT or tls://HOST:PORT: {1}")]
    Server(String, String),
    /// A file of a certificate or a key cannot be used.
    #[error("{0} {1}: {2}")]
    File(&'static str, PathBuf, String),
    /// The thread did not start.
    #[error("the thread of the engine does not start: {0}")]
    Thread(String),
}

impl NatsSettings {
    /// Checks the files that each connection reads again.
    ///
    /// # Errors
    /// One cannot be read, or has nothing of what it is for.
    pub(super) fn check_files(&self) -> Result<(), OpenError> {
        let (certificate, key) =
            self.certificate.as_ref().map(|(certificate, key)| (certificate, key)).unzip();
        let files = [
            ("cluster.nats_ca", self.ca.as_ref(), "CERTIFICATE"),
            ("cluster.nats_certificate", certificate, "CERTIFICATE"),
            ("cluster.nats_key", key, "PRIVATE KEY"),
        ];
        for (name, path, what) in files {
            let Some(path) = path else { continue };
            let unusable = |why: String| OpenError::File(name, path.clone(), why);
            let _opened = opens(path);
            let text = read_within(path, LARGEST).map(Zeroizing::new);
            let text = text.map_err(|error| unusable(error.to_string()))?;
            let text = Zeroizing::new(String::from_utf8_lossy(&text).into_owned());
            if !text.lines().any(|line| line.starts_with("-----BEGIN") && line.contains(what)) {
                return Err(unusable(format!("it has no {what} in PEM")));
            }
        }
        Ok(())
    }
}
