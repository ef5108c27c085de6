//! Holds the counters that all threads share: connections, the memory budget, and a snapshot of
//! each shard.

use crate::broker::bridges::status::BridgeDirectory;
use crate::broker::events::feed::Feed;
use crate::broker::events::moments::TimelineMoment;
#[cfg(feature = "otlp")]
use crate::broker::export_counts::ExportCounts;
use crate::broker::handshake_counts::HandshakeCounts;
use crate::broker::listener_counts::ListenerCounts;
use crate::broker::sinks::status::SinkDirectory;
use crate::clock;
use crate::expiry::statistics::ExpiryStatistics;
use crate::login::listener_terms::ListenerConnections;
use crate::pulse::Pulses;
use crate::session::trace_steps::TraceStep;
use crate::shard::{ShardSnapshot, SharedState};
use crate::store::statistics::StoreStatistics;
use crate::time::Instant;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;

/// Returns topics below `$SYS/broker/` with their values. Called on the thread of a shard, so it must
/// not wait for anything.
type FurtherFigures = Box<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// Figures of `$SYS` that are not the broker's own; empty without any.
#[derive(Default)]
struct Further(OnceLock<FurtherFigures>);

impl fmt::Debug for Further {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Further(..)")
    }
}

/// The counters of the broker. Listeners and shards write them; `$SYS` and the dump read them.
#[derive(Debug)]
pub struct BrokerStatistics {
    /// Sockets that are accepted and not closed, with those that have not sent CONNECT.
    connections: AtomicUsize,
    /// Sockets that were accepted since the start.
    opened: AtomicU64,
    /// Both for each listener.
    listeners: ListenerCounts,
    limits: Mutex<BrokerLimits>,
    shared: Arc<SharedState>,
    /// The moments of redelivery, for the timeline of the HTTP interface.
    pub moments: Feed<TimelineMoment>,
    /// The steps of traces, for the HTTP interface.
    pub trace_steps: Feed<TraceStep>,
    /// The steps of traces that the export by OTLP takes from the HTTP interface.
    #[cfg(feature = "otlp")]
    pub exported_steps: Feed<TraceStep>,
    /// The counters of the export by OTLP; empty until it has started.
    #[cfg(feature = "otlp")]
    pub export: OnceLock<Arc<ExportCounts>>,
    /// The states of the bridges.
    pub bridges: BridgeDirectory,
    /// The states of the sinks.
    pub sinks: SinkDirectory,
    /// The counters of the expiry actor.
    pub expiry: Arc<ExpiryStatistics>,
    /// The counters of reloads.
    pub config: ReloadStatistics,
    /// The counters of the store. Empty until its threads have started, and without a store.
    store: OnceLock<Arc<StoreStatistics>>,
    further: Further,
    /// Sockets that were closed for `limits.connects_per_address`.
    refused_addresses: AtomicU64,
    handshakes: HandshakeCounts,
    stopping: AtomicBool,
    stop: Notify,
    /// Events that the rates did not admit.
    suppressed_events: AtomicU64,
    /// Bytes read from sockets and written to them, as the shards last reported.
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// By [`Maximum`].
    maxima: [AtomicU64; 2],
    /// The days that certificates and revocation lists have left.
    tls_days: Mutex<TlsDaysLeft>,
    /// The time of the last report with further drops, in milliseconds since the start;
    /// [`Instant::NEVER`] without one.
    last_drop: AtomicU64,
    /// The same of drops whose reason is not ordinary.
    last_loss: AtomicU64,
    /// The threads that a client needs.
    pulses: Pulses,
    /// The snapshot that each shard took in its last housekeeping.
    shards: Vec<Mutex<ShardSnapshot>>,
}

/// The counters of reloads of the configuration.
#[derive(Debug, Default)]
pub struct ReloadStatistics {
    done: AtomicU64,
    refused: AtomicU64,
    /// True if the last reload was refused.
    is_last_refused: AtomicBool,
    restart_pending: AtomicUsize,
}

impl ReloadStatistics {
    /// Counts a reload that was done. `pending` keys wait for a restart.
    pub(super) fn done(&self, pending: usize) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.is_last_refused.store(false, Ordering::Relaxed);
        self.restart_pending.store(pending, Ordering::Relaxed);
    }

    /// Counts a reload that was refused.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.is_last_refused.store(true, Ordering::Relaxed);
    }

    /// Returns true if the last reload was refused.
    pub fn is_last_refused(&self) -> bool {
        self.is_last_refused.load(Ordering::Relaxed)
    }

    /// Returns the number of reloads that were done, and of those that were refused.
    pub fn reloads(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Returns the number of keys whose new value needs a restart.
    pub fn restart_pending(&self) -> usize {
        self.restart_pending.load(Ordering::Relaxed)
    }
}

