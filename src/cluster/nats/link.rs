//! The connection to one of the servers: the thread that runs it, and when it changes the server.
//!
//! The client is told to be quick: it pings each second, and a server that owes three answers is
//! left. A server may also answer pings and yet be cut off from the others. So the client goes on
//! to the next server after two requests that nobody has answered.

use super::failure::Failure;
use super::settings::{NatsSettings, OpenError};
use super::tip::Tip;
use crate::clock;
use async_nats::{Client, ConnectOptions, Event, ReconnectToServer, ServerAddr, ServerInfo};
use futures_util::StreamExt;
use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// Bound of a request that a leader or a replica answers at once.
pub(super) const REQUEST: Duration = Duration::from_secs(1);
/// Bound of a request for which servers change files: creation, purge.
pub(super) const LONG_REQUEST: Duration = Duration::from_secs(10);
/// Bound of a publication that nobody acknowledges.
const HINT: Duration = Duration::from_millis(100);
/// Time between pings.
const PING: Duration = Duration::from_secs(1);
/// Bound of one attempt to connect.
const CONNECT: Duration = Duration::from_secs(1);
/// Time before another attempt to connect.
const RECONNECT: Duration = Duration::from_millis(100);
/// Failures after which the client changes the server.
const PATIENCE: u32 = 2;
/// Time that a server has before the client leaves it, in milliseconds.
const STAY_MS: u64 = 2_000;
/// Bound of the end of the thread, for resolvers that hang.
const END: Duration = Duration::from_secs(1);

/// Who can answer a request. Each kind has its own count of failures, which the answer of this kind
/// or of a later one ends: that a replica answers says nothing about the leader, and that a leader
/// answers says nothing about its majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answerer {
    /// Any server with a replica.
    Replica,
    /// The leader of a stream.
    Leader,
    /// The leader of the log, together with a majority.
    Majority,
}

/// The connection.
pub(super) struct Link {
    handle: Handle,
    client: Client,
    status: Arc<Status>,
    is_connected: watch::Receiver<bool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What is known about the connection.
#[derive(Default)]
struct Status {
    /// The last thing that went wrong, for people.
    trouble: Mutex<String>,
    /// The server that the client tries, or has.
    address: Mutex<String>,
    /// Failures in a row, by [`Answerer`].
    failures: [AtomicU32; 3],
    /// When the client was last told to change the server, in milliseconds of the clock.
    changed_ms: AtomicU64,
    /// True from a change of the server until a leader answers. An outage has two lines of the log,
    /// however long it lasts and however often the server changes.
    is_unanswered: AtomicBool,
}

impl Status {
    fn note(&self, trouble: impl Display) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble.to_string();
    }

