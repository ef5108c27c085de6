//! Starts and stops the parts of the broker, in order.

use super::bridges::{BridgeParts, Bridges};
use super::connect_limits::LiveLimits;
use super::dump::{self, InspectShard};
use super::events::{EventListeners, EventLog};
use super::handshake::reload::TlsReload;
use super::listener_plan::ListenerPlan;
use super::live_files::{LiveFiles, READ, load_bans};
use super::live_listeners::{FirstSockets, LiveListeners};
use super::logins::{self, LoginFiles, Logins, PasswordFiles};
use super::message::{Admission, ConnectPeers, PeerAddresses, StartTimers, Stop};
use super::observer::Observer;
use super::rate_limit::EventRates;
use super::reload::{Reload, SettingsWatcher};
use super::rule_files::RuleFiles;
use super::settings::{
    asks_authenticator, broker_limits, partial_limit, retained_limits, settings, share_rules,
};
use super::signals::Request;
use super::start_error::StartError;
use super::statistics::BrokerStatistics;
use super::storage;
use crate::access::bans::BanList;
use crate::auth::file_digests::FileDigests;
use crate::auth::password::decoy_secret::DecoySecret;
use crate::auth::random::random;
use crate::broker::driver::ShardDriver;
use crate::broker::shard_actor::ShardActor;
use crate::clock;
use crate::config::{Config, KeySources};
use crate::expiry::actor::ExpiryActor;
use crate::expiry::message::Inspect;
use crate::file_thread::{FileThread, Retired};
use crate::login::debts::Debts;
use crate::mqtt::charge::Budget;
use crate::mqtt::retained_message::RetainedMessage;
use crate::pulse::{Pulses, ThreadWork, name_thread};
use crate::routing::retained::Retained;
use crate::routing::subscription_tree::ShardId;
use crate::scheduling;
use crate::shard::randomness::Randomness;
use crate::shard::recovery::placement::RecoveredShard;
use crate::shard::{PartialShare, Shard, ShardSettings, SharedState};
use crate::shared::lease::Lease;
use crate::shared::totals::Totals;
use crate::store::writer::{Writer, WriterOptions};
use crate::store::{Store, StoreError};
use actix::{Actor, Addr};
use actix_rt::Arbiter;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

/// Maximum time for the shards to send DISCONNECT to their clients and close the connections.
const STOP: Duration = Duration::from_secs(4);

/// Number of times that the shards are stopped, one after the other. The first disconnects the
/// clients, and sends their wills to the other shards. The second delivers these wills, and may
/// send those of shared groups on. The third delivers these too.
const STOP_ROUNDS: usize = 3;

/// Maximum time for all threads together to reply to a dump request. A stop may wait behind a dump.
const DUMP: Duration = Duration::from_secs(2);

/// Maximum time for the threads to end after that, with the last commits.
const JOIN: Duration = Duration::from_secs(10);

/// The time between two looks at the files of TLS.
pub(super) const TLS_CHECKS: Duration = Duration::from_secs(60);

/// The running parts of a broker.
pub(super) struct Supervisor {
    shards: Vec<Addr<ShardActor>>,
    expiry: Addr<ExpiryActor>,
    arbiters: Vec<Arbiter>,
    writer: Option<Writer>,
    observer: Observer,
    bridges: Arc<Bridges>,
    reload: Reload,
    statistics: Arc<BrokerStatistics>,
    log: Arc<EventLog>,
}

