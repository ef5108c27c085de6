//! What every store does, whatever it keeps things in.

use super::logged::{LoggedStore, StoreOptions};
use super::memory_store::{Image, Memory};
use super::sqlite::directory::database_in;
use super::{Boot, Moment, Store, ViewedEntry};
use crate::config::DurabilityLevel;
use crate::mqtt::charge::Charge;
use crate::mqtt::message::{LARGE_PAYLOAD, Message, Parts};
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::{RetainedMessage, RetainedSource};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::mqtt::will::Will;
use crate::operators::wanted::Wanted;
use crate::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use crate::persistence::records::{
    BodyCopy, BodyNumber, DelayedNumber, EntryNumber, Flight, Record, Recovered, RetainedRecord, SessionKey,
    StoredAccess, StoredDelayed, StoredEntry, StoredSession, StoredSubscription,
};
use crate::store::coalesce::CommitGroup;
use crate::time::Instant;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One that is closed and opened again, as by a process that ends without a word.
pub(super) trait Reopen {
    fn open(&mut self) -> Box<dyn Store>;
}

/// A directory of its own, deleted with the test.
pub(super) struct InFile {
    pub directory: tempfile::TempDir,
    pub options: StoreOptions,
}

impl Default for InFile {
    fn default() -> InFile {
        let options = StoreOptions { durability: DurabilityLevel::Commit, size_limit: None };
        InFile { directory: tempfile::tempdir().unwrap(), options }
    }
}

impl Reopen for InFile {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(LoggedStore::open(self.directory.path(), self.options).unwrap())
    }
}

#[derive(Default)]
struct InMemory {
    last: Option<Memory>,
}

impl Reopen for InMemory {
    fn open(&mut self) -> Box<dyn Store> {
        let image = self.last.as_ref().map_or_else(Image::default, Memory::image);
        let memory = Memory::from_image(image);
        self.last = Some(memory.clone());
        Box::new(memory)
    }
}

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Instant = Instant::from_millis;

fn moment(monotonic: u64, unix_millis: u64) -> Moment {
    Moment { monotonic: MS(monotonic), unix_millis, boot: None }
}

fn first() -> Moment {
    moment(1_000, 1_700_000_000_000)
}

/// Two seconds of wall clock later, in a process that has just begun.
fn second() -> Moment {
    moment(10, 1_700_000_002_000)
}

pub(crate) fn message(topic: &str, expires: Instant, payload: &[u8]) -> Message {
    let parts =
        Parts { qos: QoS::ExactlyOnce, retain: true, expires, topic, forwarded: b"\x01\x01", payload };
    Message::new(parts, &mut Vec::new())
}

pub(crate) fn session(key: u64, client_id: &str) -> StoredSession {
    StoredSession {
        key: SessionKey(key),
        client_id: client_id.into(),
        version: ProtocolVersion::V5,
        expiry: 3600,
        connected: true,
        ends: Instant::NEVER,
        will: None,
        will_due: Instant::NEVER,
        retry_interval: None,
        ack_timeout: None,
        user_name: None,
        access: StoredAccess::default(),
    }
}

pub(crate) fn entry(number: u64, session: u64, body: u64) -> StoredEntry {
    StoredEntry {
        number: EntryNumber(number),
        session: SessionKey(session),
        body: BodyNumber(body),
        qos: QoS::AtLeastOnce,
        retain: false,
        ids: SubscriptionIds::None,
        share: None,
        flight: None,
    }
}

pub(crate) fn body(number: u64, message: Message) -> Record {
    Record::Body { number: BodyNumber(number), message }
}

pub(super) fn letter(number: u64) -> StoredLetter {
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: true,
        expires: MS(1_500),
        topic: "pumps/7",
        forwarded: b"\x01\x01",
        payload: b"on",
    };
    StoredLetter {
        place: LetterPlace { dropped_ms: 1_700_000_000_000 + number, number: LetterNumber(number) },
        receiver: "pump".into(),
        cause: "expired".into(),
        code: None,
        attempts: 0,
        sent_ms: None,
        message: Message::published_by(Some(PublisherName::new("app")), parts, &mut Vec::new()),
    }
}

