//! Bridges: connections that the broker itself makes to other brokers.
//!
//! All bridges and [sinks](super::sinks) run on one thread, `homing-bridge`, that starts with the
//! first of them. A bridge is
//! a task of this thread. The task connects to the other broker, and opens a connection to the
//! shard of the session `$bridge/NAME`: a pair of Unix sockets, of which the shard gets one end as
//! it gets the socket of any client. [`crate::bridge::link::Link`] stands between the two, and
//! decides what passes. So the shards' threads never wait for a name, a handshake or another
//! broker.
//!
//! Deadlines are timers of this thread. The expiry actor has those of the shards alone: its keys
//! are slots of a shard, and are late by up to a tick (docs/architecture.md, "Decisions").
//!
//! | file | concern |
//! |---|---|
//! | `dial` | the name, the socket and TLS of the other broker |
//! | `door` | the connection to the shard |
//! | `session` | what the session here needs before the other broker is connected |
//! | `attempt` | one attempt, from the address to the end of the connection |
//! | `parts` | what the broker gives its bridges |
//! | [`probe`] | a look at another broker, for `homing doctor` |
//! | `pump` | the bytes between the two sockets |
//! | `running` | the tasks that run, and those that a reload begins and ends |
//! | `task` | the attempts of one bridge, and the waits between them |
//! | `status` | the state of a bridge for operators |
//! | [`reports`] | what the reports about bridges and sinks have in common |
//! | `figures` | the figures of the sessions and the rates of both |
//! | `turns` | looks at many far sides, in bounded time |
//! | `websocket` | the frames of `ws://` and `wss://` |

mod attempt;
mod dial;
pub(super) mod door;
mod figures;
mod parts;
pub mod probe;
mod pump;
pub mod reports;
pub(super) mod running;
mod session;
pub mod status;
mod task;
pub(super) mod turns;
mod websocket;

#[cfg(feature = "sinks")]
use crate::broker::sinks::SinkTask;
use crate::clock;
use crate::config::{Bridge, Config, Sink};
use crate::scheduling;
pub use dial::check_files;
pub(super) use parts::BridgeParts;
use parts::OwnLimits;
use reports::{FarDirectory, FarFacts, QueueCapacity};
use running::{Beginning, Configured, Ending, RunningTasks};
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use task::BridgeTask;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tracing::{error, warn};

/// The name of the thread.
const THREAD: &str = "homing-bridge";

/// Threads that resolve names at one time. A name server that does not answer holds one of them for
/// each bridge and each sink that asks it, for a while: 5 s or 10 s with the defaults of the system.
/// So there is one for each of the 1,000 bridges and 1,000 sinks that a configuration may have, and
/// a name that hangs holds up nobody else. A thread begins when it is needed, and ends after 10 s
/// without work.
const RESOLVERS: usize = 2_000;

/// Time for the sessions of all bridges and sinks of a start together. A session takes less than a
/// millisecond, and more only where the store hangs.
const BEGIN: Duration = Duration::from_secs(5);

/// The bridges and sinks of the configuration in force.
struct Wanted {
    bridges: Vec<Bridge>,
    sinks: Vec<Sink>,
    own: OwnLimits,
    queue: QueueCapacity,
    /// Of the tasks that begin; `None` if nobody waits for them.
    beginning: Option<Beginning>,
}

/// The way to the bridges.
pub(super) struct Bridges {
    parts: BridgeParts,
    /// `None` until there is a bridge or a sink. The thread ends when this sender is dropped.
    thread: Mutex<Option<UnboundedSender<Wanted>>>,
}

impl Bridges {
    pub(super) fn new(parts: BridgeParts) -> Bridges {
        Bridges { parts, thread: Mutex::default() }
    }

    /// Begins the bridges and sinks of a configuration, and waits until their sessions have their
    /// subscriptions, for [`BEGIN`] at most. Blocks this thread.
    pub(super) fn begin(&self, config: &Config) {
        let (beginning, begun) = mpsc::channel();
        self.send(config, Some(beginning));
        // Nothing is sent: the channel ends with the last task that has begun.
        if begun.recv_timeout(BEGIN) == Err(RecvTimeoutError::Timeout) {
            warn!(
                event = "bridge.begins_late",
                "clients are let in before every bridge and sink has its subscriptions, which took longer than {BEGIN:?}: messages of now may not come to them"
            );
        }
    }

