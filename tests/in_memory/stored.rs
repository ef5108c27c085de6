//! Changes that are committed together, over whole shards: the end of a message with the delivery
//! of its dead letter, and the steps of a shared message from member to member.

use crate::client::{connect, enter, named_at, publish, send, subscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::outcome::Outcome;
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, ProtocolVersion, QoS, ReasonCode,
};
use homing::mqtt::subscription_ids::SubscriptionIds;
use homing::persistence::records::{Batch, Flight, Record, SessionKey, Transaction, TransactionNumber};
use homing::persistence::rows::NewDelivery;
use homing::persistence::write_buffer::WriteBuffer;
use homing::time::Instant;

const FIRST: PacketId = PacketId::new(1).expect("not 0");

/// A client whose session is stored, with a subscription to each filter.
fn subscriber(driver: &mut MemoryDriver, name: &str, filters: &[&str]) -> LinkId {
    let properties =
        ConnectProperties { session_expiry: Some(3600), receive_maximum: Some(1), ..Default::default() };
    let link = enter(driver, Connect { properties, ..connect(name) });
    subscribe(driver, link, filters, QoS::ExactlyOnce);
    link
}

/// The batches that follow from a negative acknowledgement: by a receiver in the first shard, of a
/// message whose dead letter somebody in the last is to get.
fn refused(shards: u8) -> Vec<Batch> {
    let mut settings = driver::settings();
    settings.session.send.redelivery.negative_ack = true;
    let mut driver = MemoryDriver::new(&settings, shards);
    driver.keep_in_store();
    subscriber(&mut driver, &named_at("watcher", shards - 1, shards), &["$dead/#"]);
    let receiver = subscriber(&mut driver, &named_at("receiver", 0, shards), &["t"]);
    publish(&mut driver, receiver, "t", QoS::AtLeastOnce, 1);
    driver.batches.clear();
    let refused = Acknowledgement { reason: ReasonCode::QUOTA_EXCEEDED, ..Acknowledgement::success(FIRST) };
    send(&mut driver, receiver, &Packet::Puback(refused));
    driver.batches
}

fn is_letter(record: &Record) -> bool {
    matches!(record, Record::Body { message, .. } if message.topic().starts_with("$dead/receiver"))
}

#[test]
fn a_dead_letter_is_in_the_batch_in_which_its_message_ends() {
    let batches = refused(1);
    let of_letter = batches.iter().find(|b| b.records.iter().any(is_letter)).expect("a letter");
    assert!(of_letter.records.iter().any(|r| matches!(r, Record::EntryDone(_))), "{of_letter:?}");
}

#[test]
fn a_dead_letter_for_another_shard_commits_in_one_transaction_with_the_end_of_its_message() {
    let batches = refused(2);
    let of_letter = |b: &Batch| b.participants.iter().find(|p| p.records.iter().any(is_letter)).map(|p| p.of);
    let number = batches.iter().find_map(of_letter).expect("a letter");
    let begins_it = |b: &&Batch| b.transactions.iter().any(|m| m.number == number && m.participants == 1);
    let of_message = batches.iter().find(begins_it).expect("the batch that begins the transaction");
    assert!(of_message.records.iter().any(|r| matches!(r, Record::EntryDone(_))), "{of_message:?}");
}

/// The batches that follow from a QoS 2 PUBLISH in the first of three shards to a group with a
/// member in each of the others, of which so many can take no more; and the reason in the answer to
/// the publisher.
fn shared_past(full: usize) -> (Vec<Batch>, ReasonCode) {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 1;
    let mut driver = MemoryDriver::new(&settings, 3);
    driver.keep_in_store();
    let publisher = subscriber(&mut driver, &named_at("publisher", 0, 3), &["none"]);
    for (shard, own) in [(1, "1"), (2, "2")] {
        subscriber(&mut driver, &named_at("member", shard, 3), &[own, "$share/group/t"]);
    }
    // One each in flight, and one in the queue. The first choice is the member that joined first.
    for n in 0..full as u16 {
        let own = ["1", "2"][usize::from(n)];
        publish(&mut driver, publisher, own, QoS::AtLeastOnce, 10 + n);
        publish(&mut driver, publisher, own, QoS::AtLeastOnce, 20 + n);
    }
    driver.batches.clear();
    driver.links[publisher].received.clear();
    publish(&mut driver, publisher, "t", QoS::ExactlyOnce, 1);
    let received = &driver.links[publisher].received;
    let Ok(Decoded::Packet { packet: Packet::Pubrec(answer), .. }) =
        codec::decode(received, ProtocolVersion::V5, u32::MAX)
    else {
        panic!("{received:?}")
    };
    (driver.batches, answer.reason)
}

