//! Redelivery in driven time: what is sent again, when, in which order, and what is not.

use crate::mqtt::codec::{self, Decoded};
use crate::mqtt::message::Message;
use crate::mqtt::packet::{Packet, ProtocolVersion, ReasonCode};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::session::drops::ReceiverState;
use crate::session::objectives::{DeliveryMark, Objective, Objectives};
use crate::session::outbound::one_message::MessageName;
use crate::session::outbound::overdue::StalledPackets;
use crate::session::outbound::queue::{Head, QueueLimits, QueuePolicy};
use crate::session::outbound::retransmission::Retransmission;
use crate::session::outbound::retry::{AckPolicy, OnAckTimeout, OnExhausted, Outlives, RetryPolicy};
use crate::session::outbound::sender::*;
use crate::session::outbound::stall::SocketView;
use crate::session::outbox::Pool;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::redelivery_rule::RedeliveryRule;
use crate::session::wire::ClientLimits;
use std::time::Duration;

const SECOND: u64 = 1_000;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn policy() -> SendPolicy {
    let queue = QueueLimits { messages: 100, bytes: 1 << 20, policy: QueuePolicy::Refuse };
    SendPolicy {
        stored_queue: queue.clone(),
        queue,
        redelivery: redelivery(),
        rules: Vec::new(),
        outbox: 1 << 20,
        in_flight: 10,
    }
}

fn redelivery() -> RedeliveryPolicy {
    let retry = RetryPolicy {
        interval: Duration::from_secs(1),
        min_interval: Duration::from_millis(100),
        backoff: 2.0,
        max_interval: Duration::from_secs(8),
        jitter: 0.0,
        attempts: 3,
        on_exhausted: OnExhausted::Disconnect,
        resends_per_tick: 10,
    };
    let ack = AckPolicy {
        timeout: Duration::from_secs(60),
        max_timeout: Duration::from_secs(300),
        on_timeout: OnAckTimeout::Auto,
    };
    RedeliveryPolicy::new(retry, ack)
}

fn sender(redelivery: RedeliveryPolicy) -> Sender {
    Sender::new(Arc::new(SessionRedelivery::new(&redelivery, Vec::new())))
}

/// A connection of the version that began now.
fn fresh_wire(version: ProtocolVersion, window: u16) -> Wire {
    let mut wire = Wire::new(version, 1);
    wire.set_limits(&ClientLimits {
        version,
        window,
        maximum_packet_size: None,
        alias_maximum: 0,
        problem_information: true,
    });
    let redelivery = redelivery();
    wire.set_ack_wait(if version.is_v5() { redelivery.ack.timeout } else { redelivery.retry.interval });
    wire.set_first_wait(redelivery.first_wait(&wire));
    wire
}

/// A session's sender with a connection whose socket takes everything.
struct Bench {
    sender: Sender,
    wire: Wire,
    policy: SendPolicy,
    counters: Counters,
}

impl Bench {
    fn new(version: ProtocolVersion) -> Bench {
        let wire = fresh_wire(version, 10);
        Bench { sender: sender(redelivery()), wire, policy: policy(), counters: Counters::default() }
    }

    fn end_connection(&mut self) {
        self.sender.window.or_create().end_connection(self.wire.outbox.written());
    }

    fn complete(&mut self, id: PacketId) -> bool {
        self.sender.window.or_create().complete(id)
    }

    fn deliver(&mut self, now: Instant, text: &str, qos: QoS) {
        self.deliver_to(now, "t", text, qos);
    }

    fn deliver_to(&mut self, now: Instant, topic: &str, text: &str, qos: QoS) {
        self.enqueue(now, Message::sample(topic, qos, text.as_bytes()), DeliveryMark::NONE);
        self.sender.pump(now, &mut self.wire, &self.policy, &mut self.counters);
    }

    fn enqueue(&mut self, now: Instant, message: Message, mark: DeliveryMark) {
        let (ids, qos) = (SubscriptionIds::None, message.header().qos);
        let delivery = Delivery { message, ids, qos, retain: false, mark, share: None, stored: None };
        let limits = self.policy.queue.clone();
        let drops = &mut self.counters.drops;
        assert_eq!(self.sender.queue.or_create().push(now, delivery, Head::Online, &limits, drops), Ok(()));
    }

