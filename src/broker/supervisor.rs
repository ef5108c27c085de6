//! Starts and stops the parts of the broker, in order.

use super::connect_limits::{AddressLimit, ConnectRate, ConnectRates};
use super::dump::{self, InspectShard};
use super::events::{EventListeners, EventLog, EventTopics};
use super::handshake::entrance::Entrance;
use super::handshake::reload::{NewTls, TlsReload};
use super::handshake::{HandshakeParts, Handshakes};
use super::listener::{Acceptor, BoundListener, ConnectLimits};
use super::logins::{self, LoginFiles, Logins};
use super::message::{
    AclChanged, BansChanged, ConnectPeers, PasswordsChanged, PeerAddresses, StartTimers, Stop, TlsChanged,
};
use super::observer::Observer;
use super::open_listener::OpenListener;
use super::rule_files::{self, RuleFiles};
use super::settings::settings;
use super::signals::Request;
use super::start_error::StartError;
use super::statistics::{BrokerLimits, BrokerStatistics};
use super::storage;
use crate::access::bans::BanList;
use crate::auth::ban_file;
use crate::broker::driver::ShardDriver;
use crate::broker::shard_actor::ShardActor;
use crate::clock;
use crate::config::Config;
use crate::expiry::actor::ExpiryActor;
use crate::expiry::message::Inspect;
use crate::mqtt::charge::Budget;
use crate::mqtt::message::Message;
use crate::routing::retained::{Retained, RetainedLimits};
use crate::routing::subscription_tree::ShardId;
use crate::shard::access::AclFiles;
use crate::shard::durability::placement::RecoveredShard;
use crate::shard::totals::Totals;
use crate::shard::{PartialShare, Shard, SharedState};
use crate::store::writer::{Writer, WriterOptions};
use crate::store::{Store, StoreError};
use actix::{Actor, Addr};
use actix_rt::Arbiter;
use rustix::process::{Resource, getrlimit};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

/// Incomplete packets may use one part in so many of the memory budget.
const PARTIAL_SHARE: u64 = 4;

/// Maximum time for the shards to send DISCONNECT to their clients and close the connections.
const STOP: Duration = Duration::from_secs(4);

/// Maximum time for all threads together to reply to a dump request. A stop may wait behind a dump.
const DUMP: Duration = Duration::from_secs(2);

/// Maximum time for the threads to end after that, with the last commits.
const JOIN: Duration = Duration::from_secs(10);

/// The time between two looks at the files of TLS.
const TLS_CHECKS: Duration = Duration::from_secs(60);

/// Descriptors that are no connections: listeners, event loops, log, reserve.
const OTHER_DESCRIPTORS: u64 = 64;

/// The running parts of a broker.
pub(super) struct Supervisor {
    acceptors: Vec<JoinHandle<()>>,
    shards: Vec<Addr<ShardActor>>,
    expiry: Addr<ExpiryActor>,
    arbiters: Vec<Arbiter>,
    writer: Option<Writer>,
    logins: Option<Logins>,
    rules: RuleFiles,
    /// The path of the file of bans; `None` without one.
    bans: Option<PathBuf>,
    tls: TlsReload,
    /// The listeners, by number.
    entrances: Vec<Arc<Entrance>>,
    statistics: Arc<BrokerStatistics>,
    shared: Arc<SharedState>,
    log: Arc<EventLog>,
}

