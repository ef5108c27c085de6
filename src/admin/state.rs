//! The state of the HTTP interface, and its view of the broker.

use super::access::Caller;
use super::audit::AuditLog;
use super::caller_seats::{CallerSeat, CallerSeats};
use super::credentials::file::CredentialFile;
use super::failed::Failed;
use super::https::Scheme;
use super::listing::SharedSearch;
use super::login_failures::LoginFailures;
use super::logins::PageLogins;
use super::metrics::requests::RequestCounts;
use super::names::ProcessTag;
use super::queries::sorted_pass::LastPass;
use super::recent::RecentFigures;
use super::recent::history::History;
use super::terms::AdminTerms;
use super::timeline::Timeline;
use super::traces::Traces;
use super::wheel::LastWheel;
use crate::broker::bind;
use crate::broker::observer::Observer;
use crate::broker::standby::StandbyConfig;
use crate::clock;
use crate::cluster::row::ClusterView;
use crate::file_thread::{FileThread, NotRead, ReadLimits};
use crate::finding::Finding;
use crate::time::Instant;
use actix_web::web::Data;
use arc_swap::ArcSwap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Looks at the machine and the files of the broker. The call may block.
pub type DoctorChecks = Arc<dyn Fn() -> Vec<Finding> + Send + Sync>;

/// What the interface of a node of a cluster has, besides what each one has.
pub(super) struct NodeParts {
    /// The cluster as this node sees it.
    pub(super) view: Arc<ClusterView>,
    /// The configuration while the node stands by.
    pub(super) config: Arc<StandbyConfig>,
}

/// The state of the HTTP interface, and its view of the broker.
pub(super) struct AdminState {
    /// Empty until clients can connect.
    observer: OnceLock<Observer>,
    /// Empty until clients can connect.
    checks: OnceLock<DoctorChecks>,
    /// Empty without a cluster, and until this node has joined it.
    cluster: OnceLock<NodeParts>,
    checking: FileThread,
    /// The thread that changes the file of credentials.
    pub(super) changing: FileThread,
    /// The addresses that the interface is bound to. A request must name one of these hosts.
    pub(super) addresses: Vec<SocketAddr>,
    /// The scheme of all addresses.
    pub(super) scheme: Scheme,
    terms: ArcSwap<AdminTerms>,
    pub(super) credentials: CredentialFile,
    pub(super) logins: PageLogins,
    /// The actions of operators.
    pub(super) audit: AuditLog,
    pub(super) traces: Arc<Traces>,
    pub(super) process: ProcessTag,
    /// The last search for stuck clients.
    pub(super) stuck: SharedSearch,
    /// The last search for the longest queues.
    pub(super) longest_queues: SharedSearch,
    /// The last pass over all sessions for a sorted listing.
    pub(super) last_pass: LastPass,
    /// The last count of the deadlines.
    pub(super) wheel: LastWheel,
    pub(super) requests: RequestCounts,
    /// The number of the last request.
    last_request: AtomicU64,
    /// The last two minutes of a few figures.
    pub(super) recent: RecentFigures,
    /// The last hour and the last day of the figures of the charts.
    pub(super) history: History,
    pub(super) timeline: Timeline,
    streams: CallerSeats,
    /// Notified once, when the broker has started.
    has_started: Notify,
    /// The turns of each shard, and of the retained messages as the last.
    turns: Vec<AskTurns>,
    /// One permit for each caller that waits for a turn, or has one.
    waiting: Semaphore,
    /// Searches of all sessions: each asks the shards a thousand questions for a million sessions.
    pub(super) searches: OneAtATime,
    publishing: CallerSeats,
    /// Hashes of passwords.
    pub(super) passwords: OneAtATime,
    /// Changes and long reads of files about clients. So a flood of changes delays a reload by one
    /// change.
    pub(super) files: OneAtATime,
    failures: Mutex<LoginFailures>,
}

/// The state of the interface, as a request has it.
pub(super) type State = Data<AdminState>;

/// The largest number of shards (`runtime.threads`).
const SHARDS: usize = 64;

/// The rest of a shard between two questions. A question takes it 0.1 to 0.8 ms, so that questions
/// without an end take a part of its time.
const REST: Duration = Duration::from_millis(1);

/// Callers that may wait for a turn, or have one, at once.
const WAITING: usize = 32;

/// Callers that may wait for a search of all sessions, or do one, at once.
const SEARCHES: usize = 8;

/// Time for the look at the machine and the files. A disk that hangs may take for ever.
const CHECKS: Duration = Duration::from_secs(5);

/// Live streams at once.
const STREAMS: usize = 32;

/// Requests that may publish at once. Each has a body of 1 MiB at most.
const PUBLISHING: usize = 64;

