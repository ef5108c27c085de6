//! The start of the HTTP interface beside the broker.

use super::data::{data_directory, socket_path};
use super::settings::{Settings, read_configuration};
#[cfg(feature = "otlp")]
use homing::admin::metrics::{self, requests::RequestCounts};
use homing::admin::{AdminError, AdminServer};
use homing::broker::Broker;
#[cfg(feature = "otlp")]
use homing::broker::observer::Observer;
use homing::broker::standby::StandbyConfig;
use homing::cluster::row::ClusterView;
use homing::config::{Admin, Config, Store};
use homing::doctor;
use homing::finding::Finding;
#[cfg(feature = "otlp")]
use homing::otlp::MetricsSource;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The HTTP interface at the start.
pub(crate) enum AdminPart {
    /// The interface is not started yet. Its Unix socket will have this path; `None` for none.
    Waits(Option<PathBuf>),
    /// The interface was started; `None` if it is not configured or its default address is taken.
    Started(Option<AdminServer>),
}

/// The state of the store. The directory of an opened store exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreOpened {
    /// Not yet.
    No,
    /// Yes, or there is no store.
    Yes,
}

impl AdminPart {
    /// Starts the interface before the store is opened, as [`Self::start`] does.
    ///
    /// # Errors
    /// As those of [`Self::start`].
    pub(crate) fn begin(config: &Config) -> Result<AdminPart, AdminError> {
        let mut part = AdminPart::Waits(socket_path(config));
        part.start(config, StoreOpened::No)?;
        Ok(part)
    }

    /// Starts the interface, if it can start now: its socket needs its directory. Before the store
    /// is opened, an address that is taken is no failure: another broker may have the data
    /// directory, and the store says so.
    ///
    /// # Errors
    /// An address or a socket that the operator set cannot be used, or the system refuses a thread.
    pub(crate) fn start(&mut self, config: &Config, opened: StoreOpened) -> Result<(), AdminError> {
        let AdminPart::Waits(socket) = self else { return Ok(()) };
        let mut socket = socket.as_deref();
        let exists = |path: &Path| path.parent().is_none_or(Path::exists);
        if opened == StoreOpened::No && socket.is_some_and(|path| !exists(path)) {
            return Ok(());
        }
        let mut options = config.admin.clone();
        let server = loop {
            match AdminServer::start(&options, socket) {
                Err(AdminError::Bind(..) | AdminError::Socket(_)) if opened == StoreOpened::No => {
                    return Ok(());
                }
                Err(AdminError::Bind(address, error)) if options.addresses == Admin::default().addresses => {
                    tracing::warn!(event = "admin.address_taken", %address, %error, "the HTTP interface does not answer there, because its default address is taken; set admin.addresses");
                    options.addresses.clear();
                }
                Err(AdminError::Socket(error)) if options.socket.is_empty() => {
                    tracing::warn!(event = "admin.socket_failed", %error, "there is no Unix socket for `homing ctl`; set admin.socket");
                    socket = None;
                }
                Ok(server) => break server,
                Err(error) => return Err(error),
            }
        };
        *self = AdminPart::Started(server);
        Ok(())
    }

    /// Starts the interface of a node of a cluster that stands by with this configuration. The
    /// interface checks the configuration at the time of the check, as in [`Self::started`].
    ///
    /// # Errors
    /// As those of [`Self::start`].
    pub(crate) fn joined(
        &mut self,
        view: &Arc<ClusterView>,
        config: &Arc<StandbyConfig>,
        settings: &Settings,
    ) -> Result<(), AdminError> {
        let first = config.config();
        self.start(&first, StoreOpened::Yes)?;
        if let AdminPart::Started(Some(server)) = self {
            let settings = settings.clone();
            let checks = Arc::new(move || check_own(&settings, &first.store));
            server.joined(Arc::clone(view), Arc::clone(config), checks);
            config.watch(Box::new(server.settings_watcher()));
        }
        Ok(())
    }

    /// Returns the metrics of now, each time that it is called, for the export by OTLP. Requests to
    /// the interface are among them if there is one.
    #[cfg(feature = "otlp")]
    pub(crate) fn metrics(&self, observer: Observer) -> MetricsSource {
        match self {
            AdminPart::Started(Some(server)) => server.metrics_source(observer),
            _ => Box::new(move || metrics::collect(&observer, &RequestCounts::default(), None)),
        }
    }

    /// Notes that clients can connect. Returns the addresses of the interface, and the way to its
    /// pages, for the message of the start. The interface checks the configuration at the time of
    /// the check, read with `settings`. `store` is the section of the configuration of the start.
    pub(crate) fn started(&self, broker: &Broker, settings: &Settings, store: Store) -> Option<String> {
        let AdminPart::Started(Some(server)) = self else { return None };
        let settings = settings.clone();
        server.started(broker.observer(), Arc::new(move || check_own(&settings, &store)));
        if let Some(tls) = server.tls() {
            broker.renew_also(tls);
        }
        broker.watch_settings(Box::new(server.settings_watcher()));
        let addresses: Vec<String> = server.urls().collect();
        let pages = match server.has_socket() {
            true => "\n  pages           homing ctl dashboard prints a link that logs a browser in",
            false => "",
        };
        let where_it_is = || format!("{}: /healthz, /readyz, /metrics{pages}", addresses.join(", "));
        (!addresses.is_empty()).then(where_it_is)
    }
}

/// Checks the broker that runs as this process, with the configuration as it is now, except for
/// the store: the broker uses the directory of the start until it ends.
fn check_own(settings: &Settings, store: &Store) -> Vec<Finding> {
    match read_configuration(settings) {
        Ok(loaded) => {
            let config = Config { store: store.clone(), ..loaded.config };
            doctor::check_own(&config, data_directory(&config).as_deref())
        }
        Err(refusal) => doctor::refused(&refusal),
    }
}
