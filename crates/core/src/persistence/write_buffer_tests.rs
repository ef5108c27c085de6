//! Tests of `write_buffer`, `open_batch` and `rows` together.

use super::*;
use crate::mqtt::charge;
use crate::mqtt::message::Message;
use crate::mqtt::packet::{ProtocolVersion, QoS};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{StoredAccess, StoredSession};
use crate::persistence::rows::{Entry, NewDelivery, SessionRow};

fn message() -> Message {
    Message::sample("t", QoS::AtLeastOnce, b"x")
}

fn new_delivery() -> NewDelivery<'static> {
    NewDelivery {
        qos: QoS::AtLeastOnce,
        retain: false,
        ids: &SubscriptionIds::None,
        share: None,
        flight: None,
    }
}

#[test]
fn a_session_that_changes_often_has_one_record_in_each_batch() {
    let write_buffer = WriteBuffer::new(0, 0);
    let account = SessionRow::new(SessionKey(1), Rc::clone(&write_buffer));
    let session = |expiry| {
        Box::new(StoredSession {
            key: SessionKey(1),
            client_id: "c".repeat(60_000).into(),
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
        })
    };
    let before = charge::unreported();
    for round in 1..=2u32 {
        (0..1_000).for_each(|n| account.record(session(n * round)));
        let in_use = charge::unreported() - before;
        assert!((60_000..70_000).contains(&in_use), "{in_use}");
        let batch = write_buffer.seal().expect("a record");
        let [Record::Session(last)] = &batch.records[..] else { panic!("{batch:?}") };
        assert_eq!((last.expiry, batch.cancelled), (999 * round, 999));
        write_buffer.committed(batch.lsn);
    }
    assert_eq!(charge::unreported(), before, "the batches are gone");
}

#[test]
fn a_filter_that_changes_often_has_one_record_while_a_sync_hangs() {
    let write_buffer = WriteBuffer::new(0, 0);
    let rows = [1, 2].map(|key| SessionRow::new(SessionKey(key), Rc::clone(&write_buffer)));
    let (long, before) = ("f".repeat(60_000), charge::unreported());
    for options in 0..=2 {
        for row in &rows {
            row.subscribed(&long, options, 0);
            row.subscribed("other", options, 0);
            row.unsubscribed("other");
        }
    }
    let in_use = charge::unreported() - before;
    assert!((120_000..121_000).contains(&in_use), "two filters: {in_use}");
    let batch = write_buffer.seal().expect("records");
    let changes = batch.records.iter().map(|record| match record {
        Record::Subscribed(s) => (s.session.0, s.filter.len(), Some(s.options)),
        Record::Unsubscribed { session, filter } => (session.0, filter.len(), None),
        other => panic!("{other:?}"),
    });
    let expected = [(1, 60_000, Some(2)), (1, 5, None), (2, 60_000, Some(2)), (2, 5, None)];
    assert_eq!(changes.collect::<Vec<_>>(), expected);
    rows[0].subscribed(&long, 1, 0);
    write_buffer.committed(batch.lsn);
    assert_eq!(write_buffer.seal().expect("the next batch begins anew").records.len(), 1);
}

