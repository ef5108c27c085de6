//! The broker as actix runs it: actors, tasks, threads, sockets, and the order of start and stop.
//!
//! This folder does the I/O and makes no decision of the protocol: those are in [`crate::shard`]
//! and below.
//!
//! # Actors
//!
//! | actor | how many | thread | owns |
//! |---|---|---|---|
//! | [`connection::ConnectionActor`] | one per client | shard | the reading side of a socket |
//! | [`shard_actor::ShardActor`] | one per shard | shard | the driver with its shard |
//! | [`crate::expiry::actor::ExpiryActor`] | one | its own | every deadline, and the only timer |
//!
//! A connection actor gets notices by mailbox, never messages of clients: these go into its outbox.
//!
//! # Tasks
//!
//! | task | how many | thread | does |
//! |---|---|---|---|
//! | flusher (`driver`) | one per shard | shard | runs the turns of a shard with work |
//! | acceptor (`listener`) | one per listener | main | sends sockets to the shards in turn |
//! | supervisor (`supervisor`) | one | main | starts and stops everything, writes dumps |
//!
//! # Threads
//!
//! | thread | how many | runs |
//! |---|---|---|
//! | shard | `runtime.threads` | an actix arbiter without timers: a shard and its connections |
//! | expiry | one | an actix arbiter with a timer: the expiry actor |
//! | `homing-main` | one | supervisor and acceptors |
//! | `homing-store`, `homing-read` | one each, with a store | commits, and pages ([`crate::store::writer`]) |
//! | `homing-apply` | one, with a store | changes into the database (`store::lagging`) |
//! | `homing-ship`, `homing-base` | one; one at a time; with `store.ship_to` | the copy of the store (`store::ship`) |
//! | `homing-view` | one at a time, with a store | looks of operators ([`crate::store::view`]) |
//! | `homing-shake-N` | `runtime.handshake_threads`, if a listener needs them | handshakes |
//! | `homing-auth-N` | `auth.workers`, with passwords or tokens | their checks (`authenticator`) |
//! | `homing-http` | one, with `auth.http_url` | the requests of the `authenticator` by HTTP |
//! | `homing-bridge` | one, with `[[bridges]]` or `[[sinks]]` | the sockets of bridges and sinks (`bridges`, `sinks`) |
//! | `homing-log` | one | writes log lines to standard error ([`crate::log::stderr`]) |
//! | `homing-admin` | one, with `[admin]` | the HTTP interface (`admin`) |
//! | `homing-otlp` | one, with `[otlp]` | the export of metrics, log lines and traces (`otlp`) |
//! | `homing-service` | one, under systemd | the messages to systemd (`service`) |
//!
//! The process's first thread waits for signals ([`Broker::run`]).
//!
//! # Files
//!
//! | file | concern |
//! |---|---|
//! | `supervisor`, `signals` | start and stop; signals that stop the broker or request a dump |
//! | `settings` | configuration into shard settings |
//! | `authenticator` | the queue and the threads that check passwords and tokens; their cache |
//! | `logins` | the authenticator with its files, at start and reload |
//! | [`reload`], `live_files` | the configuration and its files, read again while the broker runs |
//! | [`standby`] | the configuration of a node of a cluster that stands by |
//! | [`file_edits`] | files about clients that operators change |
//! | [`file_news`], [`revocations`] | changes of files; clients that a reload disconnects |
//! | `storage` | the store at the start: recovered sessions to their shards |
//! | `bind` | the sockets of the listeners |
//! | [`bridges`] | connections to other brokers, on a thread of their own |
//! | [`sinks`] | requests to HTTP services, on the same thread |
//! | `connect_limits` | connects a second, and of one address |
//! | `listener`, `open_listener` | accepted sockets to the shards; facts about a listener |
//! | `listener_plan`, `live_listeners` | the way to new listeners; listeners that open and close |
//! | `listener_files`, `rule_files` | files of the broker and of single listeners; ACL files |
//! | `handshake` | PROXY, TLS and WebSocket before the shard, on threads of its own |
//! | [`connection`] | the actor of one connection |
//! | `driver`, [`shard_actor`] | a shard on its thread, and its mailbox |
//! | `export_counts` | what the export by OTLP has sent and lost |
//! | [`message`] | the messages between actors |
//! | [`owner_door`] | what the driver of a cell's ownership does to the broker |
//! | [`observer`], [`question`], [`statistics`] | the operators' view of the broker |
//! | [`events`] | client events as log lines, on topics and as last-disconnect records |
//! | [`sys`], `sys_load`, `sys_far_sides`, `dump` | the counters of `$SYS`, its averages and bridges; the text of SIGUSR1 |
//! | `rate_limit` | the rate limiter of log lines and events |
//! | `statistics`, [`listener_counts`], [`handshake_counts`] | counters that the threads share |

