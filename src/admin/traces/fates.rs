//! The last known step of messages that an operator looks for, by the client that it concerns.

use super::Traces;
use super::book::Trace;
use crate::mqtt::audit::AuditTag;
use crate::operators::wanted::Wanted;
use crate::session::trace_steps::{StepKind, TEXT, TraceStep};
use crate::time::Instant;
use std::collections::HashMap;

/// Clients in one answer at most.
const CLIENTS: usize = 256;

/// The last step of a message for a client, in a trace that runs or ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracedFate {
    pub(crate) trace: u64,
    /// The receiver; the publisher if the step concerns no receiver.
    pub(crate) client_id: Box<str>,
    /// The topic, its first 256 characters; empty if the trace does not have it any more.
    pub(crate) topic: Box<str>,
    /// The kind of the step. [`StepKind::Matched`] means that nobody was subscribed.
    pub(crate) kind: StepKind,
    /// The time of the step.
    pub(crate) at: Instant,
}

/// A followed message: its publisher and its topic.
struct Followed<'a> {
    publisher: &'a str,
    topic: &'a str,
}

impl Traces {
    /// Returns the last step of the wanted messages for each client, the newest first, and true if
    /// these are all. Costs one look at each step that is kept: 10,000 of each trace. Other
    /// requests go on between two traces.
    pub(crate) async fn fates(&self, wanted: &Wanted) -> (Vec<TracedFate>, bool) {
        let numbers: Vec<u64> = self.book().listed().map(|trace| trace.number).collect();
        let mut found = Fates::default();
        for number in numbers {
            if let Some(trace) = self.book().find(number) {
                found.look_in(trace, wanted);
            }
            tokio::task::yield_now().await;
        }
        let mut all: Vec<TracedFate> = found.by_client.into_values().collect();
        all.sort_by(|one, other| other.at.cmp(&one.at).then_with(|| one.client_id.cmp(&other.client_id)));
        (all, found.is_complete)
    }
}

/// The fates so far.
struct Fates {
    by_client: HashMap<Box<str>, TracedFate>,
    is_complete: bool,
}

impl Default for Fates {
    fn default() -> Fates {
        Fates { by_client: HashMap::new(), is_complete: true }
    }
}

impl Fates {
    fn look_in(&mut self, trace: &Trace, wanted: &Wanted) {
        // A number that comes again belongs to the newer message.
        let mut messages: HashMap<AuditTag, Followed<'_>> = HashMap::new();
        for (_, step) in trace.steps_after(0) {
            let named = &*step.topic;
            if step.kind == StepKind::Received {
                messages.insert(step.audit, Followed { publisher: &step.client_id, topic: named });
            }
            let message = messages.get(&step.audit).filter(|_| step.audit.is_some());
            let about = message.map_or(named, |message| message.topic);
            let publisher = message.map_or("", |message| message.publisher);
            let is_wanted = wanted.topic.as_ref().is_none_or(|topic| topic.may_be(about, TEXT))
                && wanted.publisher.as_deref().is_none_or(|name| publisher.is_empty() || publisher == name);
            if is_wanted && let Some(client_id) = client_of(step, publisher) {
                self.note(trace.number, (client_id, about), step, wanted);
            }
        }
    }

    fn note(&mut self, trace: u64, (client_id, topic): (&str, &str), step: &TraceStep, wanted: &Wanted) {
        if wanted.receiver.as_deref().is_some_and(|receiver| receiver != client_id) {
            return;
        }
        let TraceStep { kind, at, .. } = *step;
        let fate = || TracedFate { trace, client_id: client_id.into(), topic: topic.into(), kind, at };
        if let Some(last) = self.by_client.get_mut(client_id) {
            if at >= last.at {
                *last = fate();
            }
        } else if self.by_client.len() < CLIENTS {
            self.by_client.insert(client_id.into(), fate());
        } else {
            self.is_complete = false;
        }
    }
}

