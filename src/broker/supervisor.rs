//! Who starts and stops whom, in which order.

use super::StartError;
use super::dump::{self, InspectShard};
use super::events::EventTopics;
use super::listener::Acceptor;
use super::log::EventLog;
use super::message::{Introduce, Settle, Stop};
use super::settings::settings;
use super::shard::ShardActor;
use super::shell::Shell;
use super::statistics::Statistics;
use super::storage;
use crate::clock;
use crate::config::Config;
use crate::expiry::actor::ExpiryActor;
use crate::expiry::message::Inspect;
use crate::mqtt::charge::Budget;
use crate::mqtt::message::Message;
use crate::routing::retained::{Retained, RetainedLimits};
use crate::routing::shard::homes::Share;
use crate::routing::shard::totals::Totals;
use crate::routing::shard::{Common, PartialShare, Shard};
use crate::routing::subscription_tree::ShardId;
use crate::store::writer::{Options, Writer};
use crate::store::{Store, StoreError};
use actix::{Actor, Addr};
use actix_rt::Arbiter;
use rustix::process::{Resource, getrlimit};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::warn;

/// Packets that are not whole may use this part of the memory budget: one in so many.
const PARTIAL_SHARE: u64 = 4;

/// How long the shards may take to tell their clients that the broker stops, and to close.
const STOP: Duration = Duration::from_secs(4);

/// How long all arbiters together may take to say what they hold: a stop may wait behind it.
const DUMP: Duration = Duration::from_secs(2);

/// How long the arbiters' threads may take to end after that, and the last commits.
const JOIN: Duration = Duration::from_secs(10);

/// Descriptors that are not connections: listeners, event loops, log, reserve.
const OTHER_DESCRIPTORS: u64 = 64;

/// The running parts.
pub struct Supervisor {
    acceptors: Vec<JoinHandle<()>>,
    shards: Vec<Addr<ShardActor>>,
    expiry: Addr<ExpiryActor>,
    arbiters: Vec<Arbiter>,
    writer: Option<Writer>,
    statistics: Arc<Statistics>,
    log: Arc<EventLog>,
}

impl Supervisor {
    /// Starts the expiry actor and the shards, introduces them, then accepts.
    pub async fn start(
        config: &Config,
        listeners: Vec<TcpListener>,
        store: Option<Box<dyn Store>>,
        failed: oneshot::Sender<StoreError>,
    ) -> Result<Supervisor, StartError> {
        let count = config.runtime.arbiter_count().clamp(1, 64);
        let mut opened = store.map(|store| storage::open(store, count as u8)).transpose()?;
        let limits = &config.limits;
        let retained = RetainedLimits {
            messages: limits.retained_messages as usize,
            bytes: limits.retained_bytes.as_usize(),
        };
        let common = Arc::new(Common {
            retained: Mutex::new(Retained::new(retained)),
            budget: Arc::new(Budget::new(limits.memory.bytes())),
            partial: PartialShare::new(limits.memory.bytes() / PARTIAL_SHARE),
            store_full: AtomicBool::new(false),
            totals: Totals::default(),
            store_room: AtomicI64::new(i64::MAX),
        });
        let statistics = Arc::new(Statistics::new(count, Arc::clone(&common)));
        if let Some(opened) = &mut opened {
            take_up_retained(&common, std::mem::take(&mut opened.retained));
        }
        // All that was recovered was made on this thread.
        common.budget.settle();
        let mut shares = opened.as_mut().map_or_else(Vec::new, |o| std::mem::take(&mut o.shares)).into_iter();
        let log = Arc::new(EventLog::new(config.log.events_per_second));
        let mut arbiters = Vec::new();
        let mut shards = Vec::new();
        for number in 0..count {
            let arbiter = arbiter(Driver::Sockets)?;
            let share = shares.next();
            shards.push(start_shard(config, &arbiter, (number, count), &common, &statistics, share, &log));
            arbiters.push(arbiter);
        }
        let recipients = shards.iter().map(|s| s.clone().recipient()).collect();
        let expiry_arbiter = arbiter(Driver::Clock)?;
        let interval = config.expiry.interval;
        let figures = Arc::clone(&statistics.expiry);
        let expiry = ExpiryActor::start_in_arbiter(&expiry_arbiter.handle(), move |_| {
            ExpiryActor::new(interval, recipients, figures)
        });
        arbiters.push(expiry_arbiter);
        let options = Options { sync: config.store.sync_interval(), ..Options::default() };
        let writer = match opened {
            Some(opened) => Some(opened.start(options, shards.clone(), Arc::clone(&common), failed)?),
            None => None,
        };
        if let Some(writer) = &writer {
            statistics.set_store(writer.statistics());
        }
        for shard in &shards {
            let store = writer.as_ref().map(Writer::to_store);
            let introduce = Introduce { shards: shards.clone(), store };
            shard.send(introduce).await.map_err(|_| StartError::Died)?;
        }
        // What the recovered sessions are subscribed to is known to every shard before anything is published: by a client, or
        // because its time has come.
        for shard in &shards {
            shard.send(Settle { expiry: expiry.clone() }).await.map_err(|_| StartError::Died)?;
        }
        let limit = connection_limit(limits.connections);
        let mut acceptors = Vec::new();
        for listener in listeners {
            let statistics = Arc::clone(&statistics);
            let acceptor = Acceptor::new(listener, shards.clone(), statistics, limit)?;
            acceptors.push(actix_rt::spawn(acceptor.run()));
        }
        Ok(Supervisor { acceptors, shards, expiry, arbiters, writer, statistics, log })
    }

