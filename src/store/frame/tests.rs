//! Frames: what comes back, what never changes, and what is no frame.

use super::*;
use crate::mqtt::charge::Charge;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::{RetainedMessage, RetainedSource};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::mqtt::will::Will;
use crate::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use crate::persistence::records::{
    BodyNumber, DelayedNumber, EntryNumber, Flight, Record, SessionKey, SessionState, StoredAccess,
    StoredDelayed, StoredEntry, StoredSession, StoredSubscription,
};
use crate::store::operation::Fold;
use crate::store::tests::{body, entry, letter, message, session};
use crate::store::wall::FAR;
use crate::time::Instant;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const LOG: u64 = 0x1234_5678_9ABC;

pub(super) fn head() -> Head {
    Head {
        cell: 0,
        epoch: 0,
        log: LOG,
        position: 7,
        moment: Heartbeat {
            file_millis: 1_700_000_000_000,
            unix_millis: 1_700_000_000_500,
            boot: Some(Boot { id: 3, millis: 9 }),
        },
        next_number: 1 << 20,
        synced: 6,
        predecessor: Digest::of(b"before"),
    }
}

pub(super) fn group() -> CommitGroup {
    let mut group = CommitGroup::default();
    group.fold(Record::Session(Box::new(session(4, "pump"))));
    group.fold(body(5, message("pumps/7", Instant::from_millis(99), b"on")));
    group.fold(Record::Entry(Box::new(entry(6, 4, 5))));
    group.fold(Record::Sent { number: EntryNumber(6), flight: Flight { running: 1, transmissions: 1 } });
    group.fold(Record::Received(EntryNumber(2)));
    group.fold(Record::Incoming { session: SessionKey(4), packet_id: PacketId::new(9).unwrap() });
    group.fold(Record::BodyDone(BodyNumber(1)));
    group.fold(Record::Letter(Arc::new(letter(8))));
    group.retain(RetainedRecord::Set(message("state", Instant::NEVER, b"x").into()));
    group.retain(RetainedRecord::Removed("old".into()));
    group.seal();
    group
}

fn bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, &head(), &group(), FileTime::default());
    bytes
}

fn decode(bytes: &[u8]) -> Result<Frame, FrameError> {
    read(check(bytes, LOG)?)
}

fn encode_all(head: &Head, operations: &[Operation], retained: &[RetainedRecord]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_with(&mut bytes, head, GROUP, |to| {
        operations::put_all(to, operations.iter(), retained.iter(), FileTime::default())
    });
    bytes
}

/// Encodes what was decoded, which has file times already.
fn again(frame: &Frame) -> Vec<u8> {
    encode_all(&frame.head, &frame.operations, &frame.retained)
}

#[test]
fn a_frame_comes_back_with_its_fields_and_operations() {
    let bytes = bytes();
    let frame = decode(&bytes).unwrap();
    assert_eq!(frame.head, head());
    assert_eq!((frame.operations.len(), frame.retained.len(), frame.copies.len()), (7, 2, 0));
    assert_eq!(again(&frame), bytes);
}

#[test]
fn copies_of_bodies_come_back() {
    let copy =
        BodyCopy { from: BodyNumber(1), to: BodyNumber(2), entries: vec![EntryNumber(3), EntryNumber(4)] };
    let mut bytes = Vec::new();
    encode_copies(&mut bytes, &head(), std::slice::from_ref(&copy));
    assert_eq!(decode(&bytes).unwrap().copies, [copy]);
}

#[test]
fn a_frame_that_is_cut_anywhere_is_incomplete() {
    let bytes = bytes();
    for length in 0..bytes.len() {
        assert_eq!(decode(&bytes[..length]).unwrap_err(), FrameError::Incomplete, "{length}");
    }
}

#[test]
fn every_bit_of_a_frame_counts() {
    let bytes = bytes();
    for bit in 0..8 * bytes.len() {
        let mut broken = bytes.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&broken).is_err(), "bit {bit}");
    }
}

