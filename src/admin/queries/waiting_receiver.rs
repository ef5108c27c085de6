//! The receiver of a message that waits: a client, or a bridge or a sink with the reason why it
//! does not send.

use crate::admin::human::{counted, date_time, long, seconds};
use crate::bridge::{self, BridgeState};
use crate::broker::bridges::reports::FarFacts;
use crate::broker::bridges::status::BridgeFacts;
use crate::broker::observer::Observer;
use crate::broker::sinks::status::SinkFacts;
use crate::clock;
use crate::session::trace_steps::StepKind;
use crate::sink::{self, SinkState};
use crate::time::{Instant, millis};

/// The receiver of a message, as far as the words about the message differ.
pub(crate) enum WaitingReceiver {
    Client,
    Bridge(Box<BridgeFacts>),
    /// The session of a bridge that the configuration does not have any more.
    FormerBridge,
    Sink(Box<SinkFacts>),
    /// The session of a sink that the configuration does not have any more.
    FormerSink,
}

/// All bridges and sinks: what waits for them has the reason.
#[derive(Default)]
pub(crate) struct FarSides {
    bridges: Vec<BridgeFacts>,
    sinks: Vec<SinkFacts>,
}

impl FarSides {
    pub(crate) fn of(observer: &Observer) -> FarSides {
        FarSides { bridges: observer.bridges().all(), sinks: observer.sinks().all() }
    }

    /// Returns the receiver with a client identifier.
    pub(crate) fn receiver(&self, client_id: &str) -> WaitingReceiver {
        WaitingReceiver::found(client_id, found(&self.bridges, client_id), found(&self.sinks, client_id))
    }
}

fn found<F: FarFacts>(all: &[F], client_id: &str) -> Option<F> {
    let name = client_id.strip_prefix(F::PREFIX)?;
    all.iter().find(|facts| **facts.name() == *name).cloned()
}

impl WaitingReceiver {
    pub(crate) fn of(observer: &Observer, client_id: &str) -> WaitingReceiver {
        let bridge = observer.bridges().of_client(client_id);
        WaitingReceiver::found(client_id, bridge, observer.sinks().of_client(client_id))
    }

    fn found(client_id: &str, bridge: Option<BridgeFacts>, sink: Option<SinkFacts>) -> WaitingReceiver {
        match (bridge, sink) {
            (Some(facts), _) => WaitingReceiver::Bridge(Box::new(facts)),
            (_, Some(facts)) => WaitingReceiver::Sink(Box::new(facts)),
            _ if client_id.starts_with(bridge::CLIENT_ID_PREFIX) => WaitingReceiver::FormerBridge,
            _ if client_id.starts_with(sink::CLIENT_ID_PREFIX) => WaitingReceiver::FormerSink,
            _ => WaitingReceiver::Client,
        }
    }

    /// Returns the event that brings the receiver back.
    pub(super) fn returns(&self) -> String {
        match self {
            WaitingReceiver::Client => "the client returns".to_owned(),
            WaitingReceiver::FormerBridge => "the configuration has this bridge again".to_owned(),
            WaitingReceiver::FormerSink => "the configuration has this sink again".to_owned(),
            WaitingReceiver::Bridge(facts) => format!("the bridge is connected: {}", state_of(facts)),
            WaitingReceiver::Sink(facts) => format!("the sink has its session: {}", service_of(facts)),
        }
    }

    /// Returns the event that makes the receiver take bytes.
    pub(super) fn reads(&self) -> &'static str {
        match self {
            WaitingReceiver::Client => "the client reads",
            WaitingReceiver::Bridge(_) | WaitingReceiver::FormerBridge => "the other broker reads",
            WaitingReceiver::Sink(_) | WaitingReceiver::FormerSink => {
                "the service accepts what the sink has before it"
            }
        }
    }

    /// Returns the state of the service of a sink; `None` for other receivers.
    pub(super) fn service(&self) -> Option<String> {
        match self {
            WaitingReceiver::Sink(facts) => Some(service_of(facts)),
            _ => None,
        }
    }

    /// Returns more about a receiver for which nothing waits; `None` for a client.
    pub(super) fn has_all(&self, now: Instant) -> Option<String> {
        match self {
            WaitingReceiver::Bridge(facts) => Some(bridge_has_all(facts, now)),
            WaitingReceiver::Sink(facts) => Some(sink_has_all(facts, now)),
            _ => None,
        }
    }

    /// Returns what a service answered to the last message of a topic that it refused for good.
    pub(super) fn refusal(&self, topic: &str, now: Instant) -> Option<String> {
        let WaitingReceiver::Sink(facts) = self else { return None };
        let refusal = facts.refusals.iter().find(|refusal| refusal.topic == topic)?;
        let (cause, ago) = (refusal.cause.trim_end_matches('.'), seconds(now.since(refusal.at)));
        Some(format!("The last refusal of this topic, {ago} ago: {cause}."))
    }

    /// Returns the last step of a message in words, with its time.
    pub(super) fn step(&self, kind: StepKind, at: Instant, now: Instant) -> String {
        let ago = long(now.since(at));
        let words = match self {
            WaitingReceiver::Client => return format!("{}, {ago} ago", of_client(kind)),
            WaitingReceiver::Bridge(facts) => of_bridge(kind, facts.counts.lowered > 0),
            WaitingReceiver::FormerBridge => of_bridge(kind, false),
            WaitingReceiver::Sink(_) | WaitingReceiver::FormerSink => of_sink(kind),
        };
        format!("{words}, {ago} ago, at {} UTC", time_of(at, now))
    }
}