fn incoming(session: u64, id: u16) -> Record {
    Record::Incoming { session: SessionKey(session), packet_id: PacketId::new(id).unwrap() }
}

pub(super) fn commit(store: &mut dyn Store, records: Vec<Record>) {
    let mut group = CommitGroup::default();
    records.into_iter().for_each(|record| group.fold(record));
    group.seal();
    store.commit(&mut group).unwrap();
}

/// Returns all rows of the database in a data directory, but those of its own figures.
pub(crate) fn rows(data: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(database_in(data)).unwrap();
    let mut found = Vec::new();
    for table in ["session", "subscription", "incoming", "body", "entry", "retained", "delayed", "letter"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<_> = (0..columns).map(|at| row.get_ref(at).unwrap()).collect();
            found.push(format!("{table}: {values:?}"));
        }
    }
    found
}

fn recover(store: &mut dyn Store, at: Moment) -> Recovered {
    store.recover(at, S(60)).unwrap()
}

/// The store after it was told these, committed one after the other, and opened anew.
fn reopened(kind: &mut dyn Reopen, groups: Vec<Vec<Record>>) -> (Box<dyn Store>, Recovered) {
    let mut store = kind.open();
    recover(&mut *store, first());
    groups.into_iter().for_each(|records| commit(&mut *store, records));
    // Each commit of a store on a disk is a heartbeat by the clocks of the machine.
    store.heartbeat(first()).unwrap();
    drop(store);
    let mut store = kind.open();
    let recovered = recover(&mut *store, second());
    (store, recovered)
}

fn a_session_comes_back_as_it_was(kind: &mut dyn Reopen) {
    let will = Will {
        topic: "w".into(),
        qos: QoS::AtLeastOnce,
        retain: true,
        payload: b"gone".as_slice().into(),
        forwarded: b"\x01\x00".as_slice().into(),
        delay: S(5),
        message_expiry: Some(7),
        charge: Charge::NONE,
    };
    let kept = StoredSession {
        version: ProtocolVersion::V3_1_1,
        connected: false,
        ends: MS(11_000),
        will: Some(will.shared()),
        will_due: MS(6_000),
        retry_interval: Some(Duration::ZERO),
        ack_timeout: Some(Duration::from_millis(1500)),
        user_name: Some("ann".into()),
        access: StoredAccess {
            claimed_name: Some("bob".into()),
            rules: Some("allow read a\n".into()),
            listener: Some("devices".into()),
            mount_point: Some("tenant/".into()),
        },
        ..session(4, "a client")
    };
    let subscription = |filter: &str, options, subscription_id| StoredSubscription {
        session: SessionKey(4),
        filter: filter.into(),
        options,
        subscription_id,
    };
    let subscriptions = [subscription("$share/g/a/#", 1, 0), subscription("b", 0b10_1110, 268_435_455)];
    let mut records = vec![Record::Session(Box::new(session(4, "a client")))];
    records.extend(subscriptions.iter().cloned().map(|s| Record::Subscribed(Box::new(s))));
    records.extend([incoming(4, 65_535), incoming(4, 2)]);
    let unsubscribed = Record::Unsubscribed { session: SessionKey(4), filter: "c".into() };
    let done = Record::IncomingDone { session: SessionKey(4), packet_id: PacketId::new(2).unwrap() };
    let changes = vec![
        Record::Session(Box::new(kept.clone())),
        unsubscribed,
        done,
        Record::Session(Box::new(session(5, ""))),
    ];
    let (_, mut recovered) = reopened(kind, vec![records, changes]);
    assert_eq!(recovered.sessions.len(), 2);
    assert!(recovered.next_number >= 6);
    recovered.sessions.sort_by_key(|s| s.session.key);
    let back = recovered.sessions.remove(0);
    let expected = StoredSession { ends: MS(8_010), will_due: MS(3_010), ..kept };
    assert_eq!(back.session, expected, "times are on the clock of the process that reads them");
    let mut filters = back.subscriptions;
    filters.sort_by(|a, b| a.filter.cmp(&b.filter));
    assert_eq!(filters, subscriptions);
    assert_eq!(back.incoming, [PacketId::new(65_535).unwrap()]);
    assert!(back.entries.is_empty());
}