    /// Begins the bridges and sinks of a configuration that are new, and ends or changes the others.
    pub(super) fn put_in_force(&self, config: &Config) {
        self.send(config, None);
    }

    /// Sends a configuration to the thread, and starts it for the first one. If the system refuses
    /// the thread, there are no bridges and sinks until the next reload.
    fn send(&self, config: &Config, beginning: Option<Beginning>) {
        let mut thread = self.thread();
        if thread.is_none() && !(config.bridges.is_empty() && config.sinks.is_empty()) {
            match start(self.parts.clone()) {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    error!(event = "bridge.no_thread", %error, "no bridge and no sink runs: the system refuses their thread; a reload tries again");
                }
            }
        }
        if let Some(thread) = &*thread {
            let queue = self.parts.queue_capacity(config);
            let (bridges, sinks) = (config.bridges.clone(), config.sinks.clone());
            let _ = thread.send(Wanted { bridges, sinks, own: OwnLimits::of(config), queue, beginning });
        }
    }

    /// Ends all bridges and sinks. They say so to both sides meanwhile.
    pub(super) fn stop(&self) {
        *self.thread() = None;
    }

    fn thread(&self) -> MutexGuard<'_, Option<UnboundedSender<Wanted>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(parts: BridgeParts) -> io::Result<UnboundedSender<Wanted>> {
    let (sender, wanted) = unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(RESOLVERS)
        .build()?;
    let answers = parts.observer.statistics().pulses().watch_loop(THREAD);
    std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
        scheduling::yield_to_traffic();
        let tasks = LocalSet::new();
        tasks.spawn_local(answers);
        tasks.spawn_local(figures::look_again_and_again(parts.observer.clone()));
        tasks.block_on(&runtime, run(parts, wanted));
        // A name server that does not answer must not hold up the end of the broker.
        runtime.shutdown_background();
    })?;
    Ok(sender)
}

impl Configured for Bridge {
    fn label(&self) -> &str {
        Bridge::label(self)
    }
}

impl Configured for Sink {
    fn label(&self) -> &str {
        Sink::label(self)
    }
}

/// Runs the bridges and sinks that are wanted, until the broker stops.
async fn run(parts: BridgeParts, mut wanted: UnboundedReceiver<Wanted>) {
    let (mut bridges, mut sinks) = (RunningTasks::new(), RunningTasks::new());
    while let Some(Wanted { bridges: new, sinks: new_sinks, own, queue, beginning }) = wanted.recv().await {
        parts.observer.bridges().keep(|name| new.iter().any(|bridge| bridge.label() == name));
        parts.observer.sinks().keep(|name| new_sinks.iter().any(|sink| sink.label() == name));
        for bridge in &new {
            set_queue(parts.observer.bridges(), bridge.label(), queue.within(&bridge.queue_bounds()));
        }
        for sink in &new_sinks {
            set_queue(parts.observer.sinks(), sink.label(), queue.within(&sink.queue_bounds()));
        }
        for report in parts.observer.sinks().reports() {
            report.orders.reads_files.store(true, Ordering::Relaxed);
        }
        let begin = |bridge, ends| {
            let task = BridgeTask::new(parts.clone(), bridge, own, ends);
            Rc::new(task.holding(beginning.clone())).run()
        };
        let begin_sink = |sink, ends| begin_sink(&parts, sink, own, ends, beginning.clone());
        tokio::join!(bridges.change(new, own, begin), sinks.change(new_sinks, own, begin_sink));
    }
    tokio::join!(bridges.stop(), sinks.stop());
}

fn set_queue<F: FarFacts>(directory: &FarDirectory<F>, name: &str, queue: QueueCapacity) {
    directory.report_of(name, clock::now()).change(|facts| facts.session().queue = queue);
}

#[cfg(feature = "sinks")]
fn begin_sink(
    parts: &BridgeParts,
    sink: Sink,
    own: OwnLimits,
    ends: watch::Receiver<Ending>,
    beginning: Option<Beginning>,
) -> impl Future<Output = ()> + use<> {
    SinkTask::new(parts.clone(), sink, own.in_flight, ends).holding(beginning).run()
}

/// Does nothing: a build without the feature refuses a configuration with sinks.
#[cfg(not(feature = "sinks"))]
fn begin_sink(
    _: &BridgeParts,
    _: Sink,
    _: OwnLimits,
    _: watch::Receiver<Ending>,
    _: Option<Beginning>,
) -> impl Future<Output = ()> + use<> {
    std::future::ready(())
}
