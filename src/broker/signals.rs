//! The signals of the process. SIGTERM and SIGINT stop the broker, SIGHUP reads the configuration
//! again, and SIGUSR1 requests a dump.

use super::file_edits::{ClientFile, ClientFileContent, FileEdit, FileEdited, NotEdited};
use super::reload::{ConfigReader, ListenerWatcher, ReloadMode, Reloaded, SettingsWatcher};
use super::start_error::StartError;
use crate::config::{KeyInForce, KeySources};
use crate::log::stderr;
use crate::net::tls::live::LiveTls;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::Builder;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Sends requests to the supervisor.
pub(super) type Requests = mpsc::Sender<Request>;

/// A request to the supervisor. Each carries the sender for its answer.
pub(super) enum Request {
    /// The text of a dump.
    Dump(oneshot::Sender<String>),
    /// Reads the configuration and its files again. An error has all mistakes, and nothing was
    /// changed.
    Reload(ReloadMode, oneshot::Sender<Result<Reloaded, Vec<String>>>),
    /// Changes a file about clients, and puts it in force.
    EditFile(FileEdit, oneshot::Sender<Result<FileEdited, NotEdited>>),
    /// The content of a file about clients.
    ReadFile(ClientFile, oneshot::Sender<Result<ClientFileContent, NotEdited>>),
    /// Every key of the configuration with the value in force.
    Configuration(oneshot::Sender<Vec<KeyInForce>>),
    /// The way to read the configuration again, and the sources of the values in force.
    ReadBy(ConfigReader, KeySources),
    /// The watcher of the listeners, called after a reload that changed some.
    Watch(ListenerWatcher),
    /// The watcher of the configuration, called after each reload.
    WatchSettings(SettingsWatcher),
    /// The TLS of the HTTP interface, whose files are read again with those of the listeners.
    Include(Arc<LiveTls>),
    /// Reads the files of TLS again if one of them changed.
    CheckTls(oneshot::Sender<()>),
    /// Opens the listeners and lets clients in. An error names the listener that cannot be opened.
    LetIn(oneshot::Sender<Result<(), StartError>>),
    /// Closes the listeners and disconnects every client.
    ShutOut(oneshot::Sender<()>),
}

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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
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

    /// Waits until something is done, or for a signal to stop at, whose name is the error. SIGHUP and
    /// SIGUSR1 wait meanwhile for whoever carries them out.
    ///
    /// # Errors
    /// The name of the signal.
    pub fn wait<T>(&mut self, done: impl Future<Output = T>) -> Result<T, &'static str> {
        let Signals { runtime, caught } = self;
        runtime.block_on(async {
            tokio::select! {
                done = done => Ok(done),
                _ = caught.terminate.recv() => Err("SIGTERM"),
                _ = caught.interrupt.recv() => Err("SIGINT"),
            }
        })
    }

    /// Runs a part of the start on a thread of its own, and waits for it as [`Self::wait`] does: a
    /// disk that hangs keeps the thread, and not the process. Returns `None` if the part has
    /// panicked, or the system refuses a thread.
    ///
    /// # Errors
    /// The name of the signal. The thread goes on.
    pub fn run<T: Send + 'static>(
        &mut self,
        part: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, &'static str> {
        let (done, outcome) = oneshot::channel();
        let begun = Builder::new().name("homing-start".into()).spawn(move || drop(done.send(part())));
        // Without a thread, nobody sends an outcome either.
        drop(begun);
        self.wait(outcome).map(Result::ok)
    }

    /// Waits as [`Self::wait`] does, and calls `hang_up` at each SIGHUP.
    ///
    /// # Errors
    /// The name of the signal to stop at.
    pub fn wait_with<T>(
        &mut self,
        done: impl Future<Output = T>,
        hang_up: impl Fn(),
    ) -> Result<T, &'static str> {
        let Signals { runtime, caught } = self;
        runtime.block_on(async {
            let mut done = std::pin::pin!(done);
            loop {
                tokio::select! {
                    done = &mut done => return Ok(done),
                    _ = caught.terminate.recv() => return Err("SIGTERM"),
                    _ = caught.interrupt.recv() => return Err("SIGINT"),
                    _ = caught.hang_up.recv() => hang_up(),
                }
            }
        })
    }

    /// Returns the event loop of the handlers, and the handlers.
    pub(super) fn into_parts(self) -> (Runtime, Caught) {
        (self.runtime, self.caught)
    }
}

impl Caught {
    /// Waits for the next signal to stop at and returns its name. Meanwhile reads files again at
    /// each SIGHUP, and writes a dump at each SIGUSR1, one after the other. A signal to stop does
    /// not wait for them: a file on a dead network file system may take for ever.
    pub(super) async fn next(&mut self, requests: Option<&Requests>) -> &'static str {
        let mut under_way: Option<SignalWork<'_>> = None;
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                () = done(&mut under_way) => under_way = None,
                _ = self.hang_up.recv(), if under_way.is_none() => {
                    under_way = requests.map(|requests| Box::pin(reload(requests)) as SignalWork<'_>);
                }
                _ = self.user_1.recv(), if under_way.is_none() => {
                    under_way = requests.map(|requests| Box::pin(write_dump(requests)) as SignalWork<'_>);
                }
            }
        }
    }
}

/// The work that a signal has begun.
type SignalWork<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Waits for the end of the work under way; for ever without work.
async fn done(under_way: &mut Option<SignalWork<'_>>) {
    match under_way {
        Some(work) => work.await,
        None => pending().await,
    }
}

/// Writes a dump to standard error. The log level does not matter, since the operator requested the
/// dump.
async fn write_dump(requests: &Requests) {
    let (reply, text) = oneshot::channel();
    if requests.send(Request::Dump(reply)).await.is_ok()
        && let Ok(text) = text.await
    {
        stderr::say(&text);
    }
}

/// Reads the configuration and its files again. The supervisor logs the result.
async fn reload(requests: &Requests) {
    let (reply, result) = oneshot::channel();
    if requests.send(Request::Reload(ReloadMode::Apply, reply)).await.is_ok() {
        let _ = result.await;
    }
}