    /// What the broker waits for, as a person reads it.
    pub async fn dump(&self) -> String {
        match tokio::time::timeout(DUMP, self.inspect()).await {
            Ok(Some(text)) => text,
            Ok(None) | Err(_) => format!("homing: no dump: an arbiter did not answer within {DUMP:?}\n"),
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

    /// Stops accepting, then the shards, then their threads.
    pub async fn stop(self) {
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
            warn!("some clients did not close in time");
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
            // Last: everything that the shards said is committed.
            if let Some(writer) = writer {
                writer.stop();
            }
            let _ = done.send(());
        });
        if tokio::time::timeout(JOIN, joined).await.is_err() {
            warn!("an arbiter does not stop; leaving it");
        }
        self.log.report();
    }
}

/// What an event loop waits for, besides messages.
#[derive(Clone, Copy)]
enum Driver {
    /// No timer: no actor on a shard's arbiter has one, and tokio's wheel, once there, reads the clock and is asked for what is
    /// due in every turn.
    Sockets,
    /// The expiry actor's one timer.
    Clock,
}

/// A thread with an event loop of its own.
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

fn start_shard(
    config: &Config,
    arbiter: &Arbiter,
    (number, count): (usize, usize),
    common: &Arc<Common>,
    statistics: &Arc<Statistics>,
    share: Option<Share>,
    log: &Arc<EventLog>,
) -> Addr<ShardActor> {
    let settings = settings(config);
    let (common, statistics) = (Arc::clone(common), Arc::clone(statistics));
    let sys = (number == 0 && !config.sys.interval.is_zero()).then_some(config.sys.interval);
    let log = Arc::clone(log);
    let per_second = config.sys.events_per_second.div_ceil(count.max(1) as u32);
    let topics = EventTopics::new(per_second, config.sys.events_per_client);
    ShardActor::start_in_arbiter(&arbiter.handle(), move |_| {
        let here = ShardId(number as u8);
        let mut core = Shard::new(here, count as u8, settings, Arc::clone(&common), random_seed());
        if let Some(share) = share {
            core.take_up(clock::now(), share);
        }
        let shell = Shell::new(core, statistics, log, topics);
        ShardActor::new(shell, common, sys)
    })
}

/// Retained messages as the store had them; from here on it is told of changes.
fn take_up_retained(common: &Common, messages: Vec<Message>) {
    let mut retained = common.retained();
    let now = clock::now();
    let left_out = messages.into_iter().filter(|m| retained.set(m.clone(), now).is_err()).count();
    if left_out > 0 {
        warn!(
            left_out,
            "the store has more retained messages than limits.retained_messages or limits.retained_bytes allow: these are \
             not delivered until a start with higher limits; a publish to their topics replaces or erases them"
        );
    }
    retained.record_changes(left_out > 0);
}

/// Different in every process and for every shard: the standard library's hash keys are random.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The configured limit, or what the descriptors allow.
fn connection_limit(configured: u32) -> usize {
    if configured > 0 {
        return configured as usize;
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX)
}