fn entries_come_back_in_order_with_what_became_of_them(kind: &mut dyn Reopen) {
    let flight = |running| Flight { running, transmissions: 3 };
    let shared = StoredEntry {
        qos: QoS::ExactlyOnce,
        retain: true,
        ids: SubscriptionIds::from_several(&[7, 1]),
        share: Some(Arc::new("$share/g/t".into())),
        ..entry(12, 1, 3)
    };
    let expires = MS(31_000);
    let large = vec![b'x'; LARGE_PAYLOAD];
    let (_, recovered) = reopened(kind, vec![]);
    assert_eq!((recovered.sessions.len(), recovered.retained.len(), recovered.next_number), (0, 0, 1));
    let (store, recovered) = reopened(
        kind,
        vec![
            vec![
                Record::Session(Box::new(session(1, "c"))),
                body(2, message("t/1", expires, b"one")),
                body(3, message("t/2", Instant::NEVER, &large)),
                Record::Entry(Box::new(entry(11, 1, 2))),
                Record::Entry(Box::new(shared)),
                Record::Entry(Box::new(entry(10, 1, 2))),
                Record::Entry(Box::new(entry(13, 1, 3))),
            ],
            vec![
                Record::Sent { number: EntryNumber(10), flight: flight(5) },
                Record::Sent { number: EntryNumber(12), flight: flight(6) },
                Record::Received(EntryNumber(10)),
                Record::EntryDone(EntryNumber(13)),
            ],
        ],
    );
    let entries = &recovered.sessions[0].entries;
    assert_eq!(entries.iter().map(|e| e.number.0).collect::<Vec<_>>(), [10, 11, 12]);
    assert_eq!((entries[0].body, entries[0].flight), (None, Some(flight(5))));
    let one = entries[1].body.unwrap();
    assert_eq!((one.number, one.expires, entries[1].flight), (BodyNumber(2), MS(28_010), None));
    assert_eq!(one.size as usize, message("t/1", expires, b"one").size());
    assert_eq!((entries[2].flight, entries[2].qos), (Some(flight(6)), QoS::ExactlyOnce));
    assert!(entries[2].body.unwrap().expires.is_never());

    let wanted = [
        (EntryNumber(12), BodyNumber(3)),
        (EntryNumber(99), BodyNumber(2)),
        (EntryNumber(11), BodyNumber(2)),
    ];
    let read = store.reader().unwrap().entries(&wanted).unwrap();
    assert_eq!(read.iter().map(|e| e.number.0).collect::<Vec<_>>(), [12, 11], "one is gone");
    assert_eq!(read[0].ids.as_slice(), [7, 1]);
    assert_eq!(read[0].share.as_ref().map(|s| &***s), Some("$share/g/t"));
    assert!(read[0].retain && !read[1].retain);
    let m = &read[0].message;
    assert_eq!((m.topic(), m.forwarded(), m.payload()), ("t/2", &b"\x01\x01"[..], &large[..]));
    assert_eq!((m.header().qos, m.header().retain), (QoS::ExactlyOnce, true));
    assert_eq!(read[1].message.header().expires, MS(28_010));

    let mut viewed = Vec::new();
    let mut each = |of: ViewedEntry<'_>| {
        viewed.push((of.number.0, of.topic.to_owned(), of.payload, (of.qos, of.retain), of.expires));
    };
    store.reader().unwrap().view(&wanted, MS(10), &Wanted::default(), &mut each).unwrap();
    let expected = [
        (12, "t/2".to_owned(), large.len(), (QoS::ExactlyOnce, true), Instant::NEVER),
        (11, "t/1".to_owned(), 3, (QoS::AtLeastOnce, false), MS(28_010)),
    ];
    assert_eq!(viewed, expected, "one is gone");
}

