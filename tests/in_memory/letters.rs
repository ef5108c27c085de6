//! Stored dead letters: the batches in which a letter begins and ends, and what becomes of a letter
//! for which there is no room.

use crate::client::{self, V5, connect, enter, named_at, publish, subscribe, take, take_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Publish, PublishProperties, QoS,
};
use homing::operators::client_commands::{MessageOf, OperatorAction, OperatorCommand};
use homing::operators::command::{Command, CommandOutcome};
use homing::operators::letters::LetterFilter;
use homing::operators::message_commands::{MessageCommand, RepublishTo};
use homing::operators::query::{Query, QueryAnswer, SessionName};
use homing::operators::unfinished::{PagePayloads, UnfinishedPart};
use homing::persistence::letter::StoredLetter;
use homing::persistence::records::{Batch, Record};
use homing::routing::retained::{Retained, RetainedLimits};
use homing::session::drops::DropReason;
use homing::session::outbound::stall::SocketView;
use homing::shard::{Input, LetterLimits, ShardSettings};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const LIMITS: LetterLimits = LetterLimits { letters: 100, bytes: 1 << 20 };

/// A driver that stores sessions and dead letters.
fn stored(shards: u8) -> MemoryDriver {
    let mut settings = driver::settings();
    settings.letters = LIMITS;
    let mut driver = MemoryDriver::new(&settings, shards);
    driver.keep_in_store();
    driver
}

/// A client whose session is stored, with one subscription.
fn subscribed(driver: &mut MemoryDriver, name: &str, filter: &str, qos: QoS) -> LinkId {
    let properties = ConnectProperties { session_expiry: Some(3600), ..Default::default() };
    let link = enter(driver, Connect { properties, ..connect(name) });
    subscribe(driver, link, &[filter], qos);
    link
}

/// A client whose session is stored, with a subscription to `t`.
fn subscriber(driver: &mut MemoryDriver, name: &str) -> LinkId {
    subscribed(driver, name, "t", QoS::ExactlyOnce)
}

/// Parks the first message in the queue of a client of the first shard.
fn park(driver: &mut MemoryDriver, name: &str) -> CommandOutcome {
    park_first(driver, name, UnfinishedPart::Queue)
}

/// Parks the first message in this part of the messages of a client of the first shard.
fn park_first(driver: &mut MemoryDriver, name: &str, part: UnfinishedPart) -> CommandOutcome {
    let client = SessionName::Client(name.into());
    let query =
        Query::Unfinished { client: client.clone(), part, payloads: PagePayloads::Hidden, from: 0, most: 1 };
    let QueryAnswer::Unfinished(Some(page)) = query.answer(driver.now, &driver.shards[0]) else {
        panic!("no session of {name}");
    };
    let message = MessageOf { session: None, name: page.rows[0].name.expect("a name") };
    let command = OperatorCommand { client, action: OperatorAction::Park(message) };
    let done = command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]);
    driver.settle();
    done.outcome
}

fn letters(driver: &MemoryDriver) -> Vec<Arc<StoredLetter>> {
    let query = Query::Letters { before: None, most: 100, filter: LetterFilter::default() };
    let QueryAnswer::Letters(page) = query.answer(driver.now, &driver.shards[0]) else { panic!("no page") };
    page.rows
}

fn republish(driver: &mut MemoryDriver, to: RepublishTo) -> CommandOutcome {
    let command = MessageCommand::Republish(letters(driver)[0].place, to);
    let done = command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]);
    assert_eq!(done.commit.is_some(), done.outcome == CommandOutcome::Done, "{done:?}");
    driver.settle();
    done.outcome
}

/// A letter of a client that is away. Returns the driver and the name of the client.
fn with_letter(shards: u8) -> (MemoryDriver, String) {
    let mut driver = stored(shards);
    let name = named_at("receiver", 0, shards);
    let link = subscriber(&mut driver, &name);
    driver.close(link);
    let publisher = client::client(&mut driver, "publisher", 10);
    publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
    driver.batches.clear();
    assert_eq!(park(&mut driver, &name), CommandOutcome::Done);
    (driver, name)
}

