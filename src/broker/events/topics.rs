//! Writes client events as JSON for `$homing/events/<kind>/<client id>`.
//!
//! An event is published when it happens, to subscribers only. Events are bounded in rate, overall
//! and for each client; the next admitted event of a client says how many were suppressed. Event
//! topics are off by default (`sys.events`): then nothing here runs.

use super::super::rate_limit::{EventRates, Rate, RateLimiter};
use super::client_level;
use crate::broker::connection::PeerAddress;
use crate::events::client_events::{ClientEvent, DisconnectCause, EventDetail, Occurrence, OverduePacket};
use crate::events::refusals::{Refusal, RefusedKind};
use crate::mqtt::charge::Charge;
use crate::named_enum::named_enum;
use crate::session::outbound::stall::Stall;
use crate::time::Instant;
use crate::time::millis;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::Duration;

named_enum! {
    /// The kind of an event: the level of its topic behind `events/`. Each kind has a rate of its
    /// own.
    pub(super) enum EventKind {
        /// An acknowledgement is overdue, and nothing is done about it.
        Stalled = "stalled",
        /// Packets were sent again.
        Redelivered = "redelivered",
        /// A packet was sent again as often as allowed.
        Exhausted = "exhausted",
        /// The broker closed the connection because the client was late, silent or full.
        Disconnected = "disconnected",
        /// A PUBLISH of the client was refused.
        PublishRefused = "publish_refused",
        /// The will of the client was refused.
        WillRefused = "will_refused",
        /// A Topic Filter of the client was refused.
        SubscriptionRefused = "subscription_refused",
    }
}

impl EventKind {
    /// Returns the kind; `None` if the event has no topic.
    pub(super) fn of(occurrence: &Occurrence) -> Option<EventKind> {
        match occurrence {
            Occurrence::Stalled(_) => Some(EventKind::Stalled),
            Occurrence::Redelivered { .. } => Some(EventKind::Redelivered),
            Occurrence::Exhausted(_) => Some(EventKind::Exhausted),
            Occurrence::Disconnected(cause) => is_late(cause).then_some(EventKind::Disconnected),
            Occurrence::RequestRefused(refusal) => Some(match refusal.kind {
                RefusedKind::Publish => EventKind::PublishRefused,
                RefusedKind::Will => EventKind::WillRefused,
                RefusedKind::Subscription => EventKind::SubscriptionRefused,
            }),
            Occurrence::Connected { .. }
            | Occurrence::Refused { .. }
            | Occurrence::Contradiction { .. }
            | Occurrence::RequestUnreadable { .. }
            | Occurrence::Adopted { .. }
            | Occurrence::SessionExpired { .. }
            | Occurrence::Dropped(_) => None,
        }
    }
}

/// Returns true if the broker closed the connection because the client was late, silent or full.
pub(super) fn is_late(cause: &DisconnectCause) -> bool {
    match cause {
        DisconnectCause::Exhausted(_)
        | DisconnectCause::AckTimeout(_)
        | DisconnectCause::KeepAlive { .. }
        | DisconnectCause::WriteTimeout { .. }
        | DisconnectCause::PacketTimeout { .. }
        | DisconnectCause::QueueFull => true,
        DisconnectCause::Client(_)
        | DisconnectCause::Network(_)
        | DisconnectCause::Violation(..)
        | DisconnectCause::TakenOver
        | DisconnectCause::NoConnect
        | DisconnectCause::Revoked(_)
        | DisconnectCause::MaximumConnectTime(_)
        | DisconnectCause::Operator
        | DisconnectCause::Banned(_)
        | DisconnectCause::Shutdown => false,
    }
}

/// An event that is not written, because a rate is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suppressed;

/// Writes the events of one thread's clients for the event topics, within two rates.
///
/// Bound: a client is remembered from its first admitted event to the end of the minute, and one
/// minute more if one of its events was suppressed. So there are at most 120 times as many clients
/// as events in a second.
#[derive(Debug)]
pub(super) struct EventTopics {
    overall: Rate,
    per_client: Rate,
    limiter: RateLimiter,
    /// The minute in which `clients` was last cleared of what is over.
    minute: u32,
    clients: HashMap<Box<str>, ClientLimiters>,
    /// Bytes of `clients`: at 1,000 events in a second there may be 120,000, with ids of up to 1
    /// KiB.
    charge: Charge,
}

type ClientLimiters = [RateLimiter; EventKind::ALL.len()];

/// Bytes of a client's place beside its id, in a table that is half full at the worst.
const PLACE: usize = 2 * size_of::<(Box<str>, ClientLimiters)>();

