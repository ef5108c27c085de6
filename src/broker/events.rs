//! Writes client events as JSON for `$SYS/broker/events/<kind>/<client id>`, and last-disconnect
//! records.
//!
//! An event is published when it happens, to subscribers only. Events are bounded in rate, overall
//! and for each client; the next admitted event of a client says how many were suppressed. Events
//! are off by default (`sys.events`): then no shard makes any, and nothing here runs.

use super::rate_limit::{Rate, RateLimiter};
use crate::mqtt::charge::Charge;
use crate::session::outbound::stall::Stall;
use crate::shard::observe::client_events::{
    ClientEvent, Occurrence, OverdueAction, RedeliveryEvent, client_level,
};
use crate::shard::observe::last_disconnect::LastDisconnect;
use crate::time::Instant;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The kind of an event: the level of its topic behind `events/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Stalled,
    Redelivered,
    Exhausted,
    Disconnected,
}

impl EventKind {
    const ALL: [EventKind; 4] =
        [EventKind::Stalled, EventKind::Redelivered, EventKind::Exhausted, EventKind::Disconnected];

    fn of(occurrence: &Occurrence) -> EventKind {
        match occurrence {
            Occurrence::Stalled => EventKind::Stalled,
            Occurrence::Redelivered { .. } => EventKind::Redelivered,
            Occurrence::Exhausted(_) => EventKind::Exhausted,
            Occurrence::Disconnected(_) => EventKind::Disconnected,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            EventKind::Stalled => "stalled",
            EventKind::Redelivered => "redelivered",
            EventKind::Exhausted => "exhausted",
            EventKind::Disconnected => "disconnected",
        }
    }
}

/// Writes the events of one thread's clients for the event topics, within two rates.
///
/// Bound: a client is remembered from its first admitted event to the end of the minute, and one
/// minute more if an event of it was suppressed. So there are at most 120 times as many clients as
/// events in a second.
#[derive(Debug)]
pub struct EventTopics {
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

/// The limiters of one client, one for each kind of event.
type ClientLimiters = [RateLimiter; EventKind::ALL.len()];

/// Bytes of a client's place beside its id, in a table that is half full at the worst.
const PLACE: usize = 2 * size_of::<(Box<str>, ClientLimiters)>();

/// The circumstances of an event that the shard does not know.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// The address of the client; `None` if its connection is gone.
    pub address: Option<SocketAddr>,
    /// The time from the end of a bucket to the arrival of its expired deadlines on this thread,
    /// for the latest batch.
    pub tick_late: Duration,
}

impl EventTopics {
    /// Returns the topics of one thread: `per_second` events of all its clients, `per_client` of
    /// each kind and client in a minute.
    pub fn new(per_second: u32, per_client: u32) -> EventTopics {
        EventTopics {
            overall: Rate::per_second(per_second),
            per_client: Rate::per_minute(per_client),
            limiter: RateLimiter::default(),
            minute: 0,
            clients: HashMap::new(),
            charge: Charge::NONE,
        }
    }

    /// Returns the topic and the JSON of an event.
    ///
    /// Returns `None` if a rate is used up, or if the client id is too long for a topic.
    pub fn compose(&mut self, now: Instant, report: &ClientEvent, scene: Scene) -> Option<(String, String)> {
        let level = client_level(&report.client_id)?;
        let kind = EventKind::of(&report.occurrence);
        let suppressed = self.admit(now, &report.client_id, kind)?;
        let topic = format!("$SYS/broker/events/{}/{level}", kind.name());
        Some((topic, describe(kind, report, scene, suppressed)))
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

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the JSON object of an event. A field without a value is left out.
fn describe(kind: EventKind, report: &ClientEvent, scene: Scene, suppressed: u64) -> String {
    let mut text = Map::new();
    let mut say = |name: &str, value: Value| {
        if !value.is_null() {
            text.insert(name.to_owned(), value);
        }
    };
    say("event", kind.name().into());
    say("unix_ms", scene.unix_ms.into());
    say("client_id", (*report.client_id).into());
    say("address", scene.address.map(|address| address.to_string()).into());
    say("version", report.version.to_string().into());
    say("in_flight", report.in_flight.into());
    say("queued", report.queued.into());
    if let Some(late) = report.late {
        say("deadline_unix_ms", scene.unix_ms.saturating_sub(ms(late)).into());
        say("lateness_ms", ms(late).into());
        say("tick_lateness_ms", ms(scene.tick_late).into());
    }
    if let Some(packet) = &report.packet {
        let Stall { packet_id, age, transmissions, cause, view, .. } = packet.stall;
        say("packet", if packet.released { "PUBREL" } else { "PUBLISH" }.into());
        say("packet_id", packet_id.get().into());
        say("topic", packet.message.as_ref().map(|message| &*message.topic).into());
        say("qos", packet.message.as_ref().map(|message| message.qos as u8).into());
        say("age_ms", ms(age).into());
        say("transmissions", transmissions.into());
        if report.occurrence.is_diagnosed() {
            say("cause", cause.name().into());
            say("detail", cause.detail().into());
            let (unsent, on_the_way) = (view.unsent, view.on_the_way);
            let socket =
                json!({"unsent_bytes": unsent, "segments": on_the_way, "retransmits": view.retransmits});
            say("socket", socket);
        }
    }
    match &report.occurrence {
        Occurrence::Stalled => {}
        Occurrence::Redelivered { publishes, releases, when } => {
            say("publishes", (*publishes).into());
            say("releases", (*releases).into());
            say("when", if *when == RedeliveryEvent::Live { "live" } else { "return" }.into());
        }
        Occurrence::Exhausted(then) => {
            say("then", if *then == OverdueAction::Disconnect { "disconnect" } else { "keep" }.into());
        }
        Occurrence::Disconnected(why) => {
            say("why", why.name().into());
            say("text", why.to_string().into());
        }
    }
    if suppressed > 0 {
        say("suppressed", suppressed.into());
    }
    Value::Object(text).to_string()
}

/// Returns the text of a last-disconnect record: a JSON object, as `docs/monitoring.md` describes.
pub fn describe_disconnect(disconnect: &LastDisconnect) -> String {
    let stall = |stall: &Stall| {
        json!({
            "packet_id": stall.packet_id.get(),
            "age_ms": ms(stall.age),
            "transmissions": stall.transmissions,
        })
    };
    json!({
        "cause": disconnect.why.name(),
        "text": disconnect.why.to_string(),
        "version": disconnect.version.to_string(),
        "uptime_ms": disconnect.now.as_millis(),
        "last_packet_ms_ago": ms(disconnect.silent),
        "lateness_ms": disconnect.late.map(ms),
        "oldest_unacknowledged": disconnect.oldest_unacknowledged.as_ref().map(stall),
        "in_flight": disconnect.in_flight,
        "queued": disconnect.queued,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
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
            let held: usize = topics.clients.keys().map(|id| id.len() + PLACE).sum();
            assert_eq!(topics.charge.bytes(), held);
        }
    }
}