    fn trouble(&self) -> String {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what has happened to the connection, and says it in the log.
    fn follow(&self, event: &Event, say_connected: &watch::Sender<bool>) {
        let is_said = self.is_unanswered.load(Ordering::Relaxed);
        match event {
            Event::Connected => {
                self.note("");
                if !is_said {
                    info!(
                        event = "cluster.engine_connected",
                        address = self.address(),
                        "connected to the engine"
                    );
                }
                let _ = say_connected.send(true);
            }
            Event::Disconnected | Event::Closed => {
                if !is_said {
                    warn!(
                        event = "cluster.engine_lost",
                        address = self.address(),
                        reason = self.trouble(),
                        "the connection to the engine has ended, and the next server is tried (cluster.nats)"
                    );
                }
                let _ = say_connected.send(false);
            }
            // The error of the attempt says more ([`options`]).
            Event::ClientError(_) if !self.trouble().is_empty() => {}
            other => self.note(other),
        }
    }
}

impl Link {
    /// Starts the thread. It connects by itself, and subscribes to the announcements.
    pub(super) fn open(settings: &NatsSettings, subject: String, tip: Arc<Tip>) -> Result<Link, OpenError> {
        let servers = addresses(&settings.servers)?;
        let status = Arc::new(Status::default());
        let (say_connected, is_connected) = watch::channel(false);
        let options = options(settings, &servers, &status, say_connected);
        let (stop, stopped) = oneshot::channel();
        let (say_started, started) = mpsc::channel();
        let run = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = say_started.send(Err(error.to_string()));
                    return;
                }
            };
            runtime.block_on(async {
                match options.connect(servers).await {
                    Ok(client) => {
                        tokio::spawn(listen(client.clone(), subject, tip));
                        let _ = say_started.send(Ok((Handle::current(), client)));
                        let _ = stopped.await;
                    }
                    Err(error) => drop(say_started.send(Err(error.to_string()))),
                }
            });
            runtime.shutdown_timeout(END);
        };
        let thread = thread::Builder::new()
            .name("homing-engine".to_owned())
            .spawn(run)
            .map_err(|error| OpenError::Thread(error.to_string()))?;
        let late = |error: mpsc::RecvTimeoutError| Err(error.to_string());
        let (handle, client) =
            started.recv_timeout(LONG_REQUEST).unwrap_or_else(late).map_err(OpenError::Thread)?;
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(Link { handle, client, status, is_connected, stop, thread })
    }

    /// Runs a request on the calling thread until it ends, or the limit does. The limit includes
    /// the wait for a connection, so that no request is sent long after its caller has gone.
    pub(super) fn run<T>(
        &self,
        answerer: Answerer,
        limit: Duration,
        request: impl AsyncFnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let result = self.block_on(limit, async {
            let mut is_connected = self.is_connected.clone();
            if is_connected.wait_for(|is_connected| *is_connected).await.is_err() {
                return Err(Failure::NoAnswer);
            }
            request(&self.client).await
        });
        let result = result.unwrap_or(Err(Failure::NoAnswer));
        self.judge(answerer, &result);
        result
    }

    /// Runs anything on the calling thread, with a bound. `None` if the bound was reached.
    pub(super) fn block_on<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.handle.block_on(async { timeout(limit, work).await.ok() })
    }

    /// Counts failures, and changes the server after some.
    fn judge<T>(&self, answerer: Answerer, result: &Result<T, Failure>) {
        let failures = &self.status.failures;
        let sum = || failures.iter().map(|failures| failures.load(Ordering::Relaxed)).sum::<u32>();
        let has_failed = match result {
            // A leader that is cut off counts the frame that it cannot get to a majority, and so
            // it refuses the retry.
            Err(failure) if failure.is_wrong_last() => sum() > 0,
            Err(failure) => failure.has_no_leader(),
            Ok(_) => false,
        };
        if !has_failed {
            failures[..=answerer as usize].iter().for_each(|failures| failures.store(0, Ordering::Relaxed));
            if answerer != Answerer::Replica && self.status.is_unanswered.swap(false, Ordering::Relaxed) {
                let address = self.status.address();
                info!(event = "cluster.engine_answers", address, "the engine answers again");
            }
            return;
        }
        failures[answerer as usize].fetch_add(1, Ordering::Relaxed);
        let now = clock::now().as_millis();
        let may_change = now >= self.status.changed_ms.load(Ordering::Relaxed) + STAY_MS;
        if sum() < PATIENCE || !may_change || !*self.is_connected.borrow() {
            return;
        }
        failures.iter().for_each(|failures| failures.store(0, Ordering::Relaxed));
        self.status.changed_ms.store(now, Ordering::Relaxed);
        if !self.status.is_unanswered.swap(true, Ordering::Relaxed) {
            warn!(
                event = "cluster.engine_silent",
                address = self.status.address(),
                "requests to the engine have no answer, so the other servers are tried in turn (cluster.nats)"
            );
        }
        let _ = self.block_on(HINT, self.client.force_reconnect());
    }

    /// Publishes a position.
    pub(super) fn announce(&self, subject: &str, position: u64) {
        if *self.is_connected.borrow() {
            // A lost hint is made good by the reader's next look.
            let payload = position.to_string().into();
            let _ = self.block_on(HINT, self.client.publish(subject.to_owned(), payload));
        }
    }

    /// Returns a text that nobody has had before: letters and digits.
    pub(super) fn unique(&self) -> String {
        self.client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned()
    }

    /// Returns what the server says about itself, if there is a connection.
    pub(super) fn server(&self) -> Option<ServerInfo> {
        (*self.is_connected.borrow()).then(|| self.client.try_server_info()).flatten()
    }

    /// Returns true if there is no connection, because the server that was tried last does not accept
    /// who this node is.
    pub(super) fn is_refused(&self) -> bool {
        self.server().is_none() && self.status.trouble().to_lowercase().contains("authorization violation")
    }

    /// Returns what the server has said if it forbids to publish to a subject, once for each time.
    pub(super) fn take_forbidden(&self, subject: &str) -> Option<String> {
        let mut trouble = self.status.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let is_forbidden =
            trouble.to_lowercase().contains("permissions violation") && trouble.contains(subject);
        is_forbidden.then(|| std::mem::take(&mut *trouble))
    }

    /// Returns the state of the connection in words.
    pub(super) fn describe(&self) -> String {
        let trouble = self.status.trouble();
        match self.server() {
            Some(server) if trouble.is_empty() => format!("connected to {}", server.server_name),
            Some(server) => format!("connected to {}: {trouble}", server.server_name),
            None if trouble.is_empty() => "no server has answered yet".to_owned(),
            None => format!("no connection: {trouble}"),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads the addresses of servers.
fn addresses(servers: &[String]) -> Result<Vec<ServerAddr>, OpenError> {
    if servers.is_empty() {
        return Err(OpenError::NoServer);
    }
    let address = |server: &String| {
        let parsed = server.parse::<ServerAddr>();
        parsed.map_err(|error| OpenError::Server(server.clone(), error.to_string()))
    };
    servers.iter().map(address).collect()
}

/// Returns the options of the client.
fn options(
    settings: &NatsSettings,
    servers: &[ServerAddr],
    status: &Arc<Status>,
    say_connected: watch::Sender<bool>,
) -> ConnectOptions {
    let (attempts, order) = (AtomicUsize::new(0), servers.to_vec());
    let (noting, following) = (Arc::clone(status), Arc::clone(status));
    let mut options = ConnectOptions::new()
        .name(format!("homing {} {}", settings.cluster, settings.node))
        .ping_interval(PING)
        .request_timeout(Some(REQUEST))
        .connection_timeout(CONNECT)
        .retry_on_initial_connect()
        // Nobody hears its own announcements.
        .no_echo()
        // The operator's list is the list: a server may announce addresses that are not reachable.
        .ignore_discovered_servers()
        .reconnect_to_server_callback(move |servers, _| {
            if let Some(error) = servers.iter().find_map(|server| server.last_error.as_ref()) {
                noting.note(error);
            }
            // Each attempt goes to the next server, so that the one that was left is the last.
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            let addr = order[attempt % order.len()].clone();
            *noting.address.lock().unwrap_or_else(PoisonError::into_inner) =
                format!("{}:{}", addr.host(), addr.port());
            let delay = Some(if attempt == 0 { Duration::ZERO } else { RECONNECT });
            async move { Some(ReconnectToServer { addr, delay }) }
        })
        .event_callback(move |event| {
            following.follow(&event, &say_connected);
            async {}
        });
    if let Some((user, password)) = &settings.user {
        options = options.user_and_password(user.clone(), password.to_string());
    }
    if let Some(ca) = &settings.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &settings.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    options
}

/// Notes what other nodes announce. The client subscribes again by itself after it was
/// disconnected.
async fn listen(client: Client, subject: String, tip: Arc<Tip>) {
    loop {
        if let Ok(mut announcements) = client.subscribe(subject.clone()).await {
            while let Some(message) = announcements.next().await {
                let text = std::str::from_utf8(&message.payload).ok();
                if let Some(position) = text.and_then(|text| text.parse().ok()) {
                    tip.announce(position);
                }
            }
        }
        sleep(RECONNECT).await;
    }
}
