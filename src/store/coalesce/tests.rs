//! What several batches come to in one commit.

use crate::config::DurabilityLevel;
use crate::mqtt::charge::unreported;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::packet::PacketId;
use crate::mqtt::packet::{ProtocolVersion, QoS};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::letter::LetterNumber;
use crate::persistence::records::*;
use crate::store::coalesce::*;
use crate::store::database::Database;
use crate::store::sqlite::{Mark, Sqlite, SqliteOptions};
use crate::store::tests::{letter, rows};
use crate::store::wall::FileTime;
use crate::time::Instant;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn message(topic: &str) -> Message {
    let qos = QoS::AtLeastOnce;
    let parts = Parts { qos, retain: false, expires: Instant::NEVER, topic, forwarded: &[], payload: b"x" };
    Message::new(parts, &mut Vec::new())
}

fn body(number: u64) -> Record {
    Record::Body { number: BodyNumber(number), message: message("t") }
}

fn entry(number: u64) -> Record {
    Record::Entry(Box::new(StoredEntry {
        number: EntryNumber(number),
        session: SessionKey(1),
        body: BodyNumber(number),
        qos: QoS::ExactlyOnce,
        retain: false,
        ids: SubscriptionIds::None,
        share: None,
        flight: None,
    }))
}

fn sent(number: u64, transmissions: u16) -> Record {
    Record::Sent { number: EntryNumber(number), flight: Flight { running: number, transmissions } }
}

fn session(key: u64, expiry: u32) -> Record {
    Record::Session(Box::new(StoredSession {
        key: SessionKey(key),
        client_id: "c".into(),
        version: ProtocolVersion::V5,
        expiry,
        connected: true,
        ends: Instant::NEVER,
        will: None,
        will_due: Instant::NEVER,
        retry_interval: None,
        ack_timeout: None,
        user_name: None,
        access: StoredAccess::default(),
    }))
}

fn subscribed(session: u64, filter: &str, options: u8) -> Record {
    let session = SessionKey(session);
    Record::Subscribed(Box::new(StoredSubscription {
        session,
        filter: filter.into(),
        options,
        subscription_id: 0,
    }))
}

fn unsubscribed(session: u64, filter: &str) -> Record {
    Record::Unsubscribed { session: SessionKey(session), filter: filter.into() }
}

fn incoming(session: u64, id: u16) -> Record {
    Record::Incoming { session: SessionKey(session), packet_id: PacketId::new(id).unwrap() }
}

fn incoming_done(session: u64, id: u16) -> Record {
    Record::IncomingDone { session: SessionKey(session), packet_id: PacketId::new(id).unwrap() }
}

fn incoming_refused(session: u64, id: u16) -> Record {
    Record::IncomingRefused { session: SessionKey(session), packet_id: PacketId::new(id).unwrap() }
}

fn group(records: impl IntoIterator<Item = Record>) -> CommitGroup {
    let mut group = CommitGroup::default();
    records.into_iter().for_each(|record| group.fold(record));
    group.seal();
    group
}

fn left(records: impl IntoIterator<Item = Record>) -> Vec<Operation> {
    group(records).operations().cloned().collect()
}

#[test]
fn a_message_put_sent_and_acknowledged_in_one_group_leaves_nothing() {
    let done = Record::EntryDone(EntryNumber(2));
    let records = [body(1), entry(2), sent(2, 1), Record::Received(EntryNumber(2)), done];
    let group = group(records.into_iter().chain([Record::BodyDone(BodyNumber(1))]));
    assert!(group.is_empty());
    assert_eq!((group.recorded(), group.cancelled(), group.len()), (6, 6, 0));
    assert_eq!(group.highest_number(), 2, "numbers that were given are given, kept or not");
}

#[test]
fn what_becomes_of_a_new_entry_is_folded_into_it() {
    let left = left([entry(2), sent(2, 1), sent(2, 2), Record::Received(EntryNumber(2))]);
    let [Operation { record: Record::Entry(entry), fold: Fold::Received, .. }] = &left[..] else {
        panic!("{left:?}")
    };
    assert_eq!(entry.flight, Some(Flight { running: 2, transmissions: 2 }));
}

