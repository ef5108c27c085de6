//! The TLS of all listeners, loaded and reloaded: all new, or nothing.
//!
//! A reload reads every file of every listener. If one file cannot be used, the old set stays
//! whole. A listener of which nothing changed keeps its server, and with it the tickets of its
//! clients.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::auth::file_watch::FileWatch;

use super::config::TlsServer;
use super::config_error::TlsConfigError;
use super::facts::date;
use super::settings::TlsSettings;

/// The number of the HTTP interface for operators. No listener has it.
pub const INTERFACE: u16 = u16::MAX;

/// One listener with TLS, as a reload reads it.
#[derive(Clone, Debug)]
pub struct TlsListener {
    /// The number of the listener, by which its TLS is found.
    pub number: u16,
    /// The name for the log.
    pub name: String,
    /// The settings with the paths of the files.
    pub settings: TlsSettings,
    /// The listener whose socket this one took over. If nothing changed, it takes over its TLS,
    /// too, and with it the tickets of its clients.
    pub heir_of: Option<u16>,
    /// True if the listener accepts no connections any more. Its files may be gone: then its TLS
    /// stays as it is.
    pub is_closed: bool,
}

/// The TLS servers of all listeners, by the listener's number.
#[derive(Clone, Debug, Default)]
pub struct TlsSet {
    listeners: Vec<(TlsListener, Arc<TlsServer>)>,
}

/// A listener's TLS cannot be loaded.
#[derive(Debug, Error)]
#[error("listener {listener}: {error}")]
pub struct ListenerTlsError {
    /// The number of the listener.
    pub number: u16,
    /// The name of the listener.
    pub listener: String,
    /// The problem.
    #[source]
    pub error: TlsConfigError,
}

/// The changes that a reload made to one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsChange {
    /// The number of the listener.
    pub number: u16,
    /// The name of the listener.
    pub listener: String,
    /// The changes, each in words for the log.
    pub what: Vec<String>,
    /// True if connected clients may have lost their right to be connected: the owner verifies
    /// their chains with [`TlsServer::check`].
    pub check_clients: bool,
}

impl fmt::Display for TlsChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listener {}: {}", self.listener, self.what.join("; "))
    }
}

impl TlsSet {
    /// Loads the TLS of all listeners.
    ///
    /// # Errors
    ///
    /// All listeners that cannot be loaded, each with its first problem.
    pub fn load(listeners: &[TlsListener]) -> Result<TlsSet, Vec<ListenerTlsError>> {
        TlsSet::default().reload(listeners).map(|(set, _)| set)
    }

    /// Reads all files again and returns the new set, with the changes of each changed listener.
    /// This set stays as it is.
    ///
    /// # Errors
    ///
    /// All listeners that cannot be loaded, each with its first problem. Nothing changes then.
    pub fn reload(
        &self,
        listeners: &[TlsListener],
    ) -> Result<(TlsSet, Vec<TlsChange>), Vec<ListenerTlsError>> {
        let (mut new, mut changes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for listener in listeners {
            let of_number = self.get(listener.number);
            let old = of_number.or_else(|| self.get(listener.heir_of?));
            let server = match (TlsServer::load(&listener.settings), of_number) {
                (Ok(loaded), _) => match old.map(|old| (change(listener, old, &loaded), old)) {
                    Some((None, old)) => Arc::clone(old),
                    change => {
                        changes.extend(change.and_then(|(change, _)| change));
                        Arc::new(loaded)
                    }
                },
                (Err(_), Some(kept)) if listener.is_closed => Arc::clone(kept),
                (Err(error), _) => {
                    let (number, listener) = (listener.number, listener.name.clone());
                    errors.push(ListenerTlsError { number, listener, error });
                    continue;
                }
            };
            new.push((listener.clone(), server));
        }
        match errors.is_empty() {
            true => Ok((TlsSet { listeners: new }, changes)),
            false => Err(errors),
        }
    }

    /// Adds a listener that was loaded elsewhere.
    pub fn add(&mut self, listener: TlsListener, server: Arc<TlsServer>) {
        self.listeners.push((listener, server));
    }

    /// Returns the TLS of the listener with this number, if it has TLS.
    pub fn get(&self, number: u16) -> Option<&Arc<TlsServer>> {
        self.listeners.iter().find(|(listener, _)| listener.number == number).map(|(_, server)| server)
    }

    /// Returns the TLS of each listener.
    pub fn servers(&self) -> impl Iterator<Item = &Arc<TlsServer>> {
        self.listeners.iter().map(|(_, server)| server)
    }

    /// Returns the open listeners with TLS, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<TlsServer>)> {
        let open = self.listeners.iter().filter(|(listener, _)| !listener.is_closed);
        open.map(|(listener, server)| (listener.name.as_str(), server))
    }

