//! Traces of operators: the steps of some messages, and the packets of some clients.
//!
//! The shards push steps into one channel, and never wait: a step for which the channel has no room
//! is counted as lost. One task takes the steps and gives each to the traces that it belongs to.

pub(super) mod book;
pub(super) mod fates;
pub(super) mod step;

use crate::broker::observer::Observer;
use crate::clock;
use crate::events::trace::TracedPayloads;
use crate::session::trace_steps::TraceStep;
use crate::time::millis;
use book::{BookFull, Trace, TraceBook, TraceOrder};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use step::StepRow;
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use utoipa::ToSchema;

/// Steps that the channel takes. Beyond it, shards count lost steps.
const CHANNEL: usize = 1_024;

/// The interval at which the ends of traces are looked for.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Traces {
    book: Mutex<TraceBook>,
    /// Orders the messages that tell the shards what to trace.
    telling: tokio::sync::Mutex<()>,
    /// Steps that were lost since the start, because the channel was full.
    lost: AtomicU64,
    /// Notified when steps have come or a trace has ended.
    changed: Notify,
}

impl Traces {
    fn book(&self) -> MutexGuard<'_, TraceBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the traces that every shard was told of.
    pub(crate) fn list(&self) -> TraceList {
        let traces = self.book().listed().map(TraceRow::of).collect();
        TraceList { traces, lost: self.lost.load(Ordering::Relaxed) }
    }

    /// Returns a trace with up to `most` steps behind the number `after`; `None` if the trace is
    /// unknown.
    fn page(&self, number: u64, after: u64, most: usize) -> Option<TraceRow> {
        let book = self.book();
        let trace = book.find(number)?;
        let since = clock::now();
        let wall = clock::unix_millis();
        let unix_ms = |step: &TraceStep| wall.saturating_sub(millis(since.since(step.at)));
        let steps = trace.steps_after(after).take(most);
        let steps: Vec<StepRow> =
            steps.map(|(number, step)| StepRow::of(*number, unix_ms(step), step)).collect();
        Some(TraceRow {
            next: Some(steps.last().map_or(after, |step| step.n)),
            steps: Some(steps),
            lost: Some(self.lost.load(Ordering::Relaxed)),
            ..TraceRow::of(trace)
        })
    }

    /// True if a page behind `after` would be empty, and the trace still runs.
    fn is_silent(&self, number: u64, after: u64) -> bool {
        let book = self.book();
        book.find(number).is_some_and(|trace| trace.ended.is_none() && trace.last() <= after)
    }

    /// As [`Self::page`]. If no step is there yet, waits up to `wait` for one. A caller that waits
    /// is a watcher of the trace.
    pub(super) async fn watch(
        &self,
        number: u64,
        (after, most): (u64, usize),
        wait: Duration,
    ) -> Option<TraceRow> {
        let end = clock::now() + wait;
        if !wait.is_zero() {
            self.book().note_watcher(clock::now(), number);
        }
        loop {
            let changed = self.changed.notified();
            let left = end.since(clock::now());
            if !self.is_silent(number, after) || tokio::time::timeout(left, changed).await.is_err() {
                break;
            }
        }
        if !wait.is_zero() {
            self.book().note_watcher(clock::now(), number);
        }
        self.page(number, after, most)
    }

    /// Begins a trace. Returns its number. The first trace begins the collection of steps, before
    /// the shards are told, so that no step is lost. Errors: the bound that has no room for the
    /// trace.
    pub(super) async fn begin(
        self: &Arc<Self>,
        observer: &Observer,
        order: TraceOrder,
    ) -> Result<u64, BookFull> {
        let number = self.book().begin(clock::now(), order)?;
        if let Some(steps) = observer.statistics().trace_steps.listen(CHANNEL) {
            actix_rt::spawn(collect(Arc::clone(self), observer.clone(), steps));
        }
        self.tell_shards(observer).await;
        self.book().note_told(number);
        Ok(number)
    }