impl Supervisor {
    /// Starts the shards and the expiry actor, connects them with each other, then accepts
    /// connections.
    ///
    /// `failed` receives the cause when the store fails. Errors: the store cannot be read, the
    /// system refuses a thread, or a thread ends at the start.
    pub(super) async fn start(
        config: Config,
        plan: ListenerPlan,
        sockets: FirstSockets,
        tls: TlsReload,
        store: Option<Box<dyn Store>>,
        lease: Lease,
        failed: oneshot::Sender<StoreError>,
    ) -> Result<Supervisor, StartError> {
        let count = config.runtime.thread_count().clamp(1, 64);
        let decoys = logins::decoy_secret(store.as_deref().and_then(Store::directory));
        let mut opened = store.map(|store| storage::open(store, count as u8)).transpose()?;
        let shared = shared_state(&config, lease);
        let statistics = Arc::new(BrokerStatistics::new(count, Arc::clone(&shared)));
        let log = Arc::new(EventLog::new(config.log.events_per_second));
        let recovered = take_up(opened.as_mut(), &shared);
        // A recovered delivery is never refused because of a share.
        shared.limit_shares(&share_rules(&config, &plan));
        let first = FirstFiles::read(&config, &plan)?;
        let mut settings = settings(&config, &plan);
        settings.access.files = first.rules.put_in_force(&plan);
        let bans = first.banned.clone();
        let parts = SharedParts { shared: &shared, statistics: &statistics, log: &log, settings, bans };
        let (mut arbiters, shards) = start_shards(&config, count, &parts, recovered)?;
        let expiry_arbiter = arbiter(Driver::Clock, EXPIRY.to_owned())?;
        let expiry = start_expiry(&config, &expiry_arbiter, &shards, &statistics);
        arbiters.push(expiry_arbiter);
        let view = opened.as_ref().map(|opened| Arc::new(opened.view(&shared)));
        let start = |opened| start_writer(&config, opened, &shards, &parts, failed);
        let writer = opened.map(start).transpose()?;
        watch(statistics.pulses(), &shards, &expiry, writer.as_ref());
        let logins = start_logins(&config, &plan, decoys.as_ref(), count, &first.digests)?;
        logins.iter().for_each(|logins| logins.watch(statistics.pulses()));
        connect(&shards, writer.as_ref(), logins.as_ref(), &expiry).await?;
        let limits = Arc::new(LiveLimits::new(&config));
        statistics.set_limits(broker_limits(&config, limits.connections()));
        let counted = (&statistics, &log);
        let lets_in = !sockets.is_empty();
        let listeners =
            LiveListeners::start(&config, (plan, sockets), &shards, counted, &limits, tls.servers())?;
        let directory = Arc::clone(listeners.directory());
        let observer =
            Observer::new(Arc::clone(&statistics), Arc::clone(&shared), directory, &shards, expiry.clone())
                .with_store(view);
        let bridges = start_bridges(&shards, observer.clone(), Arc::clone(&limits));
        if lets_in {
            // No acceptor runs before this thread waits for the next time, so no client comes before.
            bridges.begin(&config);
        } else {
            bridges.put_in_force(&config);
        }
        let files = first.live(logins, decoys, tls, &shards, &statistics);
        let reload = Reload {
            config,
            reader: None,
            sources: KeySources::default(),
            files,
            listeners,
            reading: FileThread::new("homing-files", READ),
            tell: None,
            settings_watchers: vec![watcher_of(&bridges)],
            limits,
            shared,
            store: writer.as_ref().map(Writer::to_store),
            log: Arc::clone(&log),
        };
        Ok(Supervisor { shards, expiry, arbiters, writer, observer, bridges, reload, statistics, log })
    }

    /// Returns the view of this broker for its operators.
    pub(super) fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Opens the listeners that are closed, and lets clients in. Errors: the system refuses an
    /// address.
    async fn let_in(&mut self) -> Result<(), StartError> {
        self.tell_admission(Admission::Open).await;
        let Reload { config, listeners, .. } = &mut self.reload;
        listeners.let_in(config)
    }

    /// Closes the listeners, and disconnects every client as at a stop, without their wills. Sends
    /// DISCONNECT 0x8B to 5.0 clients. Does not wait until they have closed their connections.
    async fn shut_out(&mut self) {
        self.reload.listeners.shut_out().await;
        self.tell_admission(Admission::Shut).await;
    }

    /// Returns when every shard knows it.
    async fn tell_admission(&self, admission: Admission) {
        for shard in &self.shards {
            // A shard that has ended has no clients.
            let _ = shard.send(admission).await;
        }
    }

