//! Unit tests of the orphaned queues by themselves: their order, their charge, and when they are
//! looked at.

use super::*;
use crate::mqtt::packet::QoS;
use crate::session::redelivery_policy::RedeliveryPolicy;

fn redelivery() -> Arc<SessionRedelivery> {
    Arc::new(SessionRedelivery::new(&RedeliveryPolicy::sample(), Vec::new()))
}

fn share() -> Arc<Box<str>> {
    Arc::new("$share/group/t".into())
}

fn session(slot: u32) -> SessionId {
    SessionId::new(slot, 0)
}

/// Adds a message in memory to the queue of a session, at the end.
fn keep(queues: &mut OrphanedQueues, slot: u32) {
    let queue = queues.last_of(session(slot), &redelivery(), PeerOffers::No);
    let message = Message::sample("t", QoS::AtLeastOnce, b"p");
    queue.kept.push_back(OrphanedMessage { message, share: share() });
    queue.account();
}

/// Queues with one message each, for sessions with these slots.
fn queues(slots: &[u32]) -> OrphanedQueues {
    let mut queues = OrphanedQueues::default();
    slots.iter().for_each(|slot| keep(&mut queues, *slot));
    queues
}

fn slots(queues: &OrphanedQueues) -> Vec<u32> {
    queues.waiting.iter().map(|queue| queue.session.slot).collect()
}

fn blocked() -> Option<Blocked> {
    let (topic, charge) = (Box::default(), Charge::NONE);
    Some(Blocked { share: share(), topic, size: 1, expires: Instant::NEVER, charge })
}

#[test]
fn messages_of_one_session_join_its_queue_only_while_that_is_the_last() {
    let queues = queues(&[1, 1, 2, 1]);
    assert_eq!(slots(&queues), [1, 2, 1], "a message does not pass an older one of another session");
    assert_eq!(queues.unsettled(), 4);
}

#[test]
fn a_queue_without_a_member_with_room_goes_behind_the_others() {
    let mut queues = queues(&[1, 2]);
    let mut first = queues.waiting.pop_front().expect("a queue");
    first.blocked = blocked();
    queues.put_back(first);
    assert_eq!(slots(&queues), [2, 1]);
}

#[test]
fn a_queue_with_messages_to_offer_stays_first_and_an_empty_one_ends() {
    let mut queues = queues(&[1, 2]);
    let mut first = queues.waiting.pop_front().expect("a queue");
    first
        .kept
        .push_back(OrphanedMessage { message: Message::sample("t", QoS::AtLeastOnce, b"p"), share: share() });
    queues.put_back(first);
    assert_eq!(slots(&queues), [1, 2]);
    let mut first = queues.waiting.pop_front().expect("a queue");
    first.kept.clear();
    queues.put_back(first);
    assert_eq!(slots(&queues), [2]);
}

#[test]
fn a_queue_that_another_shard_answers_for_stays_first_whatever_is_left_of_it() {
    for wait in [None, blocked()] {
        let mut queues = queues(&[1, 2]);
        queues.underway = 1;
        let mut first = queues.waiting.pop_front().expect("a queue");
        (first.kept, first.blocked) = (VecDeque::new(), wait);
        queues.put_back(first);
        assert_eq!(slots(&queues), [1, 2]);
        assert_eq!(queues.unsettled(), 2, "the message that is underway, and one of the second queue");
    }
}

#[test]
fn queues_are_looked_at_only_if_some_wait_and_nothing_is_pending() {
    let mut none = OrphanedQueues::default();
    none.member_left();
    assert!(!none.is_nudged());
    let mut queues = queues(&[1]);
    assert!(!queues.is_nudged(), "nothing has changed");
    queues.member_left();
    assert!(queues.is_nudged());
    queues.is_reading = true;
    assert!(!queues.is_nudged());
    (queues.is_reading, queues.underway) = (false, 1);
    assert!(!queues.is_nudged());
    (queues.underway, queues.members_are_unknown) = (0, true);
    assert!(!queues.is_nudged());
    queues.members_are_unknown = false;
    assert!(queues.is_nudged(), "the nudge is not forgotten meanwhile");
}

#[test]
fn one_message_of_each_of_the_first_queues_may_go_to_peers_that_refused_before() {
    let slot_numbers: Vec<u32> = (0..LOOKED_AT as u32 + 2).collect();
    let mut queues = queues(&slot_numbers);
    queues.waiting[0].peers = PeerOffers::Freely;
    queues.ask_peers();
    let asks: Vec<PeerOffers> = queues.waiting.iter().map(|queue| queue.peers).collect();
    assert_eq!(asks[0], PeerOffers::Freely);
    assert_eq!(asks.iter().filter(|peers| **peers == PeerOffers::Once).count(), LOOKED_AT - 1);
    assert_eq!(asks[LOOKED_AT + 1], PeerOffers::No, "a bounded number in one call");
}

#[test]
fn the_charge_covers_the_client_identifier_and_the_rows_at_their_largest() {
    let mut queues = OrphanedQueues::default();
    (0..1_000).for_each(|_| keep(&mut queues, 1));
    queues.waiting[0].client_id = Some("x".repeat(10_000).into());
    queues.waiting[0].account();
    queues.waiting[0].kept.clear();
    let Recounted { in_use, charged } = queues.recount();
    assert_eq!(in_use, charged);
    assert!(in_use >= 10_000 + 1_000 * size_of::<OrphanedMessage>());
    queues.waiting.clear();
    assert_eq!(queues.recount().charged, 0);
}
