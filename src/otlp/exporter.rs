//! The thread that exports, its start, its end and its configuration.

use super::collector::Collector;
use super::message_spans::MessageSpans;
use super::metrics::PointTimes;
use super::pump::{Backoff, Queue, Results, TICK, pump, send_once};
use super::{OtlpError, attributes, logs, metrics, spans};
use crate::admin::metrics::text::MetricsText;
use crate::auth::random::random;
use crate::broker::export_counts::ExportCounts;
use crate::broker::observer::Observer;
use crate::clock;
use crate::config::{Otlp, OtlpSignal};
use crate::log::tap::{self, Backlog, KeepLines, TappedLine};
use crate::scheduling;
use crate::time::Instant;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use std::cell::{OnceCell, RefCell};
use std::future::pending;
use std::io;
use std::ops::DerefMut;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// Steps of traces that wait for this thread. Beyond it they are lost, and counted.
const STEPS: usize = 1_024;

/// Spans that wait at most.
const SPANS: usize = 4_096;

/// Bytes of the spans that wait at most.
const SPAN_BYTES: usize = 4 << 20;

/// Time for the last records at the end of the process. As much as the log has for its last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// Threads for the names of hosts, which the C library resolves. An address needs none.
const RESOLVERS: usize = 2;

/// Returns the metrics of now.
pub type MetricsSource = Box<dyn Fn() -> MetricsText + Send>;

/// The broker, as the thread sees it once clients can connect.
struct StartedBroker {
    metrics: MetricsSource,
    observer: Observer,
}

/// The export. Dropping the value sends what waits, for a second at most.
pub struct Exporter {
    counts: Arc<ExportCounts>,
    config: watch::Sender<Otlp>,
    state: Mutex<ThreadState>,
}

/// The thread, which runs from the first configuration with a collector on.
enum ThreadState {
    /// Nothing was to be exported so far. The broker is there once it has started.
    Waits(Option<StartedBroker>),
    Runs {
        broker: Option<oneshot::Sender<StartedBroker>>,
        /// Dropped to stop the thread.
        stop: oneshot::Sender<()>,
        ended: mpsc::Receiver<()>,
    },
}

impl Exporter {
    /// Starts the thread, if the configuration names a collector. Log lines are kept from now on.
    ///
    /// # Errors
    /// A file cannot be used, or the system refuses the thread.
    pub fn start(config: &Otlp) -> Result<Exporter, OtlpError> {
        let exporter = Exporter {
            counts: Arc::default(),
            config: watch::channel(Otlp::default()).0,
            state: Mutex::new(ThreadState::Waits(None)),
        };
        if let Some(collector) = Collector::load(config)? {
            keep_lines(config);
            announce(config);
            exporter.config.send_replace(config.clone());
            exporter.run(Some(collector))?;
        }
        Ok(exporter)
    }

    /// Notes that clients can connect. Metrics and traces are exported from now on.
    pub fn started(&self, observer: &Observer, metrics: MetricsSource) {
        let broker = StartedBroker { metrics, observer: observer.clone() };
        match &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            ThreadState::Waits(waits) => *waits = Some(broker),
            ThreadState::Runs { broker: to, .. } => {
                // Here, so that the first scrape has the metrics of the export.
                let _ = observer.statistics().export.set(Arc::clone(&self.counts));
                // The thread may have ended already.
                drop(to.take().map(|to| to.send(broker)));
            }
        }
    }

    /// Exports with this configuration from now on. Does not block: the thread reads the files.
    pub fn put_in_force(&self, config: &Otlp) {
        keep_lines(config);
        let is_new = *self.config.borrow() != *config;
        if is_new {
            announce(config);
        }
        // Without a change, too: the content of a file may be another one.
        self.config.send_replace(config.clone());
        if config.collector().is_some()
            && let Err(error) = self.run(None)
        {
            warn!(event = "otlp.thread_failed", %error, "nothing is exported");
        }
    }

    /// Starts the thread, unless it runs.
    fn run(&self, collector: Option<Collector>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ThreadState::Waits(started) = &mut *state else { return Ok(()) };
        let (to, broker) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let (ends, ended) = mpsc::channel();
        let (mut config, results) = (self.config.subscribe(), Results::new(Arc::clone(&self.counts)));
        if collector.is_none() {
            // The thread reads the files of the reload that has started it.
            config.mark_changed();
        }
        let run = move || {
            scheduling::yield_to_traffic();
            tap::leave_this_thread_out();
            let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVERS).build();
            match runtime {
                Ok(runtime) => {
                    runtime.block_on(Export::new(collector, results).run(config, broker, stopped));
                    // A lookup of a name may take longer, and nobody waits for it.
                    runtime.shutdown_background();
                }
                Err(error) => warn!(event = "otlp.thread_failed", %error, "nothing is exported"),
            }
            drop(ends);
        };
        std::thread::Builder::new().name("homing-otlp".into()).spawn(run)?;
        let mut to = Some(to);
        if let Some(started) = started.take() {
            drop(to.take().map(|to| to.send(started)));
        }
        *state = ThreadState::Runs { broker: to, stop, ended };
        Ok(())
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let state = std::mem::replace(
            self.state.get_mut().unwrap_or_else(PoisonError::into_inner),
            ThreadState::Waits(None),
        );
        if let ThreadState::Runs { stop, ended, .. } = state {
            drop(stop);
            // A thread that hangs ends with the process.
            let _ = ended.recv_timeout(FLUSH + FLUSH / 4);
        }
    }
}