#[test]
fn a_window_that_is_sent_at_each_return_has_one_record_a_message_while_a_sync_hangs() {
    let write_buffer = WriteBuffer::new(0, 0);
    let body = write_buffer.body(&message());
    let session = SessionKey(1);
    let mut entry = write_buffer.entry(session, &body, new_delivery());
    let other = write_buffer.entry(session, &body, new_delivery());
    entry.placed(Flight { running: 1, transmissions: 1 });
    write_buffer.seal().expect("the batch of the messages");
    let before = charge::unreported();
    for transmissions in 2..=1_000 {
        entry.sent(Flight { running: 1, transmissions });
        other.sent(Flight { running: 2, transmissions });
    }
    let in_use = charge::unreported() - before;
    assert!(in_use < 1_000, "{in_use}");
    write_buffer.committed(Lsn(1));
    let batch = write_buffer.seal().expect("the transmissions");
    let flights: Vec<_> = batch
        .records
        .iter()
        .map(|record| match record {
            Record::Sent { flight, .. } => (flight.running, flight.transmissions),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(flights, [(1, 1_000), (2, 1_000)]);
}

#[test]
fn a_body_is_done_with_its_last_entry_and_releases_its_gate() {
    let write_buffer = WriteBuffer::new(3, 1000);
    let body = write_buffer.body(&message());
    body.releases(7);
    let mut first = write_buffer.entry(SessionKey(1), &body, new_delivery());
    let mut second = write_buffer.entry(SessionKey(2), &body, new_delivery());
    drop(body);
    first.done();
    second.done();
    drop(first);
    assert!(write_buffer.take_finished().is_empty());
    drop(second);
    assert_eq!(write_buffer.take_finished(), [7]);
    let batch = write_buffer.seal().expect("it was begun");
    assert_eq!((batch.shard, batch.lsn, batch.records.len(), batch.cancelled), (3, Lsn(1), 0, 6));
}

#[test]
fn a_body_that_is_passed_on_leaves_its_gate_to_the_commit() {
    let write_buffer = WriteBuffer::new(0, 0);
    for passes_on in [|entry: Box<Entry>| drop(entry), |entry: Box<Entry>| drop(entry.page_out())] {
        let body = write_buffer.body(&message());
        body.releases(7);
        let passed = write_buffer.entry(SessionKey(1), &body, new_delivery());
        let mut kept = write_buffer.entry(SessionKey(2), &body, new_delivery());
        passes_on(passed);
        body.releases(7);
        drop(body);
        kept.done();
        drop(kept);
        assert!(write_buffer.take_finished().is_empty());
    }
}

#[test]
fn what_left_in_a_batch_ends_in_the_next() {
    let write_buffer = WriteBuffer::new(0, 0);
    let body = write_buffer.body(&message());
    let entry = write_buffer.entry(SessionKey(1), &body, new_delivery());
    drop(body);
    assert_eq!(write_buffer.seal().map(|b| b.records.len()), Some(2));
    drop(entry);
    // One at a time.
    assert!(write_buffer.seal().is_none());
    write_buffer.committed(Lsn(1));
    let batch = write_buffer.seal().expect("two ends");
    assert!(matches!(batch.records[..], [Record::EntryDone(_), Record::BodyDone(_)]), "{batch:?}");
}

#[test]
fn a_vacant_place_is_taken_by_the_next() {
    let write_buffer = WriteBuffer::new(0, 0);
    for _ in 0..1000 {
        let body = write_buffer.body(&message());
        write_buffer
            .entry(SessionKey(1), &body, new_delivery())
            .sent(Flight { running: 1, transmissions: 1 });
    }
    assert!(write_buffer.open.borrow().record_count() <= 2);
    let body = write_buffer.body(&message());
    let entry = write_buffer.entry(SessionKey(1), &body, new_delivery());
    entry.sent(Flight { running: 7, transmissions: 1 });
    let batch = write_buffer.seal().expect("records");
    let flights: Vec<_> = batch
        .records
        .iter()
        .filter_map(|r| match r {
            Record::Entry(entry) => entry.flight,
            _ => None,
        })
        .collect();
    assert_eq!((batch.records.len(), flights.len(), flights[0].running), (2, 1, 7));
}

#[test]
fn what_is_pending_is_the_batch_that_holds_the_last_record() {
    let write_buffer = WriteBuffer::new(0, 0);
    assert_eq!(write_buffer.pending(), None);
    write_buffer.begin();
    assert_eq!(write_buffer.pending(), Some(Lsn(1)));
    assert!(write_buffer.seal().is_some() && write_buffer.seal().is_none());
    assert_eq!(write_buffer.pending(), Some(Lsn(1)));
    write_buffer.committed(Lsn(1));
    assert_eq!(write_buffer.pending(), None);
}

#[test]
fn what_is_put_in_a_part_goes_with_the_move_and_what_is_done_does_not() {
    let write_buffer = WriteBuffer::new(1, 0);
    let own = write_buffer.body(&message());
    write_buffer.begin_participation(TransactionNumber(9));
    let body = write_buffer.body(&message());
    drop(own);
    write_buffer.end_participation(Outcome::Taken);
    drop(body);
    let batch = write_buffer.seal().expect("records");
    // What was put in a part may go before the rest of its batch, so its end is always said.
    assert_eq!(
        (batch.records.len(), batch.participants.len(), batch.participants[0].records.len()),
        (1, 1, 1)
    );
}

#[test]
fn what_a_part_put_and_took_back_is_not_in_it() {
    let write_buffer = WriteBuffer::new(1, 0);
    write_buffer.begin_participation(TransactionNumber(8));
    let kept = write_buffer.body(&message());
    write_buffer.end_participation(Outcome::Taken);
    write_buffer.begin_participation(TransactionNumber(9));
    let body = write_buffer.body(&message());
    let refused = write_buffer.entry(SessionKey(1), &body, new_delivery());
    drop(refused);
    let taken = write_buffer.entry(SessionKey(2), &body, new_delivery());
    write_buffer.end_participation(Outcome::Taken);
    drop(kept);
    let batch = write_buffer.seal().expect("records");
    let entries = batch.participants[1].records.iter().filter_map(|r| match r {
        Record::Entry(entry) => Some(entry.number),
        _ => None,
    });
    assert_eq!((entries.collect::<Vec<_>>(), batch.participants[1].records.len()), (vec![taken.number()], 2));
    assert_eq!(batch.participants[0].records.len(), 1, "the part before may be committed already");
    assert!(matches!(batch.records[..], [Record::BodyReleased(_)]), "{batch:?}");
}

#[test]
fn what_a_part_passes_on_is_one_more_part_of_the_same_move() {
    let write_buffer = WriteBuffer::new(1, 0);
    let own = write_buffer.begin_transaction();
    write_buffer.add_participant(own);
    write_buffer.begin_participation(TransactionNumber(9));
    write_buffer.add_participant(TransactionNumber(9));
    write_buffer.end_participation(Outcome::Unmatched);
    write_buffer.end_transaction(own, Outcome::Refused, None);
    let batch = write_buffer.seal().expect("a move and a part");
    assert_eq!((batch.transactions[0].participants, batch.transactions[0].outcome), (1, Outcome::Refused));
    assert_eq!((batch.participants[0].more, batch.participants[0].outcome), (1, Outcome::Unmatched));
}

#[test]
fn what_is_sent_in_a_part_has_its_place_behind_what_was_sent_before() {
    let write_buffer = WriteBuffer::new(1, 0);
    let body = write_buffer.body(&message());
    let older = write_buffer.known_entry(EntryNumber(7), Some(Rc::clone(&body)));
    let flight = |running| Flight { running, transmissions: 1 };
    older.sent(flight(1));
    write_buffer.begin_participation(TransactionNumber(9));
    let newer =
        write_buffer.entry(SessionKey(1), &body, NewDelivery { flight: Some(flight(2)), ..new_delivery() });
    write_buffer.end_participation(Outcome::Taken);
    let batch = write_buffer.seal().expect("records");
    let [Record::Entry(entry)] = &batch.participants[0].records[..] else { panic!("{batch:?}") };
    assert_eq!(entry.flight, None, "the part may go alone");
    let places = batch.records.iter().filter_map(|r| match r {
        Record::Sent { number, flight } => Some((*number, flight.running)),
        _ => None,
    });
    assert_eq!(places.collect::<Vec<_>>(), [(older.number(), 1), (newer.number(), 2)]);
}
