//! The authenticator: threads that check passwords and tokens, and a queue that is bounded in time.
//!
//! A request enters the queue only if all work before it and its own fit into `auth.timeout`. So a
//! storm of logins serves as many clients as it can, and refuses the others at once, instead of
//! letting all of them wait until they give up. A shard thread asks its own cache first, which
//! needs no lock because a client always lives in the same shard. Before it, with `auth.failures`,
//! it takes the lock of the failures by address, for one look at a table.
//!
//! A changed line of the password file, or a changed file of keys, has another fingerprint. The
//! fingerprint is a part of the cache's key, and is compared again when a decision arrives. So a
//! decision never outlives the line or the keys on which it rests.
//!
//! | file | concern |
//! |---|---|
//! | `checks` | the methods of a login, one after the other |
//! | `decided` | the message with a decision, and the evidence of a success |
//! | `queue` | the logins that wait for a thread, and what their checks cost |
//! | `scram_login` | exchanges of AUTH packets |
//! | `http_service` | the thread that asks the HTTP service, and its queue |
//! | `http_client` | the connections to the HTTP service |

pub(super) mod checks;
pub(super) mod decided;
#[cfg(feature = "http-auth")]
pub(super) mod http_client;
#[cfg(not(feature = "http-auth"))]
#[path = "no_http_client.rs"]
pub(super) mod http_client;
pub(super) mod http_service;
mod queue;
mod scram_login;
#[cfg(test)]
mod tests;

use self::checks::{ChainEnd, ChainPlace, CheckCost, Checks};
use self::decided::{Decided, Proof};
use self::http_client::HttpTarget;
use self::http_service::{HttpJob, HttpService};
use self::queue::{AuthJob, AuthQueue};
use self::scram_login::ScramLogin;
use crate::access::grant::Grant;
use crate::access::identity::{Identity, IdentitySource};
use crate::auth::cache::{CacheBounds, CacheSecret, LoginCache};
use crate::auth::guessing::Guessing;
use crate::auth::http::answer::HttpAnswer;
use crate::clock;
use crate::login::authentication::{AuthDecision, AuthRequest, ExchangeStart};
use crate::pulse::{Pulse, Pulses, ThreadWork};
use crate::scheduling;
use crate::session::authentication::{AuthMethod, EnhancedMethod, Reach};
use crate::time::Instant;
use actix::Recipient;
use arc_swap::ArcSwap;
use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::warn;

/// Entries of all caches together.
const CACHED: usize = 65_536;

/// Bytes of all caches together.
const CACHED_BYTES: usize = 16 << 20;

/// The reason in the log, if the HTTP service ignores a client and no later method decides.
const IGNORED: &str = "the HTTP service ignores the client, and no other method is meant";

#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthenticatorOptions {
    /// Number of threads.
    pub workers: usize,
    /// The time within which a request has to be decided.
    pub timeout: Duration,
    /// The time for which a successful check is remembered; zero is not at all.
    pub cache: Duration,
    /// Number of shards, which share the entries of the caches.
    pub shards: usize,
    /// Failed logins of an address in a minute, at which it is blocked; 0 is never.
    pub failures: u32,
    /// The longest time of one answer of the HTTP service.
    pub http_timeout: Duration,
}

/// The threads that check passwords and tokens. Dropping the value ends them.
pub(crate) struct Authenticator {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// The signs of life of the threads that check passwords and tokens.
    pulses: Vec<Arc<Pulse>>,
}

struct Inner {
    checks: ArcSwap<Checks>,
    options: AuthenticatorOptions,
    /// The secret of the caches. The secret never leaves the process.
    secret: CacheSecret,
    /// Locked once for each login from another machine, and again where it fails.
    guessing: Option<Mutex<Guessing>>,
    queue: Mutex<AuthQueue>,
    wake: Condvar,
    /// `None` without an HTTP service.
    http: Option<Arc<HttpService>>,
}

impl Authenticator {
    /// Starts the threads. Errors: the system refuses a thread, or has no randomness.
    pub(crate) fn start(
        checks: Checks,
        http: Option<HttpTarget>,
        options: AuthenticatorOptions,
    ) -> io::Result<Authenticator> {
        let secret =
            CacheSecret::new().ok_or_else(|| io::Error::other("the system has no random numbers"))?;
        let guessing = (options.failures > 0).then(|| Mutex::new(Guessing::new(options.failures)));
        let inner = Arc::new(Inner {
            checks: ArcSwap::from_pointee(checks),
            options,
            secret,
            guessing,
            queue: Mutex::default(),
            wake: Condvar::new(),
            http: http.map(|target| Arc::new(HttpService::new(target, options.http_timeout))),
        });
        let (mut threads, mut pulses) = (Vec::new(), Vec::new());
        if let Some(service) = &inner.http {
            threads.push(service.start(&inner)?);
        }
        for number in 0..options.workers.max(1) {
            let (inner, pulse) = (Arc::clone(&inner), Arc::new(Pulse::default()));
            pulses.push(Arc::clone(&pulse));
            let thread = std::thread::Builder::new().name(worker_name(number));
            threads.push(thread.spawn(move || inner.work(&pulse))?);
        }
        Ok(Authenticator { inner, threads, pulses })
    }

