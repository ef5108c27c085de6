//! The TLS of all listeners and of the HTTP interface, read at the start and again while the broker
//! runs.

use super::entrance::{Entrance, tls_settings};
use crate::auth::file_watch::FileWatch;
use crate::broker::listener_plan::ListenerPlan;
use crate::broker::statistics::TlsDaysLeft;
use crate::clock;
use crate::net::tls::config::TlsServer;
use crate::net::tls::live::LiveTls;
use crate::net::tls::reload::{self, ListenerTlsError, TlsChange, TlsListener, TlsOwner, TlsSet};
use std::sync::Arc;
use tracing::warn;

/// The TLS of all listeners with the settings to read their files again. The HTTP interface is the
/// last of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsReload {
    /// `None` if the HTTP interface has no TLS.
    interface: Option<Arc<LiveTls>>,
    /// In the order of the entrances.
    set: TlsSet,
    watch: FileWatch,
    /// The time of the last warnings, in milliseconds since 1970.
    warned_ms: u64,
}

/// The time between two warnings about the same file, in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// New TLS of all listeners that was read and is not in force yet.
#[derive(Debug)]
pub(crate) struct NewTls {
    set: TlsSet,
    /// The files that the set was read from; `None` if they are as before.
    watch: Option<FileWatch>,
    pub(crate) changes: Vec<TlsChange>,
}

impl TlsReload {
    /// Reads the files of all listeners. Logs certificates and revocation lists that ended or end
    /// soon. Errors: each listener whose files cannot be used, with the file and the problem.
    pub(crate) fn load(plan: &ListenerPlan) -> Result<TlsReload, String> {
        let listeners = with_tls(plan);
        // Before the files are read, so that a change during the read is seen.
        let watch = reload::watch(&listeners);
        let (set, _) = TlsSet::load(listeners).map_err(in_one_line)?;
        let mut reload = TlsReload { interface: None, set, watch, warned_ms: 0 };
        reload.warn(clock::unix_millis());
        Ok(reload)
    }

    /// Includes the HTTP interface from now on. Logs a certificate that ended.
    pub(crate) fn include(&mut self, interface: Arc<LiveTls>) {
        let (listener, mut own) = (of_interface(&interface), TlsSet::default());
        own.add(listener.clone(), interface.newest());
        warn_of(&own, clock::unix_millis());
        self.set.add(listener, interface.newest());
        self.watch.join(interface.watch());
        self.interface = Some(interface);
    }

    /// Returns the TLS of each entrance that has some, in their order, and of the HTTP interface.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<TlsServer>> {
        self.set.servers()
    }

    /// Reads all files again, for the listeners after a reload. Nothing changes before
    /// [`Self::put_in_force`]. Files that changed and are not put in force are read again within a
    /// minute. Errors: each listener whose files cannot be used, with the file and the problem.
    pub(crate) fn read_again(&self, plan: &ListenerPlan) -> Result<NewTls, String> {
        let mut listeners = with_tls(plan);
        listeners.extend(self.interface.as_deref().map(of_interface));
        let watch = reload::watch(&listeners);
        let (set, changes) = TlsSet::load(listeners).map_err(in_one_line)?;
        Ok(NewTls { set, changes, watch: Some(watch) })
    }

    /// Reads all files again if one of them changed. A broken file is reported once. Costs a `stat`
    /// for each file. Errors: as [`Self::read_again`].
    pub(crate) fn read_renewed(&mut self) -> Result<Option<NewTls>, String> {
        if !self.watch.has_changed() {
            return Ok(None);
        }
        let (set, changes) = self.set.reload().map_err(in_one_line)?;
        Ok(Some(NewTls { set, changes, watch: None }))
    }

    /// Logs certificates and revocation lists that ended or end soon, if the last time is a day
    /// ago.
    pub(crate) fn warn_daily(&mut self, unix_ms: u64) {
        if unix_ms >= self.warned_ms.saturating_add(DAY_MS) {
            self.warn(unix_ms);
        }
    }

    /// Returns the whole days until the first certificate of the broker ends, and until the first
    /// revocation list ends; `None` without a certificate or list.
    pub(crate) fn days_left(&self, unix_ms: u64) -> TlsDaysLeft {
        TlsDaysLeft {
            certificate: self.set.certificate_days_left(unix_ms),
            crl: self.set.crl_days_left(unix_ms),
        }
    }

    fn warn(&mut self, unix_ms: u64) {
        self.warned_ms = unix_ms;
        warn_of(&self.set, unix_ms);
    }

    /// Puts new TLS in force for the handshakes of all listeners. `entrances` has the open ones and
    /// then the closed ones, as the plan had. Returns those whose clients are to be checked again,
    /// with their new TLS.
    pub(crate) fn put_in_force<'a>(
        &mut self,
        new: NewTls,
        entrances: &'a [Arc<Entrance>],
    ) -> Vec<(&'a Entrance, Arc<TlsServer>)> {
        self.set = new.set;
        if let Some(watch) = new.watch {
            self.watch = watch;
        }
        self.warn(clock::unix_millis());
        if let (Some(interface), Some(server)) = (&self.interface, self.set.servers().last()) {
            interface.put_in_force(Arc::clone(server));
        }
        let mut to_check = Vec::new();
        let slots = entrances.iter().filter_map(|entrance| Some((entrance, entrance.tls.as_ref()?)));
        for (place, ((entrance, slot), server)) in slots.zip(self.set.servers()).enumerate() {
            slot.store(Arc::clone(server));
            if new.changes.iter().any(|change| change.place == place && change.check_clients) {
                to_check.push((&**entrance, Arc::clone(server)));
            }
        }
        to_check
    }

    /// Returns true if neither a listener nor the HTTP interface has TLS.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

impl NewTls {
    /// Returns the TLS of each listener that has some, in the order of the plan.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<TlsServer>> {
        self.set.servers()
    }
}

/// Returns the listeners with TLS, the open ones first.
fn with_tls(plan: &ListenerPlan) -> Vec<TlsListener> {
    let server = |entrance: &Arc<Entrance>| Some(entrance.tls.as_ref()?.load_full());
    let open =
        plan.open.iter().map(|open| (&*open.name, &open.listener, open.predecessor(), TlsOwner::Listener));
    let closed = plan.closed.iter();
    let closed = closed.map(|old| (&*old.name, &old.settings, Some(old), TlsOwner::ClosedListener));
    let with_tls = open.chain(closed).filter_map(|(name, listener, before, owner)| {
        let (name, before) = (name.to_owned(), before.and_then(server));
        Some(TlsListener { name, settings: tls_settings(listener)?, before, owner })
    });
    with_tls.collect()
}

/// Returns the HTTP interface as one of the listeners.
fn of_interface(interface: &LiveTls) -> TlsListener {
    TlsListener {
        name: "of the HTTP interface".to_owned(),
        settings: interface.newest().settings().clone(),
        before: Some(interface.newest()),
        owner: TlsOwner::Interface,
    }
}

fn warn_of(set: &TlsSet, unix_ms: u64) {
    for line in set.warnings(unix_ms) {
        warn!(event = "tls.ends_soon", "{line}");
    }
}

fn in_one_line(errors: Vec<ListenerTlsError>) -> String {
    let with_key = |error: &ListenerTlsError| match error.owner {
        TlsOwner::Interface => format!("{error} (admin.certificate, admin.key)"),
        _ => format!("{error} ([listeners.tls])"),
    };
    errors.iter().map(with_key).collect::<Vec<_>>().join("; ")
}
