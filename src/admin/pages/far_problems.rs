//! The problems of bridges and sinks: down, stuck, refused, or with a lost session.

use super::problems::{BrokerProblem, BrokerProblemKind};
use super::views::in_sentence;
use crate::admin::human::{bytes, counted, percent, seconds};
use crate::admin::queries::stuck::STUCK;
use crate::bridge::BridgeState;
use crate::broker::bridges::reports::FarSession;
use crate::broker::bridges::status::BridgeFacts;
use crate::broker::observer::Observer;
use crate::broker::sinks::status::SinkFacts;
use crate::sink::SinkState;
use crate::time::Instant;
use std::time::Duration;

/// Time for which something that happened once is a problem.
const LATELY: Duration = Duration::from_mins(10);

/// The part of a queue from which its use is told.
const MUCH: f64 = 0.5;

/// A problem of one bridge or sink, and the time for which there is one.
type Found = (BrokerProblemKind, Duration, String);

/// Returns the problems of bridges and sinks: one of each kind, with the name of the one that has
/// had it longest.
pub(crate) fn far_problems(observer: &Observer, now: Instant) -> Vec<BrokerProblem> {
    let mut all: Vec<Found> = observer.bridges().look(|facts| of_bridge(facts, now));
    all.extend(observer.sinks().look(|facts| of_sink(facts, now)));
    all.sort_by(|one, other| (one.0, other.1, &one.2).cmp(&(other.0, one.1, &other.2)));
    let of_kind = |found: &[Found]| {
        let (kind, _, text) = found.first()?;
        let others = match found.len() - 1 {
            0 => String::new(),
            1 => " One more has the same problem.".to_owned(),
            others => format!(" {others} more have the same problem."),
        };
        Some(BrokerProblem {
            kind: *kind,
            text: in_sentence(&format!("{text}.{others}")),
            link: kind.page().map(str::to_owned),
        })
    };
    all.chunk_by(|one, other| one.0 == other.0).filter_map(of_kind).collect()
}

/// Returns the worst problem of a bridge.
fn of_bridge(facts: &BridgeFacts, now: Instant) -> Option<Found> {
    let name = &facts.name;
    let down = age(now, facts.down_since).filter(|age| *age >= STUCK);
    if let Some(age) = down {
        let why = reason(&facts.last_error, || match facts.state {
            BridgeState::AwaitingConnack => "the other broker does not answer CONNECT".to_owned(),
            _ => format!("{} does not answer", facts.address),
        });
        let text = format!("The bridge {name} has not been connected for {}: {why}", seconds(age));
        return Some((BrokerProblemKind::BridgeDown, age, text + &queue_of(&facts.session)));
    }
    if let Some((age, detail)) = overdue(&facts.session) {
        let age_of = seconds(age);
        let text = format!("The bridge {name} has waited {age_of} for an acknowledgement{detail}");
        return Some((BrokerProblemKind::BridgeStuck, age, text + &queue_of(&facts.session)));
    }
    if !facts.refused_filters.is_empty() {
        let filters = facts.refused_filters.join(", ");
        let text = format!("The bridge {name} may not subscribe to {filters}");
        return Some((BrokerProblemKind::BridgeRefused, now.since(facts.since), text));
    }
    let lost = age(now, facts.last_session_lost).filter(|age| *age < LATELY)?;
    let text = format!(
        "The other broker of the bridge {name} had lost its session {} ago: QoS 2 messages may have come twice",
        seconds(lost)
    );
    Some((BrokerProblemKind::BridgeSessionLost, lost, text))
}

/// Returns the worst problem of a sink.
fn of_sink(facts: &SinkFacts, now: Instant) -> Option<Found> {
    let (name, age_of_state) = (&facts.name, now.since(facts.since));
    let queue = queue_of(&facts.session);
    if let Some(status) = facts.refused_credentials() {
        let text = format!(
            "The service has refused the credentials of the sink {name} with HTTP {status} for {}: its messages wait",
            seconds(age_of_state)
        );
        return Some((BrokerProblemKind::SinkRefused, age_of_state, text + &queue));
    }
    if facts.state != SinkState::Ready && age_of_state >= STUCK {
        let why = reason(&facts.last_error, || "its session does not begin".to_owned());
        let text = format!("The sink {name} has delivered nothing for {}: {why}", seconds(age_of_state));
        return Some((BrokerProblemKind::SinkDown, age_of_state, text + &queue));
    }
    if let Some((age, _)) = overdue(&facts.session).filter(|_| facts.state == SinkState::Ready) {
        let open = counted(facts.open_requests as u64, "request");
        let text =
            format!("The sink {name} has waited {} for its service: {open} without an answer", seconds(age));
        return Some((BrokerProblemKind::SinkStuck, age, text + &queue));
    }
    if !facts.refused_filters.is_empty() {
        let filters = facts.refused_filters.join(", ");
        let text = format!("The sink {name} may not subscribe to {filters}");
        return Some((BrokerProblemKind::SinkFilters, age_of_state, text));
    }
    let last = facts.refusals.back()?;
    let ago = age(now, last.at).filter(|age| *age < LATELY)?;
    let text = format!(
        "The service of the sink {name} refuses messages for good, the last one {} ago: {}",
        seconds(ago),
        last.cause
    );
    Some((BrokerProblemKind::SinkDeadLetters, ago, text))
}