    /// Watches the threads, until the process ends.
    pub(crate) fn watch(&self, pulses: &Pulses) {
        for (number, pulse) in self.pulses.iter().enumerate() {
            let inner = Arc::clone(&self.inner);
            // Without the lock, which a thread that hangs may hold. A wake-up that comes before the
            // wait is repeated with the next question.
            let wake = move |_: &Arc<Pulse>, _| {
                inner.wake.notify_all();
                Ok(())
            };
            pulses.watch(worker_name(number), ThreadWork::Serves, Arc::clone(pulse), wake);
        }
        if let Some(service) = &self.inner.http {
            service.watch(pulses);
        }
    }

    /// Returns the way to the authenticator for one shard. Decisions go to `reply`.
    pub(crate) fn client(&self, reply: Recipient<Decided>) -> AuthClientParts {
        AuthClientParts { inner: Arc::clone(&self.inner), reply }
    }

    /// Returns the files that are in force.
    pub(crate) fn checks(&self) -> Arc<Checks> {
        self.inner.checks.load_full()
    }

    /// Checks logins against these files from now on.
    pub(crate) fn replace(&self, checks: Checks) {
        self.inner.checks.store(Arc::new(checks));
    }

    /// Asks this HTTP service from now on. Does nothing if there was none.
    pub(crate) fn replace_http(&self, target: HttpTarget) {
        if let Some(service) = &self.inner.http {
            service.replace(target);
        }
    }
}

