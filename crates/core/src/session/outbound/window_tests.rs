//! Tests of `window`.

use super::*;
use crate::mqtt::message::Message;
use crate::mqtt::subscription_ids::SubscriptionIds;

fn message() -> Message {
    Message::sample("t", QoS::ExactlyOnce, b"")
}

fn push(w: &mut InFlight, qos: QoS) -> PacketId {
    let delivery = Delivery {
        message: message(),
        ids: SubscriptionIds::None,
        qos,
        retain: false,
        mark: DeliveryMark::NONE,
        share: None,
        stored: None,
    };
    w.push(Instant::ZERO, delivery, Instant::NEVER).transmission.packet_id()
}

/// Sends and acknowledges messages until every identifier had its turn. None has one of `in_use`.
fn assert_comes_round_without(w: &mut InFlight, in_use: &[PacketId]) {
    for _ in 0..70_000 {
        let id = push(w, QoS::AtLeastOnce);
        assert!(!in_use.contains(&id), "{id:?}");
        assert!(w.acknowledge(id).is_some());
    }
}

// 5.0 [MQTT-2.2.1-4]
#[test]
fn identifier_in_use_is_passed_over_when_the_numbers_come_round() {
    let mut w = InFlight::NEW;
    let stuck = push(&mut w, QoS::AtLeastOnce);
    let released = push(&mut w, QoS::ExactlyOnce);
    assert!(matches!(w.receive(Instant::ZERO, released), Received::Release { .. }));
    for _ in 0..200_000 {
        let id = push(&mut w, QoS::AtLeastOnce);
        assert!(id != stuck && id != released && id.get() != 0);
        assert!(w.acknowledge(id).is_some());
    }
    assert_eq!(w.len(), 2);
    assert!(w.acknowledge(stuck).is_some());
    assert!(w.complete(released));
    assert!(w.is_empty());
}

#[test]
fn acknowledgements_in_any_order_find_their_message() {
    let mut w = InFlight::NEW;
    let ids: Vec<_> = (0..100).map(|_| push(&mut w, QoS::AtLeastOnce)).collect();
    for id in ids.iter().rev().step_by(2).chain(ids.iter().step_by(2)) {
        assert_eq!(w.acknowledge(*id).map(|p| p.transmission.packet_id()), Some(*id));
        assert!(w.acknowledge(*id).is_none());
    }
    assert!(w.is_empty());
    assert_eq!(w.quota_used(), 0);
}

// 3.1.1 [MQTT-4.6.0-4]
#[test]
fn releases_stand_in_the_order_of_their_pubrecs() {
    let mut w = InFlight::NEW;
    let (a, b, c) =
        (push(&mut w, QoS::ExactlyOnce), push(&mut w, QoS::ExactlyOnce), push(&mut w, QoS::ExactlyOnce));
    assert!(matches!(w.receive(Instant::ZERO, b), Received::Release { .. }));
    assert!(matches!(w.receive(Instant::ZERO, a), Received::Release { .. }));
    assert!(matches!(w.receive(Instant::ZERO, b), Received::Again));
    assert_eq!(w.packets().map(|p| p.transmission().packet_id()).collect::<Vec<_>>(), [c, b, a]);
    assert_eq!(w.quota_used(), 3);
}

// 5.0 [MQTT-4.9.0-2]
#[test]
fn carried_over_pubrels_hold_no_quota_and_publishes_only_once_sent() {
    let mut w = InFlight::NEW;
    let ids: Vec<_> = (0..4).map(|_| push(&mut w, QoS::ExactlyOnce)).collect();
    assert!(matches!(w.receive(Instant::ZERO, ids[0]), Received::Release { .. }));
    w.begin_connection();
    assert_eq!(w.quota_used(), 0);
    assert_eq!(w.first_unsent().map(|p| p.transmission.packet_id()), Some(ids[1]));
    w.mark_sent();
    assert_eq!(w.quota_used(), 1);
    // An answer to one that was sent only on the earlier connection takes no quota either.
    assert!(matches!(w.receive(Instant::ZERO, ids[3]), Received::Release { .. }));
    assert_eq!(w.quota_used(), 1);
    assert!(w.complete(ids[3]) && w.complete(ids[0]));
    assert_eq!((w.quota_used(), w.len()), (1, 2));
}