/// The circumstances of an event that the shard does not know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    /// Milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// The address of the client; `None` if its connection is gone.
    pub(super) address: Option<&'a PeerAddress>,
    /// The time from the end of a bucket to the arrival of its expired deadlines on this thread,
    /// for the latest batch.
    pub(super) tick_late: Duration,
}

impl EventTopics {
    /// Returns the topics of one thread: `per_second` events of all its clients, `per_client` of
    /// each kind and client in a minute.
    pub(super) fn new(per_second: u32, per_client: u32) -> EventTopics {
        EventTopics {
            overall: Rate::per_second(per_second),
            per_client: Rate::per_minute(per_client),
            limiter: RateLimiter::default(),
            minute: 0,
            clients: HashMap::new(),
            charge: Charge::NONE,
        }
    }

    pub(super) fn rates(&self) -> EventRates {
        EventRates { per_second: self.overall.limit, per_client: self.per_client.limit }
    }

    /// Writes an event: its topic and the JSON. Returns `None` if the event has no topic, or the
    /// client id is too long for one. Errors: a rate is used up.
    pub(super) fn compose(
        &mut self,
        now: Instant,
        event: &ClientEvent,
        scene: Scene<'_>,
    ) -> Result<Option<(String, String)>, Suppressed> {
        let Some((kind, client_id, detail)) = parts(event) else { return Ok(None) };
        let Some(level) = client_level(client_id) else { return Ok(None) };
        let suppressed = self.admit(now, client_id, kind).ok_or(Suppressed)?;
        let topic = format!("$homing/events/{}/{level}", kind.name());
        Ok(Some((topic, describe(kind, client_id, event, detail, scene, suppressed))))
    }

    /// Returns how many events of this kind and client were suppressed before this one, or `None`
    /// if this one is, too.
    fn admit(&mut self, now: Instant, client_id: &str, kind: EventKind) -> Option<u64> {
        self.forget_clients(now);
        let has_room = self.limiter.has_room(self.overall, now);
        let limiter = match self.clients.get_mut(client_id) {
            Some(limiters) => &mut limiters[kind as usize],
            None if !has_room => return None,
            None => {
                self.charge.add(client_id.len() + PLACE);
                &mut self.clients.entry(client_id.into()).or_default()[kind as usize]
            }
        };
        if !has_room {
            limiter.refuse();
            return None;
        }
        if !limiter.admit(self.per_client, now) {
            return None;
        }
        self.limiter.admit(self.overall, now);
        Some(limiter.take_refused())
    }

    /// Once in a minute, forgets the clients that had nothing suppressed in the minute before.
    fn forget_clients(&mut self, now: Instant) {
        let minute = self.per_client.period_of(now);
        if minute <= self.minute {
            return;
        }
        let last = std::mem::replace(&mut self.minute, minute);
        self.clients.retain(|_, limiters| {
            limiters.iter().any(|limiter| limiter.has_refused() && limiter.latest_period() >= last)
        });
        self.charge.set(self.clients.keys().map(|id| id.len() + PLACE).sum());
    }
}

/// Returns kind, client and detail of an event that has a topic. A refused request has no detail.
fn parts(event: &ClientEvent) -> Option<(EventKind, &str, Option<&EventDetail>)> {
    let kind = EventKind::of(&event.occurrence)?;
    let detail = event.detail.as_deref();
    let is_whole = detail.is_some() || matches!(event.occurrence, Occurrence::RequestRefused(_));
    Some((kind, event.client_id.as_deref()?, detail)).filter(|_| is_whole)
}

/// The fields of one event. A field without a value is left out.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.0.insert(name.to_owned(), value);
        }
    }
}

/// Returns the JSON object of an event.
fn describe(
    kind: EventKind,
    client_id: &str,
    event: &ClientEvent,
    detail: Option<&EventDetail>,
    scene: Scene<'_>,
    suppressed: u64,
) -> String {
    let mut fields = Fields::default();
    fields.put("event", kind.name());
    fields.put("unix_ms", scene.unix_ms);
    fields.put("client_id", client_id);
    fields.put("address", scene.address.map(|address| address.to_string()));
    fields.put("version", event.version.map(|version| version.to_string()));
    fields.put("in_flight", detail.map(|detail| detail.in_flight));
    fields.put("queued", detail.map(|detail| detail.queued));
    if let Some(late) = detail.and_then(|detail| detail.late) {
        fields.put("deadline_unix_ms", scene.unix_ms.saturating_sub(millis(late)));
        fields.put("lateness_ms", millis(late));
        fields.put("tick_lateness_ms", millis(scene.tick_late));
    }
    if let Some(packet) = detail.and_then(|detail| detail.packet.as_ref()) {
        describe_packet(&mut fields, packet);
        if event.occurrence.is_diagnosed() {
            describe_socket(&mut fields, &packet.stall);
        }
    }
    describe_occurrence(&mut fields, &event.occurrence);
    if suppressed > 0 {
        fields.put("suppressed", suppressed);
    }
    Value::Object(fields.0).to_string()
}