/// Returns the time since an instant that is not never.
fn age(now: Instant, since: Instant) -> Option<Duration> {
    (!since.is_never()).then(|| now.since(since))
}

fn reason(last_error: &str, otherwise: impl FnOnce() -> String) -> String {
    if last_error.is_empty() { otherwise() } else { last_error.trim_end_matches('.').to_owned() }
}

/// Returns the age of the oldest message in flight, and who has it, if it waits for long.
fn overdue(session: &FarSession) -> Option<(Duration, String)> {
    let figures = session.figures.as_ref()?;
    let age = figures.row.oldest?.age.least;
    let detail = figures.stall.map(|stall| format!(": {}", stall.detail())).unwrap_or_default();
    (figures.row.connection.is_some() && age >= STUCK).then_some((age, detail))
}

/// Returns the use of a queue, as the end of a sentence; empty if nothing waits.
fn queue_of(session: &FarSession) -> String {
    let Some(row) = session.row().filter(|row| row.queued > 0) else { return String::new() };
    let (messages, size) = (counted(row.queued as u64, "message"), bytes(row.queued_bytes as u64));
    let used = session.queue_used();
    let used = if used >= MUCH { format!(", {} of its queue", percent(used)) } else { String::new() };
    format!("; {messages} ({size}{used}) wait")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::bridges::reports::FarFacts;
    use crate::broker::sinks::status::RefusalFacts;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn a_bridge_that_is_down_refused_or_has_lost_its_session_is_a_problem() {
        let facts = BridgeFacts::new("cloud", at(0));
        assert!(of_bridge(&facts, at(9)).is_none(), "it has just begun");
        let down = BridgeFacts { last_error: "cannot connect: refused".to_owned(), ..facts.clone() };
        let (kind, _, text) = of_bridge(&down, at(40)).expect("a problem");
        assert_eq!(kind, BrokerProblemKind::BridgeDown);
        assert_eq!(text, "The bridge cloud has not been connected for 40.0 s: cannot connect: refused");
        let up = BridgeFacts { down_since: Instant::NEVER, state: BridgeState::Established, ..facts };
        assert!(of_bridge(&up, at(40)).is_none());
        let refused = BridgeFacts { refused_filters: vec!["a/#".to_owned()], ..up.clone() };
        assert_eq!(of_bridge(&refused, at(40)).expect("a problem").0, BrokerProblemKind::BridgeRefused);
        let lost = BridgeFacts { last_session_lost: at(30), ..up };
        assert_eq!(of_bridge(&lost, at(40)).expect("a problem").0, BrokerProblemKind::BridgeSessionLost);
        assert!(of_bridge(&lost, at(700)).is_none(), "that is long ago");
    }

    #[test]
    fn a_sink_that_is_refused_is_a_problem_at_once_and_one_that_fails_from_ten_seconds_on() {
        let facts = SinkFacts { state: SinkState::Failing, ..SinkFacts::new("data", at(0)) };
        let refused = SinkFacts { failing_with: Some(401), ..facts.clone() };
        let (kind, _, text) = of_sink(&refused, at(1)).expect("a problem");
        assert_eq!(kind, BrokerProblemKind::SinkRefused);
        assert!(text.contains("the credentials of the sink data with HTTP 401 for 1.0 s"), "{text}");
        assert!(of_sink(&facts, at(9)).is_none());
        assert_eq!(of_sink(&facts, at(10)).expect("a problem").0, BrokerProblemKind::SinkDown);
        let ready = SinkFacts { state: SinkState::Ready, ..facts };
        assert!(of_sink(&ready, at(10)).is_none());
        let refusal = RefusalFacts { topic: "t".to_owned(), cause: "HTTP 422".to_owned(), at: at(5) };
        let letters = SinkFacts { refusals: [refusal].into(), ..ready };
        assert_eq!(of_sink(&letters, at(10)).expect("a problem").0, BrokerProblemKind::SinkDeadLetters);
        assert!(of_sink(&letters, at(700)).is_none());
    }
}
