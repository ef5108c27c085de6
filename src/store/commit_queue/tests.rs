//! Which batches may be committed together, against a model.

use crate::mqtt::packet::PacketId;
use crate::persistence::records::{BodyNumber, Lsn, Record, SessionKey, Transaction};
use crate::store::commit_queue::*;
use crate::store::operation::Operation;
use crate::time::Instant;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const ALL: Bounds = Bounds { records: u64::MAX, bytes: usize::MAX };

/// A record that can be told from every other.
fn mark(number: u64) -> Record {
    Record::BodyDone(BodyNumber(number))
}

fn batch(shard: u8, lsn: u64, marks: &[u64]) -> Batch {
    Batch { shard, lsn: Lsn(lsn), records: marks.iter().map(|m| mark(*m)).collect(), ..Batch::default() }
}

fn begins(mut batch: Batch, number: u64, participants: u32) -> Batch {
    batch.transactions.push(Transaction {
        number: TransactionNumber(number),
        participants,
        outcome: Outcome::Taken,
        incoming: None,
    });
    batch
}

fn takes_part(mut batch: Batch, of: u64, marks: &[u64]) -> Batch {
    let records = marks.iter().map(|m| mark(*m)).collect();
    batch.participants.push(Participant {
        of: TransactionNumber(of),
        records,
        more: 0,
        outcome: Outcome::Taken,
    });
    batch
}

/// The marks of the next set, in order, and how far it takes each shard.
fn take(queue: &mut CommitQueue, bounds: Bounds) -> (Vec<u64>, Vec<Committed>) {
    let (mut group, mut committed) = (CommitGroup::default(), Vec::new());
    let any = queue.take(bounds, &mut group, &mut committed);
    assert_eq!(any, !committed.is_empty());
    let marks = group.operations().map(|operation| match &operation.record {
        Record::BodyDone(number) => number.0,
        other => panic!("{other:?}"),
    });
    (marks.collect(), committed)
}

fn at(shard: u8, lsn: u64) -> Committed {
    Committed { shard, lsn: Lsn(lsn) }
}

#[test]
fn the_oldest_batch_is_the_one_that_arrived_first_and_waits_still() {
    let at = Instant::from_millis;
    let mut queue = CommitQueue::default();
    assert_eq!(queue.oldest(), Instant::NEVER);
    queue.push(at(1), batch(1, 1, &[1]));
    // It waits for a participant, and the others do not wait for it.
    queue.push(at(2), begins(batch(0, 1, &[2]), 7, 1));
    queue.push(at(3), batch(1, 2, &[3]));
    assert_eq!(queue.oldest(), at(1));
    take(&mut queue, ALL);
    assert_eq!(queue.oldest(), at(2));
    queue.push(at(4), takes_part(batch(1, 3, &[]), 7, &[4]));
    take(&mut queue, ALL);
    assert_eq!(queue.oldest(), Instant::NEVER);
}

#[test]
fn batches_without_moves_go_in_the_order_they_arrived() {
    let mut queue = CommitQueue::default();
    for b in [batch(0, 1, &[1]), batch(1, 1, &[2, 3]), batch(0, 2, &[4])] {
        queue.push(Instant::ZERO, b);
    }
    assert_eq!(queue.records(), 4);
    assert_eq!(take(&mut queue, ALL), (vec![1, 2, 3, 4], vec![at(0, 2), at(1, 1)]));
    assert!(queue.is_empty() && queue.records() == 0);
}

#[test]
fn a_set_ends_with_the_batch_that_reaches_the_bounds() {
    let mut queue = CommitQueue::default();
    (1..=5).for_each(|n| queue.push(Instant::ZERO, batch(0, n, &[2 * n, 2 * n + 1])));
    let bounds = Bounds { records: 3, bytes: usize::MAX };
    assert_eq!(take(&mut queue, bounds), (vec![2, 3, 4, 5], vec![at(0, 2)]));
    assert_eq!(take(&mut queue, Bounds { records: 1, ..bounds }), (vec![6, 7], vec![at(0, 3)]));
}

#[test]
fn a_move_waits_for_all_its_parts_and_holds_up_its_shard_alone() {
    let mut queue = CommitQueue::default();
    queue.push(Instant::ZERO, begins(batch(0, 1, &[1]), 7, 2));
    queue.push(Instant::ZERO, batch(0, 2, &[2]));
    queue.push(Instant::ZERO, takes_part(batch(1, 1, &[3]), 7, &[4]));
    queue.push(Instant::ZERO, batch(2, 1, &[5]));
    assert_eq!(take(&mut queue, ALL), (vec![5], vec![at(2, 1)]));
    queue.push(Instant::ZERO, takes_part(batch(2, 2, &[]), 7, &[]));
    assert_eq!(take(&mut queue, ALL), (vec![1, 2, 4, 3], vec![at(0, 2), at(1, 1), at(2, 2)]));
    assert!(queue.is_empty());
}