/// Time for a change of the file of credentials. A disk that hangs may take for ever.
const CHANGE: Duration = Duration::from_secs(5);

/// Passwords that may wait for their check, or be checked, at once.
const PASSWORDS: usize = 8;

/// Changes and long reads of files about clients that may wait, or be made, at once. A change has a
/// body of 1 MiB at most.
const FILES: usize = 32;

/// The turn of one caller: to search all sessions, to have a password hashed, or to use a file
/// about clients. Another caller has its turn when the value is dropped. Work that goes on without
/// its caller takes the turn along.
pub(super) struct CallerTurn {
    _permit: OwnedSemaphorePermit,
    _seat: OwnedSemaphorePermit,
}

/// The seat of a request that publishes.
pub(super) struct PublishSeat {
    _seat: CallerSeat,
}

/// The turn of one caller to ask a shard, or to read the retained messages.
pub(super) struct AskTurn<'a> {
    /// The end of the turn before.
    before: &'a Mutex<Instant>,
    _permit: SemaphorePermit<'a>,
    _seat: SemaphorePermit<'a>,
}

impl AskTurn<'_> {
    /// Waits until [`REST`] has passed since the previous turn of any caller.
    pub(super) async fn rested(&self) {
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = clock::now().since(before);
        if let Some(rest) = REST.checked_sub(passed).filter(|rest| !rest.is_zero()) {
            tokio::time::sleep(rest).await;
        }
    }
}

impl Drop for AskTurn<'_> {
    fn drop(&mut self) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = clock::now();
    }
}

/// The turns of callers that ask a shard: one after the other.
struct AskTurns {
    turn: Semaphore,
    /// The end of the last turn.
    before: Mutex<Instant>,
}

/// An action of one caller at a time, while few others wait.
pub(super) struct OneAtATime {
    turn: Arc<Semaphore>,
    /// One permit for each caller that waits for its turn, or has it.
    seats: Arc<Semaphore>,
}

impl OneAtATime {
    fn new(seats: usize) -> OneAtATime {
        OneAtATime { turn: Arc::new(Semaphore::new(1)), seats: Arc::new(Semaphore::new(seats)) }
    }

    /// Waits for the turn. Returns `None` if too many wait already. A caller that goes while it
    /// waits drops its place.
    pub(super) async fn turn(&self) -> Option<CallerTurn> {
        let seat = Arc::clone(&self.seats).try_acquire_owned().ok()?;
        let permit = Arc::clone(&self.turn).acquire_owned().await.ok()?;
        Some(CallerTurn { _permit: permit, _seat: seat })
    }
}

impl AdminState {
    pub(super) fn new(
        scheme: Scheme,
        addresses: Vec<SocketAddr>,
        credentials: CredentialFile,
        terms: AdminTerms,
    ) -> AdminState {
        let turn = |_| AskTurns { turn: Semaphore::new(1), before: Mutex::new(Instant::ZERO) };
        let turns = (0..=SHARDS).map(turn).collect();
        AdminState {
            observer: OnceLock::new(),
            cluster: OnceLock::new(),
            checks: OnceLock::new(),
            checking: FileThread::new("homing-doctor", ReadLimits::both(CHECKS)),
            changing: FileThread::new("homing-admin-ch", ReadLimits::both(CHANGE)),
            addresses,
            scheme,
            terms: ArcSwap::from_pointee(terms),
            credentials,
            logins: PageLogins::default(),
            audit: AuditLog::default(),
            traces: Arc::default(),
            process: ProcessTag::of_start(clock::unix_millis()),
            stuck: SharedSearch::default(),
            longest_queues: SharedSearch::default(),
            last_pass: LastPass::default(),
            wheel: LastWheel::default(),
            requests: RequestCounts::default(),
            last_request: AtomicU64::new(0),
            recent: RecentFigures::default(),
            history: History::default(),
            timeline: Timeline::default(),
            streams: CallerSeats::new("live streams", STREAMS),
            has_started: Notify::new(),
            turns,
            waiting: Semaphore::new(WAITING),
            publishing: CallerSeats::new("requests that publish", PUBLISHING),
            searches: OneAtATime::new(SEARCHES),
            passwords: OneAtATime::new(PASSWORDS),
            files: OneAtATime::new(FILES),
            failures: Mutex::default(),
        }
    }

    /// Returns true if a caller is still admitted. A caller does not outlive its credential. A user
    /// of the Unix socket has none.
    pub(super) fn still_admits(&self, caller: &Caller) -> bool {
        caller.is_of_socket() || self.credentials.known().has(caller, clock::unix_millis())
    }

    /// Puts the settings of a reload in force, with the path of the file of credentials.
    pub(super) fn put_in_force(&self, terms: AdminTerms, credentials: Option<PathBuf>) {
        self.terms.store(Arc::new(terms));
        self.credentials.follow(credentials);
        self.hide_traced_payloads();
    }

