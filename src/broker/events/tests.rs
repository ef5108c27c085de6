//! The tables of the listeners: every event, every cause and every field stands in
//! `docs/client-events.md` or `docs/metrics.md`, and nothing stands there twice.

use super::topics::{EventKind, is_late};
use super::*;
use crate::access::bans::Ban;
use crate::broker::fixture;
use crate::events::client_events::{
    Addressed, DisconnectCause, DisconnectKind, EventDetail, ExhaustedAction, Occurrence, OverduePacket,
    RedeliveryTime, Revocation,
};
use crate::events::refusals::{Refusal, RefusedKind};
use crate::mqtt::excerpt::Excerpt;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::session::drops::{Counts, DropReason};
use crate::session::outbound::stall::{SocketView, Stall, StallCause};
use crate::time::age::Age;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const CLIENT_EVENTS: &str = include_str!("../../../docs/client-events.md");
const METRICS: &str = include_str!("../../../docs/metrics.md");

fn stall(cause: StallCause) -> Stall {
    Stall {
        number: 0,
        packet_id: PacketId::new(7).expect("not 0"),
        age: Age { least: Duration::from_millis(1_500), is_over: true },
        transmissions: 2,
        cause,
        view: SocketView::default(),
        late: Duration::from_millis(40),
    }
}

/// Returns one of each cause. A cause that is missing here does not compile in [`place`].
fn every_cause() -> Vec<DisconnectCause> {
    let stall = stall(StallCause::Application);
    let causes = vec![
        DisconnectCause::Client(ReasonCode::DISCONNECT_WITH_WILL_MESSAGE),
        DisconnectCause::Network("reset".into()),
        DisconnectCause::Violation(ReasonCode::PROTOCOL_ERROR, "a rule".into()),
        DisconnectCause::TakenOver,
        DisconnectCause::KeepAlive { silent: Duration::from_secs(3) },
        DisconnectCause::NoConnect,
        DisconnectCause::WriteTimeout { waiting_bytes: 1 },
        DisconnectCause::PacketTimeout { partial_bytes: 1 },
        DisconnectCause::Exhausted(stall),
        DisconnectCause::AckTimeout(stall),
        DisconnectCause::QueueFull,
        DisconnectCause::Revoked(Revocation::Certificate("revoked".into())),
        DisconnectCause::MaximumConnectTime("the client's credentials have expired"),
        DisconnectCause::Operator,
        DisconnectCause::Banned(Ban::User),
        DisconnectCause::Shutdown,
    ];
    assert!(causes.iter().map(DisconnectCause::kind).eq(DisconnectKind::ALL));
    causes
}

fn refusal(kind: RefusedKind) -> Box<Refusal> {
    let text = |text| Excerpt::of(text, 128);
    Box::new(Refusal {
        at: Instant::ZERO,
        client_id: text("pump/7"),
        user: Some(text("ann")),
        kind,
        topic: text("alarms/1"),
        cause: "not_authorized",
        why: text("line 12 of acl denies it"),
        times: 5,
    })
}