fn of_client(kind: StepKind) -> String {
    match kind {
        StepKind::Matched => "received, and nobody was subscribed".to_owned(),
        kind => kind.name().replace('_', " "),
    }
}

/// `at_zero`: the bridge itself acknowledges what it sends without an acknowledgement.
fn of_bridge(kind: StepKind, at_zero: bool) -> String {
    let words = match kind {
        StepKind::Acknowledged if at_zero => "acknowledged by the other broker, or sent to it with QoS 0",
        StepKind::Acknowledged => "acknowledged by the other broker",
        StepKind::Pubrec => "taken by the other broker (PUBREC)",
        StepKind::Negative => "refused by the other broker, or by the topics of the bridge",
        StepKind::Sent | StepKind::Resent => "sent to the other broker",
        kind => return of_client(kind),
    };
    words.to_owned()
}

fn of_sink(kind: StepKind) -> String {
    let words = match kind {
        StepKind::Acknowledged | StepKind::Pubrec => "accepted by the service",
        StepKind::Negative => "refused by the service for good",
        StepKind::Sent | StepKind::Resent => "given to the sink",
        kind => return of_client(kind),
    };
    words.to_owned()
}

/// Returns the date and the time of day of an instant.
fn time_of(at: Instant, now: Instant) -> String {
    date_time(clock::unix_millis().saturating_sub(millis(now.since(at))))
}

fn bridge_has_all(facts: &BridgeFacts, now: Instant) -> String {
    let last = facts.last_acknowledged;
    if last.is_never() {
        return "The other broker has acknowledged nothing yet.".to_owned();
    }
    let (at, ago) = (time_of(last, now), seconds(now.since(last)));
    let of_session = facts.session.row().map_or(0, |row| row.in_flight);
    // Without a connection only the session knows what is not acknowledged.
    let count = if facts.state == BridgeState::Established { facts.unacknowledged } else { of_session };
    match count {
        0 => format!("The other broker acknowledged all that it was sent, the last {ago} ago, at {at} UTC."),
        _ => format!(
            "The other broker acknowledged the last one {ago} ago, at {at} UTC; {count} others are not acknowledged."
        ),
    }
}

fn sink_has_all(facts: &SinkFacts, now: Instant) -> String {
    let Some(last) = facts.last_accepted else {
        return "The service has accepted nothing yet.".to_owned();
    };
    let (status, at, ago) = (last.status, time_of(last.at, now), seconds(now.since(last.at)));
    match facts.unacknowledged {
        0 => format!(
            "The service accepted all that it was sent, the last with HTTP {status} {ago} ago, at {at} UTC."
        ),
        count => format!(
            "The service accepted the last one with HTTP {status} {ago} ago, at {at} UTC; {count} others are not accepted."
        ),
    }
}

/// Returns the state of a bridge that is not connected: since when, why, and when it tries again.
fn state_of(facts: &BridgeFacts) -> String {
    let now = clock::now();
    let BridgeFacts { state, since, address, last_error, next_attempt, .. } = facts;
    let since = seconds(now.since(*since));
    let last = before(last_error);
    match state {
        BridgeState::Waiting => {
            let next = seconds(next_attempt.since(now));
            format!("its last attempt at {address} ended {since} ago: {last_error}. Next attempt in {next}")
        }
        BridgeState::Idle => format!(
            "for {since} no connection has been wanted; a message of an on_demand bridge or homing ctl bridge connect changes that"
        ),
        BridgeState::Dialling => format!("it has dialled {address} for {since}{last}"),
        BridgeState::AwaitingConnack => format!("it has waited for CONNACK of {address} for {since}{last}"),
        BridgeState::Subscribing | BridgeState::Established => {
            format!("{address} accepted it {since} ago, and its session begins{last}")
        }
    }
}

/// Returns the state of a sink's service: since when it fails, why, and when it is asked again.
fn service_of(facts: &SinkFacts) -> String {
    let now = clock::now();
    let SinkFacts { state, since, url, last_error, next_attempt, open_requests, .. } = facts;
    let since = seconds(now.since(*since));
    match state {
        SinkState::Failing => {
            let error = last_error.trim_end_matches('.');
            let next = match *open_requests {
                0 => format!("Next attempt in {}", seconds(next_attempt.since(now))),
                _ => "The next attempt is under way".to_owned(),
            };
            format!("requests to {url} have failed for {since}, the last one: {error}. {next}")
        }
        SinkState::Starting => format!("its session has begun {since} ago{}", before(last_error)),
        SinkState::Ready => {
            let last = facts.last_answer.map(|answer| {
                format!(
                    ", and its last answer was HTTP {} {} ago",
                    answer.status,
                    seconds(now.since(answer.at))
                )
            });
            let open = counted(*open_requests as u64, "request");
            format!("{url} has {open} without an answer{}", last.unwrap_or_default())
        }
    }
}

fn before(last_error: &str) -> String {
    if last_error.is_empty() { String::new() } else { format!("; before: {last_error}") }
}
