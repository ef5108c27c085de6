//! The TLS of an acceptor that keeps one configuration for as long as it runs.

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

use super::config::TlsServer;
use super::config_error::TlsConfigError;
use super::reload::watch_of;
use super::settings::TlsSettings;
use crate::auth::file_watch::FileWatch;

/// A TLS server whose certificates can be replaced while its acceptor runs. Each handshake has the
/// newest certificates.
///
/// All other settings keep their values from the start. So this is for settings without tickets and
/// without certificates of clients, where nothing else depends on the files.
#[derive(Debug)]
pub struct LiveTls {
    newest: ArcSwap<TlsServer>,
    /// The state of the files before the first read.
    watch: FileWatch,
}

impl LiveTls {
    /// Reads the files of `settings`.
    ///
    /// # Errors
    /// As [`TlsServer::load`].
    pub fn load(settings: &TlsSettings) -> Result<Arc<LiveTls>, TlsConfigError> {
        // Before the files are read, so that a change during the read is seen.
        let watch = watch_of([settings]);
        let server = TlsServer::load(settings)?;
        Ok(Arc::new(LiveTls { newest: ArcSwap::from_pointee(server), watch }))
    }

    /// Returns the configuration for an acceptor.
    pub fn acceptor_config(self: &Arc<Self>) -> ServerConfig {
        let mut config = self.newest.load().config().clone();
        config.cert_resolver = Arc::<LiveTls>::clone(self);
        config
    }

    /// Returns the newest server.
    pub fn newest(&self) -> Arc<TlsServer> {
        self.newest.load_full()
    }

    /// Replaces the certificates for the handshakes that begin from now on.
    pub fn put_in_force(&self, server: Arc<TlsServer>) {
        self.newest.store(server);
    }

    /// Returns the watch over the files, which sees each change since they were first read.
    pub fn watch(&self) -> FileWatch {
        self.watch.clone()
    }
}

impl ResolvesServerCert for LiveTls {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.newest.load().config().cert_resolver.resolve(hello)
    }
}