/// Publishes to `t` at QoS 1.
fn publish_payload(driver: &mut MemoryDriver, link: LinkId, payload: &[u8], message_expiry: Option<u32>) {
    let properties = PublishProperties { message_expiry, ..Default::default() };
    let (qos, packet_id) = (QoS::AtLeastOnce, PacketId::new(1));
    let publish = Publish { qos, packet_id, properties, ..client::publication("t", payload) };
    client::send(driver, link, &Packet::Publish(publish));
}

/// A letter of the client `receiver`, which is away. Returns the driver and the publisher.
fn with_letter_of(settings: &ShardSettings, payload: &[u8]) -> (MemoryDriver, LinkId) {
    let mut driver = MemoryDriver::new(settings, 1);
    driver.keep_in_store();
    let link = subscriber(&mut driver, "receiver");
    driver.close(link);
    let publisher = client::client(&mut driver, "publisher", 10);
    publish_payload(&mut driver, publisher, payload, None);
    assert_eq!(park(&mut driver, "receiver"), CommandOutcome::Done);
    (driver, publisher)
}

/// The receiver returns to its session.
fn come_back(driver: &mut MemoryDriver, maximum_packet_size: Option<u32>) -> LinkId {
    let properties =
        ConnectProperties { session_expiry: Some(3600), maximum_packet_size, ..Default::default() };
    enter(driver, Connect { clean_start: false, properties, ..connect("receiver") })
}

fn has(records: &[Record], what: impl Fn(&Record) -> bool) -> bool {
    records.iter().any(what)
}

/// Returns the only batch with such a record.
fn batch_with(driver: &MemoryDriver, what: impl Fn(&Record) -> bool) -> &Batch {
    let mut found = driver.batches.iter().filter(|batch| has(&batch.records, &what));
    let only = found.next().expect("a batch");
    assert!(found.next().is_none(), "{:?}", driver.batches);
    only
}

#[test]
fn a_letter_is_in_the_batch_in_which_its_message_ends() {
    let (driver, name) = with_letter(1);
    let batch = batch_with(&driver, |record| matches!(record, Record::Letter(_)));
    assert!(has(&batch.records, |record| matches!(record, Record::EntryDone(_))), "{batch:?}");
    let letters = letters(&driver);
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&*letter.receiver, &*letter.cause, letter.message.payload()), (&*name, "parked", &b"x"[..]));
}

#[test]
fn a_letter_ends_in_the_batch_that_gives_its_message_to_its_receiver() {
    let (mut driver, _) = with_letter(1);
    driver.batches.clear();
    assert_eq!(republish(&mut driver, RepublishTo::Receiver), CommandOutcome::Done);
    let batch = batch_with(&driver, |record| matches!(record, Record::LetterDone(_)));
    assert!(has(&batch.records, |record| matches!(record, Record::Entry(_))), "{batch:?}");
    assert!(letters(&driver).is_empty());
}

#[test]
fn a_receiver_gets_a_republished_message_as_its_subscription_says_or_not_at_all() {
    for (filter, granted) in [("t", QoS::AtLeastOnce), ("$share/g/t", QoS::AtLeastOnce)] {
        let mut driver = stored(1);
        let link = subscribed(&mut driver, "receiver", filter, granted);
        driver.close(link);
        let publisher = client::client(&mut driver, "publisher", 10);
        publish(&mut driver, publisher, "t", QoS::ExactlyOnce, 1);
        assert_eq!(park(&mut driver, "receiver"), CommandOutcome::Done);
        assert_eq!(letters(&driver)[0].message.header().qos, QoS::ExactlyOnce);
        driver.batches.clear();
        assert_eq!(republish(&mut driver, RepublishTo::Receiver), CommandOutcome::Done, "{filter}");
        let batch = batch_with(&driver, |record| matches!(record, Record::LetterDone(_)));
        // 3.1.1 [MQTT-3.8.4-6]; 5.0 [MQTT-3.8.4-8]
        assert!(has(&batch.records, |record| matches!(record, Record::Entry(entry) if entry.qos == granted)));
        assert_eq!(park(&mut driver, "receiver"), CommandOutcome::Done);
        let link = enter(&mut driver, Connect { clean_start: true, ..connect("receiver") });
        let refused = republish(&mut driver, RepublishTo::Receiver);
        assert!(matches!(refused, CommandOutcome::CannotRepublish(why) if why.contains("not subscribed")));
        assert!(take(&mut driver, link, false).is_empty());
    }
}

