//! The run of the broker: its start, its files and its end.

#[cfg(feature = "admin")]
use super::administration::{AdminPart, StoreOpened};
use super::banner::{banner, log_listeners, warn_of_entrances, warn_of_unproven_names};
use super::cluster::{self, OwnerPart};
use super::data::{open_store, storage_line};
#[cfg(feature = "otlp")]
use super::export::ExportPart;
use super::output::{failed, say};
use super::settings::{Settings, configuration_line, read_configuration};
use super::stop;
use homing::broker::observer::Observer;
use homing::broker::reload::ConfigReader;
use homing::broker::standby::StandbyConfig;
use homing::broker::{Broker, OpenListener, Signals, StartError};
use homing::clock;
use homing::config::{Config, ConfigRefusal, KeySources, ListenerAddress, Loaded, Problem};
use homing::file_thread;
use homing::log::{self, stderr};
use homing::otlp;
use homing::pulse::ThreadWork;
use homing::service;
use homing::store::Store;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Time without a sign of life after which the service manager starts the broker again.
const HANGS: Duration = Duration::from_secs(10);

/// Runs the broker until it is stopped.
pub(crate) fn serve(loaded: Loaded, settings: &Settings) -> ExitCode {
    log::start(&loaded.config.log);
    run(loaded, settings).unwrap_or_else(|code| code)
}

/// Runs the broker, with its log begun.
///
/// # Errors
/// The exit code of a start that failed, after a line that says why.
fn run(mut loaded: Loaded, settings: &Settings) -> Result<ExitCode, ExitCode> {
    #[cfg(feature = "otlp")]
    let export = ExportPart::start(&loaded.config.otlp).map_err(|error| failed(&error.with_key()))?;
    #[cfg(not(feature = "otlp"))]
    otlp::check(&loaded.config.otlp).map_err(|error| failed(&error.with_key()))?;
    report_ignored(&loaded);
    raise_descriptor_limit();
    service::starts();
    let (configuration, storage) = (configuration_line(&loaded), storage_line(&loaded.config));
    let mut signals =
        Signals::catch().map_err(|error| failed(&format!("cannot wait for signals: {error}")))?;
    let addresses_file = addresses_file(&loaded.config);
    cluster::make_directory(&loaded.config);
    // Before the store is opened, so that a probe learns that the broker is starting. The socket of
    // a new data directory comes with the directory.
    #[cfg(feature = "admin")]
    let mut admin = AdminPart::begin(&loaded.config).map_err(|error| failed(&error))?;
    let reader = config_reader(settings);
    let (mut owned, mut sources) = (None, KeySources::of_start(&loaded));
    if loaded.config.cluster.is_on() {
        let node = cluster::join(&loaded.config, &mut signals)?;
        let config = Arc::new(StandbyConfig::new(loaded.config, sources, Arc::clone(&reader)));
        // The data directory is there now, so that the interface of a standby answers.
        #[cfg(feature = "admin")]
        admin.joined(&node.view, &config, settings).map_err(|error| failed(&error))?;
        owned = Some(cluster::stand_by(&config, node, &mut signals)?);
        // The configuration may have been read again meanwhile.
        (loaded.config, sources) = config.take();
    }
    #[cfg(feature = "admin")]
    let store_settings = loaded.config.store.clone();
    let (mut owner, started) = match owned {
        Some((mut owner, cell)) => {
            let started = owner.start(cell, loaded.config, &mut signals)?;
            (Some(owner), started)
        }
        None => {
            let (config, store) = open_own_store(loaded.config, &mut signals)?;
            #[cfg(feature = "admin")]
            admin.start(&config, StoreOpened::Yes).map_err(|error| failed(&error))?;
            let started = signals.run(|| Broker::start_with(config, store)).map_err(stopped_at_start)?;
            (None, started.unwrap_or(Err(StartError::Died)))
        }
    };
    let broker = started.map_err(|error| failed(&error))?;
    broker.read_again_by(reader, sources);
    publish_listeners(&broker, addresses_file.clone());
    #[cfg(feature = "admin")]
    let administration = admin.started(&broker, settings, store_settings);
    #[cfg(not(feature = "admin"))]
    let administration: Option<String> = None;
    #[cfg(feature = "otlp")]
    export.started(&broker, &admin);
    say(&banner(&broker, &configuration, &storage, administration.as_deref()));
    let observer = broker.observer();
    service::is_ready(move || is_alive(&observer));
    if let Some(owner) = &mut owner {
        owner.ready(&broker, can_own);
    }
    let code = broker.run_until(signals, || {
        stop::bound();
        owner.iter().for_each(OwnerPart::leave);
    });
    owner.iter().for_each(OwnerPart::left);
    forget_addresses(addresses_file.as_deref());
    #[cfg(feature = "otlp")]
    drop(export);
    stderr::flush();
    Ok(code)
}

/// Removes the file of the addresses, if there is one. It may not exist, if it could not be written.
fn forget_addresses(file: Option<&Path>) {
    if let Some(file) = file {
        drop(std::fs::remove_file(file));
    }
}