#[test]
fn a_frame_of_another_log_is_no_frame() {
    let bytes = bytes();
    assert_eq!(begins(&bytes, LOG), Some(7));
    assert_eq!(begins(&bytes, LOG + 1), None);
    assert_eq!(check(&bytes, LOG + 1).unwrap_err(), FrameError::Incomplete);
}

#[test]
fn a_digest_has_two_halves() {
    let digest = Digest::of(b"x");
    assert_eq!(Digest::from_halves(digest.halves()), digest);
}

/// A source of choices that always makes the same from the same number.
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn number(&mut self) -> u64 {
        let bits = self.below(48);
        self.next() & ((1 << bits) - 1)
    }

    fn instant(&mut self) -> Instant {
        match self.below(5) {
            0 => Instant::ZERO,
            1 => Instant::NEVER,
            2 => Instant::from_millis(FAR),
            3 => Instant::from_millis(FAR + 1),
            _ => Instant::from_millis(self.number()),
        }
    }

    fn text(&mut self) -> Box<str> {
        ["", "a", "größe/t", "$share/g/+/#"][self.below(4) as usize].into()
    }

    fn maybe<T>(&mut self, some: impl FnOnce(&mut Choices) -> T) -> Option<T> {
        if self.flag() { Some(some(self)) } else { None }
    }

    fn qos(&mut self) -> QoS {
        [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][self.below(3) as usize]
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [0, 1, 127, 128, 300][self.below(5) as usize];
        (0..length).map(|at| at as u8).collect()
    }

    fn message(&mut self) -> Message {
        let (topic, forwarded, payload) = (self.text(), self.bytes(), self.bytes());
        let (qos, retain, expires) = (self.qos(), self.flag(), self.instant());
        let parts = Parts { qos, retain, expires, topic: &topic, forwarded: &forwarded, payload: &payload };
        let publisher = ["", "app", "other"][self.below(3) as usize];
        let publisher = Some(PublisherName::new(publisher)).filter(|name| !name.as_str().is_empty());
        Message::published_by(publisher, parts, &mut Vec::new())
    }

    fn owner(&mut self) -> Option<Arc<Owner>> {
        self.maybe(|some| Owner::new(&some.text(), &some.text()))
    }

    fn flight(&mut self) -> Flight {
        Flight { running: self.number(), transmissions: self.below(65_536) as u16 }
    }

    fn will(&mut self) -> Arc<Will> {
        let will = Will {
            topic: self.text(),
            qos: self.qos(),
            retain: self.flag(),
            payload: self.bytes().into(),
            forwarded: self.bytes().into(),
            delay: Duration::from_millis(self.number()),
            message_expiry: self.maybe(|some| some.next() as u32),
            charge: Charge::NONE,
        };
        will.shared()
    }

    fn session(&mut self) -> StoredSession {
        let versions = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];
        StoredSession {
            key: SessionKey(self.number()),
            client_id: self.text(),
            version: versions[self.below(3) as usize],
            expiry: self.next() as u32,
            connected: self.flag(),
            ends: self.instant(),
            will: self.maybe(Choices::will),
            will_due: self.instant(),
            retry_interval: self.maybe(|some| Duration::from_millis(some.number())),
            ack_timeout: self.maybe(|some| Duration::from_millis(some.number())),
            user_name: self.maybe(Choices::text),
            access: StoredAccess {
                claimed_name: self.maybe(Choices::text),
                rules: self.maybe(Choices::text),
                listener: self.maybe(Choices::text),
                mount_point: self.maybe(Choices::text),
            },
        }
    }

    fn entry(&mut self) -> StoredEntry {
        let ids: Vec<_> = (0..self.below(4)).map(|_| self.next() as u32).collect();
        StoredEntry {
            number: EntryNumber(self.number()),
            session: SessionKey(self.number()),
            body: BodyNumber(self.number()),
            qos: self.qos(),
            retain: self.flag(),
            ids: SubscriptionIds::from_several(&ids),
            share: self.maybe(|some| Arc::new(some.text())),
            flight: self.maybe(Choices::flight),
        }
    }

    fn letter(&mut self) -> StoredLetter {
        let place = LetterPlace { dropped_ms: self.number(), number: LetterNumber(self.number()) };
        StoredLetter {
            place,
            receiver: self.text(),
            cause: self.text(),
            code: self.maybe(|_| ReasonCode::QUOTA_EXCEEDED),
            attempts: self.below(1_000) as u16,
            sent_ms: self.maybe(|some| (some.number(), some.number())),
            message: self.message(),
        }
    }

    /// Returns a record of one of 19 kinds.
    fn record(&mut self, kind: u64) -> Record {
        let (n, packet_id) = (self.number(), PacketId::new(1 + self.below(65_535) as u16).unwrap());
        let session = SessionKey(n);
        match kind {
            0 => Record::Session(Box::new(self.session())),
            1 => {
                let (connected, ends, will_due) = (self.flag(), self.instant(), self.instant());
                Record::SessionState(SessionState { key: session, connected, ends, will_due })
            }
            2 => Record::SessionEnded(session),
            3 => {
                let (filter, options) = (self.text(), self.next() as u8);
                let subscription_id = self.next() as u32;
                Record::Subscribed(Box::new(StoredSubscription { session, filter, options, subscription_id }))
            }
            4 => Record::Unsubscribed { session, filter: self.text() },
            5 => Record::Body { number: BodyNumber(n), message: self.message() },
            6 => Record::BodyDone(BodyNumber(n)),
            7 => Record::BodyReleased(BodyNumber(n)),
            8 => Record::Entry(Box::new(self.entry())),
            9 => Record::Sent { number: EntryNumber(n), flight: self.flight() },
            10 => Record::Received(EntryNumber(n)),
            11 => Record::EntryDone(EntryNumber(n)),
            12 => Record::EntryAcknowledged(EntryNumber(n)),
            13 => Record::Incoming { session, packet_id },
            14 => Record::IncomingDone { session, packet_id },
            15 => {
                let (due, owner, message) = (self.instant(), self.owner(), self.message());
                Record::Delayed(Box::new(StoredDelayed { number: DelayedNumber(n), due, message, owner }))
            }
            16 => Record::DelayedDone(DelayedNumber(n)),
            17 => Record::Letter(Arc::new(self.letter())),
            _ => Record::LetterDone(LetterNumber(n)),
        }
    }

    fn operation(&mut self, kind: u64) -> Operation {
        let fold = match kind {
            8 | 9 if self.flag() => Fold::Received,
            13 | 14 if self.flag() => Fold::Unknown,
            _ => Fold::Plain,
        };
        Operation { record: self.record(kind), fold, frame_ms: head().moment.file_millis }
    }

    fn retained(&mut self) -> RetainedRecord {
        if self.flag() {
            return RetainedRecord::Removed((&*self.text()).into());
        }
        let source = self.maybe(|some| {
            let (id, user, listener) = (some.text(), some.maybe(Choices::text), some.maybe(Choices::text));
            Arc::new(RetainedSource::new(&id, user.as_deref(), listener.as_deref()))
        });
        RetainedRecord::Set(RetainedMessage { message: self.message(), source, owner: self.owner() })
    }
}