#[test]
fn what_becomes_of_an_entry_of_an_earlier_group_is_one_operation() {
    let changes = [sent(2, 1), Record::Received(EntryNumber(2)), sent(2, 2)];
    let changed = left(changes.clone());
    let [Operation { record: Record::Sent { flight, .. }, fold: Fold::Received, .. }] = &changed[..] else {
        panic!("{changed:?}")
    };
    assert_eq!(flight.transmissions, 2);
    let done = left(changes.into_iter().chain([Record::EntryDone(EntryNumber(2))]));
    assert!(matches!(done[..], [Operation { record: Record::EntryDone(EntryNumber(2)), .. }]), "{done:?}");
}

#[test]
fn the_last_word_on_a_session_and_a_subscription_counts() {
    let left = left([session(1, 5), subscribed(1, "a", 1), subscribed(1, "b", 0), session(1, 7)]);
    assert_eq!(left.len(), 3);
    assert!(matches!(&left[0].record, Record::Session(s) if s.expiry == 7));
    let mut group = group([subscribed(1, "a", 1), unsubscribed(1, "a"), subscribed(2, "a", 1)]);
    assert_eq!(group.len(), 2, "another session's is another's");
    assert!(matches!(group.operations().next(), Some(Operation { record: Record::Unsubscribed { .. }, .. })));
    group.clear();
    assert!(group.is_empty() && group.recorded() == 0 && group.operations().next().is_none());
}

#[test]
fn an_ended_session_takes_along_all_that_was_said_of_it() {
    let ended = Record::SessionEnded(SessionKey(1));
    let left = left([session(1, 5), subscribed(1, "a", 1), incoming(1, 9), subscribed(2, "a", 1), ended]);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(matches!(&left[0].record, Record::Subscribed(s) if s.session == SessionKey(2)));
    assert!(matches!(left[1].record, Record::SessionEnded(SessionKey(1))));
}

#[test]
fn an_identifier_that_comes_back_after_its_deletion_is_there_as_before() {
    assert!(left([incoming(1, 9), incoming_done(1, 9)]).is_empty());
    assert!(left([incoming_done(1, 9), incoming(1, 9)]).is_empty());
    let done = left([incoming_done(1, 9), incoming(1, 9), incoming_done(1, 9)]);
    assert!(matches!(done[..], [Operation { record: Record::IncomingDone { .. }, .. }]), "{done:?}");
}

#[test]
fn after_an_identifier_was_refused_the_last_word_on_it_stands() {
    assert!(left([incoming(1, 9), incoming_refused(1, 9)]).is_empty(), "refused at once costs no write");
    let refused = left([incoming(1, 9), incoming_refused(1, 9), incoming_refused(1, 9)]);
    assert!(matches!(refused[..], [Operation { record: Record::IncomingDone { .. }, .. }]), "{refused:?}");
    let again = left([incoming_refused(1, 9), incoming(1, 9)]);
    assert!(
        matches!(again[..], [Operation { record: Record::Incoming { .. }, .. }]),
        "there may be no row: {again:?}"
    );
    let done = left([incoming_refused(1, 9), incoming(1, 9), incoming_done(1, 9)]);
    assert!(
        matches!(done[..], [Operation { record: Record::IncomingDone { .. }, .. }]),
        "there may be a row: {done:?}"
    );
}

#[test]
fn the_last_change_to_a_retained_message_counts_and_a_removal_is_never_left_out() {
    let mut group = CommitGroup::default();
    group.retain(RetainedRecord::Set(message("a").into()));
    group.retain(RetainedRecord::Set(message("b").into()));
    group.retain(RetainedRecord::Removed("a".into()));
    assert!(matches!(group.retained(), [RetainedRecord::Removed(_), RetainedRecord::Set(_)]));
    assert_eq!((group.recorded(), group.cancelled(), group.is_empty()), (3, 1, false));
    group.clear();
    group.retain(RetainedRecord::Set(message("a").into()));
    assert_eq!(group.len(), 1);
}

