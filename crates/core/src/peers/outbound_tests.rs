//! Unit tests of one peer.

use super::*;
use crate::mqtt::charge::unreported;
use crate::routing::subscription_tree::Interest;

fn balanced(peer: &Peer) -> usize {
    let Recounted { in_use, charged } = peer.recount();
    assert_eq!(in_use, charged);
    in_use
}

#[test]
fn a_batch_its_waiters_and_its_ticket_are_on_the_account_until_each_is_gone() {
    let before = unreported();
    let (mut here, mut there) = (Peer::default(), Peer::default());
    for index in 0..1_000 {
        let waits = Some(ReportTo::Peer { shard: ShardId(1), number: 1, index });
        here.publish(barrier(), 10, waits);
    }
    here.send(Item::Interest { filter: "x".repeat(60_000).into(), interest: Interest::Present });
    let sent = here.seal(ShardId(0));
    assert!(sent.as_ref().is_some_and(|sent| sent.charge.bytes() > 60_000 + 1_000 * size_of::<Item>()));
    assert!(balanced(&here) >= 1_000 * size_of::<Waiter>());
    drop(sent);
    let needs = Needs { lsn: Some(Lsn(1)), unfinished: 0, commit: true };
    let not_taken = vec![(0, Outcome::Refused); 1_000];
    there.answer(1, Item::Ticket { number: 1, not_taken, deferred: Vec::new() }, needs);
    assert!(balanced(&there) > 8_000);
    there.committed(Lsn(1));
    assert!(balanced(&there) > 8_000, "it is on its way");
    drop(there.seal(ShardId(1)));
    for waiter in here.settle(1) {
        here.defer(1, &waiter, 1, Outcome::Taken);
    }
    assert!(balanced(&here) >= 1_000 * LATE);
    (0..1_000).for_each(|index| assert!(here.late(1, index, Outcome::Taken).is_some()));
    assert!(balanced(&here) + balanced(&there) < 4_096);
    drop((here, there));
    assert_eq!(unreported(), before);
}

fn barrier() -> Item {
    Item::PeerBarrier { token: 1 }
}

#[test]
fn a_turn_makes_one_parcel_and_only_publications_wait_for_a_ticket() {
    let mut peer = Peer::default();
    assert!(peer.seal(ShardId(0)).is_none());
    peer.send(barrier());
    assert_eq!(peer.seal(ShardId(0)).map(|p| (p.number, p.items.len())), Some((1, 1)));
    assert!(peer.settle(1).is_empty());
    let waits = Some(ReportTo::Peer { shard: ShardId(1), number: 1, index: 0 });
    peer.publish(barrier(), 10, waits);
    peer.publish(barrier(), 10, None);
    peer.publish(barrier(), 10, waits);
    assert_eq!(peer.seal(ShardId(0)).map(|p| p.number), Some(2));
    assert_eq!(peer.settle(2).iter().map(|w| w.index).collect::<Vec<_>>(), [0, 2]);
    assert!(peer.settle(2).is_empty());
}

fn ticket(number: u64) -> Item {
    Item::Ticket { number, not_taken: Vec::new(), deferred: Vec::new() }
}

/// Returns the numbers of the tickets that leave, and the numbers of the deferred answers plus
/// 100.
fn leaving(peer: &mut Peer) -> Vec<u64> {
    let number = |item: &Item| match item {
        Item::Ticket { number, .. } => *number,
        Item::Late { number, .. } => number + 100,
        other => panic!("{other:?}"),
    };
    peer.seal(ShardId(0)).map_or_else(Vec::new, |peer_batch| peer_batch.items.iter().map(number).collect())
}