    /// What is written, as `id text`, `DUP id text` or `PUBREL id`; the socket takes it all.
    fn written(&mut self) -> Vec<String> {
        let bytes = self.wire.outbox.front().to_vec();
        self.wire.outbox.advance(bytes.len());
        self.wire.outbox.end_flush(&mut Pool::default());
        let (mut rest, mut out) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let Ok(Decoded::Packet { packet, length }) = codec::decode(rest, self.wire.version, u32::MAX)
            else {
                panic!("no whole packet: {rest:?}");
            };
            out.push(match packet {
                Packet::Publish(p) => {
                    let dup = if p.dup { "DUP " } else { "" };
                    let id = p.packet_id.map_or(0, |id| id.get());
                    format!("{dup}{id} {}", String::from_utf8_lossy(p.payload))
                }
                Packet::Pubrel(p) => format!("PUBREL {}", p.packet_id),
                other => other.name().to_owned(),
            });
            rest = &rest[length..];
        }
        out
    }

    fn retransmit(&mut self, now: Instant) -> Retransmission {
        let peer_has = self.wire.outbox.written();
        self.retransmit_seen(now, peer_has, Outlives::Yes)
    }

    fn retransmit_seen(&mut self, now: Instant, peer_has: u64, outlives: Outlives) -> Retransmission {
        let unsent = (self.wire.outbox.written() - peer_has) as usize;
        let view = SocketView { unsent, ..SocketView::default() };
        let Bench { sender, wire, policy, counters } = self;
        sender.retransmit(now, view, outlives, wire, policy, counters)
    }

    fn id(n: u16) -> PacketId {
        PacketId::new(n).unwrap_or_else(|| unreachable!())
    }

    fn ack(n: u16) -> Acknowledgement<'static> {
        Acknowledgement::success(Bench::id(n))
    }
}

// 3.1.1 [MQTT-4.6.0-1]
#[test]
fn resends_keep_the_order_of_the_first_sending() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    b.deliver(at(0), "a", QoS::AtLeastOnce);
    b.deliver(at(400), "b", QoS::AtLeastOnce);
    assert_eq!(b.written(), ["1 a", "2 b"]);
    assert_eq!(b.sender.window.earliest_due(), at(SECOND));
    b.retransmit(at(SECOND));
    assert_eq!(b.written(), ["DUP 1 a"]);
    b.retransmit(at(1_400));
    assert_eq!(b.written(), ["DUP 2 b"]);
    // Backoff: two seconds after each resend.
    assert_eq!(b.sender.window.earliest_due(), at(3 * SECOND));
    b.retransmit(at(4 * SECOND));
    assert_eq!(b.written(), ["DUP 1 a", "DUP 2 b"]);
}

// 5.0 [MQTT-4.4.0-1]
#[test]
fn nothing_is_ever_resent_on_a_live_connection() {
    let mut b = Bench::new(ProtocolVersion::V5);
    b.deliver(at(0), "a", QoS::AtLeastOnce);
    b.deliver(at(0), "b", QoS::ExactlyOnce);
    assert_eq!(b.written(), ["1 a", "2 b"]);
    // Due is here the ack timeout, which finds who holds the message and writes nothing.
    assert_eq!(b.sender.window.earliest_due(), at(60 * SECOND));
    let (view, drops) = (SocketView::default(), &mut b.counters.drops);
    let found = b.sender.overdue(at(60 * SECOND), view, Outlives::Yes, &b.wire, drops);
    assert_eq!(found.application.map(|stall| stall.packet_id), Some(Bench::id(1)));
    assert!(b.written().is_empty());
}

#[test]
fn what_the_peers_kernel_has_not_got_is_not_resent_and_counts_no_attempt() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    b.deliver(at(0), "a", QoS::AtLeastOnce);
    b.written();
    for round in 1..20 {
        let now = at(round * SECOND);
        let done = b.retransmit_seen(now, 0, Outlives::Yes);
        assert_eq!((done.publishes, done.network.is_some(), done.exhausted), (0, true, None));
        assert_eq!(b.sender.window.earliest_due(), at((round + 1) * SECOND));
    }
    // It has arrived by now: its time begins.
    assert_eq!(b.retransmit(at(20 * SECOND)), Retransmission::default());
    assert_eq!(b.sender.window.earliest_due(), at(21 * SECOND));
    b.retransmit(at(21 * SECOND));
    assert_eq!(b.written(), ["DUP 1 a"]);
}

