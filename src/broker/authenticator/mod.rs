//! The authenticator: threads that check passwords and tokens, and a queue that is bounded in time.
//!
//! A request enters the queue only if all work before it and its own fit into `auth.timeout`. So a
//! storm of logins serves as many clients as it can, and refuses the others at once, instead of
//! letting all of them wait until they give up. A shard thread asks its own cache first, which
//! needs no lock because a client always lives in the same shard.
//!
//! A changed line of the password file, or a changed file of keys, has another fingerprint. The
//! fingerprint is a part of the cache's key, and is compared again when a decision arrives. So a
//! decision never outlives the line or the keys on which it rests.
//!
//! | file | concern |
//! |---|---|
//! | `checks` | the methods of a login, one after the other |
//! | `decided` | the message with a decision, and the evidence of a success |
//! | `scram_login` | the exchange of a SCRAM login |

pub(super) mod checks;
pub(super) mod decided;
mod scram_login;

use self::scram_login::ScramLogin;
use crate::auth::cache::{CacheSecret, LoginCache};
use crate::auth::guessing::Guessing;
use crate::clock;
use crate::session::authentication::EnhancedMethod;
use crate::shard::authentication::{AuthDecision, AuthRequest, ExchangeStart};
use crate::time::Instant;
use actix::Recipient;
use arc_swap::ArcSwap;
use checks::{ChainEnd, CheckCost, Checks};
use decided::{Decided, Proof};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::warn;

/// Bytes of names and passwords that may wait.
const QUEUED_BYTES: usize = 16 << 20;

/// Entries of all caches together.
const CACHED: usize = 65_536;

/// The part of a new measurement in the average, as one in so many.
const SMOOTHING: f64 = 8.0;

/// Settings of the authenticator.
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
}

/// The threads that check passwords and tokens. Dropping the value ends them.
pub(crate) struct Authenticator {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

struct Inner {
    checks: ArcSwap<Checks>,
    options: AuthenticatorOptions,
    /// The secret of the caches. It never leaves the process.
    secret: CacheSecret,
    /// Locked once for each login from another machine, and again where it fails.
    guessing: Option<Mutex<Guessing>>,
    queue: Mutex<AuthQueue>,
    wake: Condvar,
}

#[derive(Default)]
struct AuthQueue {
    jobs: VecDeque<AuthJob>,
    /// The time that the jobs will take on one thread.
    pending: Duration,
    bytes: usize,
    averages: Averages,
    stopping: bool,
}

struct AuthJob {
    request: AuthRequest,
    costs: Vec<CheckCost>,
    expected: Duration,
    bytes: usize,
    /// The address whose failures count; `None` for a client on this machine.
    address: Option<IpAddr>,
    reply: Recipient<Decided>,
}

/// For each kind of check, the measured time as a multiple of the estimate.
#[derive(Clone, Copy, Debug)]
struct Averages([f64; CheckCost::KINDS]);

impl Default for Averages {
    fn default() -> Averages {
        Averages([1.0; CheckCost::KINDS])
    }
}

impl Averages {
    /// Returns the time that a check will take, as far as it is known.
    fn expected(&self, cost: CheckCost) -> Duration {
        cost.estimate().mul_f64(self.0[cost.place()])
    }

    fn add(&mut self, cost: CheckCost, took: Duration) {
        let factor = took.as_secs_f64() / cost.estimate().as_secs_f64();
        let average = &mut self.0[cost.place()];
        // A thread that was not scheduled for a while must not stop all logins.
        *average += (factor.clamp(0.01, 100.0) - *average) / SMOOTHING;
    }
}

impl Authenticator {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system refuses a thread, or has no randomness.
    pub(crate) fn start(checks: Checks, options: AuthenticatorOptions) -> io::Result<Authenticator> {
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
        });
        let mut threads = Vec::new();
        for number in 0..options.workers.max(1) {
            let inner = Arc::clone(&inner);
            let thread = std::thread::Builder::new().name(format!("homing-auth-{number}"));
            threads.push(thread.spawn(move || inner.work())?);
        }
        Ok(Authenticator { inner, threads })
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
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        self.inner.lock().stopping = true;
        self.inner.wake.notify_all();
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