fn describe_packet(fields: &mut Fields, packet: &OverduePacket) {
    let Stall { packet_id, age, transmissions, .. } = packet.stall;
    fields.put("packet", if packet.released { "PUBREL" } else { "PUBLISH" });
    fields.put("packet_id", packet_id.get());
    fields.put("topic", packet.message.as_ref().map(|message| &*message.topic));
    fields.put("qos", packet.message.as_ref().map(|message| message.qos as u8));
    fields.put("age_ms", millis(age.least));
    fields.put("sent_before_start", age.is_over.then_some(true));
    fields.put("transmissions", transmissions);
}

fn describe_socket(fields: &mut Fields, stall: &Stall) {
    let Stall { cause, view, .. } = stall;
    let (unsent, on_the_way) = (view.unsent, view.on_the_way);
    fields.put("cause", cause.holder().name());
    fields.put("detail", stall.detail());
    fields.put(
        "socket",
        json!({"unsent_bytes": unsent, "segments": on_the_way, "retransmits": view.retransmits}),
    );
}

/// Puts the fields of each kind. An event without a kind never comes here.
fn describe_occurrence(fields: &mut Fields, occurrence: &Occurrence) {
    match occurrence {
        Occurrence::Redelivered { publishes, releases, when } => {
            fields.put("publishes", *publishes);
            fields.put("releases", *releases);
            fields.put("when", when.name());
        }
        Occurrence::Exhausted(then) => fields.put("then", then.name()),
        Occurrence::Disconnected(cause) => {
            fields.put("why", cause.name());
            fields.put("text", cause.to_string());
        }
        Occurrence::RequestRefused(refusal) => {
            let Refusal { user, topic, cause, why, times, .. } = &**refusal;
            fields.put("user", user.as_ref().map(ToString::to_string));
            fields.put("topic", topic.to_string());
            fields.put("cause", *cause);
            fields.put("why", why.to_string());
            fields.put("times", *times);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn each_kind_has_a_limiter_of_its_own() {
        for (number, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }

    #[test]
    fn one_client_has_its_share_of_each_kind_in_a_minute_and_the_next_says_what_was_suppressed() {
        let mut topics = EventTopics::new(1_000, 2);
        let admitted: Vec<_> = (0..5).map(|n| topics.admit(at(n), "a", EventKind::Stalled)).collect();
        assert_eq!(admitted, [Some(0), Some(0), None, None, None]);
        assert_eq!(topics.admit(at(6), "a", EventKind::Disconnected), Some(0), "another kind");
        assert_eq!(topics.admit(at(7), "b", EventKind::Stalled), Some(0), "another client");
        assert_eq!(topics.admit(at(60_000), "a", EventKind::Stalled), Some(3));
    }

    #[test]
    fn all_clients_have_their_share_of_a_second() {
        let mut topics = EventTopics::new(3, 100);
        let admitted =
            (0..10).filter(|n| topics.admit(at(0), &n.to_string(), EventKind::Disconnected).is_some());
        assert_eq!(admitted.count(), 3);
        assert_eq!(topics.admit(at(999), "x", EventKind::Disconnected), None);
        assert_eq!(topics.admit(at(1_000), "x", EventKind::Disconnected), Some(0));
    }

    #[test]
    fn clients_are_remembered_for_two_minutes_at_most() {
        let mut topics = EventTopics::new(10, 1);
        for second in 0..600 {
            for n in 0..20 {
                // Twice, so that every client has something suppressed.
                topics.admit(at(second * 1_000), &format!("{second}-{n}"), EventKind::Stalled);
                topics.admit(at(second * 1_000), &format!("{second}-{n}"), EventKind::Stalled);
            }
            assert!(topics.clients.len() <= 1_200, "{}", topics.clients.len());
            let in_use: usize = topics.clients.keys().map(|id| id.len() + PLACE).sum();
            assert_eq!(topics.charge.bytes(), in_use);
        }
    }
}