fn message_text(message: &Message) -> String {
    format!("{:?} by {:?}", message.parts(), message.publisher())
}

fn text(operation: &Operation) -> String {
    let message = match &operation.record {
        Record::Body { message, .. } => message_text(message),
        Record::Delayed(delayed) => message_text(&delayed.message),
        Record::Letter(letter) => message_text(&letter.message),
        _ => String::new(),
    };
    format!("{operation:?} {message}")
}

fn retained_text(record: &RetainedRecord) -> String {
    match record {
        RetainedRecord::Set(RetainedMessage { message, source, owner }) => {
            format!("{} {source:?} {owner:?}", message_text(message))
        }
        RetainedRecord::Removed(removed) => removed.topic().to_owned(),
    }
}

fn assert_comes_back(operations: &[Operation], retained: &[RetainedRecord]) {
    let frame = decode(&encode_all(&head(), operations, retained)).unwrap();
    assert_eq!(frame.head, head());
    let texts = |operations: &[Operation]| operations.iter().map(text).collect::<Vec<_>>();
    assert_eq!(texts(&frame.operations), texts(operations));
    let texts = |retained: &[RetainedRecord]| retained.iter().map(retained_text).collect::<Vec<_>>();
    assert_eq!(texts(&frame.retained), texts(retained));
}

