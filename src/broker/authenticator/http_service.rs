//! The thread that asks the HTTP service, and its queue.
//!
//! The queue is bounded like that of the hashes, in time and in bytes. A request enters only if the
//! requests before it will probably end within `auth.timeout`, and if the pending logins take few
//! bytes. A service that fails is left alone for a second at a time ([`CircuitBreaker`]), and its
//! clients are refused at once. A service that is down never lets a client in.

use super::Inner;
use super::checks::ChainPlace;
use super::http_client::HttpTarget;
use super::queue::{AuthJob, QUEUED_BYTES};
use crate::auth::http::answer::{AnswerError, HttpAnswer, read_answer};
use crate::auth::http::breaker::CircuitBreaker;
use crate::auth::http::request::HttpClient;
use crate::broker::rate_limit::{Rate, RateLimiter};
use crate::clock;
use crate::login::authentication::AuthDecision;
use crate::net::tls::config_error::TlsConfigError;
use crate::pulse::{Pulse, Pulses, ThreadWork};
use crate::scheduling;
use crate::time::Instant;
use arc_swap::ArcSwap;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{info, warn};

const NAME: &str = "homing-http";

/// Requests that the service works on at once.
const IN_FLIGHT: usize = 256;

/// Threads for the names of hosts, which the C library resolves. An address needs none.
const RESOLVERS: usize = 4;

/// Log lines about failures.
const FAILURE_LINES: Rate = Rate { limit: 1, period: Duration::from_secs(10) };

/// The part of a new measurement in the average, as one in so many.
const SMOOTHING: f64 = 32.0;

/// The time that an answer is expected to take, before one was measured, in seconds.
const FIRST_ANSWER: f64 = 0.01;

/// The reason why a client that only this service could let in is refused. For the log.
const NO_ANSWER: &str =
    "the HTTP service gave no answer (auth.http_url); a warning in the log has the reason";
const PAUSED: &str =
    "the HTTP service has failed several times, and is not asked for a second (auth.http_url)";

/// The settings of the service that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HttpSetupError {
    /// The authorities cannot be used.
    #[error("{0} (auth.http_ca)")]
    Ca(TlsConfigError),
    /// The host is no name that a certificate can have.
    #[error("the host of auth.http_url is no name or address that a certificate can have")]
    Name,
    /// The build has no HTTP client.
    #[error("auth.http_url needs a build with the feature http-auth")]
    NotBuilt,
}

/// The answer of the service as it came.
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// The reason why the service gave no answer.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(not(feature = "http-auth"), expect(dead_code, reason = "no connection is ever made"))]
pub(super) enum HttpFailure {
    /// With the reason.
    #[error("{0}")]
    Request(String),
    #[error("no answer within {} ms (auth.http_timeout, auth.timeout)", .0.as_millis())]
    Timeout(Duration),
    #[error("{0}")]
    Answer(#[from] AnswerError),
}

/// The service and the requests to it.
pub(super) struct HttpService {
    target: ArcSwap<HttpTarget>,
    /// The longest time of one answer. A login that is due earlier has less.
    timeout: Duration,
    state: Mutex<HttpState>,
    wake: Notify,
    pulse: Arc<Pulse>,
}

/// A login on its way to the service.
pub(super) struct HttpJob {
    pub(super) job: Box<AuthJob>,
    /// The methods that follow.
    pub(super) place: ChainPlace,
}

struct HttpState {
    jobs: VecDeque<HttpJob>,
    bytes: usize,
    in_flight: usize,
    /// The moving average of the time of an answer, failures included, in seconds.
    average: f64,
    breaker: CircuitBreaker,
    lines: RateLimiter,
    stopping: bool,
}

impl HttpService {
    /// Returns the way to a service, with an empty queue.
    pub(super) fn new(target: HttpTarget, timeout: Duration) -> HttpService {
        let state = HttpState {
            jobs: VecDeque::new(),
            bytes: 0,
            in_flight: 0,
            average: FIRST_ANSWER,
            breaker: CircuitBreaker::default(),
            lines: RateLimiter::default(),
            stopping: false,
        };
        HttpService {
            target: ArcSwap::from_pointee(target),
            timeout,
            state: Mutex::new(state),
            wake: Notify::new(),
            pulse: Arc::default(),
        }
    }