/// Returns one of each event, with all its detail. An event that is missing here does not compile.
pub(super) fn every_event() -> Vec<ClientEvent> {
    let (when, packet_id) = (RedeliveryTime::Live, PacketId::new(7).expect("not 0"));
    let mut counts = Counts::default();
    counts.add(DropReason::Expired, 3);
    let mut occurrences = vec![
        Occurrence::Connected { clean_start: true, session_present: false, keep_alive_secs: 60 },
        Occurrence::Refused {
            reason: ReasonCode::QUOTA_EXCEEDED,
            what: "no room".into(),
            user_name: Some("ann".into()),
        },
        Occurrence::RequestRefused(refusal(RefusedKind::Publish)),
        Occurrence::Stalled(stall(StallCause::Application)),
        Occurrence::Redelivered { publishes: 2, releases: 1, when },
        Occurrence::Exhausted(ExhaustedAction::Keep),
        Occurrence::Contradiction { packet_id, what: "PUBACK for QoS 2" },
        Occurrence::RequestUnreadable { setting: "retry-interval", text: "soon".into() },
        Occurrence::SessionExpired { unfinished: 4 },
        Occurrence::Dropped(counts),
        Occurrence::Disconnected(DisconnectCause::QueueFull),
        Occurrence::Adopted { user_name: "ann".into() },
    ];
    let place = |occurrence: &Occurrence| match occurrence {
        Occurrence::Connected { .. } => 0,
        Occurrence::Refused { .. } => 1,
        Occurrence::RequestRefused(_) => 2,
        Occurrence::Stalled(_) => 3,
        Occurrence::Redelivered { .. } => 4,
        Occurrence::Exhausted(_) => 5,
        Occurrence::Contradiction { .. } => 6,
        Occurrence::RequestUnreadable { .. } => 7,
        Occurrence::SessionExpired { .. } => 8,
        Occurrence::Dropped(_) => 9,
        Occurrence::Disconnected(_) => 10,
        Occurrence::Adopted { .. } => 11,
    };
    assert!(occurrences.iter().map(place).eq(0..12));
    occurrences.push(Occurrence::Stalled(stall(StallCause::InTransit)));
    counts.add(DropReason::QueueRefused, 1);
    occurrences.push(Occurrence::Dropped(counts));
    for kind in [RefusedKind::Will, RefusedKind::Subscription] {
        occurrences.push(Occurrence::RequestRefused(refusal(kind)));
    }
    occurrences.extend(every_cause().into_iter().map(Occurrence::Disconnected));
    occurrences.into_iter().map(event).collect()
}

fn event(occurrence: Occurrence) -> ClientEvent {
    let stall = stall(StallCause::Application);
    let message = Some(Addressed { topic: "pumps/7/set".into(), qos: QoS::AtLeastOnce });
    let detail = EventDetail {
        packet: Some(OverduePacket { stall, message, released: false }),
        oldest_unacknowledged: Some(stall),
        late: Some(Duration::from_millis(40)),
        silent: Some(Duration::from_secs(2)),
        in_flight: 1,
        queued: 5,
    };
    ClientEvent {
        connection: None,
        client_id: Some("pump/7".into()),
        version: Some(ProtocolVersion::V3_1_1),
        occurrence,
        detail: Some(Box::new(detail)),
    }
}

fn json(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).expect("a JSON object")
}

fn composed(topics: &mut EventTopics, event: &ClientEvent) -> Option<(String, String)> {
    let address = PeerAddress::ip(SocketAddr::from(([127, 0, 0, 1], 44_964)));
    let scene =
        Scene { unix_ms: 1_795_346_731_228, address: Some(&address), tick_late: Duration::from_millis(2) };
    topics.compose(Instant::ZERO, event, scene).expect("within the rates")
}