#[test]
fn a_letter_ends_in_the_batch_that_begins_the_transaction_with_a_subscriber_in_another_shard() {
    let (mut driver, _) = with_letter(2);
    let other = named_at("other", 1, 2);
    let link = subscriber(&mut driver, &other);
    driver.batches.clear();
    assert_eq!(republish(&mut driver, RepublishTo::Topic), CommandOutcome::Done);
    let batch = batch_with(&driver, |record| matches!(record, Record::LetterDone(_)));
    let [transaction] = &batch.transactions[..] else { panic!("{batch:?}") };
    assert_eq!((batch.shard, transaction.participants), (0, 1));
    let part = driver.batches.iter().flat_map(|batch| &batch.participants);
    let part = part.filter(|part| part.of == transaction.number).collect::<Vec<_>>();
    assert!(matches!(&part[..], [part] if has(&part.records, |r| matches!(r, Record::Entry(_)))), "{part:?}");
    assert_eq!(take(&mut driver, link, true), ["t"]);
}

#[test]
fn a_republished_message_leaves_the_broker_only_after_the_commit() {
    let (mut driver, name) = with_letter(1);
    let link = subscriber(&mut driver, &name);
    driver.delays_commits = true;
    assert_eq!(republish(&mut driver, RepublishTo::Receiver), CommandOutcome::Done);
    assert!(take(&mut driver, link, false).is_empty());
    driver.commit();
    driver.settle();
    assert_eq!(take(&mut driver, link, true), ["t"]);
}

#[test]
fn without_room_a_message_is_not_parked_and_a_letter_is_not_republished() {
    let (mut driver, name) = with_letter(1);
    let publisher = client::client(&mut driver, "app", 10);
    publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
    driver.shared.store_full.store(true, Ordering::Relaxed);
    assert_eq!(park(&mut driver, &name), CommandOutcome::NoRoom);
    for to in [RepublishTo::Receiver, RepublishTo::Topic] {
        assert_eq!(republish(&mut driver, to), CommandOutcome::NoRoom);
    }
    assert_eq!(letters(&driver).len(), 1, "it is still a letter");
    driver.shared.store_full.store(false, Ordering::Relaxed);
    assert_eq!(park(&mut driver, &name), CommandOutcome::Done);
    assert_eq!(republish(&mut driver, RepublishTo::Receiver), CommandOutcome::Done);
    driver.shards[0].recount().expect("every charge is right");
}