    /// Returns the text of a dump, or one line with the reason for its failure.
    async fn dump(&self) -> String {
        match tokio::time::timeout(DUMP, self.inspect()).await {
            Ok(Some(text)) => text,
            Ok(None) | Err(_) => format!(
                "homing: no dump: a thread did not answer within {DUMP:?}; it is overloaded or hangs\n"
            ),
        }
    }

    async fn inspect(&self) -> Option<String> {
        let expiry = self.expiry.send(Inspect).await.ok()?;
        let mut shards = Vec::new();
        for shard in &self.shards {
            shards.push(shard.send(InspectShard).await.ok()?);
        }
        Some(dump::render(&expiry, &self.statistics.expiry, shards, clock::now()))
    }

    /// Carries out requests until the broker stops, and looks at the files of TLS once a minute.
    /// A request that is under way then is given up: its files may hang.
    pub(super) async fn serve(&mut self, requested: mpsc::Receiver<Request>) {
        let statistics = Arc::clone(&self.statistics);
        tokio::select! {
            () = self.carry_out(requested) => {}
            () = statistics.stopped() => {}
        }
    }

    /// Carries out requests until all senders are gone.
    async fn carry_out(&mut self, mut requested: mpsc::Receiver<Request>) {
        self.reload.files.report_tls_days();
        let mut checks = tokio::time::interval(TLS_CHECKS);
        // The start has just read the files.
        checks.reset();
        loop {
            let request = tokio::select! {
                request = requested.recv() => request,
                _ = checks.tick() => {
                    self.reload.check_tls_files().await;
                    continue;
                }
            };
            match request {
                Some(Request::Dump(reply)) => drop(reply.send(self.dump().await)),
                Some(Request::Reload(mode, reply)) => drop(reply.send(self.reload.run(mode).await)),
                Some(Request::EditFile(edit, reply)) => drop(reply.send(self.reload.edit_file(edit).await)),
                Some(Request::ReadFile(file, reply)) => drop(reply.send(self.reload.read_file(file).await)),
                Some(Request::ReadBy(reader, sources)) => {
                    (self.reload.reader, self.reload.sources) = (Some(reader), sources);
                }
                Some(Request::Watch(watcher)) => self.reload.tell = Some(watcher),
                Some(Request::WatchSettings(watcher)) => self.reload.settings_watchers.push(watcher),
                Some(Request::Include(interface)) => self.reload.files.include(interface),
                Some(Request::Configuration(reply)) => drop(reply.send(self.reload.in_force())),
                Some(Request::CheckTls(reply)) => {
                    self.reload.check_tls_files().await;
                    let _ = reply.send(());
                }
                Some(Request::LetIn(reply)) => drop(reply.send(self.let_in().await)),
                Some(Request::ShutOut(reply)) => {
                    self.shut_out().await;
                    let _ = reply.send(());
                }
                None => return,
            }
        }
    }

    /// Stops the listeners, then the shards, then their threads. Takes at most `STOP` and `JOIN`
    /// together.
    pub(super) async fn stop(mut self) {
        self.reload.listeners.stop();
        self.bridges.stop();
        let all = async {
            for _ in 0..STOP_ROUNDS {
                // A new address for each message: an address that has met a full mailbox would send
                // later than now.
                let stopping: Vec<_> = self.shards.iter().map(|shard| shard.clone().send(Stop)).collect();
                for shard in stopping {
                    let _ = shard.await;
                }
            }
        };
        if tokio::time::timeout(STOP, all).await.is_err() {
            warn!(
                event = "broker.stop_clients_late",
                "stopping: some clients did not close their connection within {STOP:?}; their sockets are closed now"
            );
        }
        let writer = self.writer;
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
        let (done, joined) = tokio::sync::oneshot::channel();
        let arbiters = self.arbiters;
        std::thread::spawn(move || {
            for arbiter in arbiters {
                let _ = arbiter.join();
            }
            // The store stops last, when every batch of the shards is committed.
            if let Some(writer) = writer {
                writer.stop();
            }
            let _ = done.send(());
        });
        if tokio::time::timeout(JOIN, joined).await.is_err() {
            warn!(
                event = "broker.stop_threads_late",
                "stopping: a thread did not end within {JOIN:?}; the process ends without it"
            );
        }
        self.log.report_suppressed();
    }
}