    /// Puts a request into the queue. Returns false if the queue has too much work.
    fn push(&self, mut job: AuthJob) -> bool {
        let mut queue = self.lock();
        job.expected = job.costs.iter().map(|cost| queue.averages.expected(*cost)).sum();
        let workers = u32::try_from(self.options.workers.max(1)).unwrap_or(u32::MAX);
        if queue.pending / workers + job.expected > self.options.timeout
            || queue.bytes + job.bytes > QUEUED_BYTES
        {
            return false;
        }
        queue.pending += job.expected;
        queue.bytes += job.bytes;
        queue.jobs.push_back(job);
        drop(queue);
        self.wake.notify_one();
        true
    }

    /// Decides requests until the authenticator stops.
    fn work(&self) {
        // Established traffic goes before logins. Without the permission, both have equal rights.
        let _ = rustix::process::nice(5);
        loop {
            let mut queue = self.lock();
            let job = loop {
                if queue.stopping {
                    return;
                }
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None => queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            let took = if job.request.is_abandoned() { Vec::new() } else { self.decide(&job) };
            let mut queue = self.lock();
            // The work counts as pending while it is done.
            queue.pending = queue.pending.saturating_sub(job.expected);
            queue.bytes -= job.bytes;
            for (cost, took) in took {
                queue.averages.add(cost, took);
            }
        }
    }

    /// Decides one request, and returns the time that each check took.
    fn decide(&self, job: &AuthJob) -> Vec<(CheckCost, Duration)> {
        let (connection, mut took) = (job.request.connection, Vec::new());
        if self.is_blocked(clock::now(), job.address) {
            // Guesses that were sent at once must not all be tried before the first one has failed.
            job.reply.do_send(Decided { connection, decision: AuthDecision::Blocked, proof: None });
            return took;
        }
        let checks = self.checks.load_full();
        let mut measured = |cost, time| took.push((cost, time));
        let (decision, proof) = match checks.decide(&self.secret, &job.request, &mut measured) {
            ChainEnd::Allow(grant, proof) => (AuthDecision::Allow(grant), Some(proof)),
            ChainEnd::Deny { what, is_guess } => {
                if is_guess {
                    self.failed(clock::now(), job.address);
                }
                (AuthDecision::Deny(what), None)
            }
        };
        job.reply.do_send(Decided { connection, decision, proof });
        took
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
        AuthClient { cache: RefCell::new(LoginCache::new(CACHED / shards.max(1), cache)), parts }
    }

    /// Asks about a CONNECT from an address. The decision comes as a [`Decided`] in every case.
    /// Failures from this machine do not count: `address` is then `None` or a loopback address.
    pub(crate) fn ask(&self, now: Instant, request: AuthRequest, address: Option<IpAddr>) {
        let AuthClientParts { inner, reply } = &self.parts;
        let connection = request.connection;
        let address = address.filter(|address| !address.to_canonical().is_loopback());
        if inner.is_blocked(now, address) {
            // Before the cache and the hash: a right password must not show itself by another
            // answer.
            reply.do_send(Decided { connection, decision: AuthDecision::Blocked, proof: None });
            return;
        }
        if let Some(ExchangeStart { method: EnhancedMethod::ScramSha256, data }) = &request.exchange {
            let decision = ScramLogin::begin(inner, address, data);
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
        let (costs, bytes) = (checks.costs(&request), request.size());
        let reply_to = reply.clone();
        let job = AuthJob { request, costs, expected: Duration::ZERO, bytes, address, reply: reply_to };
        if !inner.push(job) {
            reply.do_send(Decided { connection, decision: AuthDecision::Busy, proof: None });
        }
    }

    /// Takes a decision in, and returns what the shard gets. A decision that rests on a line of the
    /// password file or on keys that have changed since is not valid any more.
    pub(crate) fn decided(&self, now: Instant, decision: AuthDecision, proof: Option<Proof>) -> AuthDecision {
        let (AuthDecision::Allow(grant), Some(proof)) = (&decision, proof) else { return decision };
        if !self.parts.inner.checks.load().holds(&proof) {
            return AuthDecision::Unavailable("the password file or the keys have changed meanwhile");
        }
        self.cache.borrow_mut().remember(now, proof.key, grant.clone());
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::password::PasswordFile;
    use crate::auth::password::hash::{HashCost, HashKind, PasswordHash};
    use crate::auth::password::pbkdf2::Pbkdf2Hash;
    use actix::{Actor, Context, Handler, System};
    use std::path::Path;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    fn file(lines: &[(&str, &str, u32)]) -> Arc<PasswordFile> {
        let line = |(user, password, iterations): &(&str, &str, u32)| {
            let hash = Pbkdf2Hash::create(password.as_bytes(), *iterations, &[7; 12]);
            format!("{user}:{}\n", PasswordHash::Pbkdf2(hash).to_text())
        };
        let text: String = lines.iter().map(line).collect();
        Arc::new(PasswordFile::parse(Path::new("passwd"), text.as_bytes()).expect("a lawful file"))
    }

    #[test]
    fn the_queue_takes_what_fits_into_the_timeout() {
        let mut averages = Averages::default();
        let cost = CheckCost::Hash(HashCost { kind: HashKind::Argon2, estimated_us: 40_000 });
        assert_eq!(averages.expected(cost), Duration::from_millis(40));
        for _ in 0..100 {
            averages.add(cost, Duration::from_millis(80));
        }
        assert!(averages.expected(cost) > Duration::from_millis(79));
        let other = CheckCost::Hash(HashCost { kind: HashKind::Sha512, estimated_us: 10 });
        assert_eq!(averages.expected(other), Duration::from_micros(10));
    }

    /// Passes decisions on to the test.
    struct Decisions(UnboundedSender<AuthDecision>);

    impl Actor for Decisions {
        type Context = Context<Decisions>;
    }

    impl Handler<Decided> for Decisions {
        type Result = ();

        fn handle(&mut self, decided: Decided, _: &mut Context<Decisions>) {
            drop(self.0.send(decided.decision));
        }
    }

    /// Starts an authenticator that knows Ann, and blocks an address after three failures. Returns
    /// it with a client of it.
    fn guarded(cache: Duration, reply: Recipient<Decided>) -> (Authenticator, AuthClient) {
        let timeout = Duration::from_secs(60);
        let options = AuthenticatorOptions { workers: 1, timeout, cache, shards: 1, failures: 3 };
        let checks = Checks { passwords: Some(file(&[("ann", "right", 1)])), ..Checks::default() };
        let authenticator = Authenticator::start(checks, options).unwrap();
        let client = AuthClient::new(authenticator.client(reply));
        (authenticator, client)
    }

    #[test]
    fn an_address_with_too_many_failures_is_blocked_and_others_are_not() {
        System::new().block_on(async {
            let (sender, mut decisions) = unbounded_channel();
            let reply = Decisions(sender).start().recipient();
            let (_authenticator, client) = guarded(Duration::from_secs(60), reply);
            let [far, other, here] = ["192.0.2.1", "192.0.2.2", "127.0.0.1"].map(|text| text.parse().ok());
            let mut login = async |address, password: &[u8]| {
                let waits = Arc::new(());
                client.ask(clock::now(), AuthRequest::of_test("ann", password, &waits), address);
                decisions.recv().await.unwrap()
            };
            for _ in 0..3 {
                assert!(matches!(login(far, b"wrong").await, AuthDecision::Deny("wrong password")));
            }
            assert!(matches!(login(far, b"wrong").await, AuthDecision::Blocked));
            assert!(matches!(login(far, b"right").await, AuthDecision::Blocked));
            assert!(matches!(login(other, b"right").await, AuthDecision::Allow(_)));
            for _ in 0..5 {
                assert!(matches!(login(here, b"wrong").await, AuthDecision::Deny(_)));
            }
            assert!(matches!(login(here, b"right").await, AuthDecision::Allow(_)));
        });
    }

    #[test]
    fn guesses_that_are_sent_at_once_are_not_all_tried() {
        System::new().block_on(async {
            let (sender, mut decisions) = unbounded_channel();
            let reply = Decisions(sender).start().recipient();
            let (_authenticator, client) = guarded(Duration::ZERO, reply);
            let (waits, far) = (Arc::new(()), "192.0.2.1".parse().ok());
            for _ in 0..100 {
                client.ask(clock::now(), AuthRequest::of_test("ann", b"wrong", &waits), far);
            }
            let mut tried = 0;
            for _ in 0..100 {
                tried += usize::from(matches!(decisions.recv().await.unwrap(), AuthDecision::Deny(_)));
            }
            assert_eq!(tried, 3);
        });
    }
}