#[test]
fn a_part_is_pulled_out_of_a_batch_that_cannot_go_yet() {
    let mut queue = CommitQueue::default();
    queue.push(Instant::ZERO, begins(batch(0, 1, &[1]), 7, 1));
    queue.push(Instant::ZERO, takes_part(begins(batch(1, 1, &[2]), 8, 1), 7, &[3]));
    assert_eq!(take(&mut queue, ALL), (vec![1, 3], vec![at(0, 1)]), "shard 1 waits for its own move");
    assert_eq!(queue.records(), 1);
    queue.push(Instant::ZERO, takes_part(batch(0, 2, &[4]), 8, &[5]));
    assert_eq!(take(&mut queue, ALL), (vec![2, 5, 4], vec![at(1, 1), at(0, 2)]));
}

#[test]
fn a_part_that_passes_a_message_on_calls_for_one_more() {
    let mut queue = CommitQueue::default();
    queue.push(Instant::ZERO, begins(batch(0, 1, &[1]), 7, 1));
    let mut passed_on = takes_part(batch(1, 1, &[]), 7, &[]);
    passed_on.participants[0].more = 1;
    queue.push(Instant::ZERO, passed_on);
    assert_eq!(take(&mut queue, ALL), (vec![], vec![]), "the next member has not had it");
    queue.push(Instant::ZERO, takes_part(batch(2, 1, &[2]), 7, &[3]));
    assert_eq!(take(&mut queue, ALL), (vec![1, 3, 2], vec![at(0, 1), at(1, 1), at(2, 1)]));
}

#[test]
fn what_nobody_took_takes_no_identifier_over() {
    use Outcome::{Refused, Taken, Unmatched};
    for (outcomes, kept) in
        [([Refused, Unmatched, Refused], false), ([Refused, Taken, Refused], true), ([Unmatched; 3], true)]
    {
        let mut queue = CommitQueue::default();
        let [here, participants @ ..] = outcomes;
        let (session, packet_id) = (SessionKey(5), PacketId::new(9).unwrap());
        let mut begun = begins(batch(0, 1, &[]), 7, 2);
        begun.records.push(Record::Incoming { session, packet_id });
        (begun.transactions[0].outcome, begun.transactions[0].incoming) = (here, Some((session, packet_id)));
        queue.push(Instant::ZERO, begun);
        for (shard, outcome) in (1..).zip(participants) {
            let mut participant = takes_part(batch(shard, 1, &[]), 7, &[]);
            participant.participants[0].outcome = outcome;
            queue.push(Instant::ZERO, participant);
        }
        let mut group = CommitGroup::default();
        assert!(queue.take(ALL, &mut group, &mut Vec::new()));
        let left: Vec<_> = group.operations().collect();
        assert_eq!(
            matches!(left[..], [Operation { record: Record::Incoming { .. }, .. }]),
            kept,
            "{outcomes:?}: {left:?}"
        );
        assert_eq!(left.len(), usize::from(kept));
    }
}

#[test]
fn shards_that_move_messages_to_each_other_without_a_pause_never_both_wait() {
    let mut queue = CommitQueue::default();
    let mut committed = [0, 0];
    for turn in 1..=100_u64 {
        // Each turn of each shard begins a move to the other and has the participant of the other's
        // last.
        for shard in [0, 1_u8] {
            let (own, others_last) = (turn * 2 + u64::from(shard), turn * 2 - 1 - u64::from(shard));
            let mut b = begins(batch(shard, turn, &[]), own, 1);
            if turn > 1 {
                b = takes_part(b, others_last, &[]);
            }
            queue.push(Instant::ZERO, b);
        }
        for to in take(&mut queue, ALL).1 {
            committed[usize::from(to.shard)] = to.lsn.0;
        }
        assert!(committed.iter().all(|lsn| *lsn + 2 >= turn), "{committed:?} at {turn}");
    }
}

/// What happens in a made-up broker of several shards, in the order in which the store hears of it.
#[derive(Clone, Debug)]
enum Step {
    /// A shard's turn ends: its batch holds this many records, and begins a move in the shards of
    /// these bits if any.
    Turn {
        shard: u8,
        records: u8,
        others: u8,
    },
    Take {
        records: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..4, 0_u8..3, prop_oneof![2 => Just(0_u8), 1 => 0_u8..16])
            .prop_map(|(shard, records, others)| Step::Turn { shard, records, others }),
        1 => prop_oneof![Just(u64::MAX), 1_u64..12].prop_map(|records| Step::Take { records }),
    ]
}

/// A plain account of who sent what.
#[derive(Default)]
struct Account {
    given: u64,
    lsn: [u64; 4],
    /// Parts that each shard has to record in its next batch.
    due: [Vec<u64>; 4],
    /// The marks of each batch, its participants' apart.
    batches: BTreeMap<(u8, u64), BatchMarks>,
    /// The batch each move stands in, and the marks of its participants that came.
    transactions: BTreeMap<u64, TransactionMarks>,
    arrived: Vec<(u8, u64)>,
    committed: BTreeSet<u64>,
    upto: [u64; 4],
}

#[derive(Clone, Default)]
struct BatchMarks {
    own: Vec<u64>,
    begun: Vec<u64>,
    participants: Vec<u64>,
}

