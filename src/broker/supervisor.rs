//! Who starts and stops whom, in which order.

use super::StartError;
use super::listener::Acceptor;
use super::log::EventLog;
use super::message::{Introduce, Stop};
use super::settings::settings;
use super::shard::ShardActor;
use super::shell::Shell;
use super::statistics::Statistics;
use crate::config::Config;
use crate::expiry::actor::ExpiryActor;
use crate::routing::retained::{Retained, RetainedLimits};
use crate::routing::shard::{Common, Shard};
use crate::routing::subscription_tree::ShardId;
use actix::{Actor, Addr};
use actix_rt::Arbiter;
use rustix::process::{Resource, getrlimit};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::warn;

/// How long the shards may take to tell their clients that the broker stops, and to close.
const STOP: Duration = Duration::from_secs(4);

/// How long the arbiters' threads may take to end after that.
const JOIN: Duration = Duration::from_secs(2);

/// Descriptors that are not connections: listeners, event loops, log, reserve.
const OTHER_DESCRIPTORS: u64 = 64;

/// The running parts.
pub struct Supervisor {
    acceptors: Vec<JoinHandle<()>>,
    shards: Vec<Addr<ShardActor>>,
    arbiters: Vec<Arbiter>,
}

impl Supervisor {
    /// Starts the expiry actor and the shards, introduces them, then accepts.
    pub async fn start(config: &Config, listeners: Vec<TcpListener>) -> Result<Supervisor, StartError> {
        let count = config.runtime.arbiter_count().clamp(1, 64);
        let limits = &config.limits;
        let retained = RetainedLimits {
            messages: limits.retained_messages as usize,
            bytes: limits.retained_bytes.as_usize(),
        };
        let common = Arc::new(Common {
            retained: Mutex::new(Retained::new(retained)),
            over_budget: AtomicBool::new(false),
            over_partial: AtomicBool::new(false),
        });
        let statistics = Arc::new(Statistics::new(count, limits.memory.bytes(), Arc::clone(&common)));
        let mut arbiters = Vec::new();
        let mut shards = Vec::new();
        for number in 0..count {
            let arbiter = arbiter(Driver::Sockets)?;
            shards.push(start_shard(config, &arbiter, number, count, &common, &statistics));
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
        for shard in &shards {
            let introduce = Introduce { shards: shards.clone(), expiry: expiry.clone() };
            shard.send(introduce).await.map_err(|_| StartError::Died)?;
        }
        let limit = connection_limit(limits.connections);
        let mut acceptors = Vec::new();
        for listener in listeners {
            let statistics = Arc::clone(&statistics);
            let acceptor = Acceptor::new(listener, shards.clone(), statistics, limit)?;
            acceptors.push(actix_rt::spawn(acceptor.run()));
        }
        Ok(Supervisor { acceptors, shards, arbiters })
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
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
        let (done, joined) = tokio::sync::oneshot::channel();
        let arbiters = self.arbiters;
        std::thread::spawn(move || {
            for arbiter in arbiters {
                let _ = arbiter.join();
            }
            let _ = done.send(());
        });
        if tokio::time::timeout(JOIN, joined).await.is_err() {
            warn!("an arbiter does not stop; leaving it");
        }
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
    number: usize,
    count: usize,
    common: &Arc<Common>,
    statistics: &Arc<Statistics>,
) -> Addr<ShardActor> {
    let settings = settings(config, count);
    let (common, statistics) = (Arc::clone(common), Arc::clone(statistics));
    let sys = (number == 0 && !config.sys.interval.is_zero()).then_some(config.sys.interval);
    let lines = config.log.events_per_second;
    ShardActor::start_in_arbiter(&arbiter.handle(), move |_| {
        let here = ShardId(number as u8);
        let core = Shard::new(here, count as u8, settings, Arc::clone(&common), random_seed());
        let shell = Shell::new(core, statistics, EventLog::new(lines));
        ShardActor::new(shell, common, sys)
    })
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