fn an_ended_session_leaves_nothing(kind: &mut dyn Reopen) {
    let subscription =
        StoredSubscription { session: SessionKey(1), filter: "a".into(), options: 1, subscription_id: 0 };
    let begun = vec![
        Record::Session(Box::new(session(1, "c"))),
        Record::Subscribed(Box::new(subscription.clone())),
        incoming(1, 1),
    ];
    let (mut store, recovered) = reopened(kind, vec![begun, vec![Record::SessionEnded(SessionKey(1))]]);
    assert!(recovered.sessions.is_empty());
    assert!(recovered.next_number >= 2, "its number is not given again");
    commit(&mut *store, vec![Record::Session(Box::new(session(2, "c")))]);
    drop(store);
    let recovered = recover(&mut *kind.open(), second());
    let only = &recovered.sessions[0];
    assert!(only.subscriptions.is_empty() && only.incoming.is_empty());
}

fn what_refers_to_nothing_is_mended(kind: &mut dyn Reopen) {
    let flight = Some(Flight { running: 1, transmissions: 1 });
    let qos = QoS::ExactlyOnce;
    let sent_by_nobody = Record::Entry(Box::new(StoredEntry { flight, qos, ..entry(12, 9, 2) }));
    let records = vec![
        Record::Session(Box::new(session(1, "c"))),
        incoming(8, 1),
        body(2, message("t", Instant::NEVER, b"")),
        body(3, message("t", Instant::NEVER, b"nobody's")),
        Record::Entry(Box::new(entry(10, 1, 2))),
        Record::Entry(Box::new(entry(11, 1, 99))),
        sent_by_nobody,
    ];
    let (store, recovered) = reopened(kind, vec![records]);
    let entries = &recovered.sessions[0].entries;
    assert_eq!(entries.iter().map(|e| e.number.0).collect::<Vec<_>>(), [10]);
    let wanted = [(EntryNumber(10), BodyNumber(2)), (EntryNumber(12), BodyNumber(2))];
    assert_eq!(store.reader().unwrap().entries(&wanted).unwrap().len(), 1);
}

fn what_a_session_left_is_heirless_but_for_qos_2_that_was_sent(kind: &mut dyn Reopen) {
    let shared = |number: u64, qos, flight| {
        let share = Some(Arc::new(Box::from("$share/g/t")));
        Record::Entry(Box::new(StoredEntry { share, qos, flight, ..entry(number, 9, 2) }))
    };
    let flight = Some(Flight { running: 1, transmissions: 1 });
    let records = vec![
        body(2, message("t", Instant::NEVER, b"x")),
        Record::Entry(Box::new(entry(10, 9, 2))),
        shared(11, QoS::AtLeastOnce, None),
        shared(12, QoS::ExactlyOnce, None),
        shared(13, QoS::AtLeastOnce, flight),
        // 5.0 [MQTT-4.8.2-5]
        shared(14, QoS::ExactlyOnce, flight),
    ];
    let (store, recovered) = reopened(kind, vec![records]);
    let orphaned: Vec<_> = recovered.orphaned.iter().map(|e| (e.number.0, e.shared)).collect();
    assert_eq!(orphaned, [(10, false), (11, true), (12, true), (13, true)]);
    let wanted = [10, 11, 13, 14].map(|number| (EntryNumber(number), BodyNumber(2)));
    let read = store.reader().unwrap().entries(&wanted).unwrap();
    assert_eq!(read.iter().map(|r| r.number.0).collect::<Vec<_>>(), [10, 11, 13], "the other is gone");
}

