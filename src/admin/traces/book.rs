//! The traces and their steps, with every bound. Pure: the time is an argument.

use crate::events::trace::{TraceWatch, TracedPayloads};
use crate::mqtt::audit::AuditTag;
use crate::mqtt::topic;
use crate::session::trace_steps::{StepKind, TraceStep};
use crate::time::Instant;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// Clients of all traces that run.
pub(super) const CLIENTS: usize = 16;

/// Topic Filters of all traces that run.
pub(super) const FILTERS: usize = 4;

/// Traces that run or are kept.
const KEPT: usize = 16;

/// Steps of one trace.
const STEPS: usize = 10_000;

/// Bytes of the steps of one trace.
const BYTES: usize = 4 << 20;

/// Messages that one trace follows.
const MESSAGES: usize = 1_000;

/// The time for which a trace runs on after its last watcher has left.
const UNWATCHED: Duration = Duration::from_secs(30);

/// The wish of an operator, whose parts are checked.
#[derive(Clone, Debug)]
pub(crate) struct TraceOrder {
    pub(crate) clients: Vec<Box<str>>,
    pub(crate) filters: Vec<Box<str>>,
    pub(crate) lasts: Duration,
    pub(crate) payloads: TracedPayloads,
}

/// The reason why a trace cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BookFull {
    #[error("the traces that run follow 16 clients together at most; end one of them first")]
    Clients,
    #[error("the traces that run follow 4 topic filters together at most; end one of them first")]
    Filters,
    #[error("16 traces run; end one of them first")]
    Traces,
}

/// The knowledge of the shards about a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShardsTold {
    /// Some shards do not follow the trace yet.
    NotYet,
    /// Every shard was told of the trace.
    All,
}

#[derive(Debug)]
pub(super) struct Trace {
    pub(super) number: u64,
    pub(super) order: TraceOrder,
    pub(super) started: Instant,
    pub(super) ends: Instant,
    told: ShardsTold,
    /// The end of the trace; `None` while it runs.
    pub(super) ended: Option<Instant>,
    /// The time of the last request of a watcher; `None` if nobody has watched yet.
    watched: Option<Instant>,
    /// Steps with their numbers, which begin at 1.
    steps: VecDeque<(u64, TraceStep)>,
    bytes: usize,
    /// The number of the last step.
    last: u64,
    /// Messages whose steps belong to this trace.
    followed: HashSet<AuditTag>,
    /// Messages that were not followed, because there were too many.
    pub(super) unfollowed: u64,
}

impl Trace {
    /// Returns the steps behind a number, and those before them that were given up.
    pub(super) fn steps_after(&self, after: u64) -> impl Iterator<Item = &(u64, TraceStep)> {
        self.steps.iter().skip_while(move |(number, _)| *number <= after)
    }

    /// Returns the number of the last step; 0 without one.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of steps that had to go.
    pub(super) fn steps_dropped(&self) -> u64 {
        self.last - self.steps.len() as u64
    }

    fn wants(&mut self, step: &TraceStep) -> bool {
        let has_client = self.order.clients.contains(&step.client_id);
        if step.kind == StepKind::Received {
            let has_topic = self.order.filters.iter().any(|filter| topic::matches(filter, &step.topic));
            if has_client || has_topic {
                self.follow(step.audit);
            }
        }
        has_client || self.followed.contains(&step.audit)
    }

    /// Follows a message. A number that comes again belongs to the new message, and takes no room.
    fn follow(&mut self, audit: AuditTag) {
        if self.followed.len() < MESSAGES {
            self.followed.insert(audit);
        } else if !self.followed.contains(&audit) {
            self.unfollowed += 1;
        }
    }

    fn push(&mut self, mut step: TraceStep) {
        if self.order.payloads == TracedPayloads::Hidden {
            step.payload = None;
        }
        self.last += 1;
        self.bytes += step.size();
        self.steps.push_back((self.last, step));
        while (self.steps.len() > STEPS || self.bytes > BYTES)
            && let Some((_, oldest)) = self.steps.pop_front()
        {
            self.bytes -= oldest.size();
        }
    }

    fn end_if_due(&mut self, now: Instant) -> bool {
        let is_left = self.watched.is_some_and(|watched| now >= watched + UNWATCHED);
        let ends = self.ended.is_none() && (now >= self.ends || is_left);
        if ends {
            self.ended = Some(now);
        }
        ends
    }
}

/// All traces, the newest last.
#[derive(Debug, Default)]
pub(super) struct TraceBook {
    traces: VecDeque<Trace>,
    /// The number of the last trace.
    last: u64,
}