/// The sources of events of an event loop, besides messages.
#[derive(Clone, Copy)]
enum Driver {
    /// Sockets, and no timer. No actor on a shard thread needs one; tokio's timer wheel would read
    /// the clock in every turn.
    Sockets,
    /// The one timer of the expiry actor.
    Clock,
}

/// The name of the thread of the expiry actor.
const EXPIRY: &str = "homing-expiry";

/// Returns the name of the thread of a shard.
fn shard_name(number: usize) -> String {
    format!("homing-shard-{number}")
}

/// Watches this thread, those of the actors, and those of the store.
fn watch(pulses: &Pulses, shards: &[Addr<ShardActor>], expiry: &Addr<ExpiryActor>, writer: Option<&Writer>) {
    actix_rt::spawn(pulses.watch_loop("homing-main"));
    for (number, shard) in shards.iter().cloned().enumerate() {
        pulses.watch_once(shard_name(number), ThreadWork::Serves, move |pulse| shard.do_send(pulse));
    }
    let expiry = expiry.clone();
    pulses.watch_once(EXPIRY, ThreadWork::Serves, move |pulse| expiry.do_send(pulse));
    if let Some(writer) = writer {
        let (commits, reads) = (writer.to_store(), writer.to_store());
        pulses.watch_once("homing-store", ThreadWork::Commits, move |pulse| commits.ask_committing(pulse));
        pulses.watch_once("homing-read", ThreadWork::Reads, move |pulse| reads.ask_reading(pulse));
    }
}

/// The files of rules and bans, as they are read at the start.
struct FirstFiles {
    digests: FileDigests,
    rules: RuleFiles,
    /// The file of bans, if there is one.
    bans: Option<PathBuf>,
    banned: Option<Arc<BanList>>,
}

impl FirstFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or has a mistake.
    fn read(config: &Config, plan: &ListenerPlan) -> Result<FirstFiles, StartError> {
        let digests = FileDigests::default();
        let rules = RuleFiles::default().read_again(config, plan, &digests)?;
        let bans = config.bans.path();
        let banned = load_bans(bans.as_deref(), &digests)?.map(Arc::new);
        Ok(FirstFiles { digests, rules, bans, banned })
    }

    /// Returns the files as a reload looks at them again.
    fn live(
        self,
        logins: Option<Logins>,
        decoys: Option<DecoySecret>,
        tls: TlsReload,
        shards: &[Addr<ShardActor>],
        statistics: &Arc<BrokerStatistics>,
    ) -> LiveFiles {
        let FirstFiles { digests, rules, bans, banned } = self;
        let ban_count = banned.as_ref().map_or(0, |bans| bans.len());
        let mut retired = Retired::default();
        banned.into_iter().for_each(|bans| retired.keep(bans));
        LiveFiles {
            logins,
            decoys,
            rules,
            bans,
            ban_count,
            digests,
            tls,
            shards: shards.to_vec(),
            statistics: Arc::clone(statistics),
            looking: FileThread::new("homing-tls-look", READ),
            retired,
        }
    }
}

/// Begins the bridges of the configuration.
fn start_bridges(shards: &[Addr<ShardActor>], observer: Observer, limits: Arc<LiveLimits>) -> Arc<Bridges> {
    let shards = shards.iter().cloned().map(Addr::recipient).collect();
    Arc::new(Bridges::new(BridgeParts { shards, observer, limits }))
}

/// Returns what gives the bridges the configuration of each reload.
fn watcher_of(bridges: &Arc<Bridges>) -> SettingsWatcher {
    let bridges = Arc::clone(bridges);
    Box::new(move |config| bridges.put_in_force(config))
}