mod authenticator;
pub mod bind;
pub mod bridges;
mod connect_limits;
pub mod connection;
mod driver;
mod dump;
pub mod events;
#[cfg(feature = "otlp")]
pub mod export_counts;
pub mod file_edits;
pub mod file_news;
#[cfg(test)]
mod fixture;
mod handshake;
pub mod handshake_counts;
mod listener;
pub mod listener_counts;
mod listener_files;
mod listener_plan;
mod live_files;
mod live_listeners;
mod logins;
pub mod message;
pub mod observer;
mod open_listener;
pub mod owner_door;
pub mod question;
mod rate_limit;
pub mod reload;
pub mod revocations;
mod rule_files;
mod settings;
pub mod shard_actor;
mod signals;
pub mod sinks;
pub mod standby;
mod start_error;
pub mod statistics;
mod storage;
mod supervisor;
pub mod sys;
mod sys_far_sides;
mod sys_load;

use crate::config::{Config, KeySources, ListenerAddress};
use crate::log::stderr;
use crate::mqtt::keyed;
use crate::net::tls::live::LiveTls;
use crate::service;
use crate::shared::lease::Lease;
use crate::store::{Store, StoreError};
use crate::time::Instant;
pub(crate) use connect_limits::OTHER_DESCRIPTORS;
pub(crate) use handshake::entrance::all_tls_settings;
use handshake::reload::TlsReload;
use listener_plan::ListenerPlan;
pub use live_files::check_files;
use live_listeners::FirstSockets;
pub use live_listeners::ListenerNews;
use message::Admission;
use observer::Observer;
pub use open_listener::{EntranceRisk, ListenerDirectory, OpenListener};
use owner_door::OwnerDoor;
use reload::{ConfigReader, ListenerWatcher, ReloadMode, SettingsWatcher};
pub use signals::Signals;
use signals::{Request, Requests};
pub use start_error::StartError;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use supervisor::Supervisor;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

/// A running broker. Dropping the value stops the broker in order.
pub struct Broker {
    addresses: Vec<SocketAddr>,
    listeners: Vec<OpenListener>,
    /// Requests to the supervisor. The broker stops as soon as this sender is dropped.
    requests: Option<Requests>,
    thread: Option<JoinHandle<()>>,
    failed: Option<oneshot::Receiver<StoreError>>,
    observer: Observer,
}

impl Broker {
    /// Binds every listener, then starts the threads. Returns when clients can connect.
    ///
    /// # Errors
    /// An address cannot be bound, or the system refuses a thread or an event loop.
    pub fn start(config: Config) -> Result<Broker, StartError> {
        Broker::start_with(config, None)
    }

    /// Starts a broker with a store, and recovers its sessions, queues and retained messages.
    ///
    /// # Errors
    /// As [`Broker::start`]; also if the store cannot be read.
    pub fn start_with(config: Config, store: Option<Box<dyn Store>>) -> Result<Broker, StartError> {
        Broker::start_as(config, store, Admission::Open)
    }