#[test]
fn a_republished_message_takes_the_room_of_expired_ones_or_stays_a_letter() {
    let (expired, refused) = (DropReason::Expired, DropReason::QueueRefused);
    for causes in [&[][..], &[expired], &[expired, refused]] {
        for fits in [true, false] {
            let mut settings = driver::settings();
            settings.letters = LIMITS;
            settings.session.send.queue.messages = 2;
            settings.session.send.queue.bytes = 1_000;
            settings.session.send.redelivery.dead_letters = causes.iter().copied().collect();
            let (mut driver, publisher) = with_letter_of(&settings, &[b'x'; 500]);
            publish_payload(&mut driver, publisher, &[b'y'; 500][..if fits { 10 } else { 500 }], None);
            publish_payload(&mut driver, publisher, &[b'z'; 10], Some(1));
            driver.advance(Duration::from_secs(2));
            let outcome = republish(&mut driver, RepublishTo::Receiver);
            assert_eq!(outcome == CommandOutcome::Done, fits, "{outcome:?} {causes:?}");
            let of_cause =
                |cause: &str| letters(&driver).iter().filter(|letter| &*letter.cause == cause).count();
            assert_eq!(of_cause("parked"), usize::from(!fits), "{causes:?}");
            assert_eq!(of_cause("expired"), usize::from(causes.contains(&expired)), "{causes:?}");
            assert_eq!(driver.shards[0].snapshot().counters.drops.of(refused), 0);
            let link = come_back(&mut driver, None);
            assert_eq!(take(&mut driver, link, true).len(), 1 + usize::from(fits), "{causes:?}");
            driver.shards[0].recount().expect("every charge is right");
        }
    }
}

#[test]
fn a_republished_message_that_is_dropped_again_stays_one_letter() {
    for limits in [LIMITS, LetterLimits { letters: 0, bytes: 0 }] {
        let mut settings = driver::settings();
        settings.letters = LIMITS;
        settings.session.send.redelivery.dead_letters = [DropReason::TooLarge].into_iter().collect();
        let (mut driver, _) = with_letter_of(&settings, &[b'x'; 500]);
        let link = come_back(&mut driver, Some(100));
        settings.letters = limits;
        driver.shards[0].replace_settings(settings);
        let outcome = republish(&mut driver, RepublishTo::Receiver);
        assert!(matches!(outcome, CommandOutcome::CannotRepublish(_)), "{outcome:?}");
        assert!(take(&mut driver, link, false).is_empty());
        let letters = letters(&driver);
        assert_eq!((letters.len(), &*letters[0].cause), (1, "parked"), "{limits:?}");
    }
}

#[test]
fn a_letter_stays_if_no_subscriber_of_the_topic_can_take_its_message() {
    let (mut driver, name) = with_letter(1);
    let away = subscribed(&mut driver, &name, "t", QoS::AtMostOnce);
    driver.close(away);
    for to in [RepublishTo::Topic, RepublishTo::Receiver] {
        let refused = republish(&mut driver, to);
        assert!(matches!(refused, CommandOutcome::CannotRepublish(why) if why.contains("away")), "{to:?}");
    }
    assert_eq!(letters(&driver).len(), 1);
    let other = subscriber(&mut driver, "other");
    assert_eq!(republish(&mut driver, RepublishTo::Topic), CommandOutcome::Done);
    assert_eq!(take(&mut driver, other, true), ["t"]);
    assert!(letters(&driver).is_empty());
}

#[test]
fn a_letter_stays_if_its_receivers_cannot_be_found_within_a_turn() {
    const LEVELS: u32 = 6;
    let mut settings = driver::settings();
    settings.letters = LIMITS;
    settings.steps_per_turn = 20;
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let level = |bits: u32, at: u32| if bits >> at & 1 == 1 { "+" } else { "a" };
    let filter = |bits: u32| (0..LEVELS).map(|at| level(bits, at)).collect::<Vec<_>>().join("/");
    let filters: Vec<String> = (0..1 << LEVELS).map(filter).collect();
    let link = subscriber(&mut driver, "receiver");
    subscribe(&mut driver, link, &filters.iter().map(String::as_str).collect::<Vec<_>>(), QoS::AtLeastOnce);
    driver.close(link);
    let publisher = client::client(&mut driver, "publisher", 10);
    publish(&mut driver, publisher, &filters[0], QoS::AtLeastOnce, 1);
    assert_eq!(park(&mut driver, "receiver"), CommandOutcome::Done);
    for to in [RepublishTo::Receiver, RepublishTo::Topic] {
        let refused = republish(&mut driver, to);
        assert!(matches!(refused, CommandOutcome::CannotRepublish(why) if why.contains("too many filters")));
    }
    assert_eq!(letters(&driver).len(), 1);
}

