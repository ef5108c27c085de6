//! The TLS of all listeners, read at the start and again while the broker runs.

use super::entrance::{Entrance, all_tls_settings, listener_name};
use crate::clock;
use crate::config::Listener;
use crate::net::tls::config::TlsServer;
use crate::net::tls::reload::{ListenerTlsError, TlsChange, TlsSet};
use crate::net::tls::settings::TlsSettings;
use std::sync::Arc;
use tracing::warn;

/// The TLS of all listeners with the settings to read their files again.
#[derive(Debug)]
pub(crate) struct TlsReload {
    settings: Vec<(String, TlsSettings)>,
    set: TlsSet,
}

/// New TLS of all listeners that was read and is not in force yet.
#[derive(Debug)]
pub(crate) struct NewTls {
    set: TlsSet,
    /// The changes of each listener that changed.
    pub(crate) changes: Vec<TlsChange>,
}

impl TlsReload {
    /// Reads the files of all listeners. Logs certificates and revocation lists that ended or end
    /// soon.
    ///
    /// # Errors
    /// Each listener whose files cannot be used, with the file and the problem.
    pub(crate) fn load(listeners: &[Listener]) -> Result<TlsReload, String> {
        let settings = all_tls_settings(listeners);
        let set = TlsSet::load(&settings).map_err(in_one_line)?;
        log_warnings(&set);
        Ok(TlsReload { settings, set })
    }

    /// Returns the TLS of a listener; `None` if it has none.
    pub(crate) fn server(&self, number: usize, listener: &Listener) -> Option<Arc<TlsServer>> {
        listener.tls.as_ref()?;
        self.set.get(&listener_name(number, listener)).cloned()
    }

    /// Reads all files again. Nothing changes before [`Self::put_in_force`].
    ///
    /// # Errors
    /// Each listener whose files cannot be used, with the file and the problem.
    pub(crate) fn read_again(&self) -> Result<NewTls, String> {
        let (set, changes) = self.set.reload(&self.settings).map_err(in_one_line)?;
        Ok(NewTls { set, changes })
    }

    /// Puts new TLS in force for the handshakes of all listeners. Returns the entrances whose
    /// clients are to be checked again, with their new TLS.
    pub(crate) fn put_in_force<'a>(
        &mut self,
        new: NewTls,
        entrances: &'a [Arc<Entrance>],
    ) -> Vec<(&'a Entrance, Arc<TlsServer>)> {
        self.set = new.set;
        log_warnings(&self.set);
        let mut to_check = Vec::new();
        for entrance in entrances {
            let (Some(slot), Some(server)) = (&entrance.tls, self.set.get(&entrance.name)) else { continue };
            slot.store(Arc::clone(server));
            if new.changes.iter().any(|change| *change.listener == *entrance.name && change.check_clients) {
                to_check.push((&**entrance, Arc::clone(server)));
            }
        }
        to_check
    }

    /// Returns true if no listener has TLS.
    pub(crate) fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }
}

fn log_warnings(set: &TlsSet) {
    for line in set.warnings(clock::unix_millis()) {
        warn!("{line}");
    }
}

fn in_one_line(errors: Vec<ListenerTlsError>) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