/// What a store holds, as far as the changes can tell apart: the naive reading of records and of
/// operations.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    sessions: BTreeMap<u64, u32>,
    subscriptions: BTreeMap<(u64, String), u8>,
    bodies: BTreeSet<u64>,
    entries: BTreeMap<u64, (Option<Flight>, bool)>,
    incoming: BTreeSet<(u64, u16)>,
    letters: BTreeSet<u64>,
    delayed: BTreeSet<u64>,
}

impl Model {
    fn end_session(&mut self, key: u64) {
        self.sessions.remove(&key);
        self.subscriptions.retain(|(session, _), _| *session != key);
        self.incoming.retain(|(session, _)| *session != key);
    }

    fn record(&mut self, record: &Record) {
        match record {
            Record::Session(s) => {
                self.sessions.insert(s.key.0, s.expiry);
            }
            Record::SessionState(_) => {}
            Record::SessionEnded(key) => self.end_session(key.0),
            Record::Subscribed(s) => {
                self.subscriptions.insert((s.session.0, s.filter.to_string()), s.options);
            }
            Record::Unsubscribed { session, filter } => {
                self.subscriptions.remove(&(session.0, filter.to_string()));
            }
            Record::Body { number, .. } => {
                self.bodies.insert(number.0);
            }
            Record::BodyDone(number) | Record::BodyReleased(number) => {
                self.bodies.remove(&number.0);
            }
            Record::Entry(entry) => {
                self.entries.insert(entry.number.0, (entry.flight, false));
            }
            Record::Sent { number, flight } => self.entries.get_mut(&number.0).unwrap().0 = Some(*flight),
            Record::Received(number) => self.entries.get_mut(&number.0).unwrap().1 = true,
            Record::Nothing => {}
            Record::EntryDone(number) | Record::EntryAcknowledged(number) => {
                self.entries.remove(&number.0);
            }
            Record::Incoming { session, packet_id } => {
                self.incoming.insert((session.0, packet_id.get()));
            }
            Record::IncomingDone { session, packet_id } | Record::IncomingRefused { session, packet_id } => {
                self.incoming.remove(&(session.0, packet_id.get()));
            }
            Record::Letter(letter) => {
                self.letters.insert(letter.place.number.0);
            }
            Record::LetterDone(number) => {
                self.letters.remove(&number.0);
            }
            Record::Delayed(delayed) => {
                self.delayed.insert(delayed.number.0);
            }
            Record::DelayedDone(number) => {
                self.delayed.remove(&number.0);
            }
        }
    }

    /// As [`Model::record`], for what is left of a group: each put is of a new row, and each change
    /// and deletion is of a row that is there.
    fn operation(&mut self, operation: &Operation) {
        let (entries, bodies) = (&self.entries, &self.bodies);
        match &operation.record {
            Record::Body { number, .. } => assert!(!bodies.contains(&number.0)),
            Record::BodyDone(number) | Record::BodyReleased(number) => assert!(bodies.contains(&number.0)),
            Record::Entry(entry) => assert!(!entries.contains_key(&entry.number.0)),
            Record::EntryDone(number) | Record::EntryAcknowledged(number) => {
                assert!(entries.contains_key(&number.0), "a deletion of nothing");
            }
            Record::Letter(letter) => assert!(!self.letters.contains(&letter.place.number.0)),
            Record::LetterDone(number) => assert!(self.letters.contains(&number.0), "a deletion of nothing"),
            Record::Delayed(delayed) => assert!(!self.delayed.contains(&delayed.number.0)),
            Record::DelayedDone(number) => assert!(self.delayed.contains(&number.0), "a deletion of nothing"),
            Record::IncomingRefused { .. } | Record::Nothing => panic!("{operation:?}"),
            _ => {}
        }
        self.record(&operation.record);
        if let Subject::Entry(number) = operation.subject()
            && let Some(entry) = self.entries.get_mut(&number)
        {
            entry.1 |= operation.is_received();
        }
    }
}