// 3.1.1 and 5.0, 4.3.3: after the PUBREL the client takes the message for another one.
#[test]
fn a_client_has_pubrel_for_a_parked_message_only_after_the_commit() {
    let mut driver = stored(1);
    let link = subscriber(&mut driver, "receiver");
    let publisher = client::client(&mut driver, "publisher", 10);
    publish(&mut driver, publisher, "t", QoS::ExactlyOnce, 1);
    let mut ids = Vec::new();
    take_packets(&mut driver, link, V5, |packet| {
        if let Packet::Publish(Publish { packet_id, .. }) = packet {
            ids.extend(packet_id);
        }
    });
    driver.delays_commits = true;
    assert_eq!(park_first(&mut driver, "receiver", UnfinishedPart::InFlight), CommandOutcome::Done);
    client::send(&mut driver, link, &Packet::Pubrec(Acknowledgement::success(ids[0])));
    assert_eq!(releases(&mut driver, link), 0);
    driver.commit();
    driver.settle();
    assert_eq!(releases(&mut driver, link), 1);
}

/// Returns the number of PUBREL packets that came since the last call.
fn releases(driver: &mut MemoryDriver, link: LinkId) -> usize {
    let mut count = 0;
    take_packets(driver, link, V5, |packet| count += usize::from(matches!(packet, Packet::Pubrel(_))));
    count
}

#[test]
fn a_message_is_not_parked_if_it_is_not_known_at_once_who_gets_its_letter() {
    const LEVELS: u32 = 6;
    let mut settings = driver::settings();
    (settings.letters, settings.steps_per_turn) = (LetterLimits { letters: 0, bytes: 0 }, 20);
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let level = |bits: u32, at: u32| if bits >> at & 1 == 1 { "+" } else { "a" };
    let topic = |bits: u32| (0..LEVELS).map(|at| level(bits, at)).collect::<Vec<_>>().join("/");
    let link = subscribed(&mut driver, "receiver", &topic(0), QoS::AtLeastOnce);
    driver.close(link);
    let reader = client::client(&mut driver, "reader", 10);
    let filters: Vec<String> = (1..1 << LEVELS).map(|bits| format!("$dead/+/{}/#", topic(bits))).collect();
    subscribe(&mut driver, reader, &filters.iter().map(String::as_str).collect::<Vec<_>>(), QoS::AtLeastOnce);
    let publisher = client::client(&mut driver, "publisher", 10);
    publish(&mut driver, publisher, &topic(0), QoS::AtLeastOnce, 1);
    let refused = park(&mut driver, "receiver");
    assert!(matches!(refused, CommandOutcome::CannotPark(why) if why.contains("too many")), "{refused:?}");
    settings.letters = LIMITS;
    driver.shards[0].replace_settings(settings);
    assert_eq!(park(&mut driver, "receiver"), CommandOutcome::Done);
    assert_eq!(letters(&driver).len(), 1);
}

#[test]
fn a_message_is_not_parked_if_no_subscriber_can_take_a_letter_that_is_not_stored() {
    for (qos, most) in [(QoS::AtMostOnce, 0), (QoS::AtLeastOnce, 1)] {
        let mut settings = driver::settings();
        settings.letters = LetterLimits { letters: 0, bytes: 0 };
        settings.session.send.queue.messages = 1;
        let mut driver = MemoryDriver::new(&settings, 1);
        driver.keep_in_store();
        let link = subscriber(&mut driver, "receiver");
        driver.close(link);
        let reader = subscribed(&mut driver, "reader", "$dead/#", qos);
        driver.close(reader);
        let publisher = client::client(&mut driver, "publisher", 10);
        for _ in 0..most {
            publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
            assert_eq!(park(&mut driver, "receiver"), CommandOutcome::Done);
        }
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        let refused = park(&mut driver, "receiver");
        let is_refused =
            matches!(refused, CommandOutcome::CannotPark(why) if why.contains("can take it now"));
        assert!(is_refused, "{qos:?} {refused:?}");
        let link = come_back(&mut driver, None);
        assert_eq!(take(&mut driver, link, true).len(), 1, "the message stays");
    }
}