struct TransactionMarks {
    stands_in: (u8, u64),
    missing: u32,
    marks: Vec<u64>,
}

impl Account {
    fn mark(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    fn turn(&mut self, shard: u8, records: u8, others: u8) -> Batch {
        let me = usize::from(shard);
        self.lsn[me] += 1;
        let id = (shard, self.lsn[me]);
        // One record at least, by which the batch is known.
        let own = (0..=records).map(|_| self.mark()).collect();
        let mut marks = BatchMarks { own, ..BatchMarks::default() };
        let mut made = batch(shard, id.1, &marks.own);
        for of in std::mem::take(&mut self.due[me]) {
            let participant: Vec<u64> = (0..of % 3).map(|_| self.mark()).collect();
            made = takes_part(made, of, &participant);
            let m = self.transactions.get_mut(&of).unwrap();
            m.missing -= 1;
            m.marks.extend(participant);
            marks.participants.push(of);
        }
        let others: Vec<usize> = (0..4).filter(|other| others & (1 << other) != 0 && *other != me).collect();
        if !others.is_empty() {
            let number = self.mark();
            made = begins(made, number, others.len() as u32);
            others.iter().for_each(|other| self.due[*other].push(number));
            self.transactions.insert(
                number,
                TransactionMarks { stands_in: id, missing: others.len() as u32, marks: Vec::new() },
            );
            marks.begun.push(number);
        }
        self.batches.insert(id, marks);
        self.arrived.push(id);
        made
    }

    /// The largest set of batches that may be committed, by taking out what may not until nothing
    /// changes.
    fn oracle(&self) -> BTreeSet<(u8, u64)> {
        let is_waiting = |(shard, lsn): &(u8, u64)| *lsn > self.upto[usize::from(*shard)];
        let mut set: BTreeSet<(u8, u64)> = self.arrived.iter().copied().filter(is_waiting).collect();
        loop {
            let goes = |id: &(u8, u64)| {
                let marks = &self.batches[id];
                let after = !set.iter().any(|other| other == id) || {
                    let before = (id.0, id.1 - 1);
                    !is_waiting(&before) || before.1 == 0 || set.contains(&before)
                };
                after
                    && marks.begun.iter().all(|m| self.transactions[m].missing == 0)
                    && marks.participants.iter().all(|m| {
                        let stands_in = self.transactions[m].stands_in;
                        !is_waiting(&stands_in) || set.contains(&stands_in)
                    })
            };
            let next: BTreeSet<(u8, u64)> = set.iter().copied().filter(goes).collect();
            if next == set {
                return set;
            }
            set = next;
        }
    }

    fn check(&mut self, taken: &[u64], to: &[Committed], is_all: bool) {
        let expected = self.oracle();
        for mark in taken {
            assert!(self.committed.insert(*mark), "{mark} is committed twice");
        }
        let mut set = BTreeSet::new();
        for Committed { shard, lsn } in to {
            let upto = &mut self.upto[usize::from(*shard)];
            set.extend((*upto + 1..=lsn.0).map(|lsn| (*shard, lsn)));
            assert!(lsn.0 > *upto);
            *upto = lsn.0;
        }
        assert!(set.is_subset(&expected), "{set:?} is no participant of {expected:?}");
        assert!(!is_all || set == expected, "{set:?} is not all of {expected:?}");
        assert!(set.is_empty() == expected.is_empty(), "something could go, and nothing did");
        for (id, marks) in &self.batches {
            let is_committed = id.1 <= self.upto[usize::from(id.0)];
            assert!(marks.own.iter().all(|mark| self.committed.contains(mark) == is_committed), "{id:?}");
        }
        for (number, m) in &self.transactions {
            let is_committed = m.stands_in.1 <= self.upto[usize::from(m.stands_in.0)];
            assert!(m.missing == 0 || !is_committed, "move {number} went before its participants came");
            assert!(m.marks.iter().all(|mark| self.committed.contains(mark) == is_committed), "half a move");
        }
    }
}

proptest! {
    #[test]
    fn a_move_is_committed_whole_and_all_that_may_go_goes(steps in prop::collection::vec(step(), 0..120)) {
        let (mut account, mut queue) = (Account::default(), CommitQueue::default());
        for step in steps {
            match step {
                Step::Turn { shard, records, others } => queue.push(Instant::ZERO, account.turn(shard, records, others)),
                Step::Take { records } => {
                    let (taken, to) = take(&mut queue, Bounds { records, bytes: usize::MAX });
                    account.check(&taken, &to, records == u64::MAX);
                }
            }
        }
        // When every participant has come, nothing is left.
        (0..4).for_each(|shard| queue.push(Instant::ZERO, account.turn(shard, 0, 0)));
        let (taken, to) = take(&mut queue, ALL);
        account.check(&taken, &to, true);
        prop_assert!(queue.is_empty());
        prop_assert_eq!(queue.records(), 0);
        prop_assert!(queue.transactions.is_empty() && queue.taken.is_empty());
    }
}