/// A record of this kind about this subject, if it can come after what the model holds. Numbers are
/// never given twice.
fn lawful(model: &Model, given: &mut u64, kind: u8, pick: usize) -> Option<Record> {
    let nth = |keys: Vec<u64>| (!keys.is_empty()).then(|| keys[pick % keys.len()]);
    let mut next = || {
        *given += 1;
        *given
    };
    let session_key = nth(model.sessions.keys().copied().collect());
    let any_entry = nth(model.entries.keys().copied().collect());
    let id = (pick % 3) as u16 + 1;
    Some(match kind {
        0 => session(next(), 1),
        1 => session(session_key?, pick as u32),
        2 => Record::SessionEnded(SessionKey(session_key?)),
        3 => subscribed(session_key?, ["a", "b"][pick % 2], pick as u8),
        4 => unsubscribed(session_key?, ["a", "b"][pick % 2]),
        5 => body(next()),
        6 if pick < 32 => Record::BodyDone(BodyNumber(nth(model.bodies.iter().copied().collect())?)),
        6 => Record::BodyReleased(BodyNumber(nth(model.bodies.iter().copied().collect())?)),
        7 => entry(next()),
        8 => sent(any_entry?, pick as u16),
        9 => Record::Received(EntryNumber(any_entry?)),
        11 if pick < 32 => Record::EntryAcknowledged(EntryNumber(any_entry?)),
        10 | 11 => Record::EntryDone(EntryNumber(any_entry?)),
        12 if !model.incoming.contains(&(session_key?, id)) => incoming(session_key?, id),
        13 if model.incoming.contains(&(session_key?, id)) => incoming_done(session_key?, id),
        14 => incoming_refused(session_key?, id),
        15 => Record::Letter(Arc::new(letter(next()))),
        16 => Record::LetterDone(LetterNumber(nth(model.letters.iter().copied().collect())?)),
        17 => Record::Delayed(Box::new(StoredDelayed {
            number: DelayedNumber(next()),
            due: Instant::from_millis(pick as u64),
            message: message("later"),
            owner: None,
        })),
        18 => Record::DelayedDone(DelayedNumber(nth(model.delayed.iter().copied().collect())?)),
        19 => Record::SessionState(SessionState {
            key: SessionKey(session_key?),
            connected: pick.is_multiple_of(2),
            ends: Instant::from_millis(pick as u64),
            will_due: Instant::NEVER,
        }),
        _ => return None,
    })
}