/// Keeps the lines of the log from now on, if they are exported. Not on the thread, so that no line
/// is missing until it has started.
fn keep_lines(config: &Otlp) {
    tap::keep(if config.exports(OtlpSignal::Logs) { KeepLines::Yes } else { KeepLines::No });
}

/// Logs where the export goes, and warns of log lines and tokens that cross a network in the clear.
fn announce(config: &Otlp) {
    let Some(collector) = config.collector() else {
        info!(event = "otlp.stopped", "nothing is exported from now on (otlp.endpoint)");
        return;
    };
    info!(event = "otlp.started", %collector, signals = config.signal_names().join(","), "the export goes to this collector from now on");
    if !collector.is_tls && !collector.is_local() {
        warn!(event = "otlp.plain", %collector, "otlp.endpoint is not https: log lines, topics and the token of otlp.headers can be read on the way to the collector");
    }
}

/// The queue of the log.
struct LogQueue;

impl Queue for LogQueue {
    type Record = TappedLine;
    type Request = ExportLogsServiceRequest;

    const SIGNAL: OtlpSignal = OtlpSignal::Logs;

    fn backlog(&self) -> impl DerefMut<Target = Backlog<TappedLine>> {
        tap::pending()
    }

    fn request(&self, records: &[TappedLine], collector: &Collector) -> ExportLogsServiceRequest {
        logs::request(records, collector.resource())
    }
}

/// The queue of the spans.
struct SpanQueue(RefCell<Backlog<Span>>);

impl Default for SpanQueue {
    fn default() -> SpanQueue {
        SpanQueue(RefCell::new(Backlog::new(SPANS, SPAN_BYTES)))
    }
}

impl Queue for SpanQueue {
    type Record = Span;
    type Request = ExportTraceServiceRequest;

    const SIGNAL: OtlpSignal = OtlpSignal::Traces;

    fn backlog(&self) -> impl DerefMut<Target = Backlog<Span>> {
        self.0.borrow_mut()
    }

    fn request(&self, records: &[Span], collector: &Collector) -> ExportTraceServiceRequest {
        spans::request(records, collector.resource())
    }
}

/// The state of the thread. Its tasks take turns, and none waits for the answer to another's
/// request.
struct Export {
    /// `None` while nothing is exported.
    collector: watch::Sender<Option<Rc<Collector>>>,
    results: Results,
    /// The start of the process, in nanoseconds since 1970.
    start: u64,
    /// Empty until clients can connect.
    metrics: OnceCell<MetricsSource>,
    messages: RefCell<MessageSpans>,
    spans: SpanQueue,
}

impl Export {
    fn new(collector: Option<Collector>, results: Results) -> Export {
        let up = clock::now().millis_since(Instant::ZERO);
        let export = Export {
            collector: watch::channel(None).0,
            results,
            start: attributes::unix_nanos(clock::unix_millis().saturating_sub(up)),
            metrics: OnceCell::new(),
            messages: RefCell::default(),
            spans: SpanQueue::default(),
        };
        export.use_collector(collector);
        export
    }

    fn use_collector(&self, collector: Option<Collector>) {
        self.results.counts().forget_failures();
        self.collector.send_replace(collector.map(Rc::new));
    }

    /// Returns the collector, if it gets this signal.
    fn collector_of(&self, signal: OtlpSignal) -> Option<Rc<Collector>> {
        self.collector.borrow().clone().filter(|collector| collector.config().exports(signal))
    }