    /// Starts the thread, which decides logins for `inner`. Errors: the system refuses the thread
    /// or its event loop.
    pub(super) fn start(self: &Arc<HttpService>, inner: &Arc<Inner>) -> io::Result<JoinHandle<()>> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVERS).build()?;
        let (service, inner) = (Arc::clone(self), Arc::clone(inner));
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        thread.spawn(move || service.run(&runtime, &inner))
    }

    /// Watches the thread, until the process ends.
    pub(super) fn watch(self: &Arc<HttpService>, pulses: &Pulses) {
        let service = Arc::clone(self);
        let wake = move |_: &Arc<Pulse>, _| {
            service.wake.notify_one();
            Ok(())
        };
        pulses.watch(NAME, ThreadWork::Serves, Arc::clone(&self.pulse), wake);
    }

    /// Ends the thread. Requests in the queue and requests under way get no answer.
    pub(super) fn stop(&self) {
        self.lock().stopping = true;
        self.wake.notify_one();
    }

    /// Asks this service from now on. Requests under way stay with the earlier service; requests in
    /// the queue go to the new service.
    pub(super) fn replace(&self, target: HttpTarget) {
        self.target.store(Arc::new(target));
    }

    /// Puts a login into the queue. Errors: the login, if the wait is longer than its time left, or
    /// if more than [`QUEUED_BYTES`] would wait.
    pub(super) fn push(&self, job: HttpJob) -> Result<(), HttpJob> {
        let mut state = self.lock();
        let waiting = (state.jobs.len() + state.in_flight) as f64 / IN_FLIGHT as f64;
        let time_left = job.job.due.since(clock::now());
        if waiting * state.average > time_left.as_secs_f64() || state.bytes + job.job.bytes > QUEUED_BYTES {
            return Err(job);
        }
        state.bytes += job.job.bytes;
        state.jobs.push_back(job);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HttpState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: &Arc<HttpService>, runtime: &Runtime, inner: &Arc<Inner>) {
        scheduling::yield_to_traffic();
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            loop {
                while tasks.len() < IN_FLIGHT
                    && let Some(job) = self.pop()
                {
                    let (service, inner) = (Arc::clone(self), Arc::clone(inner));
                    tasks.spawn(async move { service.decide(job, &inner).await });
                }
                tokio::select! {
                    () = self.wake.notified() => {
                        self.pulse.beat();
                        if self.lock().stopping {
                            return;
                        }
                    }
                    Some(_) = tasks.join_next() => {}
                }
            }
        });
    }

    fn pop(&self) -> Option<HttpJob> {
        let mut state = self.lock();
        let job = state.jobs.pop_front()?;
        state.bytes -= job.job.bytes;
        state.in_flight += 1;
        Some(job)
    }

    /// Asks about one login, and passes the answer on.
    async fn decide(&self, job: HttpJob, inner: &Arc<Inner>) {
        let result = self.answer(&job.job, inner).await;
        self.lock().in_flight -= 1;
        match result {
            // Nobody waits any more.
            None => {}
            Some(Ok(answer)) => inner.http_answered(job, answer),
            Some(Err(decision)) => job.job.decided(decision),
        }
    }

    /// Returns the answer of the service, or the decision if there is no answer. Returns `None` if
    /// nobody waits for it any more.
    async fn answer(&self, job: &AuthJob, inner: &Inner) -> Option<Result<HttpAnswer, AuthDecision>> {
        let now = clock::now();
        let timeout = self.timeout.min(job.due.since(now));
        if job.request.is_abandoned() || timeout.is_zero() {
            return None;
        }
        if inner.is_blocked(now, job.address) {
            return Some(Err(AuthDecision::Blocked));
        }
        let request = &job.request;
        let client = HttpClient {
            client_id: &request.client_id,
            user_name: request.user(),
            password: request.password_bytes(),
            address: job.peer,
        };
        // The service cannot know a password that JSON cannot hold.
        let Some(body) = client.body() else { return Some(Ok(HttpAnswer::Ignore)) };
        if !self.lock().breaker.admit(now) {
            return Some(Err(AuthDecision::Unavailable(PAUSED)));
        }
        let target = self.target.load_full();
        let began = clock::nanos();
        let answer = match tokio::time::timeout(timeout, target.ask(body)).await {
            Ok(reply) => reply
                .and_then(|HttpReply { status, body }| Ok(read_answer(clock::unix_millis(), status, &body)?)),
            Err(_) => Err(HttpFailure::Timeout(timeout)),
        };
        let took = Duration::from_nanos(clock::nanos().saturating_sub(began));
        Some(self.note(&target, took, answer))
    }

    /// Counts an answer or a failure, and writes a log line where it matters.
    fn note(
        &self,
        target: &HttpTarget,
        took: Duration,
        answer: Result<HttpAnswer, HttpFailure>,
    ) -> Result<HttpAnswer, AuthDecision> {
        let mut state = self.lock();
        state.average += (took.as_secs_f64() - state.average) / SMOOTHING;
        let failure = match answer {
            Ok(answer) => {
                if state.breaker.succeeded() {
                    info!(event = "auth.http_recovered", service = %target, "the HTTP service answers again (auth.http_url)");
                }
                return Ok(answer);
            }
            Err(failure) => failure,
        };
        let now: Instant = clock::now();
        state.breaker.failed(now);
        if state.lines.admit(FAILURE_LINES, now) {
            let suppressed = state.lines.take_refused();
            warn!(
                event = "auth.http_failed", service = %target, reason = %failure, suppressed,
                "the HTTP service gave no answer: clients that it decides about are refused with 0x88 (3.x: 3). Check that it runs, and auth.http_url"
            );
        }
        Err(AuthDecision::Unavailable(NO_ANSWER))
    }
}