#[test]
fn what_was_not_sent_on_this_connection_is_not_held_against_the_client() {
    let mut w = InFlight::NEW;
    let (one, two) = (push(&mut w, QoS::AtLeastOnce), push(&mut w, QoS::ExactlyOnce));
    assert_eq!((w.awaited(one), w.awaited(two)), (Some(AckKind::Puback), Some(AckKind::Pubrec)));
    w.begin_connection();
    assert_eq!((w.awaited(one), w.awaited(two)), (None, None));
    w.mark_sent();
    assert_eq!((w.awaited(one), w.awaited(two)), (Some(AckKind::Puback), None));
    // Its PUBREC came all the same: from then on PUBCOMP is awaited.
    assert!(matches!(w.receive(Instant::ZERO, two), Received::Release { .. }));
    assert_eq!(w.awaited(two), Some(AckKind::Pubcomp));
    assert!(w.complete(two));
    assert_eq!(w.awaited(two), None);
}

#[test]
fn puback_does_not_finish_qos_2_nor_pubrec_qos_1() {
    let mut w = InFlight::NEW;
    let (one, two) = (push(&mut w, QoS::AtLeastOnce), push(&mut w, QoS::ExactlyOnce));
    assert!(w.acknowledge(two).is_none());
    assert!(matches!(w.receive(Instant::ZERO, one), Received::Unknown));
    assert!(!w.complete(two));
    assert_eq!(w.len(), 2);
}

// 3.1.1 and 5.0, 4.3.3 and 4.4: the receiver takes another message for a duplicate.
#[test]
fn identifier_of_a_dropped_message_is_withheld_until_its_receiver_answers() {
    let mut w = InFlight::NEW;
    let dropped = push(&mut w, QoS::ExactlyOnce);
    assert!(w.remove_publish(0, Quota::Free).is_some());
    assert!(w.is_empty());
    assert_comes_round_without(&mut w, &[dropped]);
    assert!(!w.complete(dropped));
    assert!(!w.pop_release());
}

// 3.1.1 and 5.0, 4.4: an unacknowledged PUBREL is sent again.
#[test]
fn pubrec_turns_a_withheld_identifier_into_a_pubrel_that_stays_until_pubcomp() {
    let mut w = InFlight::NEW;
    let (dropped, other) = (push(&mut w, QoS::ExactlyOnce), push(&mut w, QoS::ExactlyOnce));
    assert!(w.remove_publish(0, Quota::Free).is_some());
    assert!(matches!(w.receive(Instant::ZERO, other), Received::Release { .. }));
    assert!(matches!(w.receive(Instant::ZERO, dropped), Received::Dropped));
    assert!(matches!(w.receive(Instant::ZERO, dropped), Received::Again));
    assert_eq!(w.awaited(dropped), Some(AckKind::Pubcomp));
    w.begin_connection();
    // In the order of their PUBRECs.
    assert_eq!(w.releases().map(|r| r.transmission.packet_id()).collect::<Vec<_>>(), [other, dropped]);
    assert_comes_round_without(&mut w, &[dropped, other]);
    assert!(w.complete(dropped) && w.complete(other));
    assert!(!w.pop_release());
    let freed = (0..=IDS).map(|_| push(&mut w, QoS::AtLeastOnce)).find(|id| *id == dropped);
    assert_eq!(freed, Some(dropped));
}

// 5.0 section 4.9: PUBCOMP adds to the send quota.
#[test]
fn pubrel_of_a_dropped_message_keeps_the_unit_of_the_quota_that_the_message_held() {
    for (quota, units) in [(Quota::Forfeited, 1), (Quota::Free, 0)] {
        let mut w = InFlight::NEW;
        let id = push(&mut w, QoS::ExactlyOnce);
        assert!(w.remove_publish(0, quota).is_some());
        assert_eq!(w.quota_used(), units);
        assert!(matches!(w.receive(Instant::ZERO, id), Received::Dropped));
        assert_eq!(w.quota_used(), units);
        assert!(w.complete(id));
        assert_eq!(w.quota_used(), 0);
    }
}

#[test]
fn client_that_returns_without_its_pubrec_is_sent_nothing_and_keeps_the_identifier() {
    let mut w = InFlight::NEW;
    let dropped = push(&mut w, QoS::ExactlyOnce);
    assert!(w.remove_publish(0, Quota::Forfeited).is_some());
    w.end_connection(u64::MAX);
    w.begin_connection();
    assert!(w.is_empty() && w.quota_used() == 0);
    assert_comes_round_without(&mut w, &[dropped]);
}

#[test]
fn identifiers_that_were_never_sent_or_of_qos_1_are_not_withheld() {
    let mut w = InFlight::NEW;
    push(&mut w, QoS::AtLeastOnce);
    push(&mut w, QoS::ExactlyOnce);
    w.last_sent().unwrap().transmission.end_offset = 1;
    w.end_connection(0);
    assert!(w.remove_publish(0, Quota::Free).is_some());
    assert!(w.remove_publish(1, Quota::Free).is_some());
    assert!(!w.pop_release());
}