/// Returns the name of a thread that checks passwords and tokens.
fn worker_name(number: usize) -> String {
    format!("homing-auth-{number}")
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        self.inner.lock().stop();
        self.inner.wake.notify_all();
        if let Some(service) = &self.inner.http {
            service.stop();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, AuthQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if this address has failed too often.
    fn is_blocked(&self, now: Instant, address: Option<IpAddr>) -> bool {
        let (Some(guessing), Some(address)) = (&self.guessing, address) else { return false };
        guessing.lock().unwrap_or_else(PoisonError::into_inner).is_blocked(now, address)
    }

    /// Counts a failed login.
    fn failed(&self, now: Instant, address: Option<IpAddr>) {
        let (Some(guessing), Some(address)) = (&self.guessing, address) else { return };
        if guessing.lock().unwrap_or_else(PoisonError::into_inner).failed(now, address) {
            warn!(event = "auth.address_blocked", %address, "too many failed logins (auth.failures): logins from this address are refused for 5 minutes");
        }
    }

    /// Puts a login into the queue of the part of the authenticator that decides next. Refuses the
    /// client if this queue has too much work.
    fn enqueue(&self, job: Box<AuthJob>, place: ChainPlace) {
        if place.rest(&job.request).first() == Some(&AuthMethod::Http) {
            let place = ChainPlace { next: place.next + 1, ..place };
            return self.ask_http(HttpJob { job, place });
        }
        let costs = self.checks.load().costs(&job.request, place);
        let workers = u32::try_from(self.options.workers.max(1)).unwrap_or(u32::MAX);
        let pushed = self.lock().push(job, place, &costs, self.options.timeout, workers);
        match pushed {
            Ok(()) => self.wake.notify_one(),
            Err(job) => job.decided(AuthDecision::Busy),
        }
    }

    /// Puts a login into the queue of the HTTP service.
    fn ask_http(&self, job: HttpJob) {
        let refused = match &self.http {
            Some(service) => match service.push(job) {
                Ok(()) => return,
                Err(job) => (job, AuthDecision::Busy),
            },
            None => (job, AuthDecision::Unavailable("the method \"http\" needs auth.http_url")),
        };
        let (HttpJob { job, .. }, decision) = refused;
        job.decided(decision);
    }

    /// Decides requests until the authenticator stops.
    fn work(&self, pulse: &Pulse) {
        scheduling::yield_to_traffic();
        loop {
            let mut queue = self.lock();
            let queued = loop {
                pulse.beat();
                if queue.is_stopping() {
                    return;
                }
                match queue.pop() {
                    Some(queued) => break queued,
                    None => queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            let (share, mut took) = (queued.share(), Vec::new());
            if !queued.job.request.is_abandoned() {
                self.decide(queued.job, queued.place, &mut |cost, time| took.push((cost, time)));
            }
            self.lock().done(share, &took);
        }
    }

    /// Decides one request, or passes it on to the HTTP service. Reports the time of each check.
    fn decide(&self, job: Box<AuthJob>, place: ChainPlace, measured: &mut dyn FnMut(CheckCost, Duration)) {
        if self.is_blocked(clock::now(), job.address) {
            // Guesses that were sent at once must not all be tried before the first one has failed.
            return job.decided(AuthDecision::Blocked);
        }
        let checks = self.checks.load_full();
        match checks.decide(&self.secret, &job.request, place, measured) {
            ChainEnd::Allow(grant, proof) => job.proven(AuthDecision::Allow(grant), Some(proof)),
            ChainEnd::Deny { what, is_guess } => self.deny(&job, what, is_guess),
            ChainEnd::AsksHttp(place) => self.ask_http(HttpJob { job, place }),
        }
    }

    /// Refuses a client. A guess counts as a failed login of its address.
    fn deny(&self, job: &AuthJob, what: &'static str, is_guess: bool) {
        if is_guess {
            self.failed(clock::now(), job.address);
        }
        job.decided(AuthDecision::Deny(what));
    }

    /// Decides by the answer of the HTTP service, or goes on with the methods behind it.
    fn http_answered(&self, job: HttpJob, answer: HttpAnswer) {
        let HttpJob { job, place } = job;
        let now = clock::now();
        // The answers to guesses that were sent at once come one after the other.
        if self.is_blocked(now, job.address) {
            return job.decided(AuthDecision::Blocked);
        }
        match answer {
            HttpAnswer::Allow { rules, remaining_ms } => {
                let identity = Arc::new(Identity::new(job.request.user(), IdentitySource::Http));
                let ends = remaining_ms.map_or(Instant::NEVER, |ms| now + Duration::from_millis(ms));
                job.decided(AuthDecision::Allow(Grant { identity, rules, ends }));
            }
            HttpAnswer::Deny => self.deny(&job, "the HTTP service denies the client", true),
            HttpAnswer::Expired => {
                let what = "the HTTP service let the client in until a time that has passed (expire_at)";
                self.deny(&job, what, place.is_guess);
            }
            HttpAnswer::Ignore if place.rest(&job.request).is_empty() => {
                self.deny(&job, IGNORED, true);
            }
            // The name is unknown so far: if no later method knows it either, the login is a guess.
            HttpAnswer::Ignore => self.enqueue(job, ChainPlace { what: IGNORED, is_guess: true, ..place }),
        }
    }
}

/// The parts of an [`AuthClient`], on the way to its thread.
#[derive(Clone)]
pub struct AuthClientParts {
    inner: Arc<Inner>,
    reply: Recipient<Decided>,
}

/// One shard's way to the authenticator, with the shard's cache.
pub(crate) struct AuthClient {
    parts: AuthClientParts,
    cache: RefCell<LoginCache>,
}

impl AuthClient {
    /// Returns the client of one shard, with an empty cache.
    pub(crate) fn new(parts: AuthClientParts) -> AuthClient {
        let AuthenticatorOptions { cache, shards, .. } = parts.inner.options;
        let shards = shards.max(1);
        let bounds = CacheBounds { entries: CACHED / shards, bytes: CACHED_BYTES / shards };
        AuthClient { cache: RefCell::new(LoginCache::new(bounds, cache)), parts }
    }

    /// Asks about a CONNECT from an address. The decision comes as a [`Decided`] in every case.
    /// Failures from this machine do not count: `peer` is then `None` or a loopback address.
    /// Failures of a client whose address only its proxy knows do not count either: a block of the
    /// proxy would block all its clients.
    pub(crate) fn ask(&self, now: Instant, request: AuthRequest, peer: Option<IpAddr>) {
        let AuthClientParts { inner, reply } = &self.parts;
        let connection = request.connection;
        let counts = request.reach != Reach::Proxy;
        let address = peer.filter(|address| counts && !address.to_canonical().is_loopback());
        if inner.is_blocked(now, address) {
            // Before the cache and the hash: a right password must not show itself by another
            // answer.
            reply.do_send(Decided { connection, decision: AuthDecision::Blocked, proof: None });
            return;
        }
        if let Some(ExchangeStart { method: EnhancedMethod::ScramSha256, data }) = &request.exchange {
            let decision = ScramLogin::begin(inner, request.listener.password_file.as_deref(), address, data);
            reply.do_send(Decided { connection, decision, proof: None });
            return;
        }
        let checks = inner.checks.load();
        for proof in checks.cached(&inner.secret, &request) {
            if let Some(grant) = self.cache.borrow().find(now, &proof.key) {
                let decision = AuthDecision::Allow(grant);
                reply.do_send(Decided { connection, decision, proof: Some(proof) });
                return;
            }
        }
        drop(checks);
        let due = now + inner.options.timeout;
        let bytes = request.size();
        let job = AuthJob { request, bytes, due, peer, address, reply: reply.clone() };
        inner.enqueue(Box::new(job), ChainPlace::START);
    }

    /// Takes a decision in, and returns the message for the shard. A decision that rests on a line
    /// of the password file or on keys that have changed since is not valid any more.
    pub(crate) fn decided(&self, now: Instant, decision: AuthDecision, proof: Option<Proof>) -> AuthDecision {
        let (AuthDecision::Allow(grant), Some(proof)) = (&decision, proof) else { return decision };
        if !self.parts.inner.checks.load().confirms(&proof) {
            return AuthDecision::Unavailable("the password file or the keys have changed meanwhile");
        }
        self.cache.borrow_mut().remember(now, proof.key, grant.clone(), proof.text);
        decision
    }
}