#[test]
fn a_message_is_parked_and_its_letter_arrives_or_it_stays_whatever_bytes_a_queue_takes() {
    let mut outcomes = Vec::new();
    for bytes in (100..1_400).step_by(12) {
        let mut settings = driver::settings();
        settings.letters = LetterLimits { letters: 0, bytes: 0 };
        settings.session.send.queue.bytes = bytes;
        let mut driver = MemoryDriver::new(&settings, 1);
        driver.keep_in_store();
        let [link, reader] = [("receiver", "t"), ("reader", "$dead/#")]
            .map(|(name, filter)| subscribed(&mut driver, name, filter, QoS::AtLeastOnce));
        driver.close(link);
        driver.close(reader);
        let publisher = client::client(&mut driver, "publisher", 10);
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        let outcome = park(&mut driver, "receiver");
        let taken = ["receiver", "reader"].map(|name| {
            let properties = ConnectProperties { session_expiry: Some(3600), ..Default::default() };
            let link = enter(&mut driver, Connect { clean_start: false, properties, ..connect(name) });
            take(&mut driver, link, true).len()
        });
        let is_parked = usize::from(outcome == CommandOutcome::Done);
        assert_eq!(taken, [1 - is_parked, is_parked], "{outcome:?} with {bytes} bytes");
        outcomes.push(is_parked);
    }
    assert_eq!((outcomes.first(), outcomes.last()), (Some(&0), Some(&1)));
}

#[test]
fn a_message_is_parked_and_a_letter_or_stays_in_its_queue_however_little_room_there_is() {
    let mut outcomes = Vec::new();
    // The topic of the letter is much longer than that of the message.
    let name = "receiver".repeat(40);
    for room in (0..2_000).step_by(10) {
        let mut driver = stored(1);
        let link = subscriber(&mut driver, &name);
        driver.close(link);
        let publisher = client::client(&mut driver, "publisher", 10);
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        driver.shared.store_room.store(room, Ordering::Relaxed);
        let outcome = park(&mut driver, &name);
        let is_letter = letters(&driver).len() == 1;
        assert_eq!(is_letter, outcome == CommandOutcome::Done, "{outcome:?} with {room} bytes");
        let properties = ConnectProperties { session_expiry: Some(3600), ..Default::default() };
        let link = enter(&mut driver, Connect { clean_start: false, properties, ..connect(&name) });
        assert_eq!(take(&mut driver, link, true).is_empty(), is_letter, "{outcome:?} with {room} bytes");
        outcomes.push(outcome);
    }
    assert_eq!((outcomes[0], outcomes[199]), (CommandOutcome::NoRoom, CommandOutcome::Done));
}

#[test]
fn a_letter_stays_if_the_queues_of_all_subscribers_of_the_topic_are_full() {
    let refused = DropReason::QueueRefused;
    for causes in [&[][..], &[refused]] {
        let mut settings = driver::settings();
        settings.letters = LIMITS;
        settings.session.send.queue.messages = 1;
        settings.session.send.redelivery.dead_letters = causes.iter().copied().collect();
        let (mut driver, publisher) = with_letter_of(&settings, b"x");
        publish_payload(&mut driver, publisher, b"y", None);
        let outcome = republish(&mut driver, RepublishTo::Topic);
        assert!(
            matches!(outcome, CommandOutcome::CannotRepublish(why) if why.contains("full queue")),
            "{outcome:?}"
        );
        let letters = letters(&driver);
        assert_eq!((letters.len(), &*letters[0].cause), (1, "parked"));
        let link = come_back(&mut driver, None);
        assert_eq!(take(&mut driver, link, true).len(), 1);
        assert_eq!(republish(&mut driver, RepublishTo::Topic), CommandOutcome::Done);
        assert_eq!(take(&mut driver, link, true).len(), 1);
        driver.shards[0].recount().expect("every charge is right");
    }
}