/// The whole days until the first certificate of the broker ends, and the first revocation list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsDaysLeft {
    /// `None` without TLS.
    pub certificate: Option<u64>,
    /// `None` without a revocation list that ends.
    pub crl: Option<u64>,
}

/// The limits of the configuration that a metric compares with what is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerLimits {
    /// `limits.connections`, or the number that the file descriptors allow.
    pub connections: usize,
    /// `limits.sessions`.
    pub sessions: usize,
    /// `limits.retained_messages`.
    pub retained_messages: usize,
    /// `limits.delayed_messages`.
    pub delayed_messages: usize,
}

/// A figure whose largest value is published, too.
#[derive(Clone, Copy, Debug)]
pub enum Maximum {
    /// Connected clients.
    Connected,
    /// Bytes that the allocator has handed out.
    Heap,
}

/// A limit on connections that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLimit {
    /// `limits.connections`.
    Broker,
    /// `connections` of the listener.
    Listener,
}

impl BrokerStatistics {
    /// Sets the days that certificates and revocation lists have left.
    pub fn set_tls_days(&self, days: TlsDaysLeft) {
        *self.tls_days.lock().unwrap_or_else(PoisonError::into_inner) = days;
    }

    /// Returns the days that certificates and revocation lists have left.
    pub fn tls_days(&self) -> TlsDaysLeft {
        *self.tls_days.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns counters at zero, for this number of shards.
    pub fn new(shards: usize, shared: Arc<SharedState>) -> BrokerStatistics {
        BrokerStatistics {
            connections: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            listeners: ListenerCounts::default(),
            limits: Mutex::default(),
            shared,
            tls_days: Mutex::default(),
            moments: Feed::default(),
            trace_steps: Feed::default(),
            #[cfg(feature = "otlp")]
            exported_steps: Feed::default(),
            #[cfg(feature = "otlp")]
            export: OnceLock::new(),
            bridges: BridgeDirectory::default(),
            sinks: SinkDirectory::default(),
            expiry: Arc::default(),
            store: OnceLock::new(),
            further: Further::default(),
            config: ReloadStatistics::default(),
            refused_addresses: AtomicU64::new(0),
            handshakes: HandshakeCounts::default(),
            stopping: AtomicBool::new(false),
            stop: Notify::new(),
            suppressed_events: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            maxima: Default::default(),
            last_drop: AtomicU64::new(Instant::NEVER.as_millis()),
            last_loss: AtomicU64::new(Instant::NEVER.as_millis()),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            pulses: Pulses::default(),
        }
    }

    /// Passes a step of a trace on to the export by OTLP, without the payload. Never waits.
    pub fn export_step(&self, step: TraceStep) {
        #[cfg(feature = "otlp")]
        self.exported_steps.offer(|| TraceStep { payload: None, ..step });
        #[cfg(not(feature = "otlp"))]
        drop(step);
    }

    /// Counts a connection of a listener. `limit` is the maximum of the broker, and `of_listener`
    /// that of the listener.
    ///
    /// # Errors
    /// The limit that is reached. Nothing is counted then.
    pub fn open_connection(
        &self,
        listener: &ListenerConnections,
        limit: usize,
        of_listener: usize,
    ) -> Result<(), ConnectionLimit> {
        let listener_before = listener.add();
        let reached = if self.connections.fetch_add(1, Ordering::Relaxed) >= limit {
            ConnectionLimit::Broker
        } else if listener_before >= of_listener {
            ConnectionLimit::Listener
        } else {
            self.opened.fetch_add(1, Ordering::Relaxed);
            listener.count_opened();
            return Ok(());
        };
        self.connection_closed(listener);
        Err(reached)
    }

    /// Counts a connection of a listener less.
    pub fn connection_closed(&self, listener: &ListenerConnections) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        listener.remove();
    }

    /// Notes that the broker stops.
    pub(super) fn stops(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
    }

    /// Returns true once the broker stops.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until the broker stops.
    pub(super) async fn stopped(&self) {
        // Before the look, so that a stop between both is noticed.
        let stop = self.stop.notified();
        if !self.is_stopping() {
            stop.await;
        }
    }

    /// Returns the counts of each listener.
    pub fn listeners(&self) -> &ListenerCounts {
        &self.listeners
    }