#[test]
fn a_ticket_that_needs_no_commit_passes_those_that_do_and_a_late_answer_follows_its_ticket() {
    let mut peer = Peer::default();
    let mut committed = Needs::default();
    committed.add(Readiness::Committed(Lsn(7)));
    peer.answer(1, ticket(1), committed);
    peer.send_late(1, 0, Outcome::Taken);
    peer.answer(2, ticket(2), Needs::default());
    peer.send_late(2, 0, Outcome::Taken);
    assert_eq!(leaving(&mut peer), [2, 102], "a full store does not stop QoS 0");
    peer.committed(Lsn(6));
    assert_eq!(leaving(&mut peer), [0; 0]);
    peer.committed(Lsn(7));
    assert_eq!(leaving(&mut peer), [1, 101]);
}

#[test]
fn publishers_wait_beyond_the_bound_and_go_on_at_half_of_it() {
    let mut peer = Peer::default();
    while !peer.is_full() {
        peer.publish(barrier(), 1, None);
        if peer.publications == 1000 {
            peer.seal(ShardId(0));
        }
    }
    peer.seal(ShardId(0));
    assert!(!peer.has_room());
    for number in 1..=5 {
        peer.settle(number);
    }
    assert!(peer.has_room());
}

#[test]
fn a_ticket_that_is_promised_keeps_its_place_before_its_late_answers() {
    let mut peer = Peer::default();
    peer.promise(1);
    peer.send_late(1, 0, Outcome::Taken);
    peer.committed(Lsn(100));
    assert_eq!(leaving(&mut peer), [0; 0], "no commit stands in for the ticket");
    let mut needs = Needs::default();
    needs.add(Readiness::Committed(Lsn(7)));
    peer.answer_promised(1, ticket(1), needs, Lsn(6));
    assert_eq!(leaving(&mut peer), [0; 0]);
    peer.committed(Lsn(7));
    assert_eq!(leaving(&mut peer), [1, 101]);
}

#[test]
fn a_promised_ticket_whose_commit_is_done_leaves_at_once() {
    let mut peer = Peer::default();
    peer.promise(1);
    let mut needs = Needs::default();
    needs.add(Readiness::Committed(Lsn(7)));
    peer.answer_promised(1, ticket(1), needs, Lsn(7));
    assert_eq!(leaving(&mut peer), [1]);
    assert_eq!(balanced(&peer), peer.rows(0));
}

#[test]
fn a_ticket_leaves_when_every_message_is_finished_unless_one_needs_its_commit() {
    for (one_needs_its_commit, expected) in [(false, &[1][..]), (true, &[])] {
        let mut peer = Peer::default();
        let mut needs = Needs::default();
        needs.add(Readiness::Finished(Lsn(7)));
        needs.add(Readiness::Finished(Lsn(7)));
        if one_needs_its_commit {
            needs.add(Readiness::Committed(Lsn(7)));
        }
        peer.answer(1, ticket(1), needs);
        peer.finished_one(1);
        assert_eq!(leaving(&mut peer), [0; 0], "one message is not finished");
        peer.finished_one(2);
        assert_eq!(leaving(&mut peer), [0; 0], "the message of another batch does not count");
        peer.finished_one(1);
        assert_eq!(leaving(&mut peer), expected);
        peer.committed(Lsn(7));
        assert_eq!(leaving(&mut peer).len() + expected.len(), 1, "once");
    }
}

#[test]
fn the_last_late_answer_brings_the_gate_with_the_outcome_of_all() {
    let mut peer = Peer::default();
    let waiter = Waiter { index: 3, report_to: ReportTo::OrphanedQueue };
    peer.defer(1, &waiter, 2, Outcome::Refused);
    assert_eq!(peer.unsettled(), 1);
    assert!(peer.late(1, 2, Outcome::Taken).is_none(), "another publication");
    assert!(peer.late(1, 3, Outcome::Taken).is_none(), "one of two");
    let last = peer.late(1, 3, Outcome::HeldTooLong);
    assert!(matches!(last, Some((ReportTo::OrphanedQueue, Outcome::Taken))));
    assert!(peer.late(1, 3, Outcome::Taken).is_none() && peer.unsettled() == 0);
}