    /// Hides the payloads of all traces if nobody may see them. A trace that begins meanwhile calls
    /// it, too.
    pub(super) fn hide_traced_payloads(&self) {
        if self.hides_payloads() {
            self.traces.hide_payloads();
        }
    }

    /// Returns the settings that a reload changes.
    pub(super) fn terms(&self) -> Arc<AdminTerms> {
        self.terms.load_full()
    }

    /// Returns true if nobody may see the payload of a message.
    pub(super) fn hides_payloads(&self) -> bool {
        self.terms.load().hides_payloads()
    }

    /// Returns the number of a new request.
    pub(super) fn next_request(&self) -> u64 {
        self.last_request.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the port of the first address; 0 without one.
    pub(super) fn port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }

    /// Returns the URLs of the interface, without a slash at the end.
    pub(super) fn urls(&self) -> impl Iterator<Item = String> {
        let scheme = self.scheme.name();
        self.addresses.iter().map(move |address| format!("{scheme}://{address}"))
    }

    /// Returns the URLs by which a browser may reach the pages, without a slash at the end. An
    /// interface on all addresses is reached by the first name of `admin.hosts`, because a
    /// certificate is for a name, or else on this machine.
    pub(super) fn page_urls(&self) -> impl Iterator<Item = String> {
        let scheme = self.scheme.name();
        let name = self.terms.load().first_host().map(str::to_owned);
        self.addresses.iter().map(move |&address| match &name {
            Some(name) if address.ip().is_unspecified() => format!("{scheme}://{name}:{}", address.port()),
            _ => format!("{scheme}://{}", bind::reachable(address)),
        })
    }

    /// Returns the seat of one live stream of a caller. Errors: too many are open.
    pub(super) fn stream_seat(&self, caller: &Caller) -> Result<CallerSeat, Failed> {
        self.streams.take(caller.clone())
    }

    /// Waits for the start of the broker.
    pub(super) async fn started_observer(&self) -> &Observer {
        loop {
            // Before the look, so that a start between both is noticed.
            let started = self.has_started.notified();
            if let Some(observer) = self.observer() {
                return observer;
            }
            started.await;
        }
    }