    /// Returns the connections of all listeners since the start.
    pub fn opened_connections(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns the open connections of all listeners.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Sets the limits of the configuration.
    pub fn set_limits(&self, limits: BrokerLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Returns the limits of the configuration.
    pub fn limits(&self) -> BrokerLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes that count against `limits.memory`.
    pub fn memory(&self) -> u64 {
        self.shared.budget.in_use()
    }

    /// Returns `limits.memory`, in bytes.
    pub fn memory_limit(&self) -> u64 {
        self.shared.budget.most()
    }

    /// Sets the counters of the store, once its threads have started.
    pub fn set_store(&self, statistics: Arc<StoreStatistics>) {
        let _ = self.store.set(statistics);
    }

    /// Publishes these figures on `$SYS`, too. The first call counts.
    pub fn publish_further(&self, figures: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static) {
        let _ = self.further.0.set(Box::new(figures));
    }

    /// Returns the figures of `$SYS` that are not the broker's own.
    pub(super) fn further_figures(&self) -> Vec<(String, String)> {
        self.further.0.get().map(|figures| figures()).unwrap_or_default()
    }

    /// Returns the counters of the store; `None` without a store.
    pub fn store(&self) -> Option<&StoreStatistics> {
        self.store.get().map(|s| &**s)
    }

    /// Counts one socket that was closed for `limits.connects_per_address`.
    pub fn address_refused(&self) {
        self.refused_addresses.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of sockets that were closed for `limits.connects_per_address`, since the
    /// start.
    pub fn refused_addresses(&self) -> u64 {
        self.refused_addresses.load(Ordering::Relaxed)
    }

    /// Returns the counts of connections that were refused in their handshakes.
    pub fn handshakes_refused(&self) -> &HandshakeCounts {
        &self.handshakes
    }

    /// Counts one event that the rates did not admit.
    pub fn event_suppressed(&self) {
        self.suppressed_events.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of events that the rates did not admit, since the start.
    pub fn suppressed_events(&self) -> u64 {
        self.suppressed_events.load(Ordering::Relaxed)
    }

    /// Adds bytes that one shard read and wrote since its last report.
    pub fn add_bytes(&self, received: u64, sent: u64) {
        self.received_bytes.fetch_add(received, Ordering::Relaxed);
        self.sent_bytes.fetch_add(sent, Ordering::Relaxed);
    }

    /// Returns the number of bytes read from sockets since the start, up to the last reports.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes written to sockets since the start, up to the last reports.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Records a figure that is published now, and returns the largest one so far.
    pub fn largest(&self, of: Maximum, now: u64) -> u64 {
        self.maxima[of as usize].fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Replaces the snapshot of one shard.
    pub fn report(&self, shard: usize, snapshot: ShardSnapshot) {
        let now = clock::now().as_millis();
        if let Some(place) = self.shards.get(shard) {
            let mut last = place.lock().unwrap_or_else(PoisonError::into_inner);
            if snapshot.counters.drops.total() > last.counters.drops.total() {
                self.last_drop.store(now, Ordering::Relaxed);
                if snapshot.counters.drops.losses() > last.counters.drops.losses() {
                    self.last_loss.store(now, Ordering::Relaxed);
                }
            }
            *last = snapshot;
        }
    }

    /// Returns the time of the last drop of a message, to the second; `None` if none was dropped.
    pub fn last_drop(&self) -> Option<Instant> {
        time_of(&self.last_drop)
    }

    /// Returns the time of the last drop whose reason is not ordinary, to the second; `None` if
    /// there was none.
    pub fn last_loss(&self) -> Option<Instant> {
        time_of(&self.last_loss)
    }

    /// Returns the threads that a client needs.
    pub fn pulses(&self) -> &Pulses {
        &self.pulses
    }

    /// Returns the snapshots of all shards, in the order of their numbers.
    pub fn shards(&self) -> Vec<ShardSnapshot> {
        self.shards.iter().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }

    /// Returns the sum of the snapshots of all shards.
    pub fn total(&self) -> ShardSnapshot {
        let mut total = ShardSnapshot::default();
        for shard in &self.shards {
            total.add(&shard.lock().unwrap_or_else(PoisonError::into_inner));
        }
        total
    }
}

/// Returns the time that is stored; `None` for never.
fn time_of(stored: &AtomicU64) -> Option<Instant> {
    Some(Instant::from_millis(stored.load(Ordering::Relaxed))).filter(|time| !time.is_never())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;
    use crate::session::drops::DropReason;

    #[test]
    fn a_report_with_further_drops_sets_the_time_of_the_last_one() {
        let statistics = BrokerStatistics::new(1, fixture::shared());
        statistics.report(0, ShardSnapshot::default());
        assert_eq!(statistics.last_drop(), None);
        let mut snapshot = ShardSnapshot::default();
        snapshot.counters.drops.count(DropReason::Expired);
        let before = clock::now();
        statistics.report(0, snapshot.clone());
        let last = statistics.last_drop().expect("a drop");
        assert!(last >= before);
        while clock::now() <= last {
            std::thread::yield_now();
        }
        statistics.report(0, snapshot);
        assert_eq!(statistics.last_drop(), Some(last), "there was no further one");
        assert_eq!(statistics.last_loss(), None, "an expired message is no loss");
        let mut snapshot = ShardSnapshot::default();
        let causes = [DropReason::Expired, DropReason::QueueRefused];
        causes.into_iter().for_each(|cause| snapshot.counters.drops.count(cause));
        statistics.report(0, snapshot);
        assert!(statistics.last_loss().is_some());
    }
}