fn the_last_retained_message_of_a_topic_comes_back(kind: &mut dyn Reopen) {
    let mut store = kind.open();
    recover(&mut *store, first());
    let mut group = CommitGroup::default();
    let set = |topic, payload| RetainedRecord::Set(message(topic, MS(21_000), payload).into());
    for record in [set("a", b"1"), set("b", b"2")] {
        group.retain(record);
    }
    store.commit(&mut group).unwrap();
    group.clear();
    for record in [set("a", b"3"), RetainedRecord::Removed("b".into()), RetainedRecord::Removed("c".into())] {
        group.retain(record);
    }
    store.commit(&mut group).unwrap();
    store.heartbeat(first()).unwrap();
    drop(store);
    let recovered = recover(&mut *kind.open(), second());
    let [only] = &recovered.retained[..] else { panic!("{:?}", recovered.retained) };
    let only = &only.message;
    assert_eq!((only.topic(), only.payload(), only.header().expires), ("a", &b"3"[..], MS(18_010)));
}

fn the_source_of_a_retained_message_comes_back(kind: &mut dyn Reopen) {
    let mut store = kind.open();
    recover(&mut *store, first());
    let named = RetainedSource::new("pump-7", Some("pumps"), Some("field"));
    let anonymous = RetainedSource::new("c", None, None);
    let sources = [("a", Some(named)), ("b", Some(anonymous)), ("c", None)];
    let mut group = CommitGroup::default();
    for (topic, source) in &sources {
        let message = message(topic, Instant::NEVER, b"1");
        let (source, owner) = (source.clone().map(Arc::new), Some(Owner::new("farmer", "devices")));
        group.retain(RetainedRecord::Set(RetainedMessage { message, source, owner }));
    }
    store.commit(&mut group).unwrap();
    drop(store);
    let recovered = recover(&mut *kind.open(), second());
    let mut found: Vec<_> =
        recovered.retained.iter().map(|r| (r.message.topic(), r.source.as_deref().cloned())).collect();
    found.sort_by_key(|(topic, _)| *topic);
    assert_eq!(found, sources);
}

fn delayed_messages_come_back_in_the_order_they_are_due(kind: &mut dyn Reopen) {
    let delayed = |number: u64, due| {
        let message = message(&format!("t/{number}"), Instant::NEVER, b"");
        let due = MS(due);
        Record::Delayed(Box::new(StoredDelayed { number: DelayedNumber(number), due, message, owner: None }))
    };
    // The second process is 2 s later, at 10 ms: what was due at 3,000 is due at its start.
    let records = vec![
        delayed(1, 50_000),
        delayed(2, 20_000),
        delayed(3, 1_500),
        delayed(4, 70_000),
        delayed(5, 70_000),
    ];
    let (store, recovered) =
        reopened(kind, vec![records, vec![delayed(6, 900_000), Record::DelayedDone(DelayedNumber(2))]]);
    let found = |delayed: &[StoredDelayed]| delayed.iter().map(|d| (d.number.0, d.due)).collect::<Vec<_>>();
    assert_eq!(found(&recovered.delayed), [(3, MS(0)), (1, MS(47_010))]);
    let mut reader = store.reader().unwrap();
    let far = reader.delayed((MS(60_010), DelayedNumber(0)), MS(100_000), 10).unwrap();
    assert_eq!(found(&far), [(4, MS(67_010)), (5, MS(67_010))]);
    let next = reader.delayed((MS(67_010), DelayedNumber(5)), Instant::NEVER, 1).unwrap();
    assert_eq!(found(&next), [(5, MS(67_010))], "from this one on");
}

fn a_delayed_message_counts_the_same_bytes_before_and_after_a_restart(kind: &mut dyn Reopen) {
    let payloads = [0, 1, LARGE_PAYLOAD - 1, LARGE_PAYLOAD].map(|len| vec![b'x'; len]);
    let messages = payloads.map(|payload| message("größe/t", Instant::NEVER, &payload));
    let sizes = messages.each_ref().map(Message::size);
    let records = (1..).zip(messages).map(|(number, message)| {
        let (number, owner) = (DelayedNumber(number), Some(Owner::new(&number.to_string(), "devices")));
        Record::Delayed(Box::new(StoredDelayed { number, due: MS(50_000), message, owner }))
    });
    let (_, recovered) = reopened(kind, vec![records.collect()]);
    assert_eq!(recovered.delayed_in_all.iter().map(|counted| counted.size).collect::<Vec<_>>(), sizes);
    assert_eq!(recovered.delayed.iter().map(|delayed| delayed.message.size()).collect::<Vec<_>>(), sizes);
    let names = |owner: &Option<Arc<Owner>>| {
        owner.as_ref().map(|owner| (owner.client_id().to_owned(), owner.listener().to_owned()))
    };
    let owners = (1..=4).map(|number| Some((number.to_string(), "devices".to_owned())));
    assert_eq!(
        recovered.delayed.iter().map(|d| names(&d.owner)).collect::<Vec<_>>(),
        owners.clone().collect::<Vec<_>>()
    );
    assert!(recovered.delayed_in_all.iter().map(|counted| names(&counted.owner)).eq(owners));
}

