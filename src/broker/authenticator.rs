//! The authenticator: threads that check passwords, and a queue that is bounded in time.
//!
//! A request enters the queue only if all work before it and its own fit into `auth.timeout`. So a
//! storm of logins serves as many clients as it can, and refuses the others at once, instead of
//! letting all of them wait until they give up. A shard thread asks its own cache first, which
//! needs no lock because a client always lives in the same shard.
//!
//! A changed line of the password file has another fingerprint. The fingerprint is a part of the
//! cache's key, and is compared again when a decision arrives. So a decision never outlives the
//! line on which it rests.

use super::message::Decided;
use crate::access::identity::{Identity, IdentitySource};
use crate::auth::password::file::{Fingerprint, PasswordFile, Verdict};
use crate::auth::password::hash::{HashCost, HashKind};
use crate::clock;
use crate::shard::authentication::{AuthDecision, AuthRequest};
use crate::time::Instant;
use actix::Recipient;
use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of names and passwords that may wait.
const QUEUED_BYTES: usize = 16 << 20;

/// Entries of all caches together.
const CACHED: usize = 65_536;

/// The part of a new measurement in the average, as one in so many.
const SMOOTHING: f64 = 8.0;

/// Settings of the authenticator.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuthenticatorOptions {
    /// Number of threads.
    pub workers: usize,
    /// The time within which a request has to be decided.
    pub timeout: Duration,
    /// The time for which a successful check is remembered; zero is not at all.
    pub cache: Duration,
    /// Number of shards, which share the entries of the caches.
    pub shards: usize,
}

/// The threads that check passwords. Dropping the value ends them.
pub(super) struct Authenticator {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

struct Inner {
    passwords: ArcSwap<PasswordFile>,
    options: AuthenticatorOptions,
    /// The key of the caches. It never leaves the process.
    key: hmac::Key,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The time that the jobs will take on one thread.
    pending: Duration,
    bytes: usize,
    averages: Averages,
    stopping: bool,
}

struct Job {
    request: AuthRequest,
    cost: HashCost,
    expected: Duration,
    bytes: usize,
    key: CacheKey,
    reply: Recipient<Decided>,
}

type CacheKey = [u8; 32];

/// The evidence of a successful check.
#[derive(Debug)]
pub(super) struct Proof {
    key: CacheKey,
    user: Box<str>,
    fingerprint: Fingerprint,
}

/// For each kind of hash, the measured time as a multiple of the estimate.
#[derive(Clone, Copy, Debug)]
struct Averages([f64; 4]);

impl Default for Averages {
    fn default() -> Averages {
        Averages([1.0; 4])
    }
}

impl Averages {
    fn place(kind: HashKind) -> usize {
        match kind {
            HashKind::Sha512 => 0,
            HashKind::Pbkdf2 => 1,
            HashKind::Argon2 => 2,
            HashKind::Scram => 3,
        }
    }

    /// Returns the time that a check will take, as far as it is known.
    fn expected(&self, cost: HashCost) -> Duration {
        Duration::from_micros(cost.estimated_us).mul_f64(self.0[Averages::place(cost.kind)])
    }