/// Returns the part of a document below a heading.
fn section(document: &'static str, heading: &str) -> &'static str {
    let (_, rest) = document.split_once(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

/// Returns all words between backticks of a text.
fn words(text: &str) -> BTreeSet<&str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_field_and_every_kind_of_an_event_is_documented() {
    let mut topics = EventTopics::new(1_000, 1_000);
    let (documented, mut kinds) = (words(section(CLIENT_EVENTS, "\n## Events\n")), BTreeSet::new());
    for event in every_event() {
        let Some((topic, text)) = composed(&mut topics, &event) else { continue };
        let fields = json(&text);
        let kind = fields["event"].as_str().expect("a kind").to_owned();
        assert_eq!(topic, format!("$homing/events/{kind}/pump%2F7"));
        assert!(documented.contains(&*kind), "kind {kind}");
        for field in fields.keys() {
            assert!(documented.contains(&**field), "field {field} of {kind}");
        }
        kinds.insert(kind);
    }
    let all: BTreeSet<String> = EventKind::ALL.map(|kind| kind.name().to_owned()).into();
    assert_eq!(kinds, all);
}

#[test]
fn every_cause_of_a_disconnect_has_one_name_which_is_documented() {
    let records = words(section(CLIENT_EVENTS, "\n## Last disconnect\n"));
    let events = words(section(CLIENT_EVENTS, "\n## Events\n"));
    let mut names = BTreeSet::new();
    for cause in every_cause() {
        let name = cause.name();
        assert!(names.insert(name), "{name} twice");
        assert_eq!(records.contains(name), cause.needs_explanation(), "last disconnect: {name}");
        assert!(!is_late(&cause) || events.contains(name), "event: {name}");
    }
}

#[test]
fn every_cause_of_a_drop_has_one_name_which_is_documented() {
    let documented = words(section(METRICS, "\n## Causes of drops\n"));
    for reason in DropReason::ALL {
        assert!(documented.contains(reason.name()), "{reason}");
    }
}

#[test]
fn a_record_is_written_for_each_disconnect_that_needs_an_explanation() {
    let documented = words(section(CLIENT_EVENTS, "\n## Last disconnect\n"));
    for event in every_event() {
        let expected = match &event.occurrence {
            Occurrence::Disconnected(cause) => cause.needs_explanation(),
            _ => false,
        };
        let record = record(Instant::from_millis(11_502), &event);
        assert_eq!(record.is_some(), expected, "{:?}", event.occurrence);
        let Some((topic, text)) = record else { continue };
        assert_eq!(topic, "$homing/clients/pump%2F7/last-disconnect");
        let fields = json(&text);
        for field in fields.keys() {
            assert!(documented.contains(&**field), "{field}");
        }
        assert_eq!(fields["uptime_ms"], 11_502);
        assert_eq!(fields["lateness_ms"], 40);
        assert_eq!(fields["oldest_unacknowledged"]["age_ms"], 1_500);
    }
}

#[test]
fn a_client_without_session_or_with_a_long_id_has_no_record_and_no_topic() {
    let mut topics = EventTopics::new(1_000, 1_000);
    let known = event(Occurrence::Disconnected(DisconnectCause::QueueFull));
    let nameless = ClientEvent { client_id: None, ..known.clone() };
    let long = ClientEvent { client_id: Some("x".repeat(LONGEST_CLIENT_ID + 1).into()), ..known.clone() };
    let brief = ClientEvent { detail: None, ..known };
    for event in [nameless, long, brief] {
        assert_eq!(record(Instant::ZERO, &event), None);
        assert_eq!(composed(&mut topics, &event), None);
    }
}

#[test]
fn the_packet_of_an_event_says_what_is_overdue() {
    let mut topics = EventTopics::new(1_000, 1_000);
    let stalled = event(Occurrence::Stalled(stall(StallCause::Application)));
    let (_, text) = composed(&mut topics, &stalled).expect("a stall has a topic");
    let fields = json(&text);
    assert_eq!((&fields["packet"], &fields["topic"]), (&"PUBLISH".into(), &"pumps/7/set".into()));
    assert_eq!(fields["deadline_unix_ms"], 1_795_346_731_188_u64);
    assert_eq!(fields["tick_lateness_ms"], 2);
    assert_eq!(fields["cause"], "application");
    assert!(fields.get("suppressed").is_none());
}

#[test]
fn the_listeners_count_an_event_that_a_rate_suppresses() {
    let statistics = fixture::statistics(&fixture::shared());
    let log = Arc::new(EventLog::new(0));
    let mut listeners = EventListeners::new(log, Arc::clone(&statistics));
    listeners.set_rates(Some(EventRates { per_second: 1_000, per_client: 1 }));
    let event = event(Occurrence::Disconnected(DisconnectCause::QueueFull));
    let mut report = || listeners.report(Instant::ZERO, &event, None, Duration::ZERO);
    let first = report();
    assert!(first.event.is_some() && first.last_disconnect.is_some());
    let second = report();
    assert!(second.event.is_none() && second.last_disconnect.is_some(), "records have no rate");
    assert_eq!(statistics.suppressed_events(), 1);
}