impl Supervisor {
    /// Starts the shards and the expiry actor, connects them with each other, then accepts
    /// connections.
    ///
    /// `failed` receives the cause when the store fails.
    ///
    /// # Errors
    /// The store cannot be read, the system refuses a thread, or a thread ends at the start.
    pub(super) async fn start(
        config: &Config,
        listeners: Vec<BoundListener>,
        tls: TlsReload,
        store: Option<Box<dyn Store>>,
        failed: oneshot::Sender<StoreError>,
    ) -> Result<Supervisor, StartError> {
        let count = config.runtime.thread_count().clamp(1, 64);
        let decoys = logins::decoy_secret(store.as_deref().and_then(Store::directory));
        let mut opened = store.map(|store| storage::open(store, count as u8)).transpose()?;
        let shared = shared_state(config);
        let statistics = Arc::new(BrokerStatistics::new(count, listeners.len(), Arc::clone(&shared)));
        let log = Arc::new(EventLog::new(config.log.events_per_second));
        let mut shares = Vec::new();
        if let Some(opened) = &mut opened {
            take_up_retained(&shared, std::mem::take(&mut opened.retained));
            shares = std::mem::take(&mut opened.shares);
        }
        // This thread made all that was recovered, so its charges are settled here.
        shared.budget.settle();
        let rules = RuleFiles::new(config);
        let acls = rules.load()?;
        let bans = config.bans.path();
        let banned = bans.as_deref().map(ban_file::load).transpose().map_err(StartError::Bans)?.map(Arc::new);
        let parts = SharedParts { shared: &shared, statistics: &statistics, log: &log, acls, bans: banned };
        let (mut arbiters, shards) = start_shards(config, count, &parts, shares)?;
        let expiry_arbiter = arbiter(Driver::Clock)?;
        let expiry = start_expiry(config, &expiry_arbiter, &shards, &statistics);
        arbiters.push(expiry_arbiter);
        let options = WriterOptions { sync: config.store.synced_every(), ..WriterOptions::default() };
        let writer = match opened {
            Some(opened) => Some(opened.start(options, shards.clone(), Arc::clone(&shared), failed)?),
            None => None,
        };
        if let Some(writer) = &writer {
            statistics.set_store(writer.statistics());
        }
        let logins = Logins::start(config, count, decoys)?;
        connect(&shards, writer.as_ref(), logins.as_ref(), &expiry).await?;
        let entrances = listeners.iter().map(|bound| Arc::clone(&bound.entrance)).collect();
        let acceptors = start_acceptors(config, listeners, &shards, &statistics, &log)?;
        Ok(Supervisor {
            acceptors,
            shards,
            expiry,
            arbiters,
            writer,
            logins,
            rules,
            bans,
            tls,
            entrances,
            statistics,
            shared,
            log,
        })
    }

    /// Returns the view of this broker for its operators.
    pub(super) fn observer(&self, listeners: Arc<[OpenListener]>) -> Observer {
        let (statistics, shared) = (Arc::clone(&self.statistics), Arc::clone(&self.shared));
        Observer::new(statistics, shared, listeners, &self.shards, self.expiry.clone())
    }

    /// Returns the text of a dump, or one line that says why there is none.
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

    /// As [`Self::reload`]. Files of TLS that were sound, beside a file with a mistake, are read
    /// again within a minute.
    fn reload_or_keep(&mut self) -> Result<String, String> {
        let result = self.reload();
        if result.is_err() {
            self.tls.look_again();
        }
        result
    }

    /// Reads the files again that may change while the broker runs: all of them, or none if one has
    /// a mistake. Returns what changed, for the log.
    ///
    /// # Errors
    /// The mistakes.
    fn reload(&mut self) -> Result<String, String> {
        if self.logins.is_none() && self.rules.is_empty() && self.bans.is_none() && self.tls.is_empty() {
            let what = "nothing to read again: no auth.password_file, auth.jwt_keys, auth.http_url, acl.file, bans.file or TLS is set";
            return Ok(what.to_owned());
        }
        // Everything is read before anything changes.
        let files = self.logins.as_ref().map(Logins::read_again).transpose();
        let (files, new_tls) = match (files, self.tls.read_again()) {
            (Ok(files), Ok(new_tls)) => (files, new_tls),
            (Err(error), Ok(_)) => return Err(error),
            (Ok(_), Err(errors)) => return Err(errors),
            (Err(error), Err(errors)) => return Err(format!("{error}; {errors}")),
        };
        let acls = self.rules.load().map_err(|error| error.to_string())?;
        let bans = self.bans.as_deref().map(ban_file::load).transpose().map_err(|error| error.to_string())?;
        let mut what: Vec<String> = new_tls.changes.iter().map(ToString::to_string).collect();
        if what.is_empty() && !self.tls.is_empty() {
            what.push("the files of TLS are as before".to_owned());
        }
        self.put_tls_in_force(new_tls);
        if let (Some(logins), Some(files)) = (&self.logins, files) {
            what.extend(self.put_in_force(logins, files));
        }
        if !self.rules.is_empty() {
            for shard in &self.shards {
                shard.do_send(AclChanged(acls.clone()));
            }
            what.extend(rule_files::changes(&acls));
        }
        if let Some(bans) = bans.map(Arc::new) {
            for shard in &self.shards {
                shard.do_send(BansChanged { bans: Arc::clone(&bans), from: 0 });
            }
            what.push(format!("{} bans are in force", bans.len()));
        }
        Ok(what.join("; "))
    }

