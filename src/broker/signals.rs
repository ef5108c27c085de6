//! The signals of the process. SIGTERM and SIGINT stop the broker, and SIGUSR1 requests a dump.

use super::stderr;
use std::io;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

/// Sends requests for dumps. Each request carries the sender for its text.
pub(super) type DumpRequests = mpsc::Sender<oneshot::Sender<String>>;

/// Catches the signals that the broker handles. Make the value before the broker starts: a signal
/// that arrives earlier ends the process at once.
pub struct Signals {
    runtime: Runtime,
    caught: Caught,
}

/// The installed handlers.
pub(super) struct Caught {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user_1: Signal,
}

impl Signals {
    /// Installs the signal handlers.
    ///
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

    /// Returns the event loop of the handlers, and the handlers.
    pub(super) fn into_parts(self) -> (Runtime, Caught) {
        (self.runtime, self.caught)
    }
}

impl Caught {
    /// Waits for the next signal to stop at and returns its name. Meanwhile writes a dump at each
    /// SIGUSR1.
    pub(super) async fn next(&mut self, dumps: Option<&DumpRequests>) -> &'static str {
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

/// Writes a dump to standard error. The log level does not matter, since the operator requested the
/// dump.
async fn write_dump(dumps: &DumpRequests) {
    let (reply, text) = oneshot::channel();
    if dumps.send(reply).await.is_ok()
        && let Ok(text) = text.await
    {
        stderr::say(&text);
    }
}