#[test]
fn what_has_just_arrived_is_given_its_whole_ack_timeout() {
    let mut b = Bench::new(ProtocolVersion::V5);
    b.deliver(at(0), "a", QoS::AtLeastOnce);
    b.written();
    let look = |b: &mut Bench, secs: u64, peer_has: u64| {
        let unsent = (b.wire.outbox.written() - peer_has) as usize;
        let view = SocketView { unsent, ..SocketView::default() };
        b.sender.overdue(at(secs * SECOND), view, Outlives::Yes, &b.wire, &mut b.counters.drops)
    };
    let whole = b.wire.outbox.written();
    assert!(look(&mut b, 60, 0).network.is_some());
    // It came a moment ago: neither stalled nor a reason to disconnect.
    assert_eq!(look(&mut b, 120, whole), StalledPackets::default());
    assert_eq!(b.sender.window.earliest_due(), at(180 * SECOND));
    assert!(look(&mut b, 180, whole).application.is_some());
}

// 3.1.1 [MQTT-4.3.3-1]
#[test]
fn after_pubrec_only_the_pubrel_is_resent() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    b.deliver(at(0), "a", QoS::ExactlyOnce);
    b.written();
    let (wire, counters) = (&mut b.wire, &mut b.counters);
    b.sender.receive(at(10), &Bench::ack(1), "pump", wire, counters);
    assert_eq!(b.written(), ["PUBREL 1"]);
    b.retransmit(at(1_010));
    assert_eq!(b.written(), ["PUBREL 1"]);
    assert!(b.complete(Bench::id(1)));
    assert_eq!(b.sender.window.earliest_due(), Instant::NEVER);
}

#[test]
fn attempts_used_up_close_the_connection_only_where_the_session_outlives_it() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    b.deliver(at(0), "a", QoS::AtLeastOnce);
    b.written();
    for now in [1, 3, 7] {
        assert_eq!(b.retransmit(at(now * SECOND)).publishes, 1);
        b.written();
    }
    // 1, 2, 4, then at the cap of 8 seconds.
    assert_eq!(b.sender.window.earliest_due(), at(15 * SECOND));
    let exhausted = b.retransmit(at(15 * SECOND)).exhausted.map(|stall| stall.packet_id);
    assert_eq!(exhausted, Some(Bench::id(1)));
    let written = b.wire.outbox.written();
    let done = b.retransmit_seen(at(15 * SECOND), written, Outlives::No);
    assert_eq!((done.publishes, done.exhausted), (1, None));
}

#[test]
fn a_tick_resends_a_bounded_number_oldest_first() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    let mut few = redelivery();
    few.retry.resends_per_tick = 2;
    b.sender = sender(few);
    for text in ["a", "b", "c"] {
        b.deliver(at(0), text, QoS::AtLeastOnce);
    }
    b.written();
    b.retransmit(at(SECOND));
    assert_eq!(b.written(), ["DUP 1 a", "DUP 2 b"]);
    assert!(b.sender.window.earliest_due() <= at(SECOND));
    b.retransmit(at(1_250));
    assert_eq!(b.written(), ["DUP 3 c"]);
}

// 3.1.1 [MQTT-4.4.0-1]
#[test]
fn reconnect_sends_pubrels_and_what_was_in_flight_before_anything_new() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    for (text, qos) in [("a", QoS::ExactlyOnce), ("b", QoS::AtLeastOnce), ("c", QoS::AtLeastOnce)] {
        b.deliver(at(0), text, qos);
    }
    b.written();
    let (wire, counters) = (&mut b.wire, &mut b.counters);
    b.sender.receive(at(1), &Bench::ack(1), "pump", wire, counters);
    b.written();
    b.end_connection();
    b.wire = fresh_wire(ProtocolVersion::V3_1_1, 1);
    b.sender.resume(at(9), &mut b.wire, &mut b.counters);
    b.deliver(at(9), "d", QoS::AtLeastOnce);
    assert_eq!(b.written(), ["PUBREL 1", "DUP 2 b"]);
    for (id, next) in [(2, "DUP 3 c"), (3, "4 d")] {
        assert!(b.sender.acknowledge(Instant::ZERO, &Bench::ack(id), "pump", &mut b.counters));
        b.sender.pump(at(10), &mut b.wire, &b.policy, &mut b.counters);
        assert_eq!(b.written(), [next]);
    }
}