/// Opens the store of a broker by itself.
///
/// # Errors
/// The exit code, if it cannot be opened or a signal ends the broker meanwhile.
fn open_own_store(
    config: Config,
    signals: &mut Signals,
) -> Result<(Config, Option<Box<dyn Store>>), ExitCode> {
    let opened = signals.run(move || open_store(&config).map(|store| (config, store)));
    match opened.map_err(stopped_at_start)? {
        Some(opened) => opened.map_err(|error| failed(&error)),
        None => Err(failed(&StartError::Died)),
    }
}

/// Reports that a signal ends the broker before it has recovered its store. What is under way is as
/// safe as after a crash: nothing was acknowledged.
fn stopped_at_start(signal: &'static str) -> ExitCode {
    tracing::info!(event = "broker.stopped_at_start", signal, "stopping before the store is recovered");
    stderr::flush();
    ExitCode::SUCCESS
}

/// Warns of the variables of the environment that look like keys and are none.
fn report_ignored(loaded: &Loaded) {
    for ignored in &loaded.ignored {
        tracing::warn!(event = "config.variable_ignored", "{ignored}");
    }
}

/// Returns the reader of the configuration for reloads.
fn config_reader(settings: &Settings) -> ConfigReader {
    let settings = settings.clone();
    Arc::new(move || read_again(&settings))
}

/// Writes the addresses of the listeners to `addresses_file`, and warns of listeners without
/// protection; does so again after each reload that changes listeners.
fn publish_listeners(broker: &Broker, addresses_file: Option<PathBuf>) {
    warn_of_entrances(broker.listeners());
    warn_of_unproven_names(broker.listeners());
    if let Some(file) = &addresses_file {
        write_addresses(file, broker.listeners());
    }
    broker.watch_listeners(Arc::new(move |news| {
        log_listeners(news);
        if let Some(file) = &addresses_file {
            write_addresses(file, &news.open);
        }
    }));
}

/// Reads the configuration for a reload, and the files that only the HTTP interface and the export
/// use.
///
/// # Errors
/// All problems of all layers, or one of these files cannot be used.
fn read_again(settings: &Settings) -> Result<Loaded, ConfigRefusal> {
    let loaded = read_configuration(settings)?;
    #[cfg(feature = "admin")]
    if let Some(path) = loaded.config.admin.credentials_path()
        && let Err(error) = homing::admin::credentials::Credentials::load(&path)
    {
        let why = error.to_string();
        return Err(ConfigRefusal(vec![Problem::UnusableFile { key: "admin.credentials", why }]));
    }
    if let Err(error) = otlp::check(&loaded.config.otlp) {
        return Err(ConfigRefusal(vec![Problem::UnusableFile { key: error.key(), why: error.to_string() }]));
    }
    Ok(loaded)
}

/// Asks the threads for signs of life. Returns false if a thread that serves clients gave no sign
/// of life for 10 s. A disk that hangs is no reason to start the process again.
fn is_alive(observer: &Observer) -> bool {
    let (pulses, now) = (observer.statistics().pulses(), clock::now());
    pulses.ask(now);
    pulses.late(now, HANGS).iter().all(|late| late.work != ThreadWork::Serves)
}

/// Returns true if a node of a cluster can serve. Besides what [`is_alive`] asks for, its disk does
/// not hang: another node has the same sessions and messages on a disk of its own.
fn can_own(observer: &Observer) -> bool {
    let (statistics, now) = (observer.statistics(), clock::now());
    let late = statistics.pulses().late(now, HANGS);
    // A long queue of pages is no hang.
    let commits = late.iter().all(|late| late.work != ThreadWork::Commits);
    is_alive(observer) && commits && !statistics.store().is_some_and(|store| store.disk.hangs(now, HANGS))
}

/// Writes the addresses of the listeners to a file, those for plain MQTT first.
fn write_addresses(file: &Path, listeners: &[OpenListener]) {
    // `homing health` asks the first address, and speaks plain MQTT.
    let plain = listeners.iter().filter_map(OpenListener::plain_address);
    let others = listeners.iter().filter(|listener| listener.plain_address().is_none());
    let others = others.filter_map(|listener| match listener.address {
        ListenerAddress::Ip(address) => Some(address),
        ListenerAddress::Unix(_) => None,
    });
    let addresses: String = plain.chain(others).map(|address| format!("{address}\n")).collect();
    let _opened = file_thread::opens(file);
    if let Err(error) = std::fs::write(file, addresses) {
        let file = file.display();
        tracing::warn!(event = "broker.addresses_file_failed", %file, %error, "network.addresses_file cannot be written, so `homing health` needs --address; check the path and its permissions");
    }
}

fn addresses_file(config: &Config) -> Option<PathBuf> {
    let file = &config.network.addresses_file;
    (!file.is_empty()).then(|| PathBuf::from(file))
}

/// Returns the first address in `network.addresses_file`, or `None` without such a file.
pub(crate) fn running_address(config: &Config) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(addresses_file(config)?).ok()?;
    text.lines().next()?.parse().ok()
}

/// Raises the soft limit of descriptors to the hard limit, because each connection takes one
/// descriptor.
///
/// The usual soft limit of 1,024 protects programs that use `select`.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(event = "broker.descriptors_limited", %error, soft = ?limit.current, hard = ?limit.maximum, "the descriptor limit cannot be raised: it bounds the number of connections");
    }
}