fn dead_letters_come_back_without_an_expiry_time_and_only_until_they_are_done(kind: &mut dyn Reopen) {
    let sent = StoredLetter {
        code: Some(ReasonCode::QUOTA_EXCEEDED),
        attempts: 2,
        sent_ms: Some((5, 6)),
        ..letter(9)
    };
    let first = vec![Record::Letter(Arc::new(letter(7))), Record::Letter(Arc::new(letter(8)))];
    let then = vec![Record::Letter(Arc::new(sent)), Record::LetterDone(LetterNumber(8))];
    let (_, recovered) = reopened(kind, vec![first, then]);
    let [plain, sent] = &recovered.letters[..] else { panic!("{:?}", recovered.letters) };
    assert_eq!((plain.place, &*plain.receiver, &*plain.cause), (letter(7).place, "pump", "expired"));
    assert_eq!((plain.code, plain.attempts, plain.sent_ms), (None, 0, None));
    assert_eq!((sent.code, sent.attempts, sent.sent_ms), (Some(ReasonCode::QUOTA_EXCEEDED), 2, Some((5, 6))));
    let message = &plain.message;
    assert_eq!((message.topic(), message.payload(), message.publisher()), ("pumps/7", &b"on"[..], "app"));
    assert_eq!((message.forwarded(), message.header().qos), (&b"\x01\x01"[..], QoS::AtLeastOnce));
    assert!(message.header().expires.is_never() && !message.header().retain);
    assert!(recovered.next_number > 9, "{}", recovered.next_number);
}

fn time_while_it_was_down_counts_from_the_last_heartbeat(kind: &mut dyn Reopen) {
    let mut store = kind.open();
    assert_eq!(recover(&mut *store, first()).down, Duration::ZERO, "it never ran");
    store.heartbeat(moment(1_500, 1_700_000_000_500)).unwrap();
    drop(store);
    assert_eq!(recover(&mut *kind.open(), second()).down, Duration::from_millis(1_500));
    // A wall clock that went backwards: no time has passed, and what is kept is not further away
    // than it was.
    let mut store = kind.open();
    let before = moment(10, 1_600_000_000_000);
    assert_eq!(recover(&mut *store, before).down, Duration::ZERO);
    commit(
        &mut *store,
        vec![
            Record::Session(Box::new(session(1, "c"))),
            body(2, message("t", MS(1_010), b"")),
            Record::Entry(Box::new(entry(3, 1, 2))),
        ],
    );
    store.heartbeat(before).unwrap();
    drop(store);
    let recovered = recover(&mut *kind.open(), before);
    assert_eq!(recovered.sessions[0].entries[0].body.unwrap().expires, MS(1_010));
}

const DAY: u64 = 24 * 60 * 60 * 1_000;
const TODAY: u64 = 1_778_000_000_000;
const IN_2099: u64 = 4_080_000_000_000;