    /// Exports until the process ends, and sends then what waits.
    async fn run(
        &self,
        config: watch::Receiver<Otlp>,
        broker: oneshot::Receiver<StartedBroker>,
        stopped: oneshot::Receiver<()>,
    ) {
        tokio::select! {
            // In this order, so that the collector is known before its queues are looked at.
            biased;
            _ = stopped => {}
            () = self.follow(config) => {}
            () = self.send_metrics() => {}
            () = self.send_queue(&LogQueue) => {}
            () = self.assemble(broker) => {}
            () = self.send_queue(&self.spans) => {}
        }
        let rest = async {
            for span in self.messages.borrow_mut().all(clock::unix_millis(), &mut chance) {
                self.spans.0.borrow_mut().push(span);
            }
            let (mut of_logs, mut of_spans) = (Backoff::default(), Backoff::default());
            let [lines, spans] =
                [OtlpSignal::Logs, OtlpSignal::Traces].map(|signal| self.collector_of(signal));
            tokio::join!(
                self.send_metrics_now(),
                pump(&LogQueue, lines.as_deref(), &self.results, &mut of_logs),
                pump(&self.spans, spans.as_deref(), &self.results, &mut of_spans),
            );
        };
        // What a collector that hangs does not take in time is lost.
        let _ = timeout(FLUSH, rest).await;
    }

    /// Follows the configuration. Its files are read here: if they hang, the export waits for them,
    /// and nobody else does.
    async fn follow(&self, mut config: watch::Receiver<Otlp>) {
        while config.changed().await.is_ok() {
            let new = config.borrow_and_update().clone();
            match Collector::load(&new) {
                Ok(collector) => self.use_collector(collector),
                // The reload has read the files just before.
                Err(error) => warn!(event = "otlp.reload_failed", %error, "the export goes on as before"),
            }
        }
        pending().await
    }

    /// Sends the metrics at each interval.
    async fn send_metrics(&self) {
        let mut changes = self.collector.subscribe();
        loop {
            changes.mark_unchanged();
            let began = clock::now();
            let interval = self.send_metrics_now().await;
            let left = interval.saturating_sub(clock::now().since(began));
            tokio::select! {
                () = sleep(left) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Sends the metrics, if they are exported. Returns the time until the next ones.
    async fn send_metrics_now(&self) -> Duration {
        let (Some(collector), Some(source)) = (self.collector_of(OtlpSignal::Metrics), self.metrics.get())
        else {
            return TICK;
        };
        let times = PointTimes { start: self.start, now: attributes::unix_nanos(clock::unix_millis()) };
        let (request, points) = metrics::request(source().into_families(), times, collector.resource());
        send_once((OtlpSignal::Metrics, points), &request, &collector, &self.results).await;
        collector.config().interval
    }

    /// Sends a queue again and again.
    async fn send_queue<Q: Queue>(&self, queue: &Q) {
        let (mut changes, mut backoff) = (self.collector.subscribe(), Backoff::default());
        loop {
            changes.mark_unchanged();
            let collector = self.collector_of(Q::SIGNAL);
            let wait = pump(queue, collector.as_deref(), &self.results, &mut backoff).await;
            drop(collector);
            tokio::select! {
                () = sleep(wait) => {}
                _ = changes.changed() => backoff = Backoff::default(),
            }
        }
    }

    /// Makes spans of the steps of traces.
    async fn assemble(&self, broker: oneshot::Receiver<StartedBroker>) {
        let Ok(StartedBroker { metrics, observer }) = broker.await else { return pending().await };
        let _ = self.metrics.set(metrics);
        let statistics = observer.statistics();
        let _ = statistics.export.set(Arc::clone(self.results.counts()));
        let Some(mut steps) = statistics.exported_steps.listen(STEPS) else { return pending().await };
        let (feed, mut lost, mut looked) = (&statistics.exported_steps, 0, clock::now());
        let mut came = Vec::new();
        loop {
            if let Ok(0) = timeout(TICK, steps.recv_many(&mut came, STEPS)).await {
                return pending().await;
            }
            let (now, unix_ms) = (clock::now(), clock::unix_millis());
            let (mut messages, mut queue) = (self.messages.borrow_mut(), self.spans.0.borrow_mut());
            if self.collector_of(OtlpSignal::Traces).is_none() {
                *messages = MessageSpans::default();
                came.clear();
            }
            for step in came.drain(..) {
                let spans = messages.take(now, unix_ms, &step, &mut chance);
                spans.into_iter().for_each(|span| queue.push(span));
            }
            if now.since(looked) >= TICK {
                looked = now;
                messages.due(now, unix_ms, &mut chance).into_iter().for_each(|span| queue.push(span));
            }
            drop((messages, queue));
            let before = std::mem::replace(&mut lost, feed.lost());
            self.results.lost(OtlpSignal::Traces, lost - before);
        }
    }
}

/// Returns random bytes for the ids of traces and spans, which are no secrets.
fn chance() -> [u8; 16] {
    random().map_or_else(|_| u128::from(clock::nanos()).to_le_bytes(), |bytes| *bytes)
}