    /// Carries out requests until all senders are gone, and looks at the files of TLS once a
    /// minute.
    pub(super) async fn serve(&mut self, mut requested: mpsc::Receiver<Request>) {
        let mut checks = tokio::time::interval(TLS_CHECKS);
        loop {
            let request = tokio::select! {
                request = requested.recv() => request,
                _ = checks.tick() => {
                    self.check_tls_files();
                    continue;
                }
            };
            match request {
                Some(Request::Dump(reply)) => drop(reply.send(self.dump().await)),
                Some(Request::Reload(reply)) => drop(reply.send(self.reload_or_keep())),
                Some(Request::CheckTls(reply)) => {
                    self.check_tls_files();
                    let _ = reply.send(());
                }
                None => return,
            }
        }
    }

    /// Reads the files of TLS again if one of them changed, all of them or none. Reports what
    /// changed, and once a day what ends soon. Called once a minute.
    fn check_tls_files(&mut self) {
        if self.tls.is_empty() {
            return;
        }
        match self.tls.read_renewed() {
            Ok(Some(new)) => {
                let what: Vec<String> = new.changes.iter().map(ToString::to_string).collect();
                self.put_tls_in_force(new);
                if !what.is_empty() {
                    info!(
                        event = "tls.files_reloaded",
                        "files of TLS changed and were read again: {}",
                        what.join("; ")
                    );
                }
            }
            Ok(None) => {}
            Err(error) => {
                error!(
                    event = "tls.files_refused",
                    "files of TLS changed, but the old ones stay in force: {error}"
                );
            }
        }
        let now = clock::unix_millis();
        self.tls.warn_daily(now);
        self.statistics.set_tls_days(self.tls.days_left(now));
    }

    fn put_tls_in_force(&mut self, new: NewTls) {
        for (entrance, server) in self.tls.put_in_force(new, &self.entrances) {
            for shard in &self.shards {
                shard.do_send(TlsChanged { listener: entrance.number, server: Arc::clone(&server), from: 0 });
            }
        }
        self.statistics.set_tls_days(self.tls.days_left(clock::unix_millis()));
    }

    /// Replaces the files of the logins. Returns what changed.
    fn put_in_force(&self, logins: &Logins, files: LoginFiles) -> Vec<String> {
        let (changed, what) = logins.replace(files);
        if let Some((old, new)) = changed {
            for shard in &self.shards {
                shard.do_send(PasswordsChanged { old: Arc::clone(&old), new: Arc::clone(&new), from: 0 });
            }
        }
        what
    }