/// For each participant of the one transaction: its entries, how many more participants it names,
/// its outcome.
fn participants(batches: &[Batch]) -> Vec<(usize, u32, Outcome)> {
    let begun: Vec<_> = batches.iter().flat_map(|b| &b.transactions).collect();
    let [Transaction { number, participants: 1, outcome: Outcome::Unmatched, incoming: Some((_, FIRST)) }] =
        begun[..]
    else {
        panic!("{begun:?}")
    };
    let participants = batches.iter().flat_map(|b| &b.participants);
    let seen = participants.map(|participant| {
        assert_eq!(participant.of, *number);
        let entries = participant.records.iter().filter(|r| matches!(r, Record::Entry(_))).count();
        assert_eq!(participant.records.is_empty(), entries == 0, "{participant:?}");
        (entries, participant.more, participant.outcome)
    });
    seen.collect()
}

// 5.0 section 4.3.3
#[test]
fn v5_a_shared_message_that_is_refused_goes_on_within_its_transaction() {
    let (batches, answer) = shared_past(1);
    assert_eq!(answer, ReasonCode::SUCCESS);
    assert_eq!(participants(&batches), [(0, 1, Outcome::Unmatched), (1, 0, Outcome::Taken)]);
}

// 5.0 [MQTT-4.3.3-9]
#[test]
fn v5_a_shared_message_that_all_refuse_ends_as_a_transaction_that_nobody_took() {
    let (batches, answer) = shared_past(2);
    assert_eq!(answer, ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(participants(&batches), [(0, 1, Outcome::Unmatched), (0, 0, Outcome::Refused)]);
    let records = batches.iter().flat_map(|b| &b.records);
    let identifiers = records.filter_map(|r| match r {
        Record::Incoming { packet_id, .. } => Some((*packet_id, true)),
        Record::IncomingDone { packet_id, .. } | Record::IncomingRefused { packet_id, .. } => {
            Some((*packet_id, false))
        }
        _ => None,
    });
    assert_eq!(identifiers.collect::<Vec<_>>(), [(FIRST, true), (FIRST, false)]);
}

// Seed 2340; the mutation `place_ahead_of_those_before`. The participant may be committed before
// the rest of its batch.
#[test]
fn the_place_in_the_window_is_committed_with_the_batch_and_not_with_a_participant() {
    let buffer = WriteBuffer::new(0, 0);
    let flight = Flight { running: 7, transmissions: 1 };
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: Instant::NEVER,
        topic: "t",
        forwarded: &[],
        payload: b"x",
    };
    let delivery = NewDelivery {
        qos: QoS::AtLeastOnce,
        retain: false,
        ids: &SubscriptionIds::None,
        share: None,
        flight: Some(flight),
    };
    buffer.begin_participation(TransactionNumber(1));
    let body = buffer.body(&Message::new(parts, &mut Vec::new()));
    let _entry = buffer.entry(SessionKey(1), &body, delivery);
    buffer.end_participation(Outcome::Taken);
    let batch = buffer.seal().expect("a batch is due");
    let places = |records: &[Record]| {
        records
            .iter()
            .filter_map(|record| match record {
                Record::Entry(entry) => Some(entry.flight),
                Record::Sent { flight, .. } => Some(Some(*flight)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(places(&batch.participants[0].records), [None]);
    assert_eq!(places(&batch.records), [Some(flight)]);
}