    /// Starts the broker of a node that owns a cell of a cluster. It recovers its store, and
    /// promises nothing without an append. Clients are shut out: no listener is bound until
    /// [`OwnerDoor::let_in`].
    ///
    /// # Errors
    /// As [`Broker::start_with`].
    pub fn start_as_owner(config: Config, store: Box<dyn Store>) -> Result<Broker, StartError> {
        Broker::start_as(config, Some(store), Admission::Shut)
    }

    /// Starts a broker. It binds its listeners before all else if clients may be connected. If not,
    /// it has no lease either, until [`OwnerDoor`] says more.
    fn start_as(
        config: Config,
        store: Option<Box<dyn Store>>,
        admission: Admission,
    ) -> Result<Broker, StartError> {
        // Before the first table is made. Clients must not know the key.
        keyed::set_key(RandomState::new().build_hasher().finish());
        let plan = ListenerPlan::at_start(&config.all_listeners());
        let tls = TlsReload::load(&plan).map_err(StartError::Tls)?;
        let (mut sockets, lease) = (FirstSockets::new(), Lease::default());
        match admission {
            Admission::Shut => lease.set_until(Instant::ZERO),
            Admission::Open => {
                for planned in &plan.open {
                    sockets.push(listener::open(&planned.name, &planned.listener, config.network.backlog)?);
                }
            }
        }
        let (requests, requested) = mpsc::channel::<Request>(1);
        let (ready, started) = std::sync::mpsc::channel();
        let (fails, failed) = oneshot::channel();
        let thread = std::thread::Builder::new().name("homing-main".into()).spawn(move || {
            let system = actix_rt::System::new();
            system.block_on(async move {
                match Supervisor::start(config, plan, sockets, tls, store, lease, fails).await {
                    Ok(mut supervisor) => {
                        let _ = ready.send(Ok(supervisor.observer()));
                        supervisor.serve(requested).await;
                        supervisor.stop().await;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            });
        })?;
        let observer: Observer = started.recv().map_err(|_| StartError::Died)??;
        let observer = observer.with_requests(requests.downgrade());
        let listeners = observer.listeners().open();
        let address = |open: &OpenListener| match open.address {
            ListenerAddress::Ip(address) => Some(address),
            ListenerAddress::Unix(_) => None,
        };
        Ok(Broker {
            addresses: listeners.iter().filter_map(address).collect(),
            listeners,
            requests: Some(requests),
            thread: Some(thread),
            failed: Some(failed),
            observer,
        })
    }

    /// Returns the IP addresses of the listeners at the start, in their order. A port 0 is replaced
    /// by the port that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the view of this broker for its operators. The view may outlive the broker.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Returns the door for the driver of the ownership of a cell; `None` once the broker stops.
    /// The door may outlive the broker.
    pub fn owner_door(&self) -> Option<OwnerDoor> {
        self.requests.is_some().then(|| OwnerDoor::new(self.observer()))
    }

    /// Returns all listeners at the start, in their order. [`Observer::listeners`] has those after
    /// the latest reload.
    pub fn listeners(&self) -> &[OpenListener] {
        &self.listeners
    }

    /// Returns a text for an operator: the expiry queue by thread, and the sessions with the oldest
    /// unacknowledged messages.
    ///
    /// The text is empty once the broker stops. Blocks for up to two seconds.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn dump(&self) -> String {
        self.ask(Request::Dump).unwrap_or_default()
    }

    /// Sets how a reload reads the configuration, and the sources of the values that the broker was
    /// started with. Without it, a reload reads only the files of passwords, tokens, rules, bans
    /// and certificates.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn read_again_by(&self, reader: ConfigReader, sources: KeySources) {
        self.tell(Request::ReadBy(reader, sources));
    }

