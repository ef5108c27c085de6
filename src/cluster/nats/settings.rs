//! Where the servers are, and what can be wrong with that.

use crate::net::tls::client::client_config;
use crate::net::tls::config_error::TlsConfigError;
use crate::net::tls::settings::CertificateFiles;
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;
use zeroize::Zeroizing;

/// Where the servers are, and who this node is to them.
#[derive(Clone, Default)]
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

impl fmt::Debug for NatsSettings {
    /// Without the password: `Zeroizing` shows its content, and settings may come into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NatsSettings { cluster, cell, node, servers, user, ca, certificate, monitor } = self;
        f.debug_struct("NatsSettings")
            .field("cluster", cluster)
            .field("cell", cell)
            .field("node", node)
            .field("servers", servers)
            .field("user", &user.as_ref().map(|(user, _)| user))
            .field("ca", ca)
            .field("certificate", certificate)
            .field("monitor", monitor)
            .finish()
    }
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
    #[error("{0}: {1}")]
    File(&'static str, TlsConfigError),
    /// The thread did not start.
    #[error("the thread of the engine does not start: {0}")]
    Thread(String),
}

impl NatsSettings {
    /// Reads the files that each connection reads again, and keeps nothing. May hang as long as a file
    /// does.
    ///
    /// # Errors
    /// A file cannot be used, or the system has no authorities and `ca` names none. The error has the
    /// key, the file and the reason.
    pub fn check_files(&self) -> Result<(), OpenError> {
        // Without TLS nobody needs the authorities of the system, which a small image may lack.
        let has_tls = self.servers.iter().any(|server| server.starts_with("tls://"));
        if !has_tls && self.ca.is_none() && self.certificate.is_none() {
            return Ok(());
        }
        let files =
            |(certificate, key): (PathBuf, PathBuf)| CertificateFiles { certificate, chain: None, key };
        let identity = self.certificate.clone().map(files);
        let tls = client_config(self.ca.as_deref(), identity.as_ref());
        tls.map(drop).map_err(|error| OpenError::File(self.keys_of(&error), error))
    }

    /// Returns the keys that name the file of an error. One file may have the certificate and the key.
    fn keys_of(&self, error: &TlsConfigError) -> &'static str {
        let (TlsConfigError::File { file, .. }, Some((certificate, key))) = (error, &self.certificate) else {
            return "cluster.nats_ca";
        };
        match (file == certificate, file == key) {
            (true, true) => "cluster.nats_certificate, cluster.nats_key",
            (true, false) => "cluster.nats_certificate",
            (false, true) => "cluster.nats_key",
            (false, false) => "cluster.nats_ca",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::test_pki::{Authority, write, write_leaf};

    #[test]
    fn settings_are_shown_without_the_password() {
        let user = Some(("homing".to_owned(), Zeroizing::new("swordfish".to_owned())));
        let settings = NatsSettings { node: "b".to_owned(), user, ..NatsSettings::default() };
        let shown = format!("{settings:?} {settings:#?}");
        assert!(shown.contains("\"homing\"") && shown.contains("node: \"b\""), "{shown}");
        assert!(!shown.contains("swordfish"), "{shown}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_its_key_its_path_and_the_reason() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let authority = Authority::new("authority");
        let [own, other] =
            ["own", "other"].map(|name| write_leaf(directory.path(), name, &authority.client(name)));
        let ca = write(directory.path(), "ca.pem", &authority.0.pem());
        let empty = write(directory.path(), "empty.pem", "");
        let check = |ca: &PathBuf, certificate: &PathBuf, key: &PathBuf| {
            let certificate = Some((certificate.clone(), key.clone()));
            let settings = NatsSettings { ca: Some(ca.clone()), certificate, ..NatsSettings::default() };
            settings.check_files().map_err(|error| error.to_string())
        };
        assert_eq!(check(&ca, &own.certificate, &own.key), Ok(()));
        let missing = path("missing.pem");
        for (ca, certificate, key, said) in [
            (&missing, &own.certificate, &own.key, ["cluster.nats_ca: ", "missing.pem", "No such file"]),
            (&empty, &own.certificate, &own.key, ["cluster.nats_ca: ", "empty.pem", "is empty"]),
            (&ca, &missing, &own.key, ["cluster.nats_certificate: ", "missing.pem", "No such file"]),
            (&ca, &own.certificate, &ca, ["cluster.nats_key: ", "ca.pem", "a private key"]),
            (&ca, &own.certificate, &other.key, ["cluster.nats_key: ", "other", "does not belong"]),
            (
                &ca,
                &own.certificate,
                &own.certificate,
                ["cluster.nats_certificate, cluster.nats_key: ", "own", "a private key"],
            ),
        ] {
            let error = check(ca, certificate, key).expect_err("it cannot be used");
            assert!(error.starts_with(said[0]) && said.iter().all(|part| error.contains(part)), "{error}");
        }
        // Nobody asks for authorities where nothing speaks TLS.
        let plain = NatsSettings { servers: vec!["nats://host:4222".to_owned()], ..NatsSettings::default() };
        assert!(plain.check_files().is_ok());
    }
}