/// Starts a thread with an event loop of its own.
fn arbiter(driver: Driver, name: String) -> io::Result<Arbiter> {
    Arbiter::try_with_tokio_rt(move || {
        name_thread(&name);
        scheduling::wake_soon();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        match driver {
            Driver::Sockets => runtime.enable_io(),
            Driver::Clock => runtime.enable_time(),
        };
        runtime.build()
    })
}

/// Returns the state that all shards share, without any message.
fn shared_state(config: &Config, lease: Lease) -> Arc<SharedState> {
    Arc::new(SharedState {
        retained: Mutex::new(Retained::new(retained_limits(config))),
        budget: Arc::new(Budget::new(config.limits.memory.bytes())),
        partial: PartialShare::new(partial_limit(config), config.limits.connect_size.bytes()),
        store_full: AtomicBool::new(false),
        totals: Totals::default(),
        debts: Debts::default(),
        store_room: AtomicI64::new(i64::MAX),
        lease,
        name: random().ok().map(|name| format!("{:016x}", u64::from_be_bytes(*name)).into()),
    })
}

/// The parts of the broker that every shard gets.
struct SharedParts<'a> {
    shared: &'a Arc<SharedState>,
    statistics: &'a Arc<BrokerStatistics>,
    log: &'a Arc<EventLog>,
    settings: ShardSettings,
    /// The bans; `None` without a file.
    bans: Option<Arc<BanList>>,
}

/// Starts `count` shards, each on a thread of its own. Shard *n* takes up the `n`-th of
/// `recovered`.
fn start_shards(
    config: &Config,
    count: usize,
    parts: &SharedParts<'_>,
    recovered: Vec<RecoveredShard>,
) -> io::Result<(Vec<Arbiter>, Vec<Addr<ShardActor>>)> {
    let (mut arbiters, mut shards, mut recovered) = (Vec::new(), Vec::new(), recovered.into_iter());
    for number in 0..count {
        let arbiter = arbiter(Driver::Sockets, shard_name(number))?;
        shards.push(start_shard(config, &arbiter, (number, count), parts, recovered.next()));
        arbiters.push(arbiter);
    }
    Ok((arbiters, shards))
}

fn start_shard(
    config: &Config,
    arbiter: &Arbiter,
    (number, count): (usize, usize),
    parts: &SharedParts<'_>,
    recovered: Option<RecoveredShard>,
) -> Addr<ShardActor> {
    let (settings, bans) = (parts.settings.clone(), parts.bans.clone());
    let (shared, statistics) = (Arc::clone(parts.shared), Arc::clone(parts.statistics));
    let sys = config.sys.interval_of(number);
    let mut listeners = EventListeners::new(Arc::clone(parts.log), Arc::clone(&statistics));
    listeners.set_rates(EventRates::of(&config.sys, count));
    ShardActor::start_in_arbiter(&arbiter.handle(), move |_| {
        let here = ShardId(number as u8);
        let mut core = Shard::new(here, count as u8, settings, Arc::clone(&shared), randomness());
        core.permission_changes().replace_bans(bans);
        if let Some(recovered) = recovered {
            core.take_up(clock::now(), recovered);
        }
        let driver = ShardDriver::new(core, statistics, listeners);
        ShardActor::new(driver, shared, sys)
    })
}

/// Starts the threads of an opened store, and counts what they do. `failed` receives the cause when
/// the store fails. Errors: as those of [`storage::OpenedStore::start`].
fn start_writer(
    config: &Config,
    opened: storage::OpenedStore,
    shards: &[Addr<ShardActor>],
    parts: &SharedParts<'_>,
    failed: oneshot::Sender<StoreError>,
) -> Result<Writer, StartError> {
    let options = WriterOptions { sync: config.store.synced_every(), ..WriterOptions::default() };
    let writer = opened.start(options, shards.to_vec(), Arc::clone(parts.shared), failed)?;
    parts.statistics.set_store(writer.statistics());
    Ok(writer)
}