    /// Stops the listeners, then the shards, then their threads. Takes at most `STOP` and `JOIN`
    /// together.
    pub(super) async fn stop(self) {
        for acceptor in &self.acceptors {
            acceptor.abort();
        }
        let stopping: Vec<_> = self.shards.iter().map(|shard| shard.send(Stop)).collect();
        let all = async {
            for shard in stopping {
                let _ = shard.await;
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

/// Starts a thread with an event loop of its own.
fn arbiter(driver: Driver) -> io::Result<Arbiter> {
    Arbiter::try_with_tokio_rt(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        match driver {
            Driver::Sockets => runtime.enable_io(),
            Driver::Clock => runtime.enable_time(),
        };
        runtime.build()
    })
}

/// Returns the state that all shards share, without any message.
fn shared_state(config: &Config) -> Arc<SharedState> {
    let limits = &config.limits;
    let retained = RetainedLimits {
        messages: limits.retained_messages as usize,
        bytes: limits.retained_bytes.as_usize(),
    };
    Arc::new(SharedState {
        retained: Mutex::new(Retained::new(retained)),
        budget: Arc::new(Budget::new(limits.memory.bytes())),
        partial: PartialShare::new(limits.memory.bytes() / PARTIAL_SHARE),
        store_full: AtomicBool::new(false),
        totals: Totals::default(),
        store_room: AtomicI64::new(i64::MAX),
    })
}

/// The parts of the broker that every shard gets.
struct SharedParts<'a> {
    shared: &'a Arc<SharedState>,
    statistics: &'a Arc<BrokerStatistics>,
    log: &'a Arc<EventLog>,
    /// The rules of the ACL files.
    acls: AclFiles,
    /// The bans; `None` without a file.
    bans: Option<Arc<BanList>>,
}

/// Starts `count` shards, each on a thread of its own. Shard *n* takes up the `n`-th of `shares`.
fn start_shards(
    config: &Config,
    count: usize,
    parts: &SharedParts<'_>,
    shares: Vec<RecoveredShard>,
) -> io::Result<(Vec<Arbiter>, Vec<Addr<ShardActor>>)> {
    let (mut arbiters, mut shards, mut shares) = (Vec::new(), Vec::new(), shares.into_iter());
    for number in 0..count {
        let arbiter = arbiter(Driver::Sockets)?;
        shards.push(start_shard(config, &arbiter, (number, count), parts, shares.next()));
        arbiters.push(arbiter);
    }
    Ok((arbiters, shards))
}

fn start_shard(
    config: &Config,
    arbiter: &Arbiter,
    (number, count): (usize, usize),
    parts: &SharedParts<'_>,
    share: Option<RecoveredShard>,
) -> Addr<ShardActor> {
    let mut settings = settings(config);
    settings.access.files = parts.acls.clone();
    let (bans, flapping) = (parts.bans.clone(), config.bans.flapping);
    let (shared, statistics) = (Arc::clone(parts.shared), Arc::clone(parts.statistics));
    let sys = (number == 0 && !config.sys.publish_interval.is_zero()).then_some(config.sys.publish_interval);
    let per_second = config.sys.events_per_second.div_ceil(count.max(1) as u32);
    let topics = config.sys.events.then(|| EventTopics::new(per_second, config.sys.events_per_client));
    let listeners = EventListeners::new(Arc::clone(parts.log), topics, Arc::clone(&statistics));
    ShardActor::start_in_arbiter(&arbiter.handle(), move |_| {
        let here = ShardId(number as u8);
        let mut core = Shard::new(here, count as u8, settings, Arc::clone(&shared), random_seed());
        core.access_control().replace_bans(bans);
        if flapping.limit > 0 {
            core.access_control().limit_flapping(flapping);
        }
        if let Some(share) = share {
            core.take_up(clock::now(), share);
        }
        let driver = ShardDriver::new(core, statistics, listeners);
        ShardActor::new(driver, shared, sys)
    })
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

/// Connects the shards with each other and with the store, and then starts their deadlines.
///
/// # Errors
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

fn start_acceptors(
    config: &Config,
    listeners: Vec<BoundListener>,
    shards: &[Addr<ShardActor>],
    statistics: &Arc<BrokerStatistics>,
    log: &Arc<EventLog>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let connections = connection_limit(config.limits.connections);
    statistics.set_limits(BrokerLimits {
        connections,
        sessions: config.limits.sessions as usize,
        retained_messages: config.limits.retained_messages as usize,
        delayed_messages: config.limits.delayed_messages as usize,
    });
    let of_broker = ConnectRate::new(config.limits.connects_per_second);
    let per_address = config.limits.connects_per_address;
    let addresses = (per_address.limit > 0).then(|| AddressLimit::new(per_address, Arc::clone(statistics)));
    let mut acceptors = Vec::new();
    let to_shards: Vec<_> = shards.iter().map(|shard| shard.clone().recipient()).collect();
    let mut handshakes = None;
    if listeners.iter().any(|listener| listener.entrance.has_handshakes()) {
        let parts = HandshakeParts {
            shards: to_shards.clone(),
            statistics: Arc::clone(statistics),
            log: Arc::clone(log),
            connect_timeout: config.network.connect_timeout,
            addresses: addresses.clone(),
        };
        let threads = config.runtime.handshake_thread_count();
        handshakes = Some(Handshakes::start(threads, config.limits.handshakes as usize, &parts)?);
    }
    for bound in listeners {
        let handshakes = handshakes.clone().filter(|_| bound.entrance.has_handshakes());
        let shards = to_shards.clone();
        let of_listener = ConnectRate::new(bound.entrance.connects_per_second);
        let rates = ConnectRates::new(of_broker.clone().into_iter().chain(of_listener));
        let limits = ConnectLimits { connections, rates, addresses: addresses.clone() };
        let acceptor = Acceptor::new(bound, handshakes, shards, Arc::clone(statistics), limits)?;
        acceptors.push(actix_rt::spawn(acceptor.run()));
    }
    Ok(acceptors)
}

/// Sets the retained messages of the store. From here on, changes to retained messages are
/// recorded.
fn take_up_retained(shared: &SharedState, messages: Vec<Message>) {
    let mut retained = shared.retained();
    let now = clock::now();
    let left_out = messages.into_iter().filter(|m| retained.set(m.clone(), now).is_err()).count();
    if left_out > 0 {
        warn!(
            event = "store.retained_left_out",
            left_out,
            "the store has more retained messages than limits.retained_messages or limits.retained_bytes allow: these are \
             not delivered until a start with higher limits; a publish to their topics replaces or erases them"
        );
    }
    retained.record_changes(left_out > 0);
}

/// Returns a number that differs in every process and for every shard, from the random hash keys of
/// the standard library.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the configured limit of connections, or the number that the descriptor limit allows if
/// none is configured.
fn connection_limit(configured: u32) -> usize {
    if configured > 0 {
        return configured as usize;
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX)
}