impl TraceBook {
    /// Begins a trace. The oldest trace that has ended goes if there are too many. Errors:
    /// [`BookFull`], with the bound.
    pub(super) fn begin(&mut self, now: Instant, order: TraceOrder) -> Result<u64, BookFull> {
        let mut watch = self.watch().unwrap_or_default();
        add(&mut watch, &order);
        if watch.clients.len() > CLIENTS {
            return Err(BookFull::Clients);
        }
        if watch.filters.len() > FILTERS {
            return Err(BookFull::Filters);
        }
        if self.traces.len() >= KEPT {
            let oldest = self.traces.iter().position(|trace| trace.ended.is_some());
            self.traces.remove(oldest.ok_or(BookFull::Traces)?);
        }
        self.last += 1;
        let ends = now + order.lasts;
        self.traces.push_back(Trace {
            number: self.last,
            order,
            started: now,
            ends,
            told: ShardsTold::NotYet,
            ended: None,
            watched: None,
            steps: VecDeque::new(),
            bytes: 0,
            last: 0,
            followed: HashSet::new(),
            unfollowed: 0,
        });
        Ok(self.last)
    }

    fn find_mut(&mut self, number: u64) -> Option<&mut Trace> {
        self.traces.iter_mut().find(|trace| trace.number == number)
    }

    /// Notes that every shard was told of a trace. The trace is listed from now on.
    pub(super) fn note_told(&mut self, number: u64) {
        if let Some(trace) = self.find_mut(number) {
            trace.told = ShardsTold::All;
        }
    }

    /// Gives a step to each trace that it belongs to. Returns true if there was one.
    pub(super) fn take(&mut self, step: &TraceStep) -> bool {
        let mut belongs = false;
        for trace in self.traces.iter_mut().filter(|trace| trace.ended.is_none()) {
            if trace.wants(step) {
                belongs = true;
                trace.push(step.clone());
            }
        }
        belongs
    }

    /// Ends the traces whose time is over. Returns true if there were some.
    pub(super) fn end_due(&mut self, now: Instant) -> bool {
        let mut any = false;
        for trace in &mut self.traces {
            any |= trace.end_if_due(now);
        }
        any
    }

    /// Removes a trace. Returns false if the number is unknown.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let before = self.traces.len();
        self.traces.retain(|trace| trace.number != number);
        self.traces.len() < before
    }

    /// Notes that a watcher waits for the steps of a trace.
    pub(super) fn note_watcher(&mut self, now: Instant, number: u64) {
        if let Some(trace) = self.find_mut(number) {
            trace.watched = Some(now);
        }
    }

    /// Hides the payloads of all traces, and forgets those of their steps.
    pub(super) fn hide_payloads(&mut self) {
        for trace in &mut self.traces {
            trace.order.payloads = TracedPayloads::Hidden;
            for (_, step) in &mut trace.steps {
                trace.bytes -= step.size();
                step.payload = None;
                trace.bytes += step.size();
            }
        }
    }

    pub(super) fn find(&self, number: u64) -> Option<&Trace> {
        self.traces.iter().find(|trace| trace.number == number)
    }

    /// Iterates over the traces that the shards follow or followed, the oldest first.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Trace> {
        self.traces.iter().filter(|trace| trace.told == ShardsTold::All)
    }

    /// Returns the clients and topics that all running traces follow; `None` if none runs.
    pub(super) fn watch(&self) -> Option<TraceWatch> {
        let mut watch = TraceWatch::default();
        let running = self.traces.iter().filter(|trace| trace.ended.is_none());
        running.for_each(|trace| add(&mut watch, &trace.order));
        (watch != TraceWatch::default()).then_some(watch)
    }
}