#[test]
fn a_message_that_expires_for_a_refused_republication_becomes_a_letter() {
    let mut settings = driver::settings();
    settings.letters = LIMITS;
    settings.session.send.queue.bytes = 1_500;
    settings.session.send.redelivery.dead_letters = [DropReason::Expired].into_iter().collect();
    let (mut driver, publisher) = with_letter_of(&settings, &[b'x'; 1_000]);
    publish_payload(&mut driver, publisher, b"e", Some(1));
    publish_payload(&mut driver, publisher, &[b'y'; 1_000], None);
    driver.advance(Duration::from_secs(2));
    assert_eq!(letters(&driver).len(), 1, "the queue still has the expired message");
    let outcome = republish(&mut driver, RepublishTo::Topic);
    assert!(matches!(outcome, CommandOutcome::CannotRepublish(_)), "{outcome:?}");
    let mut causes: Vec<_> = letters(&driver).iter().map(|letter| letter.cause.to_string()).collect();
    causes.sort();
    assert_eq!(causes, ["expired", "parked"]);
    driver.shards[0].recount().expect("every charge is right");
}

#[test]
fn each_retained_message_that_expires_in_a_long_queue_becomes_a_letter() {
    // More than stay in memory for a connected client.
    const MESSAGES: usize = 400;
    let mut settings = driver::settings();
    settings.letters = LetterLimits { letters: MESSAGES, ..LIMITS };
    settings.session.send.redelivery.dead_letters = [DropReason::Expired].into_iter().collect();
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let limits = RetainedLimits { messages: MESSAGES, bytes: 1 << 20 };
    *driver.shared.retained.lock().expect("no panic") = Retained::new(limits);
    let publisher = client::client(&mut driver, "publisher", 10);
    for n in 0..MESSAGES {
        let properties = PublishProperties { message_expiry: Some(5), ..Default::default() };
        let topic = format!("r/{n}");
        let (qos, packet_id) = (QoS::AtLeastOnce, PacketId::new(1));
        let publish =
            Publish { qos, packet_id, retain: true, properties, ..client::publication(&topic, b"x") };
        client::send(&mut driver, publisher, &Packet::Publish(publish));
    }
    let properties =
        ConnectProperties { session_expiry: Some(3600), receive_maximum: Some(1), ..Default::default() };
    let link = enter(&mut driver, Connect { properties, ..connect("receiver") });
    subscribe(&mut driver, link, &["r/#"], QoS::ExactlyOnce);
    driver.advance(Duration::from_secs(6));
    driver.close(link);
    come_back(&mut driver, None);
    driver.settle();
    assert_eq!(driver.shared.totals.letters.get(), MESSAGES - 1, "the first one was sent");
}

#[test]
fn the_newest_letters_stay_after_the_wall_clock_was_set_back() {
    let mut driver = MemoryDriver::new(
        &ShardSettings { letters: LetterLimits { letters: 2, ..LIMITS }, ..driver::settings() },
        1,
    );
    driver.keep_in_store();
    let link = subscriber(&mut driver, "receiver");
    driver.close(link);
    let publisher = client::client(&mut driver, "publisher", 10);
    for (payload, unix_ms) in [(b"1", 900_000), (b"2", 900_000), (b"3", 500_000), (b"4", 500_000)] {
        driver.shards[0].input(driver.now, Input::WallClock(unix_ms));
        publish_payload(&mut driver, publisher, payload, None);
        assert_eq!(park(&mut driver, "receiver"), CommandOutcome::Done);
    }
    let letters = letters(&driver);
    let payloads: Vec<&[u8]> = letters.iter().map(|letter| letter.message.payload()).collect();
    assert_eq!(payloads, [b"4", b"3"], "the newest first");
}