    /// Returns the whole days until the first revocation list of any listener ends, at `unix_ms`
    /// milliseconds since 1970; `None` if no list ends.
    pub fn crl_days_left(&self, unix_ms: u64) -> Option<u64> {
        self.iter().filter_map(|(_, server)| server.crl_days_left(unix_ms)).min()
    }

    /// Returns the whole days until the first certificate of any listener ends, at `unix_ms`
    /// milliseconds since 1970; `None` without TLS.
    pub fn certificate_days_left(&self, unix_ms: u64) -> Option<u64> {
        self.iter().filter_map(|(_, server)| server.certificate_days_left(unix_ms)).min()
    }

    /// Returns a line for the log for each expired certificate and each revocation list that ends
    /// soon, at `unix_ms` milliseconds since 1970.
    pub fn warnings(&self, unix_ms: u64) -> Vec<String> {
        let of = |(name, server): (&str, &Arc<TlsServer>)| {
            let name = name.to_owned();
            server.warnings(unix_ms).into_iter().map(move |line| format!("listener {name}: {line}"))
        };
        self.iter().flat_map(of).collect()
    }
}

/// Returns the changes between two servers of a listener; `None` if there is none.
fn change(listener: &TlsListener, old: &TlsServer, new: &TlsServer) -> Option<TlsChange> {
    let mut what = Vec::new();
    let (before, now) = (old.digests(), new.digests());
    if before.certificates != now.certificates {
        for facts in new.certificates() {
            if !old.certificates().contains(facts) {
                let (file, until) = (facts.file.display(), date(facts.not_after_ms));
                what.push(format!("certificate {file} is new: serial {}, valid until {until}", facts.serial));
            }
        }
        if what.is_empty() {
            what.push("the files of the certificates changed, their dates and names did not".to_owned());
        }
    }
    let authorities = before.authorities != now.authorities;
    if authorities {
        let file = new.settings().client_ca.as_ref().map(|file| format!(": {}", file.display()));
        let file = file.unwrap_or_default();
        what.push(format!("the authorities of client certificates changed (tls.client_ca){file}"));
    }
    let lists = before.lists != now.lists;
    if lists {
        let read = new.settings().crl.iter().zip(&now.lists);
        let changed = read.filter(|(_, digest)| !before.lists.contains(digest));
        let changed: Vec<String> = changed.map(|(file, _)| file.display().to_string()).collect();
        let files =
            if changed.is_empty() { "fewer files, or another order".to_owned() } else { changed.join(", ") };
        what.push(format!("the revocation lists changed (tls.crl): {files}"));
    }
    let settings = old.settings() != new.settings();
    if settings {
        what.push("the TLS settings changed".to_owned());
    }
    let check_clients = authorities || lists || settings;
    (!what.is_empty()).then(|| TlsChange {
        number: listener.number,
        listener: listener.name.clone(),
        what,
        check_clients,
    })
}

/// Returns the watch over the files of these settings. Call this before the files are read, so that
/// a change during the read is seen.
pub fn watch(listeners: &[TlsListener]) -> FileWatch {
    watch_of(listeners.iter().map(|listener| &listener.settings))
}

pub(super) fn watch_of<'a>(all: impl IntoIterator<Item = &'a TlsSettings>) -> FileWatch {
    FileWatch::new(all.into_iter().flat_map(|settings| {
        let pairs = settings.certificates.iter().flat_map(|files| [&files.certificate, &files.key]);
        let chains = settings.certificates.iter().flat_map(|files| &files.chain);
        pairs.chain(chains).chain(&settings.client_ca).chain(&settings.crl)
    }))
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