/// Adds the clients and topics of an order. Duplicates are left out.
fn add(watch: &mut TraceWatch, order: &TraceOrder) {
    for client in &order.clients {
        if !watch.clients.contains(client) {
            watch.clients.push(client.clone());
        }
    }
    for filter in &order.filters {
        if !watch.filters.contains(filter) {
            watch.filters.push(filter.clone());
        }
    }
    if order.payloads == TracedPayloads::Shown {
        watch.payloads = TracedPayloads::Shown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    fn order(clients: &[&str], filters: &[&str]) -> TraceOrder {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).into()).collect();
        let lasts = Duration::from_secs(600);
        TraceOrder {
            clients: texts(clients),
            filters: texts(filters),
            lasts,
            payloads: TracedPayloads::Hidden,
        }
    }

    fn step(kind: StepKind, client: &str, tag: u16, topic: &str) -> TraceStep {
        TraceStep {
            at: at(1),
            client_id: client.into(),
            topic: topic.into(),
            payload: Some(Box::new([1; 256])),
            ..TraceStep::new(kind, AuditTag::new(tag))
        }
    }

    fn kinds(book: &TraceBook, number: u64) -> Vec<StepKind> {
        let steps = book.find(number).into_iter().flat_map(|trace| trace.steps_after(0));
        steps.map(|(_, step)| step.kind).collect()
    }

    #[test]
    fn a_trace_has_the_packets_of_its_clients_and_the_steps_of_their_messages() {
        let mut book = TraceBook::default();
        let by_client = book.begin(at(0), order(&["app"], &[])).expect("room");
        let by_topic = book.begin(at(0), order(&[], &["alarms/#"])).expect("room");
        book.take(&step(StepKind::Received, "app", 1, "other"));
        book.take(&step(StepKind::Queued, "pump", 1, "other"));
        book.take(&step(StepKind::Received, "else", 2, "alarms/1"));
        book.take(&step(StepKind::Sent, "app", 2, "alarms/1"));
        book.take(&step(StepKind::PacketIn, "else", 0, ""));
        assert_eq!(kinds(&book, by_client), [StepKind::Received, StepKind::Queued, StepKind::Sent]);
        assert_eq!(kinds(&book, by_topic), [StepKind::Received, StepKind::Sent]);
        let payloads = book.find(by_client).into_iter().flat_map(|trace| trace.steps_after(0));
        assert!(payloads.into_iter().all(|(_, step)| step.payload.is_none()), "nobody asked for them");
    }

    #[test]
    fn the_oldest_steps_go_beyond_the_bounds_of_number_and_bytes() {
        let mut book = TraceBook::default();
        let number = book.begin(at(0), order(&["app"], &[])).expect("room");
        for n in 0..STEPS as u64 + 5 {
            book.take(&TraceStep { at: at(n), ..step(StepKind::PacketIn, "app", 0, "") });
        }
        let trace = book.find(number).expect("the trace");
        assert_eq!((trace.last(), trace.steps_dropped()), (STEPS as u64 + 5, 5));
        assert_eq!(trace.steps_after(0).next().map(|(number, _)| *number), Some(6));
        assert_eq!(trace.steps_after(STEPS as u64).count(), 5);
        let long = "t".repeat(4_000);
        for _ in 0..2_000 {
            book.take(&step(StepKind::PacketIn, "app", 0, &long));
        }
        let trace = book.find(number).expect("the trace");
        let bytes: usize = trace.steps_after(0).map(|(_, step)| step.size()).sum();
        assert!(bytes <= BYTES && bytes == trace.bytes && trace.steps_dropped() > 5, "{bytes}");
    }

    #[test]
    fn a_trace_follows_a_bounded_number_of_messages_and_counts_the_others() {
        let mut book = TraceBook::default();
        let number = book.begin(at(0), order(&[], &["#"])).expect("room");
        for tag in 1..=MESSAGES as u16 + 7 {
            book.take(&step(StepKind::Received, "c", tag, "a"));
        }
        let unfollowed = |book: &TraceBook| {
            let trace = book.find(number).expect("the trace");
            (trace.last(), trace.unfollowed)
        };
        assert_eq!(unfollowed(&book), (MESSAGES as u64, 7));
        // The number of a message that is followed belongs to the next message that has it.
        book.take(&step(StepKind::Received, "c", 1, "a"));
        assert_eq!(unfollowed(&book), (MESSAGES as u64 + 1, 7));
    }

    #[test]
    fn a_trace_is_listed_once_every_shard_was_told_of_it() {
        let mut book = TraceBook::default();
        let number = book.begin(at(0), order(&["app"], &[])).expect("room");
        assert_eq!(book.listed().count(), 0);
        assert!(book.watch().is_some(), "the shards are told of it");
        book.note_told(number);
        assert_eq!(book.listed().map(|trace| trace.number).collect::<Vec<_>>(), [number]);
    }

    #[test]
    fn a_trace_ends_at_its_time_and_half_a_minute_after_its_last_watcher() {
        let mut book = TraceBook::default();
        let alone = book.begin(at(0), order(&["a"], &[])).expect("room");
        let watched = book.begin(at(0), order(&["b"], &[])).expect("room");
        book.note_watcher(at(100), watched);
        assert!(!book.end_due(at(129)));
        assert!(book.end_due(at(130)));
        let ended = |book: &TraceBook, number| book.find(number).is_some_and(|trace| trace.ended.is_some());
        assert!(ended(&book, watched) && !ended(&book, alone));
        assert_eq!(book.watch().map(|watch| watch.clients), Some(vec!["a".into()]));
        assert!(book.end_due(at(600)) && ended(&book, alone));
        assert_eq!(book.watch(), None);
        book.take(&step(StepKind::PacketIn, "a", 0, ""));
        assert!(kinds(&book, alone).is_empty(), "an ended trace takes nothing");
    }

    #[test]
    fn the_traces_that_run_share_the_bounds_of_clients_filters_and_traces() {
        let mut book = TraceBook::default();
        let names: Vec<String> = (0..=CLIENTS).map(|n| format!("c{n}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(book.begin(at(0), order(&all, &[])), Err(BookFull::Clients));
        assert_eq!(book.begin(at(0), order(&[], &["a", "b", "c", "d", "e"])), Err(BookFull::Filters));
        for _ in 0..KEPT {
            book.begin(at(0), order(&["c0"], &["a"])).expect("nothing stands twice");
        }
        assert_eq!(book.begin(at(0), order(&["c0"], &[])), Err(BookFull::Traces));
        assert!(book.end_due(at(600)));
        assert_eq!(book.begin(at(600), order(&["c1"], &[])), Ok(KEPT as u64 + 1));
        assert!(book.find(1).is_none(), "the oldest went");
        assert!(book.remove(KEPT as u64 + 1) && !book.remove(1));
        assert_eq!(book.watch(), None);
    }
}