/// Records that can come one after the other, in groups.
fn lawful_groups(steps: Vec<(u8, usize)>, cuts: &[usize]) -> (Vec<CommitGroup>, Model) {
    let (mut records, mut model, mut given) = (Vec::new(), Model::default(), 0);
    for (kind, pick) in steps {
        let Some(record) = lawful(&model, &mut given, kind, pick) else { continue };
        model.record(&record);
        records.push(record);
    }
    let (mut groups, mut rest) = (Vec::new(), records);
    for cut in cuts.iter().cycle() {
        let later = rest.split_off((*cut).min(rest.len()));
        groups.push(group(rest));
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    (groups, model)
}

/// Returns groups that an owner may have stored one after the other. [`lawful`] says what a step is.
pub(crate) fn any_groups(steps: Vec<(u8, usize)>, cuts: &[usize]) -> Vec<CommitGroup> {
    lawful_groups(steps, cuts).0
}

fn absorbed(groups: Vec<CommitGroup>) -> CommitGroup {
    let mut all = CommitGroup::default();
    for (at, mut group) in groups.into_iter().enumerate() {
        all.absorb(&mut group, at as u64 + 1);
        assert!(group.is_empty());
    }
    all.seal();
    all
}

/// Returns the rows of a database after these groups.
fn rows_after(groups: &[CommitGroup]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { durability: DurabilityLevel::None, size_limit: None };
    let mut database = Sqlite::open(directory.path(), options).unwrap();
    for (at, group) in groups.iter().enumerate() {
        let mark = Mark { position: at as u64 + 1, ..Mark::default() };
        database.apply(group, FileTime::default(), &mark).unwrap();
    }
    drop(database);
    rows(directory.path())
}

#[test]
fn operations_that_cancelled_out_take_no_place_for_long() {
    let mut all = CommitGroup::default();
    all.absorb(&mut group([body(1), entry(2)]), 1);
    for number in 3..100_000 {
        all.absorb(&mut group([body(number)]), 2);
        all.absorb(&mut group([Record::BodyDone(BodyNumber(number))]), 2);
    }
    assert!(all.operations.len() < 70_000 && all.len() == 2, "{}", all.operations.len());
    assert!(all.on_entry(EntryNumber(2)).is_some() && all.on_body(BodyNumber(3)).is_none());
    all.absorb(&mut group([Record::EntryDone(EntryNumber(2)), Record::BodyDone(BodyNumber(1))]), 3);
    assert!(all.is_empty() && all.operations().next().is_none());
    all.absorb(&mut group([body(100_000)]), 4);
    assert!(all.on_body(BodyNumber(100_000)).is_some());
}

#[test]
fn a_message_keeps_the_time_of_its_frame_however_often_it_is_absorbed() {
    let mut later = CommitGroup::default();
    later.absorb(&mut group([body(1)]), 5);
    let mut all = CommitGroup::default();
    all.absorb(&mut group([body(2)]), 4);
    all.absorb(&mut later, 9);
    assert_eq!(all.operations().map(|operation| operation.frame_ms).collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn the_charge_of_an_absorbed_group_is_counted_once() {
    let before = unreported();
    let (mut all, mut later) = (CommitGroup::default(), CommitGroup::default());
    later.take_charge(&Charge::new(700));
    all.absorb(&mut later, 1);
    assert_eq!(unreported() - before, 700);
    later.clear();
    assert_eq!(unreported() - before, 700);
    all.clear();
    assert_eq!(unreported(), before);
}

proptest! {
    #[test]
    fn a_group_comes_to_what_its_records_do_one_by_one(
        steps in prop::collection::vec((0_u8..20, 0_usize..64), 0..200),
        cuts in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let (mut records, mut model, mut given) = (Vec::new(), Model::default(), 0);
        for (kind, pick) in steps {
            let Some(record) = lawful(&model, &mut given, kind, pick) else { continue };
            model.record(&record);
            records.push(record);
        }
        let (mut kept, mut group, mut rest) = (Model::default(), CommitGroup::default(), &records[..]);
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            group.clear();
            for (at, record) in now.iter().enumerate() {
                group.fold(record.clone());
                // To seal twice, with more in between, is as to seal once.
                if at == 3 {
                    group.seal();
                }
            }
            group.seal();
            group.operations().for_each(|operation| kept.operation(operation));
            prop_assert_eq!(group.recorded(), now.len() as u64);
            prop_assert_eq!(group.len(), group.operations().count());
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(kept, model);
    }

    #[test]
    fn groups_that_are_absorbed_come_to_what_they_do_one_by_one(
        steps in prop::collection::vec((0_u8..20, 0_usize..64), 0..200),
        cuts in prop::collection::vec(1_usize..20, 1..20),
        absorbed_from in 0_usize..10,
    ) {
        let (mut groups, model) = lawful_groups(steps, &cuts);
        let rest = groups.split_off(absorbed_from.min(groups.len()));
        let mut kept = Model::default();
        groups.iter().for_each(|group| group.operations().for_each(|o| kept.operation(o)));
        absorbed(rest).operations().for_each(|operation| kept.operation(operation));
        prop_assert_eq!(kept, model);
    }
}

proptest! {
    // Each case makes two databases.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_database_has_the_same_rows_after_groups_and_after_what_they_come_to(
        steps in prop::collection::vec((0_u8..20, 0_usize..64), 0..300),
        cuts in prop::collection::vec(1_usize..20, 1..20),
        absorbed_from in 0_usize..10,
    ) {
        let (mut groups, _) = lawful_groups(steps.clone(), &cuts);
        for (at, group) in groups.iter_mut().enumerate() {
            // As they are absorbed: the age of a message is that of its frame.
            let mut timed = CommitGroup::default();
            timed.absorb(group, at as u64 + 1);
            timed.seal();
            *group = timed;
        }
        let one_by_one = rows_after(&groups);
        let rest = groups.split_off(absorbed_from.min(groups.len()));
        groups.push(absorbed(rest));
        prop_assert_eq!(rows_after(&groups), one_by_one);
    }
}