fn start_expiry(
    config: &Config,
    arbiter: &Arbiter,
    shards: &[Addr<ShardActor>],
    statistics: &BrokerStatistics,
) -> Addr<ExpiryActor> {
    let recipients = shards.iter().map(|shard| shard.clone().recipient()).collect();
    let (tick, statistics) = (config.expiry.tick, Arc::clone(&statistics.expiry));
    ExpiryActor::start_in_arbiter(&arbiter.handle(), move |_| ExpiryActor::new(tick, recipients, statistics))
}

/// Connects the shards with each other and with the store, and then starts their deadlines. Errors:
/// [`StartError::Died`] if a thread ended.
async fn connect(
    shards: &[Addr<ShardActor>],
    writer: Option<&Writer>,
    logins: Option<&Logins>,
    expiry: &Addr<ExpiryActor>,
) -> Result<(), StartError> {
    let peer = |shard: &Addr<ShardActor>| PeerAddresses {
        sockets: shard.clone().recipient(),
        batches: shard.clone().recipient(),
    };
    let peers: Vec<PeerAddresses> = shards.iter().map(peer).collect();
    for shard in shards {
        let client = |logins: &Logins| logins.client(shard.clone().recipient());
        let connect_peers = ConnectPeers {
            peers: peers.clone(),
            store: writer.map(Writer::to_store),
            authenticator: logins.map(client),
        };
        shard.send(connect_peers).await.map_err(|_| StartError::Died)?;
    }
    // Every shard must know the subscriptions of the recovered sessions before the first message is
    // published, by a client or because a delayed message is due.
    for shard in shards {
        shard.send(StartTimers { expiry: expiry.clone() }).await.map_err(|_| StartError::Died)?;
    }
    Ok(())
}

/// Starts the authenticator, if a listener needs it. Errors: a file cannot be used, or the system
/// refuses a thread.
fn start_logins(
    config: &Config,
    plan: &ListenerPlan,
    decoys: Option<&DecoySecret>,
    shards: usize,
    digests: &FileDigests,
) -> Result<Option<Logins>, StartError> {
    if !asks_authenticator(config, plan) {
        return Ok(None);
    }
    match LoginFiles::read(config, plan, decoys, &PasswordFiles::default(), digests) {
        Ok(files) => Logins::start(config, files, shards).map(Some),
        Err(errors) => Err(errors.into_iter().next().unwrap_or(StartError::Died)),
    }
}

/// Takes the recovered messages and sessions out of a store that was read. Sets the retained
/// messages, and returns the sessions of each shard.
fn take_up(opened: Option<&mut storage::OpenedStore>, shared: &SharedState) -> Vec<RecoveredShard> {
    let mut recovered = Vec::new();
    if let Some(opened) = opened {
        take_up_retained(shared, std::mem::take(&mut opened.retained));
        recovered = std::mem::take(&mut opened.sessions);
    }
    // This thread made all that was recovered, so its charges are reported here.
    shared.budget.report();
    recovered
}

/// Sets the retained messages of the store. From here on, changes to retained messages are
/// recorded.
fn take_up_retained(shared: &SharedState, messages: Vec<RetainedMessage>) {
    let mut retained = shared.retained();
    let now = clock::now();
    let left_out = messages.into_iter().filter(|message| retained.set(message.clone(), now).is_err()).count();
    if left_out > 0 {
        warn!(
            event = "store.retained_left_out",
            left_out,
            "the store has more retained messages than limits.retained_messages or limits.retained_bytes allow: these are \
             not delivered until a start with higher limits; a publish to their topics replaces or erases them"
        );
    }
    retained.record_changes(left_out);
}

/// Returns the random numbers of one shard. The seed differs in every process and for every shard:
/// it comes from the random hash keys of the standard library.
fn randomness() -> Randomness {
    let secret = || random::<16>().ok().map(|bytes| u128::from_le_bytes(*bytes));
    Randomness::new(RandomState::new().build_hasher().finish(), secret)
}
