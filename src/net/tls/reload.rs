//! The TLS of all listeners, loaded and reloaded: all new, or nothing.
//!
//! A reload reads every file of every listener. If one file cannot be used, the old set stays
//! whole. A listener of which nothing changed keeps its server, and with it the tickets of its
//! clients.

use std::sync::Arc;

use thiserror::Error;

use crate::auth::file_watch::FileWatch;

use super::config::TlsServer;
use super::config_error::TlsConfigError;
use super::facts::date;
use super::settings::TlsSettings;

/// One listener with TLS, as a reload reads it.
#[derive(Clone, Debug)]
pub struct TlsListener {
    /// The name for the log.
    pub name: String,
    /// The settings with the paths of the files.
    pub settings: TlsSettings,
    /// The TLS of the listener so far, or of the one whose socket it took over. If nothing changed,
    /// it stays, and with it the tickets of the clients.
    pub before: Option<Arc<TlsServer>>,
    /// The part of the broker that has this TLS.
    pub owner: TlsOwner,
}

/// The part of the broker that has some TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsOwner {
    /// A listener that accepts connections.
    Listener,
    /// A listener that accepts no connections any more. Its files may be gone: then its TLS does
    /// not change.
    ClosedListener,
    /// The HTTP interface for operators.
    Interface,
}

/// The TLS servers of all listeners, in the order in which they were loaded.
#[derive(Clone, Debug, Default)]
pub struct TlsSet {
    listeners: Vec<(TlsListener, Arc<TlsServer>)>,
}

/// A listener's TLS cannot be loaded.
#[derive(Debug, Error)]
#[error("listener {listener}: {error}")]
pub struct ListenerTlsError {
    /// The part of the broker that has this TLS.
    pub owner: TlsOwner,
    /// The name of the listener.
    pub listener: String,
    /// The problem.
    #[source]
    pub error: TlsConfigError,
}

/// The changes that a reload made to one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsChange {
    /// The place of the listener in the set.
    pub place: usize,
    /// The part of the broker that has this TLS.
    pub owner: TlsOwner,
    /// The name of the listener.
    pub listener: String,
    /// The changes, each in words for the log.
    pub what: Vec<String>,
    /// True if connected clients may have lost their right to be connected: the owner verifies
    /// their chains with [`TlsServer::check`].
    pub check_clients: bool,
}

impl TlsSet {
    /// Loads the TLS of all listeners. Returns it with the changes of each changed listener.
    ///
    /// # Errors
    /// All listeners that cannot be loaded, each with its first problem.
    pub fn load(listeners: Vec<TlsListener>) -> Result<(TlsSet, Vec<TlsChange>), Vec<ListenerTlsError>> {
        let (mut new, mut changes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (place, listener) in listeners.into_iter().enumerate() {
            let TlsListener { name, settings, before, owner } = &listener;
            let server = match (TlsServer::load(settings), before) {
                (Ok(loaded), Some(old)) => match change(old, &loaded) {
                    None => Arc::clone(old),
                    Some((what, check_clients)) => {
                        let listener = name.clone();
                        changes.push(TlsChange { place, owner: *owner, listener, what, check_clients });
                        Arc::new(loaded)
                    }
                },
                (Ok(loaded), None) => Arc::new(loaded),
                (Err(_), Some(kept)) if *owner == TlsOwner::ClosedListener => Arc::clone(kept),
                (Err(error), _) => {
                    errors.push(ListenerTlsError { owner: *owner, listener: name.clone(), error });
                    continue;
                }
            };
            new.push((listener, server));
        }
        match errors.is_empty() {
            true => Ok((TlsSet { listeners: new }, changes)),
            false => Err(errors),
        }
    }

    /// Reads all files again. This set does not change.
    ///
    /// # Errors
    /// As [`Self::load`]. Nothing changes then.
    pub fn reload(&self) -> Result<(TlsSet, Vec<TlsChange>), Vec<ListenerTlsError>> {
        let known = |(listener, server): &(TlsListener, Arc<TlsServer>)| TlsListener {
            before: Some(Arc::clone(server)),
            ..listener.clone()
        };
        TlsSet::load(self.listeners.iter().map(known).collect())
    }

    /// Adds a listener that was loaded elsewhere.
    pub fn add(&mut self, listener: TlsListener, server: Arc<TlsServer>) {
        self.listeners.push((listener, server));
    }

    /// Returns true if no listener has TLS.
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Returns the TLS of each listener.
    pub fn servers(&self) -> impl Iterator<Item = &Arc<TlsServer>> {
        self.listeners.iter().map(|(_, server)| server)
    }

    /// Returns the open listeners with TLS, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<TlsServer>)> {
        let open = self.listeners.iter().filter(|(listener, _)| listener.owner != TlsOwner::ClosedListener);
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

/// Returns the changes between two servers of a listener, and [`TlsChange::check_clients`]. Returns
/// `None` if there is no change.
fn change(old: &TlsServer, new: &TlsServer) -> Option<(Vec<String>, bool)> {
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
    (!what.is_empty()).then_some((what, check_clients))
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