/// A broker opens the store, is told what expires, ends or is due an hour later, beats ten minutes
/// later, and ends. Another opens it a minute after that. `walls`: what the wall clock says at each
/// of the three.
fn an_hour_kept(kind: &mut dyn Reopen, walls: [u64; 3], boots: [u64; 2]) -> [Duration; 5] {
    let boot = |id, millis| (id > 0).then_some(Boot { id, millis });
    let at = |monotonic: u64, unix_millis, boot| Moment { monotonic: MS(monotonic), unix_millis, boot };
    const MINUTE: u64 = 60_000;
    let mut store = kind.open();
    recover(&mut *store, at(0, walls[0], boot(boots[0], 5 * MINUTE)));
    let hour = MS(60 * MINUTE);
    let away = StoredSession { connected: false, ends: hour, will_due: hour, ..session(1, "away") };
    let later = StoredDelayed {
        number: DelayedNumber(5),
        due: hour,
        message: message("d", Instant::NEVER, b""),
        owner: None,
    };
    let records = vec![
        Record::Session(Box::new(away)),
        body(2, message("t", hour, b"")),
        Record::Entry(Box::new(entry(3, 1, 2))),
        Record::Delayed(Box::new(later)),
    ];
    commit(&mut *store, records);
    store.heartbeat(at(10 * MINUTE, walls[1], boot(boots[0], 15 * MINUTE))).unwrap();
    drop(store);
    let now = at(7, walls[2], boot(boots[1], if boots[0] == boots[1] { 16 * MINUTE } else { MINUTE }));
    let mut store = kind.open();
    let recovered = store.recover(now, S(3600)).unwrap();
    let left = |at: Instant| at.since(now.monotonic);
    let only = &recovered.sessions[0];
    // For the next.
    let done = vec![
        Record::SessionEnded(SessionKey(1)),
        Record::EntryDone(EntryNumber(3)),
        Record::BodyDone(BodyNumber(2)),
        Record::DelayedDone(DelayedNumber(5)),
    ];
    commit(&mut *store, done);
    [
        recovered.down,
        left(only.session.ends),
        left(only.session.will_due),
        left(only.entries[0].body.unwrap().expires),
        left(recovered.delayed[0].due),
    ]
}

const MINUTES: fn(u64) -> Duration = |minutes| S(60 * minutes);

fn within_a_boot_what_is_promised_keeps_its_time_whatever_the_wall_clock_says(kind: &mut dyn Reopen) {
    for walls in [
        [TODAY, TODAY, TODAY],
        // A machine without a clock of its own, which the network set ten days forward while the
        // broker ran.
        [TODAY - 10 * DAY, TODAY, TODAY],
        [0, TODAY, TODAY],
        [TODAY, IN_2099, TODAY],
        [IN_2099, TODAY, IN_2099],
        [TODAY, TODAY, TODAY + 10 * DAY],
        [TODAY, TODAY, 0],
    ] {
        let kept = an_hour_kept(kind, walls, [1, 1]);
        assert_eq!(kept, [MINUTES(1), MINUTES(49), MINUTES(49), MINUTES(49), MINUTES(49)], "{walls:?}");
    }
}

fn across_boots_a_clock_that_was_set_while_the_broker_ran_leaves_no_trace(kind: &mut dyn Reopen) {
    for before in [0, TODAY - 10 * DAY, TODAY + 10 * DAY, IN_2099] {
        for boots in [[1, 2], [0, 0]] {
            let kept = an_hour_kept(kind, [before, TODAY, TODAY + 60_000], boots);
            assert_eq!(kept, [MINUTES(1), MINUTES(49), MINUTES(49), MINUTES(49), MINUTES(49)], "{before}");
        }
    }
}

fn a_machine_that_starts_with_a_clock_that_is_wrong_ends_nothing_early(kind: &mut dyn Reopen) {
    for walls in [[TODAY, TODAY, 0], [0, 600_000, TODAY], [TODAY, TODAY, IN_2099], [IN_2099, IN_2099, TODAY]]
    {
        let kept = an_hour_kept(kind, walls, [1, 2]);
        assert_eq!(kept, [MINUTES(0), MINUTES(50), MINUTES(50), MINUTES(50), MINUTES(50)], "{walls:?}");
    }
}