    fn add(&mut self, cost: HashCost, took: Duration) {
        let factor = took.as_secs_f64() / Duration::from_micros(cost.estimated_us.max(1)).as_secs_f64();
        let average = &mut self.0[Averages::place(cost.kind)];
        // A thread that was not scheduled for a while must not stop all logins.
        *average += (factor.clamp(0.01, 100.0) - *average) / SMOOTHING;
    }
}

impl Authenticator {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system refuses a thread, or has no randomness.
    pub(super) fn start(
        passwords: Arc<PasswordFile>,
        options: AuthenticatorOptions,
    ) -> io::Result<Authenticator> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| io::Error::other("the system has no random numbers"))?;
        let inner = Arc::new(Inner {
            passwords: ArcSwap::new(passwords),
            options,
            key,
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
    pub(super) fn client(&self, reply: Recipient<Decided>) -> AuthClientParts {
        AuthClientParts { inner: Arc::clone(&self.inner), reply }
    }

    /// Checks passwords against this file from now on. Returns the file before it.
    pub(super) fn replace(&self, passwords: Arc<PasswordFile>) -> Arc<PasswordFile> {
        self.inner.passwords.swap(passwords)
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
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request into the queue. Returns false if the queue has too much work.
    fn push(&self, mut job: Job) -> bool {
        let mut queue = self.lock();
        job.expected = queue.averages.expected(job.cost);
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
            let took = (!job.request.is_abandoned()).then(|| self.decide(&job));
            let mut queue = self.lock();
            // The work counts as pending while it is done.
            queue.pending = queue.pending.saturating_sub(job.expected);
            queue.bytes -= job.bytes;
            if let Some(took) = took {
                queue.averages.add(job.cost, took);
            }
        }
    }

    /// Decides one request, and returns the time that it took.
    fn decide(&self, job: &Job) -> Duration {
        let began = clock::nanos();
        let passwords = self.passwords.load_full();
        let user = job.request.user_name.as_deref().unwrap_or_default();
        let password = job.request.password.as_ref();
        let verdict = passwords.verify(user, password.map_or(&[], |secret| secret.bytes()));
        let took = Duration::from_nanos(clock::nanos().saturating_sub(began));
        let (decision, proof) = match (verdict, passwords.fingerprint(user)) {
            (Verdict::Verified, Some(fingerprint)) if password.is_some() => {
                let identity = Arc::new(Identity::new(user, IdentitySource::Password));
                let proof = Proof { key: job.key, user: user.into(), fingerprint };
                (AuthDecision::Allow(identity), Some(proof))
            }
            (Verdict::UnknownUser, _) => (AuthDecision::Deny("unknown user name"), None),
            _ => (AuthDecision::Deny("wrong password"), None),
        };
        job.reply.do_send(Decided { connection: job.request.connection, decision, proof });
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
pub(super) struct AuthClient {
    parts: AuthClientParts,
    cache: RefCell<Cache>,
}

impl AuthClient {
    /// Returns the client of one shard, with an empty cache.
    pub(super) fn new(parts: AuthClientParts) -> AuthClient {
        let AuthenticatorOptions { cache, shards, .. } = parts.inner.options;
        let most = if cache.is_zero() { 0 } else { CACHED / shards.max(1) };
        AuthClient { cache: RefCell::new(Cache { most, ..Cache::default() }), parts }
    }

    /// Asks about a CONNECT. The decision comes as a [`Decided`] in every case.
    pub(super) fn ask(&self, now: Instant, request: AuthRequest) {
        let AuthClientParts { inner, reply } = &self.parts;
        let connection = request.connection;
        let user = request.user_name.as_deref().unwrap_or_default();
        let passwords = inner.passwords.load();
        let fingerprint = passwords.fingerprint(user);
        let password = request.password.as_ref().map(|secret| secret.bytes());
        let key = cache_key(&inner.key, fingerprint, user, password);
        if let (Some(fingerprint), Some(identity)) = (fingerprint, self.cache.borrow().find(now, &key)) {
            let proof = Some(Proof { key, user: user.into(), fingerprint });
            reply.do_send(Decided { connection, decision: AuthDecision::Allow(identity), proof });
            return;
        }
        let Some(cost) = passwords.cost(user) else {
            let decision = AuthDecision::Deny("unknown user name: the password file has no user");
            reply.do_send(Decided { connection, decision, proof: None });
            return;
        };
        let bytes = request.size();
        let job = Job { request, cost, expected: Duration::ZERO, bytes, key, reply: reply.clone() };
        if !inner.push(job) {
            reply.do_send(Decided { connection, decision: AuthDecision::Busy, proof: None });
        }
    }

    /// Takes a decision in, and returns what the shard gets. A decision that rests on a line of the
    /// password file that has changed since is not valid any more.
    pub(super) fn decided(&self, now: Instant, decision: AuthDecision, proof: Option<Proof>) -> AuthDecision {
        let (AuthDecision::Allow(identity), Some(proof)) = (&decision, proof) else { return decision };
        let inner = &self.parts.inner;
        if inner.passwords.load().fingerprint(&proof.user) != Some(proof.fingerprint) {
            return AuthDecision::Unavailable("the password file has changed meanwhile");
        }
        let until = now + inner.options.cache;
        self.cache.borrow_mut().insert(now, proof.key, identity, until);
        decision
    }
}

/// Returns the key under which a successful check is remembered. It reveals nothing about the
/// password to anybody without the key of the process.
fn cache_key(
    key: &hmac::Key,
    fingerprint: Option<Fingerprint>,
    user: &str,
    password: Option<&[u8]>,
) -> CacheKey {
    let mut context = hmac::Context::with_key(key);
    context.update(fingerprint.as_ref().map_or(&[][..], |fingerprint| &fingerprint.as_bytes()[..]));
    context.update(&(user.len() as u64).to_be_bytes());
    context.update(user.as_bytes());
    // No password is not the same as an empty one.
    context.update(&[u8::from(password.is_some())]);
    context.update(password.unwrap_or_default());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.sign().as_ref());
    bytes
}

/// Successful checks of one shard. All entries live for the same time, so the oldest ends first.
#[derive(Default)]
struct Cache {
    most: usize,
    entries: HashMap<CacheKey, (Arc<Identity>, Instant)>,
    order: VecDeque<CacheKey>,
}

impl Cache {
    fn find(&self, now: Instant, key: &CacheKey) -> Option<Arc<Identity>> {
        let (identity, until) = self.entries.get(key)?;
        (now < *until).then(|| Arc::clone(identity))
    }

    fn insert(&mut self, now: Instant, key: CacheKey, identity: &Arc<Identity>, until: Instant) {
        if self.most == 0 || self.find(now, &key).is_some() {
            return;
        }
        while let Some(oldest) = self.order.front()
            && (self.order.len() >= self.most
                || self.entries.get(oldest).is_none_or(|(_, until)| *until <= now))
        {
            self.entries.remove(oldest);
            self.order.pop_front();
        }
        self.entries.insert(key, (Arc::clone(identity), until));
        self.order.push_back(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::password::hash::PasswordHash;
    use crate::auth::password::pbkdf2::Pbkdf2Hash;
    use std::path::Path;

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
        let cost = HashCost { kind: HashKind::Argon2, estimated_us: 40_000 };
        assert_eq!(averages.expected(cost), Duration::from_millis(40));
        for _ in 0..100 {
            averages.add(cost, Duration::from_millis(80));
        }
        assert!(averages.expected(cost) > Duration::from_millis(79));
        let other = HashCost { kind: HashKind::Sha512, estimated_us: 10 };
        assert_eq!(averages.expected(other), Duration::from_micros(10));
    }

    #[test]
    fn a_cache_forgets_the_oldest_and_the_expired() {
        let mut cache = Cache { most: 2, ..Cache::default() };
        let ann = Arc::new(Identity::new("ann", IdentitySource::Password));
        let [one, two, three] = [[1; 32], [2; 32], [3; 32]];
        let at = Instant::from_millis;
        cache.insert(at(0), one, &ann, at(10));
        cache.insert(at(1), two, &ann, at(11));
        assert!(cache.find(at(9), &one).is_some() && cache.find(at(10), &one).is_none());
        cache.insert(at(2), three, &ann, at(12));
        assert!(cache.find(at(2), &one).is_none() && cache.find(at(2), &two).is_some());
        cache.insert(at(20), one, &ann, at(30));
        assert_eq!((cache.entries.len(), cache.order.len()), (1, 1));
    }

    #[test]
    fn the_key_of_the_cache_depends_on_all_of_its_parts() {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("randomness");
        let (one, other) = (file(&[("ann", "a", 1)]), file(&[("ann", "a", 2)]));
        let of = |file: &PasswordFile, user, password: &[u8]| {
            cache_key(&key, file.fingerprint("ann"), user, Some(password))
        };
        let base = of(&one, "ann", b"secret");
        assert_eq!(base, of(&one, "ann", b"secret"));
        for differs in [of(&other, "ann", b"secret"), of(&one, "anns", b"ecret"), of(&one, "ann", b"Secret")]
        {
            assert_ne!(base, differs);
        }
        assert_ne!(of(&one, "ann", b""), cache_key(&key, one.fingerprint("ann"), "ann", None));
    }
}