/// A frame with the right digest around any operations.
fn framed(count: u32, operations: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_with(&mut bytes, &head(), GROUP, |to| {
        to.extend_from_slice(operations);
        count
    });
    bytes
}

proptest! {
    #[test]
    fn any_operations_come_back(seed in 1_u64..u64::MAX, kinds in prop::collection::vec(0_u64..19, 0..40)) {
        let mut choices = Choices(seed);
        let operations: Vec<_> = kinds.iter().map(|kind| choices.operation(*kind)).collect();
        let retained: Vec<_> = (0..choices.below(4)).map(|_| choices.retained()).collect();
        assert_comes_back(&operations, &retained);
    }

    #[test]
    fn any_head_comes_back(
        numbers in prop::array::uniform7(any::<u64>()),
        boot in prop::option::of((1_u64..u64::MAX, any::<u64>())),
        log in any::<u64>(),
    ) {
        let [position, file_millis, unix_millis, next_number, synced, low, high] = numbers;
        let boot = boot.map(|(id, millis)| Boot { id, millis });
        let moment = Heartbeat { file_millis, unix_millis, boot };
        let predecessor = Digest::from_halves([low, high]);
        let (cell, epoch) = (low as u16, high);
        let head = Head { cell, epoch, log, position, moment, next_number, synced, predecessor };
        let mut bytes = b"before".to_vec();
        let digest = encode(&mut bytes, &head, &CommitGroup::default(), FileTime::default());
        let (frame, found, own) = check(&bytes[6..], log).unwrap();
        prop_assert_eq!((frame.len(), found, own), (LEAST, head, digest));
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        count in 0_u32..20,
    ) {
        let _ = decode(&bytes);
        let _ = decode(&framed(count, &bytes));
        let _ = decode(&framed(u32::MAX, &bytes));
    }

    #[test]
    fn a_changed_frame_with_a_right_digest_is_an_error_or_means_something(
        seed in 1_u64..u64::MAX,
        kinds in prop::collection::vec(0_u64..19, 1..8),
        places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let mut choices = Choices(seed);
        let operations: Vec<_> = kinds.iter().map(|kind| choices.operation(*kind)).collect();
        let whole = encode_all(&head(), &operations, &[choices.retained()]);
        let mut content = whole[HEAD..whole.len() - DIGEST].to_vec();
        for (place, byte) in places {
            let place = place % content.len();
            content[place] = byte;
        }
        if let Ok(frame) = decode(&framed(kinds.len() as u32 + 1, &content)) {
            // What it means has a frame of its own.
            prop_assert!(decode(&again(&frame)).is_ok());
        }
    }
}

/// Two frames that have each kind of operation several times, with and without each option.
fn golden() -> Vec<u8> {
    let mut choices = Choices(42);
    let operations: Vec<_> = (0..19 * 4).map(|at| choices.operation(at % 19)).collect();
    let retained: Vec<_> = (0..4).map(|_| choices.retained()).collect();
    let mut bytes = encode_all(&head(), &operations, &retained);
    let copy =
        BodyCopy { from: BodyNumber(1), to: BodyNumber(300), entries: vec![EntryNumber(3), EntryNumber(4)] };
    encode_copies(&mut bytes, &Head { position: 8, ..head() }, &[copy]);
    bytes
}

#[test]
fn frames_of_version_1_never_change() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/frame/tests/version_1.frames");
    if std::env::var_os("HOMING_RENEW").is_some() {
        std::fs::write(path, golden()).unwrap();
    }
    let written = std::fs::read(path).unwrap();
    assert!(written == golden(), "a change of the format is a new version");
    let (first, ..) = check(&written, LOG).unwrap();
    assert_eq!(decode(&written).unwrap().operations.len(), 19 * 4);
    assert_eq!(decode(&written[first.len()..]).unwrap().copies.len(), 1);
}