#[test]
fn what_the_socket_never_took_is_sent_for_the_first_time_at_reconnect() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    b.deliver(at(0), "a", QoS::AtLeastOnce);
    b.written();
    b.deliver(at(0), "b", QoS::AtLeastOnce);
    b.end_connection();
    b.wire = fresh_wire(ProtocolVersion::V3_1_1, 10);
    b.sender.resume(at(9), &mut b.wire, &mut b.counters);
    b.sender.pump(at(9), &mut b.wire, &b.policy, &mut b.counters);
    assert_eq!(b.written(), ["DUP 1 a", "2 b"]);
}

fn giving_up(attempts: u16) -> RedeliveryPolicy {
    let mut redelivery = redelivery();
    (redelivery.retry.on_exhausted, redelivery.retry.attempts) = (OnExhausted::DeadLetter, attempts);
    redelivery
}

#[test]
fn a_message_sent_as_often_as_allowed_is_dropped_and_the_others_go_on() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    b.sender = sender(giving_up(2));
    b.deliver(at(0), "one", QoS::AtLeastOnce);
    b.deliver(at(0), "two", QoS::ExactlyOnce);
    b.written();
    for ms in [1_000, 3_000] {
        assert_eq!(b.retransmit(at(ms)).drop_reports, 0);
        assert_eq!(b.written(), ["DUP 1 one", "DUP 2 two"]);
    }
    b.deliver(at(3_500), "three", QoS::AtLeastOnce);
    b.written();
    let done = b.retransmit(at(7_000));
    assert_eq!((done.drop_reports, done.publishes, done.exhausted), (2, 1, None));
    assert_eq!(b.written(), ["DUP 3 three"]);
    assert_eq!(b.sender.window.len(), 1);
    let dropped = b.counters.drops.take_unreported();
    let reported: Vec<_> = dropped.iter().map(|l| (l.cause, l.sent)).collect();
    let sent = crate::session::drops::Sent { times: 3, first: at(0), last: at(3_000) };
    assert_eq!(reported, [(DropReason::Exhausted, sent), (DropReason::Exhausted, sent)]);
}

// 5.0 [MQTT-3.3.4-9]
#[test]
fn a_dropped_message_holds_its_quota_until_the_connection_ends() {
    let mut b = Bench::new(ProtocolVersion::V5);
    b.wire = fresh_wire(ProtocolVersion::V5, 1);
    b.sender = sender(giving_up(1));
    b.deliver(at(0), "one", QoS::AtLeastOnce);
    b.deliver(at(0), "two", QoS::AtLeastOnce);
    assert_eq!(b.written(), ["1 one"]);
    let overdue = |b: &mut Bench, secs| {
        let (view, drops) = (SocketView::default(), &mut b.counters.drops);
        b.sender.overdue(at(secs * SECOND), view, Outlives::No, &b.wire, drops)
    };
    overdue(&mut b, 60);
    assert_eq!(b.sender.window.len(), 1);
    // Sent once more, at a return.
    b.wire = fresh_wire(ProtocolVersion::V5, 1);
    b.sender.resume(at(61_000), &mut b.wire, &mut b.counters);
    b.sender.pump(at(61_000), &mut b.wire, &b.policy, &mut b.counters);
    assert_eq!(b.written(), ["DUP 1 one"]);
    assert_eq!(overdue(&mut b, 121).disconnect, None);
    assert_eq!(b.sender.window.len(), 0);
    assert_eq!(b.counters.drops.take_unreported().len(), 1);
    b.sender.pump(at(122_000), &mut b.wire, &b.policy, &mut b.counters);
    assert!(b.written().is_empty());
    b.wire = fresh_wire(ProtocolVersion::V5, 1);
    b.sender.resume(at(123_000), &mut b.wire, &mut b.counters);
    b.sender.pump(at(123_000), &mut b.wire, &b.policy, &mut b.counters);
    assert_eq!(b.written(), ["2 two"]);
}