    /// Sets the watcher of the listeners, called after a reload that changed some. The watcher is
    /// called on the thread that reads files, and may block.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn watch_listeners(&self, watcher: ListenerWatcher) {
        self.tell(Request::Watch(watcher));
    }

    /// Adds one who is given the configuration that each reload has put in force. The watcher is
    /// called on the thread that accepts connections, and must not block.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn watch_settings(&self, watcher: SettingsWatcher) {
        self.tell(Request::WatchSettings(watcher));
    }

    /// Reads the certificate of the HTTP interface again whenever those of the listeners are read
    /// again: all of them, or none.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn renew_also(&self, interface: Arc<LiveTls>) {
        self.tell(Request::Include(interface));
    }

    /// Reads the configuration and its files again. Users who have left the password file, or have
    /// another hash, and clients whose certificate is not valid any more, are disconnected: before
    /// the return if that takes less than two seconds, else the rest soon after it. Returns the
    /// changes in the files, and the number of disconnected clients.
    ///
    /// # Errors
    /// All mistakes. Then nothing changes.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn reload(&self) -> Result<String, String> {
        let result = self.ask(|reply| Request::Reload(ReloadMode::Apply, reply));
        let result = result.ok_or("the broker stops")?;
        result.map(|done| done.of_files().join("; ")).map_err(|mistakes| mistakes.join("; "))
    }

    /// Reads the files of TLS again if one of them changed. The broker itself checks once a minute.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn check_tls_files(&self) {
        self.ask(Request::CheckTls);
    }

    /// Sends a request to the supervisor. A broker that stops carries out none.
    fn tell(&self, request: Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.blocking_send(request);
        }
    }

    /// Sends a request to the supervisor, and returns the reply; `None` if the broker stops.
    fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (reply, result) = oneshot::channel();
        self.tell(request(reply));
        result.blocking_recv().ok()
    }

    /// Stops in order: refuses new connections, sends DISCONNECT 0x8B to 5.0 clients, and writes
    /// pending bytes.
    ///
    /// Returns within 14 seconds, whatever the clients do. A dump or a reload that is under way is
    /// given up. A second call does nothing.
    pub fn shutdown(&mut self) {
        self.observer.statistics().stops();
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Waits until the store fails. From then on the shards acknowledge nothing.
    async fn store_failure(failed: Option<oneshot::Receiver<StoreError>>) -> StoreError {
        match failed {
            Some(failed) => match failed.await {
                Ok(cause) => cause,
                // There is no store, or it was stopped in order.
                Err(_) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Runs until SIGTERM or SIGINT, then stops in order, and returns exit code 0.
    ///
    /// A second signal exits at once with code 1, and so does a failed store. SIGHUP reads
    /// everything again ([`Self::reload`]); SIGUSR1 writes [`Self::dump`] to standard error.
    pub fn run(self, signals: Signals) -> ExitCode {
        self.run_until(signals, || ())
    }

    /// As [`Broker::run`]. `before_stop` is called after the signal, before the broker stops.
    pub fn run_until(mut self, signals: Signals, before_stop: impl FnOnce()) -> ExitCode {
        let (runtime, mut caught) = signals.into_parts();
        let failed = self.failed.take();
        runtime.block_on(async {
            let mut failure = std::pin::pin!(Broker::store_failure(failed));
            let name = tokio::select! {
                name = caught.next(self.requests.as_ref()) => name,
                cause = &mut failure => exit_for(&cause),
            };
            service::stops();
            info!(event = "broker.stopping", signal = name, "stopping; a second signal exits at once");
            before_stop();
            let (done, finished) = oneshot::channel();
            std::thread::spawn(move || {
                self.shutdown();
                let _ = done.send(());
            });
            tokio::select! {
                // The last commits fail before the stop is done.
                biased;
                cause = failure => exit_for(&cause),
                _ = finished => ExitCode::SUCCESS,
                name = caught.next(None) => {
                    warn!(event = "broker.exiting", signal = name, "exiting at once");
                    stderr::flush();
                    std::process::exit(1)
                }
            }
        })
    }
}

/// Exits at once, because an orderly stop needs a working store.
fn exit_for(cause: &StoreError) -> ! {
    error!(event = "broker.exiting_without_store", %cause, "the store failed: exiting at once, because no acknowledgement can be kept; see the cause, mend it and start again");
    stderr::flush();
    std::process::exit(1)
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shutdown();
    }
}
