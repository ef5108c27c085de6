//! The actors: who runs where, and what they say to each other.
//!
//! | actor | where | owns |
//! |---|---|---|
//! | [`connection::Connection`] | its session's home | the socket's reading side; gets verdicts by mailbox, never messages |
//! | [`shard::ShardActor`] | one per arbiter | the state machine of its sessions ([`crate::routing::shard`]), outboxes, the flusher |
//! | [`crate::expiry::actor::ExpiryActor`] | its own arbiter | every deadline |
//! | `supervisor` | the main arbiter | listeners, the order of start and stop |

pub mod connection;
mod dump;
mod events;
mod listener;
mod log;
pub mod message;
mod settings;
pub mod shard;
mod shell;
mod statistics;
pub mod stderr;
mod storage;
mod supervisor;
mod sys;

use crate::config::Config;
use crate::mqtt::keyed;
use crate::store::{Store, StoreError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread::JoinHandle;
use supervisor::Supervisor;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

/// A running broker. Dropping it stops it in order.
pub struct Broker {
    addresses: Vec<SocketAddr>,
    /// Each asks for a dump; that there are none any more stops it.
    requests: Option<Requests>,
    thread: Option<JoinHandle<()>>,
    failed: Option<oneshot::Receiver<StoreError>>,
}

/// Where dumps are asked for, each with where its text goes.
type Requests = mpsc::Sender<oneshot::Sender<String>>;

/// Why a broker does not start, in one line that names the address or key.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {cause} (listeners.addresses, or --listen)")]
    Bind { address: SocketAddr, cause: io::Error },
    #[error("cannot start a thread or its event loop: {0} (runtime.arbiters sets how many there are)")]
    Thread(#[from] io::Error),
    #[error("the store cannot be used: {0} (store.path, or --data-dir)")]
    Store(#[from] StoreError),
    #[error("the broker stopped while it started")]
    Died,
}

impl Broker {
    /// Binds every listener, then starts the arbiters. Returns when clients can connect.
    ///
    /// # Errors
    /// An address that cannot be bound; a thread or event loop that the system refuses.
    pub fn start(config: Config) -> Result<Broker, StartError> {
        Broker::start_with(config, None)
    }

    /// The same with a store, whose sessions, queues and retained messages it takes up.
    ///
    /// # Errors
    /// Also a store that cannot be read.
    pub fn start_with(config: Config, store: Option<Box<dyn Store>>) -> Result<Broker, StartError> {
        // Before the first table is made: clients must not know it.
        keyed::settle(RandomState::new().build_hasher().finish());
        let mut listeners = Vec::new();
        for address in &config.listeners.addresses {
            listeners.push(listener::bind(*address, config.listeners.backlog)?);
        }
        let addresses = listeners.iter().map(|(_, address)| *address).collect();
        let (requests, mut requested) = mpsc::channel::<oneshot::Sender<String>>(1);
        let (ready, started) = std::sync::mpsc::channel();
        let (fails, failed) = oneshot::channel();
        let thread = std::thread::Builder::new().name("homing-main".into()).spawn(move || {
            let system = actix_rt::System::new();
            system.block_on(async move {
                let listeners = listeners.into_iter().map(|(listener, _)| listener).collect();
                match Supervisor::start(&config, listeners, store, fails).await {
                    Ok(supervisor) => {
                        let _ = ready.send(Ok(()));
                        while let Some(answer) = requested.recv().await {
                            let _ = answer.send(supervisor.dump().await);
                        }
                        supervisor.stop().await;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            });
        })?;
        started.recv().map_err(|_| StartError::Died)??;
        Ok(Broker { addresses, requests: Some(requests), thread: Some(thread), failed: Some(failed) })
    }

    /// The addresses that are listened on, with the ports that were chosen for 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it waits for, as text for a person: the expiry queue by arbiter, and the sessions with the oldest unacknowledged
    /// messages. Empty once it stops. Not from within a runtime.
    pub fn dump(&self) -> String {
        let Some(requests) = &self.requests else { return String::new() };
        let (answer, text) = oneshot::channel();
        if requests.blocking_send(answer).is_err() {
            return String::new();
        }
        text.blocking_recv().unwrap_or_default()
    }

    /// Stops in order: no new connections, DISCONNECT 0x8B to 5.0 clients, what waits is written. Returns within a few
    /// seconds, whatever the clients do.
    pub fn shutdown(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Waits until what the store keeps is not known any more: from then on nothing is acknowledged.
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

    /// Runs until SIGTERM or SIGINT, then stops in order; a second signal exits at once. SIGHUP is ignored with a log line;
    /// SIGUSR1 writes [`Self::dump`] to standard error.
    pub fn run(mut self, signals: Signals) -> ExitCode {
        let Signals { runtime, mut caught } = signals;
        let failed = self.failed.take();
        runtime.block_on(async {
            let mut failure = std::pin::pin!(Broker::store_failure(failed));
            let name = tokio::select! {
                name = caught.next(self.requests.as_ref()) => name,
                cause = &mut failure => exit_for(&cause),
            };
            info!(signal = name, "stopping; a second signal exits at once");
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
                    warn!(signal = name, "exiting at once");
                    stderr::flush();
                    std::process::exit(1)
                }
            }
        })
    }
}

/// Without a stop in order, which would go on as if.
fn exit_for(cause: &StoreError) -> ! {
    error!(%cause, "the store failed; exiting at once, since nothing can be promised any more");
    stderr::flush();
    std::process::exit(1)
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// The signals that end the broker, and those that do not. Caught from before the broker starts, so that none that
/// comes while it does ends the process unprepared.
pub struct Signals {
    runtime: Runtime,
    caught: Caught,
}

struct Caught {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user_1: Signal,
}

impl Signals {
    /// # Errors
    /// The system refuses an event loop or a signal handler.
    pub fn catch() -> io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let caught = Caught {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user_1: signal(SignalKind::user_defined1())?,
        };
        drop(guard);
        Ok(Signals { runtime, caught })
    }
}

impl Caught {
    /// The next signal to stop at. Until then `dumps` is asked at each SIGUSR1.
    async fn next(&mut self, dumps: Option<&Requests>) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hang_up.recv() => {
                    warn!("SIGHUP ignored: the configuration is read at start only");
                }
                _ = self.user_1.recv() => {
                    if let Some(dumps) = dumps {
                        write_dump(dumps).await;
                    }
                }
            }
        }
    }
}

/// Writes a dump to standard error, whole: whoever asked for it may have set the log to anything.
async fn write_dump(dumps: &Requests) {
    let (answer, text) = oneshot::channel();
    if dumps.send(answer).await.is_ok()
        && let Ok(text) = text.await
    {
        stderr::say(&text);
    }
}