    /// Ends a trace and forgets its steps. Returns false if the number is unknown.
    pub(super) async fn end(&self, observer: &Observer, number: u64) -> bool {
        let is_removed = self.book().remove(number);
        if is_removed {
            self.tell_shards(observer).await;
            self.changed.notify_waiters();
        }
        is_removed
    }

    /// Hides the payloads of all traces, also of their steps so far. The shards are told with the
    /// next trace that begins or ends; until then they send payloads that nobody keeps.
    pub(super) fn hide_payloads(&self) {
        self.book().hide_payloads();
    }

    /// Sends every shard the clients and topics of the running traces.
    async fn tell_shards(&self, observer: &Observer) {
        let _order = self.telling.lock().await;
        let watch = self.book().watch().map(Arc::new);
        for shard in 0..observer.shards() {
            // A shard that does not answer in time has the message in its mailbox all the same.
            let _ = observer.trace(shard, watch.clone()).await;
        }
    }
}

/// All traces without their steps.
#[derive(Serialize, ToSchema)]
#[schema(as = Traces)]
pub(crate) struct TraceList {
    pub(crate) traces: Vec<TraceRow>,
    /// Steps of all traces for which there was no room.
    pub(crate) lost: u64,
}

/// A trace.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Trace)]
pub(crate) struct TraceRow {
    pub(crate) trace: u64,
    pub(crate) clients: Vec<String>,
    pub(crate) topics: Vec<String>,
    pub(crate) payload: bool,
    /// Seconds.
    pub(crate) age: f64,
    /// Seconds.
    pub(crate) left: f64,
    pub(crate) ended: bool,
    /// The number of the last step.
    pub(crate) last: u64,
    /// Steps that made room for later ones.
    pub(crate) steps_dropped: u64,
    /// Messages that were not followed, because there were too many.
    pub(crate) unfollowed_messages: u64,
    /// In the answer for one trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<Vec<StepRow>>,
    /// The number to ask for next as `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
    /// Steps of all traces for which there was no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<u64>,
}

impl TraceRow {
    fn of(trace: &Trace) -> TraceRow {
        let now = clock::now();
        TraceRow {
            trace: trace.number,
            clients: trace.order.clients.iter().map(ToString::to_string).collect(),
            topics: trace.order.filters.iter().map(ToString::to_string).collect(),
            payload: trace.order.payloads == TracedPayloads::Shown,
            age: now.since(trace.started).as_secs_f64(),
            left: if trace.ended.is_some() { 0.0 } else { trace.ends.since(now).as_secs_f64() },
            ended: trace.ended.is_some(),
            last: trace.last(),
            steps_dropped: trace.steps_dropped(),
            unfollowed_messages: trace.unfollowed,
            steps: None,
            next: None,
            lost: None,
        }
    }
}

/// Takes steps, and ends the traces whose time is over, until the broker stops.
async fn collect(traces: Arc<Traces>, observer: Observer, mut from: Receiver<TraceStep>) {
    let feed = &observer.statistics().trace_steps;
    let (mut looked, mut steps) = (clock::now(), Vec::new());
    loop {
        match tokio::time::timeout(TICK, from.recv_many(&mut steps, CHANNEL)).await {
            Ok(0) => return,
            Ok(_) => {
                let mut book = traces.book();
                for step in steps.drain(..) {
                    if book.take(&step) {
                        observer.statistics().export_step(step);
                    }
                }
                drop(book);
                traces.lost.store(feed.lost(), Ordering::Relaxed);
                traces.changed.notify_waiters();
            }
            Err(_) => {}
        }
        let now = clock::now();
        if now.since(looked) >= TICK {
            looked = now;
            let has_ended = traces.book().end_due(now);
            if has_ended {
                traces.tell_shards(&observer).await;
                traces.changed.notify_waiters();
            }
        }
    }
}
