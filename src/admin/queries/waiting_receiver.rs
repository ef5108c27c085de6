//! The receiver of a message that waits: a client, or a bridge with the reason why it does not send.

use crate::admin::human::{long, seconds};
use crate::admin::pages::views::date_time;
use crate::bridge::{BridgeState, CLIENT_ID_PREFIX};
use crate::broker::bridges::status::BridgeFacts;
use crate::broker::observer::Observer;
use crate::clock;
use crate::session::trace_steps::StepKind;
use crate::time::{Instant, millis};

/// The receiver of a message, as far as the words about the message differ.
pub(crate) enum WaitingReceiver {
    Client,
    Bridge(Box<BridgeFacts>),
    /// The session of a bridge that the configuration does not have any more.
    FormerBridge,
}

impl WaitingReceiver {
    pub(crate) fn of(observer: &Observer, client_id: &str) -> WaitingReceiver {
        WaitingReceiver::found(client_id, observer.bridges().of_client(client_id))
    }

    /// Returns a receiver, if these are all bridges.
    pub(crate) fn among(bridges: &[BridgeFacts], client_id: &str) -> WaitingReceiver {
        let is_own = |facts: &&BridgeFacts| client_id.strip_prefix(CLIENT_ID_PREFIX) == Some(&*facts.name);
        WaitingReceiver::found(client_id, bridges.iter().find(is_own).cloned())
    }

    fn found(client_id: &str, facts: Option<BridgeFacts>) -> WaitingReceiver {
        match facts {
            Some(facts) => WaitingReceiver::Bridge(Box::new(facts)),
            None if client_id.starts_with(CLIENT_ID_PREFIX) => WaitingReceiver::FormerBridge,
            None => WaitingReceiver::Client,
        }
    }

    /// Returns the event that brings the receiver back.
    pub(super) fn returns(&self) -> String {
        match self {
            WaitingReceiver::Client => "the client returns".to_owned(),
            WaitingReceiver::FormerBridge => "the configuration has this bridge again".to_owned(),
            WaitingReceiver::Bridge(facts) => format!("the bridge is connected: {}", state_of(facts)),
        }
    }

    /// Returns the event that makes the receiver take bytes.
    pub(super) fn reads(&self) -> &'static str {
        match self {
            WaitingReceiver::Client => "the client reads",
            WaitingReceiver::Bridge(_) | WaitingReceiver::FormerBridge => "the other broker reads",
        }
    }

    /// Returns more about a receiver for which nothing waits; `None` for a client.
    pub(super) fn has_all(&self, now: Instant) -> Option<String> {
        let WaitingReceiver::Bridge(facts) = self else { return None };
        let last = facts.last_acknowledged;
        if last.is_never() {
            return Some("The other broker has acknowledged nothing yet.".to_owned());
        }
        let (at, ago) = (time_of(last, now), seconds(now.since(last)));
        let of_session = facts.session.as_ref().map_or(0, |session| session.row.in_flight);
        // Without a connection only the session knows what is not acknowledged.
        let count = if facts.state == BridgeState::Established { facts.unacknowledged } else { of_session };
        Some(match count {
            0 => format!(
                "The other broker acknowledged all that it was sent, the last {ago} ago, at {at} UTC."
            ),
            _ => format!(
                "The other broker acknowledged the last one {ago} ago, at {at} UTC; {count} others are not acknowledged."
            ),
        })
    }

    /// Returns the last step of a message in words, with its time.
    pub(super) fn step(&self, kind: StepKind, at: Instant, now: Instant) -> String {
        let ago = long(now.since(at));
        if let WaitingReceiver::Client = self {
            return format!("{}, {ago} ago", of_client(kind));
        }
        let at_zero = matches!(self, WaitingReceiver::Bridge(facts) if facts.counts.lowered > 0);
        let words = match kind {
            // The bridge itself acknowledges what it sends without an acknowledgement.
            StepKind::Acknowledged if at_zero => "acknowledged by the other broker, or sent to it with QoS 0",
            StepKind::Acknowledged => "acknowledged by the other broker",
            StepKind::Pubrec => "taken by the other broker (PUBREC)",
            StepKind::Negative => "refused by the other broker, or by the topics of the bridge",
            StepKind::Sent | StepKind::Resent => "sent to the other broker",
            kind => &of_client(kind),
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

/// Returns the date and the time of day of an instant.
fn time_of(at: Instant, now: Instant) -> String {
    date_time(clock::unix_millis().saturating_sub(millis(now.since(at))))
}

/// Returns the state of a bridge that is not connected: since when, why, and when it tries again.
fn state_of(facts: &BridgeFacts) -> String {
    let now = clock::now();
    let BridgeFacts { state, since, address, last_error, next_attempt, .. } = facts;
    let since = seconds(now.since(*since));
    let last = if last_error.is_empty() { String::new() } else { format!("; before: {last_error}") };
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