/// Returns the client whose message a step decides or moves; `None` for any other step.
fn client_of<'a>(step: &'a TraceStep, publisher: &'a str) -> Option<&'a str> {
    let client = match step.kind {
        StepKind::Queued
        | StepKind::Held
        | StepKind::Sent
        | StepKind::Resent
        | StepKind::Pubrec
        | StepKind::Acknowledged
        | StepKind::Negative
        | StepKind::Dropped
        | StepKind::Skipped
        | StepKind::Parked
        | StepKind::Received => &*step.client_id,
        StepKind::Refused => publisher,
        StepKind::Matched if step.detail == "nobody" => publisher,
        _ => "",
    };
    (!client.is_empty()).then_some(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::traces::book::TraceOrder;
    use crate::events::trace::TracedPayloads;
    use crate::operators::wanted::WantedTopic;
    use std::time::Duration;

    fn step(secs: u64, kind: StepKind, tag: u16, client: &str, topic: &str) -> TraceStep {
        TraceStep {
            at: Instant::from_millis(secs * 1_000),
            client_id: client.into(),
            topic: topic.into(),
            detail: if kind == StepKind::Matched { "nobody".into() } else { "".into() },
            ..TraceStep::new(kind, AuditTag::new(tag))
        }
    }

    fn traced(steps: &[TraceStep]) -> Traces {
        let traces = Traces::default();
        let order = TraceOrder {
            clients: Vec::new(),
            filters: vec!["#".into()],
            lasts: Duration::from_secs(60),
            payloads: TracedPayloads::Hidden,
        };
        let number = traces.book().begin(Instant::ZERO, order).expect("room");
        traces.book().note_told(number);
        steps.iter().for_each(|step| {
            traces.book().take(step);
        });
        traces
    }

    fn fates(traces: &Traces, wanted: &Wanted) -> (Vec<TracedFate>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(traces.fates(wanted))
    }

    fn of(traces: &Traces, wanted: &Wanted) -> Vec<(String, StepKind)> {
        let (all, is_complete) = fates(traces, wanted);
        assert!(is_complete);
        all.into_iter().map(|fate| (fate.client_id.into_string(), fate.kind)).collect()
    }

    #[test]
    fn the_last_step_of_a_topic_counts_for_each_client_though_an_acknowledgement_names_none() {
        let traces = traced(&[
            step(1, StepKind::Received, 1, "app", "a"),
            step(2, StepKind::Sent, 1, "pump", "a"),
            step(3, StepKind::Received, 2, "other", "b"),
            step(4, StepKind::Acknowledged, 1, "pump", ""),
            step(5, StepKind::Sent, 2, "pump", "b"),
            step(6, StepKind::Matched, 2, "", ""),
        ]);
        let topic = |topic: &str| Wanted { topic: WantedTopic::read(topic).ok(), ..Wanted::default() };
        let (pump, app, other) = ("pump".to_owned(), "app".to_owned(), "other".to_owned());
        let found = of(&traces, &topic("a"));
        assert_eq!(found, [(pump.clone(), StepKind::Acknowledged), (app, StepKind::Received)]);
        assert_eq!(of(&traces, &topic("b")), [(other, StepKind::Matched), (pump.clone(), StepKind::Sent)]);
        assert!(of(&traces, &topic("c")).is_empty());
        let receiver = Wanted { receiver: Some("pump".into()), ..topic("a") };
        assert_eq!(of(&traces, &receiver), [(pump, StepKind::Acknowledged)]);
        let publisher = Wanted { publisher: Some("else".into()), ..topic("a") };
        assert!(of(&traces, &publisher).is_empty());
    }

    #[test]
    fn an_answer_has_a_bounded_number_of_clients_and_says_so() {
        let mut steps = vec![step(1, StepKind::Received, 1, "app", "a")];
        steps.extend((0..CLIENTS).map(|n| step(2, StepKind::Queued, 1, &format!("c{n}"), "a")));
        let wanted = Wanted { topic: WantedTopic::read("a").ok(), ..Wanted::default() };
        let (all, is_complete) = fates(&traced(&steps), &wanted);
        assert_eq!((all.len(), is_complete), (CLIENTS, false));
    }
}