fn the_identifier_of_a_dropped_message_is_withheld_until_its_entry_ends(kind: &mut dyn Reopen) {
    let number = EntryNumber(10);
    let records = vec![
        Record::Session(Box::new(session(1, "c"))),
        body(2, message("t", Instant::NEVER, b"x")),
        Record::Entry(Box::new(StoredEntry { qos: QoS::ExactlyOnce, ..entry(10, 1, 2) })),
        Record::Sent { number, flight: Flight { running: 70_000, transmissions: 2 } },
    ];
    let dropped = vec![
        Record::Sent { number, flight: Flight::withheld(70_000) },
        Record::Received(number),
        Record::BodyDone(BodyNumber(2)),
    ];
    let (mut store, recovered) = reopened(kind, vec![records, dropped]);
    let entries = &recovered.sessions[0].entries;
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].body, entries[0].flight), (None, Some(Flight::withheld(70_000))));
    assert!(recovered.orphaned.is_empty());
    // From its PUBREC on it is a PUBREL like any other.
    let received = Record::Sent { number, flight: Flight::dropped(70_000) };
    commit(&mut *store, vec![received, Record::Received(number)]);
    drop(store);
    let mut store = kind.open();
    let entries = recover(&mut *store, second()).sessions.remove(0).entries;
    let (body, flight) = (entries[0].body, entries[0].flight);
    assert_eq!((body, flight, entries[0].qos), (None, Some(Flight::dropped(70_000)), QoS::ExactlyOnce));
    assert!(!Flight::dropped(70_000).is_withheld());
    commit(&mut *store, vec![Record::EntryDone(number)]);
    drop(store);
    let mut store = kind.open();
    assert!(recover(&mut *store, second()).sessions[0].entries.is_empty());
}

fn an_entry_that_moves_gets_a_body_of_its_own(kind: &mut dyn Reopen) {
    let records = vec![
        Record::Session(Box::new(session(1, "c"))),
        Record::Session(Box::new(session(2, "d"))),
        body(3, message("t", Instant::NEVER, b"x")),
        Record::Entry(Box::new(entry(4, 1, 3))),
        Record::Entry(Box::new(entry(5, 2, 3))),
    ];
    let (mut store, _) = reopened(kind, vec![records]);
    let copy = BodyCopy { from: BodyNumber(3), to: BodyNumber(6), entries: vec![EntryNumber(5)] };
    store.copy_bodies(&[copy]).unwrap();
    commit(&mut *store, vec![Record::EntryDone(EntryNumber(4)), Record::BodyDone(BodyNumber(3))]);
    drop(store);
    let mut store = kind.open();
    let recovered = recover(&mut *store, second());
    assert!(recovered.next_number >= 7);
    let read = store.reader().unwrap().entries(&[(EntryNumber(5), BodyNumber(6))]).unwrap();
    assert_eq!(read[0].message.payload(), b"x");
}

/// One `#[test]` for each behaviour and kind of store.
macro_rules! stores {
    ($($name:ident),+ $(,)?) => {
        mod in_memory { $(#[test] fn $name() { super::$name(&mut super::InMemory::default()); })+ }
        mod in_file { $(#[test] fn $name() { super::$name(&mut super::InFile::default()); })+ }
    };
}

stores! {
    a_session_comes_back_as_it_was,
    entries_come_back_in_order_with_what_became_of_them,
    an_ended_session_leaves_nothing,
    what_refers_to_nothing_is_mended,
    what_a_session_left_is_heirless_but_for_qos_2_that_was_sent,
    the_last_retained_message_of_a_topic_comes_back,
    the_source_of_a_retained_message_comes_back,
    delayed_messages_come_back_in_the_order_they_are_due,
    a_delayed_message_counts_the_same_bytes_before_and_after_a_restart,
    dead_letters_come_back_without_an_expiry_time_and_only_until_they_are_done,
    time_while_it_was_down_counts_from_the_last_heartbeat,
    within_a_boot_what_is_promised_keeps_its_time_whatever_the_wall_clock_says,
    across_boots_a_clock_that_was_set_while_the_broker_ran_leaves_no_trace,
    a_machine_that_starts_with_a_clock_that_is_wrong_ends_nothing_early,
    the_identifier_of_a_dropped_message_is_withheld_until_its_entry_ends,
    an_entry_that_moves_gets_a_body_of_its_own,
}