// 3.1.1 [MQTT-4.6.0-1]
#[test]
fn a_topic_with_a_shorter_interval_waits_for_its_elders() {
    let rule = |topic: &str, ms| RedeliveryRule {
        topic: Some(topic.into()),
        interval: Some(Duration::from_millis(ms)),
        ..RedeliveryRule::default()
    };
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    let rules = vec![Arc::new(rule("slow", 4_000)), Arc::new(rule("off", 0))];
    b.sender = Sender::new(Arc::new(SessionRedelivery::new(&redelivery(), rules)));
    b.deliver_to(at(0), "slow", "one", QoS::AtLeastOnce);
    b.deliver(at(0), "two", QoS::ExactlyOnce);
    b.written();
    for ms in [1_000, 2_000, 3_000] {
        assert_eq!(b.retransmit(at(ms)).publishes, 0);
        // It is looked at a spacing later, and not at every tick.
        assert_eq!(b.sender.window.earliest_due(), at(ms + SECOND));
    }
    assert_eq!(b.retransmit(at(4_000)).publishes, 2);
    assert_eq!(b.written(), ["DUP 1 one", "DUP 2 two"]);
    // Once its elder is acknowledged it keeps its own time; its PUBREL too.
    b.sender.acknowledge(Instant::ZERO, &Bench::ack(1), "pump", &mut b.counters);
    assert_eq!(b.sender.window.earliest_due(), at(6_000));
    b.deliver_to(at(6_000), "off", "three", QoS::ExactlyOnce);
    b.written();
    let (wire, counters) = (&mut b.wire, &mut b.counters);
    b.sender.receive(at(6_000), &Bench::ack(3), "pump", wire, counters);
    b.sender.acknowledge(Instant::ZERO, &Bench::ack(2), "pump", &mut b.counters);
    b.sender.receive(at(6_000), &Bench::ack(2), "pump", &mut b.wire, &mut b.counters);
    assert_eq!(b.written(), ["PUBREL 3", "PUBREL 2"]);
    // What is never resent holds nobody up.
    assert_eq!(b.retransmit(at(7_000)).releases, 1);
    assert_eq!(b.written(), ["PUBREL 2"]);
}

#[test]
fn a_pubrel_has_no_message_to_give_up_and_closes_the_connection() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    b.sender = sender(giving_up(1));
    b.deliver(at(0), "one", QoS::ExactlyOnce);
    let (wire, counters) = (&mut b.wire, &mut b.counters);
    b.sender.receive(at(0), &Bench::ack(1), "pump", wire, counters);
    assert_eq!(b.written(), ["1 one", "PUBREL 1"]);
    assert_eq!(b.retransmit(at(1_000)).releases, 1);
    b.written();
    let written = b.wire.outbox.written();
    assert_eq!(b.retransmit_seen(at(3_000), written, Outlives::No).releases, 1);
    b.written();
    let done = b.retransmit(at(8_000));
    assert_eq!((done.drop_reports, done.exhausted.map(|stall| stall.packet_id)), (0, Some(Bench::id(1))));
}

// 3.1.1 and 5.0 [MQTT-4.4.0-1]
#[test]
fn the_pubrels_of_skipped_messages_are_sent_again_as_any_others() {
    let mut b = Bench::new(ProtocolVersion::V3_1_1);
    for (number, text) in ["one", "two"].into_iter().enumerate() {
        b.deliver(at(0), text, QoS::ExactlyOnce);
        let (name, drops) = (MessageName::InFlight(number as u64), &mut b.counters.drops);
        assert_eq!(b.sender.drop_message(name, Quota::Free, DropReason::Skipped, drops), Ok(()));
    }
    for id in [2, 1] {
        let (wire, counters) = (&mut b.wire, &mut b.counters);
        assert!(b.sender.receive(at(0), &Bench::ack(id), "pump", wire, counters));
    }
    assert_eq!(b.written(), ["1 one", "2 two", "PUBREL 2", "PUBREL 1"]);
    assert_eq!(b.retransmit(at(SECOND)).releases, 2);
    assert_eq!(b.written(), ["PUBREL 2", "PUBREL 1"]);
    b.end_connection();
    b.sender.resume(at(2 * SECOND), &mut b.wire, &mut b.counters);
    assert_eq!(b.written(), ["PUBREL 2", "PUBREL 1"]);
    assert!(b.complete(Bench::id(2)) && b.complete(Bench::id(1)));
    b.sender.resume(at(3 * SECOND), &mut b.wire, &mut b.counters);
    assert!(b.written().is_empty());
}