    /// Waits for the turn to ask a shard. Returns `None` if too many wait already.
    pub(super) async fn turn(&self, shard: usize) -> Option<AskTurn<'_>> {
        let AskTurns { turn, before } = self.turns.get(shard)?;
        // A caller that goes while it waits drops its seat.
        let seat = self.waiting.try_acquire().ok()?;
        let permit = turn.acquire().await.ok()?;
        Some(AskTurn { before, _permit: permit, _seat: seat })
    }

    /// Waits for the turn to read the retained messages. All shards share their lock. Returns
    /// `None` if too many wait already.
    pub(super) async fn retained_turn(&self) -> Option<AskTurn<'_>> {
        self.turn(SHARDS).await
    }

    /// Returns a seat of a caller to publish. Errors: too many requests publish already.
    pub(super) fn publish_seat(&self, caller: &Caller) -> Result<PublishSeat, Failed> {
        self.publishing.take(caller.clone()).map(|seat| PublishSeat { _seat: seat })
    }

    /// Makes the checks of the machine and of the files of the broker. Errors: a disk hangs, or
    /// other checks are under way.
    pub(super) async fn check(&self) -> Result<Vec<Finding>, NotRead> {
        let Some(check) = self.checks.get().cloned() else { return Ok(Vec::new()) };
        self.checking.run(move || check()).await
    }

    /// Locks the failed logins.
    pub(super) fn login_failures(&self) -> MutexGuard<'_, LoginFailures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this process stands by as a node of a cluster.
    pub(super) fn joined(&self, node: NodeParts, checks: DoctorChecks) {
        let _ = self.checks.set(checks);
        let _ = self.cluster.set(node);
    }

    /// Returns the cluster as this node sees it; `None` without one.
    pub(super) fn cluster(&self) -> Option<&ClusterView> {
        self.cluster.get().map(|node| &*node.view)
    }

    /// Returns the configuration of a node that stands by. Errors: there is none, because the broker
    /// starts.
    pub(super) fn standby_config(&self) -> Result<&Arc<StandbyConfig>, Failed> {
        self.cluster.get().map(|node| &node.config).ok_or(Failed::Starting)
    }

    /// Notes that clients can connect.
    pub(super) fn started(&self, observer: Observer, checks: DoctorChecks) {
        let _ = self.checks.set(checks);
        let _ = self.observer.set(observer);
        self.has_started.notify_waiters();
    }

    /// Returns the view of the broker; `None` while it starts.
    pub(super) fn observer(&self) -> Option<&Observer> {
        self.observer.get()
    }

    /// Returns the view of the broker. Errors: clients cannot connect yet, or this node stands by.
    pub(super) fn running(&self) -> Result<&Observer, Failed> {
        self.observer().ok_or_else(|| self.serving_node().map_or(Failed::Starting, Failed::Standby))
    }

    /// Returns true if `host` is a loopback name or address, or an address of the interface. A web
    /// page that had its own name resolve to this machine is refused by it.
    pub(super) fn is_own_host(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let name = name.map_or(host, |(name, _)| name);
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match name.parse::<IpAddr>() {
            // Bound to all addresses, the interface is reached by any of them. A name that an
            // attacker controls is no address.
            Ok(address) => {
                address.is_loopback()
                    || self.addresses.iter().any(|own| own.ip() == address || own.ip().is_unspecified())
            }
            Err(_) => name.eq_ignore_ascii_case("localhost") || self.terms.load().has_host(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Admin;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_caller_that_goes_while_it_waits_for_a_turn_leaves_its_seat() {
        let state =
            AdminState::new(Scheme::Http, Vec::new(), CredentialFile::default(), AdminTerms::default());
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(first)) = pin!(state.turn(0)).poll(&mut cx) else { panic!("the first turn") };
        for n in 0..=WAITING {
            assert!(pin!(state.turn(0)).poll(&mut cx).is_pending(), "caller {n} waits");
        }
        let mut waiting: Vec<_> = (1..WAITING).map(|_| Box::pin(state.turn(0))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.as_mut().poll(&mut cx).is_pending()));
        let beyond = pin!(state.turn(1)).poll(&mut cx);
        assert!(matches!(beyond, Poll::Ready(None)), "every seat is taken");
        drop((waiting, first));
        assert!(matches!(pin!(state.turn(0)).poll(&mut cx), Poll::Ready(Some(_))));
    }

    #[test]
    fn eight_callers_wait_for_a_search_and_a_ninth_is_refused() {
        let state =
            AdminState::new(Scheme::Http, Vec::new(), CredentialFile::default(), AdminTerms::default());
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(first)) = pin!(state.searches.turn()).poll(&mut cx) else {
            panic!("the first search")
        };
        let mut waiting: Vec<_> = (1..SEARCHES).map(|_| Box::pin(state.searches.turn())).collect();
        assert!(waiting.iter_mut().all(|turn| turn.as_mut().poll(&mut cx).is_pending()));
        assert!(matches!(pin!(state.searches.turn()).poll(&mut cx), Poll::Ready(None)));
        drop((waiting, first));
        assert!(matches!(pin!(state.searches.turn()).poll(&mut cx), Poll::Ready(Some(_))));
    }

    #[test]
    fn a_host_is_loopback_or_an_address_of_the_interface_and_never_a_foreign_name() {
        let state = AdminState::new(
            Scheme::Http,
            vec![SocketAddr::from((Ipv4Addr::new(10, 0, 0, 9), 11_883))],
            CredentialFile::default(),
            AdminTerms::of(&Admin { hosts: vec!["Broker.example.org".to_owned()], ..Admin::default() }),
        );
        for own in [
            "localhost",
            "LocalHost:11883",
            "127.0.0.1",
            "127.0.0.1:11883",
            "[::1]:11883",
            "10.0.0.9:80",
            "broker.example.org:11883",
        ] {
            assert!(state.is_own_host(own), "{own}");
        }
        for foreign in
            ["example.com", "example.com:11883", "10.0.0.8", "localhost.example.com", "", "[::2]:1"]
        {
            assert!(!state.is_own_host(foreign), "{foreign}");
        }
        let everywhere = AdminState::new(
            Scheme::Http,
            vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 11_883))],
            CredentialFile::default(),
            AdminTerms::default(),
        );
        assert!(everywhere.is_own_host("192.168.3.4:11883") && !everywhere.is_own_host("rebound.example"));
    }

    #[test]
    fn the_pages_of_an_interface_on_all_addresses_are_reached_by_its_name_or_on_this_machine() {
        let urls = |address: &str, hosts: &[&str]| {
            let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
            let terms = AdminTerms::of(&Admin { hosts, ..Admin::default() });
            let bound = vec![address.parse().expect("an address")];
            let state = AdminState::new(Scheme::Https, bound, CredentialFile::default(), terms);
            state.page_urls().collect::<Vec<_>>()
        };
        assert_eq!(urls("0.0.0.0:11883", &[]), ["https://127.0.0.1:11883"]);
        assert_eq!(urls("[::]:11883", &[]), ["https://[::1]:11883"]);
        assert_eq!(urls("0.0.0.0:11883", &["broker.example"]), ["https://broker.example:11883"]);
        assert_eq!(urls("10.0.0.9:11883", &["broker.example"]), ["https://10.0.0.9:11883"]);
    }
}
