//! `$SYS/broker/events/<kind>/<client id>`: what becomes of unacknowledged messages, told as JSON when it happens, to
//! whoever listens. Bounded in rate, overall and for each client, with a count of what was left out.
//!
//! Off by default; then a shard makes no reports and nothing here runs.

use crate::mqtt::session::stall::Stall;
use crate::routing::shard::report::{Occurrence, Redelivery, Report, Then, client_level};
use crate::time::Instant;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How long one second's and one client's share lasts.
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// What an event is about, as in its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Stalled,
    Redelivered,
    Exhausted,
    Cut,
}

const KINDS: usize = 4;

impl Kind {
    fn of(occurrence: &Occurrence) -> Kind {
        match occurrence {
            Occurrence::Stalled => Kind::Stalled,
            Occurrence::Redelivered { .. } => Kind::Redelivered,
            Occurrence::Exhausted(_) => Kind::Exhausted,
            Occurrence::Cut(_) => Kind::Cut,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Stalled => "stalled",
            Kind::Redelivered => "redelivered",
            Kind::Exhausted => "exhausted",
            Kind::Cut => "cut",
        }
    }
}

/// One arbiter's share of the events.
///
/// Bound: a client is remembered from its first event that was let through to the end of the minute, and one minute more
/// if something of its was left out: 120 times the events of a second.
#[derive(Debug)]
pub struct EventTopics {
    per_second: u32,
    per_client: u32,
    second: Instant,
    /// Let through in this second.
    through: u32,
    minute: Instant,
    clients: HashMap<Box<str>, [Share; KINDS]>,
}

/// One client's events of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Let through in this minute.
    through: u32,
    /// Left out since the last that was let through.
    left_out: u64,
}

/// When and where, which the shard does not know.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub unix_ms: u64,
    pub address: Option<SocketAddr>,
    /// How long after its bucket's end the latest batch of verdicts came to this arbiter.
    pub tick_late: Duration,
}

impl EventTopics {
    /// `per_second` is this arbiter's share.
    pub fn new(per_second: u32, per_client: u32) -> EventTopics {
        let (second, minute) = (Instant::ZERO, Instant::ZERO);
        EventTopics { per_second, per_client, second, through: 0, minute, clients: HashMap::new() }
    }

    /// The topic and the text of a report; nothing where the rate is used up, or no topic can name the client.
    pub fn compose(&mut self, now: Instant, report: &Report, scene: Scene) -> Option<(String, String)> {
        let level = client_level(&report.client_id)?;
        let kind = Kind::of(&report.occurrence);
        let left_out = self.admit(now, &report.client_id, kind)?;
        let topic = format!("$SYS/broker/events/{}/{level}", kind.name());
        Some((topic, describe(kind, report, scene, left_out)))
    }

    /// Whether an event may go out; if so, how many of its kind about its client were left out before it.
    fn admit(&mut self, now: Instant, client_id: &str, kind: Kind) -> Option<u64> {
        if now.since(self.second) >= SECOND {
            (self.second, self.through) = (now, 0);
        }
        if now.since(self.minute) >= MINUTE {
            self.minute = now;
            self.clients.retain(|_, shares| {
                let keep = shares.iter().any(|share| share.through > 0 && share.left_out > 0);
                shares.iter_mut().for_each(|share| share.through = 0);
                keep
            });
        }
        let full = self.through >= self.per_second;
        let share = match self.clients.get_mut(client_id) {
            Some(shares) => &mut shares[kind as usize],
            None if full => return None,
            None => &mut self.clients.entry(client_id.into()).or_default()[kind as usize],
        };
        if full || share.through >= self.per_client {
            share.left_out += 1;
            return None;
        }
        self.through += 1;
        share.through += 1;
        Some(std::mem::take(&mut share.left_out))
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The JSON object. A field that has nothing to say is left out.
fn describe(kind: Kind, report: &Report, scene: Scene, left_out: u64) -> String {
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
            say("when", if *when == Redelivery::Live { "live" } else { "return" }.into());
        }
        Occurrence::Exhausted(then) => {
            say("then", if *then == Then::Disconnect { "disconnect" } else { "keep" }.into());
        }
        Occurrence::Cut(why) => {
            say("why", why.name().into());
            say("text", why.to_string().into());
        }
    }
    if left_out > 0 {
        say("left_out", left_out.into());
    }
    Value::Object(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn one_client_has_its_share_of_each_kind_in_a_minute_and_the_next_says_what_was_left_out() {
        let mut topics = EventTopics::new(1_000, 2);
        let admitted: Vec<_> = (0..5).map(|n| topics.admit(at(n), "a", Kind::Stalled)).collect();
        assert_eq!(admitted, [Some(0), Some(0), None, None, None]);
        assert_eq!(topics.admit(at(6), "a", Kind::Cut), Some(0), "another kind");
        assert_eq!(topics.admit(at(7), "b", Kind::Stalled), Some(0), "another client");
        assert_eq!(topics.admit(at(60_000), "a", Kind::Stalled), Some(3));
    }

    #[test]
    fn all_clients_have_their_share_of_a_second() {
        let mut topics = EventTopics::new(3, 100);
        let admitted = (0..10).filter(|n| topics.admit(at(0), &n.to_string(), Kind::Cut).is_some());
        assert_eq!(admitted.count(), 3);
        assert_eq!(topics.admit(at(999), "x", Kind::Cut), None);
        assert_eq!(topics.admit(at(1_000), "x", Kind::Cut), Some(0));
    }

    #[test]
    fn clients_are_remembered_for_two_minutes_at_most() {
        let mut topics = EventTopics::new(10, 1);
        for second in 0..600 {
            for n in 0..20 {
                // Twice, so that every client has something left out.
                topics.admit(at(second * 1_000), &format!("{second}-{n}"), Kind::Stalled);
                topics.admit(at(second * 1_000), &format!("{second}-{n}"), Kind::Stalled);
            }
            assert!(topics.clients.len() <= 1_200, "{}", topics.clients.len());
        }
    }
}