#[test]
fn a_queued_message_that_an_operator_skips_is_dropped_for_its_objective() {
    let mut b = Bench::new(ProtocolVersion::V5);
    let within = Duration::from_secs(5);
    let all = Objective { name: "all".into(), topic: "#".into(), client_id: None, within, target: 0.99 };
    let mut objectives = Objectives::new(&[all].into());
    let (topic, client) = (objectives.of_topic("t"), objectives.of_client("c"));
    let mark = objectives.begin(at(0), topic, client, ReceiverState::Connected);
    b.enqueue(at(0), Message::sample("t", QoS::AtLeastOnce, b"one"), mark);
    let (name, drops) = (MessageName::Queued(0), &mut b.counters.drops);
    assert_eq!(b.sender.drop_message(name, Quota::Free, DropReason::Skipped, drops), Ok(()));
    let marks: Vec<_> = drops.take_unreported().iter().map(|dropped| dropped.mark).collect();
    assert!(marks == [mark] && !mark.is_none(), "{marks:?}");
}

#[test]
fn a_delivery_that_took_more_than_a_second_is_noted_with_its_receiver_and_topic() {
    let mut b = Bench::new(ProtocolVersion::V5);
    b.deliver_to(at(0), "quick", "", QoS::AtLeastOnce);
    b.deliver_to(at(0), "slow/1", "", QoS::AtLeastOnce);
    b.deliver_to(at(0), "slow/2", "", QoS::ExactlyOnce);
    let queued = Message::sample("slow/queued", QoS::AtLeastOnce, b"");
    b.enqueue(at(0), queued, DeliveryMark::queued(at(0)));
    b.sender.pump(at(4_900), &mut b.wire, &b.policy, &mut b.counters);
    let Bench { sender, wire, counters, .. } = &mut b;
    assert!(sender.acknowledge(at(1_000), &Bench::ack(1), "pump", counters));
    assert!(sender.acknowledge(at(3_000), &Bench::ack(2), "pump", counters));
    assert!(sender.receive(at(4_000), &Bench::ack(3), "pump", wire, counters));
    // A PUBREC that comes again ends no delivery.
    assert!(sender.receive(at(9_000), &Bench::ack(3), "pump", wire, counters));
    assert!(sender.acknowledge(at(5_000), &Bench::ack(4), "pump", counters));
    let rows = counters.slow.find(at(9_000), None, Some("pump"), 10);
    let rows: Vec<(&str, u128)> =
        rows.iter().map(|row| (row.topic.beginning(), row.longest.as_millis())).collect();
    assert_eq!(rows, [("slow/queued", 5_000), ("slow/2", 4_000), ("slow/1", 3_000)]);
}

#[test]
fn a_negative_acknowledgement_ends_no_slow_delivery() {
    let mut b = Bench::new(ProtocolVersion::V5);
    b.deliver(at(0), "1", QoS::AtLeastOnce);
    b.deliver(at(0), "2", QoS::ExactlyOnce);
    let refused = |n| Acknowledgement { reason: ReasonCode::UNSPECIFIED_ERROR, ..Bench::ack(n) };
    let Bench { sender, wire, counters, .. } = &mut b;
    assert!(sender.acknowledge(at(3_000), &refused(1), "pump", counters));
    assert!(sender.receive(at(3_000), &refused(2), "pump", wire, counters));
    assert!(counters.slow.find(at(3_000), None, None, 10).is_empty());
}
