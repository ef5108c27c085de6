//! The operations of a frame. One byte has the kind in its lower five bits and the fold in its
//! upper two; the fields follow in the order in which they are written here.

use super::bytes::{Malformed, Reader, put_bytes, put_number, put_optional, put_optional_text};
use crate::mqtt::charge::Charge;
use crate::mqtt::message::{Message, Parts};
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::{RetainedMessage, RetainedSource, SharedSources};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::mqtt::will::Will;
use crate::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use crate::persistence::records::{
    BodyCopy, BodyNumber, DelayedNumber, EntryNumber, Flight, Record, RetainedRecord, SessionKey,
    SessionState, StoredAccess, StoredDelayed, StoredEntry, StoredSession, StoredSubscription,
};
use crate::store::operation::{Fold, Operation};
use crate::store::wall::{FileTime, NEVER};
use crate::time::{Instant, millis};
use std::sync::Arc;
use std::time::Duration;

/// The kinds of operations. A number is never given another meaning.
mod kind {
    pub(super) const SESSION: u8 = 1;
    pub(super) const SESSION_STATE: u8 = 2;
    pub(super) const SESSION_ENDED: u8 = 3;
    pub(super) const SUBSCRIBED: u8 = 4;
    pub(super) const UNSUBSCRIBED: u8 = 5;
    pub(super) const BODY: u8 = 6;
    pub(super) const BODY_DONE: u8 = 7;
    pub(super) const BODY_RELEASED: u8 = 8;
    pub(super) const ENTRY: u8 = 9;
    pub(super) const SENT: u8 = 10;
    pub(super) const RECEIVED: u8 = 11;
    pub(super) const ENTRY_DONE: u8 = 12;
    pub(super) const ENTRY_ACKNOWLEDGED: u8 = 13;
    pub(super) const INCOMING: u8 = 14;
    pub(super) const INCOMING_DONE: u8 = 15;
    pub(super) const DELAYED: u8 = 16;
    pub(super) const DELAYED_DONE: u8 = 17;
    pub(super) const LETTER: u8 = 18;
    pub(super) const LETTER_DONE: u8 = 19;
    pub(super) const RETAINED: u8 = 20;
    pub(super) const RETAINED_REMOVED: u8 = 21;
    pub(super) const BODY_COPY: u8 = 22;
    pub(super) const MASK: u8 = 0x1F;
}

/// The flags of an entry and of a message: the QoS in the lower two bits, then RETAIN.
const RETAIN: u8 = 1 << 2;
const HAS_IDS: u8 = 1 << 3;
const HAS_SHARE: u8 = 1 << 4;
const HAS_FLIGHT: u8 = 1 << 5;

/// Times of a process that are file times: one millisecond is one millisecond.
fn identity() -> FileTime {
    FileTime::default()
}

/// Appends operations and changes of retained messages. Returns their number.
pub(super) fn put_all<'a>(
    to: &mut Vec<u8>,
    operations: impl Iterator<Item = &'a Operation>,
    retained: impl Iterator<Item = &'a RetainedRecord>,
    time: FileTime,
) -> u32 {
    let mut writer = Writer { to, time };
    let mut count = 0;
    for operation in operations {
        writer.put(operation);
        count += 1;
    }
    for record in retained {
        writer.put_retained(record);
        count += 1;
    }
    count
}

/// Appends copies of bodies. Returns their number.
pub(super) fn put_copies(to: &mut Vec<u8>, copies: &[BodyCopy]) -> u32 {
    for copy in copies {
        to.push(kind::BODY_COPY);
        put_number(to, copy.from.0);
        put_number(to, copy.to.0);
        put_number(to, copy.entries.len() as u64);
        copy.entries.iter().for_each(|entry| put_number(to, entry.0));
    }
    copies.len() as u32
}

/// Returns the two high bits of an operation's kind, which say how it folds.
fn fold_bits(fold: Fold) -> u8 {
    match fold {
        Fold::Plain => 0,
        Fold::Received => 1 << 6,
        Fold::Unknown => 2 << 6,
    }
}

struct Writer<'a> {
    to: &'a mut Vec<u8>,
    time: FileTime,
}

impl Writer<'_> {
    fn put(&mut self, operation: &Operation) {
        let fold = fold_bits(operation.fold);
        let begin = |to: &mut Vec<u8>, kind: u8, number: u64| {
            to.push(kind | fold);
            put_number(to, number);
        };
        match &operation.record {
            Record::Session(session) => {
                begin(self.to, kind::SESSION, session.key.0);
                self.session(session);
            }
            Record::SessionState(state) => {
                begin(self.to, kind::SESSION_STATE, state.key.0);
                self.to.push(u8::from(state.connected));
                self.instant(state.ends);
                self.instant(state.will_due);
            }
            Record::SessionEnded(key) => begin(self.to, kind::SESSION_ENDED, key.0),
            Record::Subscribed(subscription) => {
                begin(self.to, kind::SUBSCRIBED, subscription.session.0);
                put_bytes(self.to, subscription.filter.as_bytes());
                self.to.push(subscription.options);
                put_number(self.to, subscription.subscription_id.into());
            }
            Record::Unsubscribed { session, filter } => {
                begin(self.to, kind::UNSUBSCRIBED, session.0);
                put_bytes(self.to, filter.as_bytes());
            }
            Record::Body { number, message } => {
                begin(self.to, kind::BODY, number.0);
                self.message(message);
            }
            Record::BodyDone(number) => begin(self.to, kind::BODY_DONE, number.0),
            Record::BodyReleased(number) => begin(self.to, kind::BODY_RELEASED, number.0),
            Record::Entry(entry) => {
                begin(self.to, kind::ENTRY, entry.number.0);
                self.entry(entry);
            }
            Record::Sent { number, flight } => {
                begin(self.to, kind::SENT, number.0);
                self.flight(*flight);
            }
            Record::Received(number) => begin(self.to, kind::RECEIVED, number.0),
            Record::EntryDone(number) => begin(self.to, kind::ENTRY_DONE, number.0),
            Record::EntryAcknowledged(number) => begin(self.to, kind::ENTRY_ACKNOWLEDGED, number.0),
            Record::Incoming { session, packet_id } => {
                begin(self.to, kind::INCOMING, session.0);
                put_number(self.to, packet_id.get().into());
            }
            // A group has none that is refused: it folds into a plain end.
            Record::IncomingDone { session, packet_id } | Record::IncomingRefused { session, packet_id } => {
                begin(self.to, kind::INCOMING_DONE, session.0);
                put_number(self.to, packet_id.get().into());
            }
            Record::Delayed(delayed) => {
                begin(self.to, kind::DELAYED, delayed.number.0);
                self.instant(delayed.due);
                self.owner(delayed.owner.as_deref());
                self.message(&delayed.message);
            }
            Record::DelayedDone(number) => begin(self.to, kind::DELAYED_DONE, number.0),
            Record::Letter(letter) => {
                begin(self.to, kind::LETTER, letter.place.number.0);
                self.letter(letter);
            }
            Record::LetterDone(number) => begin(self.to, kind::LETTER_DONE, number.0),
            Record::Nothing => {}
        }
    }

    fn put_retained(&mut self, record: &RetainedRecord) {
        match record {
            RetainedRecord::Set(RetainedMessage { message, source, owner }) => {
                self.to.push(kind::RETAINED);
                let source = source.as_deref();
                put_optional_text(self.to, source.map(|source| &*source.client_id));
                put_optional_text(self.to, source.and_then(|source| source.user.as_deref()));
                put_optional_text(self.to, source.and_then(|source| source.listener.as_deref()));
                self.owner(owner.as_deref());
                self.message(message);
            }
            RetainedRecord::Removed(removed) => {
                self.to.push(kind::RETAINED_REMOVED);
                put_bytes(self.to, removed.topic().as_bytes());
            }
        }
    }

    fn session(&mut self, session: &StoredSession) {
        put_bytes(self.to, session.client_id.as_bytes());
        self.to.push(session.version as u8);
        put_number(self.to, session.expiry.into());
        self.to.push(u8::from(session.connected));
        self.instant(session.ends);
        self.instant(session.will_due);
        put_optional(self.to, session.retry_interval.map(millis));
        put_optional(self.to, session.ack_timeout.map(millis));
        let StoredAccess { claimed_name, rules, listener, mount_point } = &session.access;
        for text in [&session.user_name, claimed_name, rules, listener, mount_point] {
            put_optional_text(self.to, text.as_deref());
        }
        self.to.push(u8::from(session.will.is_some()));
        if let Some(will) = session.will.as_deref() {
            put_bytes(self.to, will.topic.as_bytes());
            self.to.push(flags(will.qos, will.retain));
            put_number(self.to, millis(will.delay));
            put_optional(self.to, will.message_expiry.map(u64::from));
            put_bytes(self.to, &will.forwarded);
            put_bytes(self.to, &will.payload);
        }
    }

    fn entry(&mut self, entry: &StoredEntry) {
        let ids = entry.ids.as_slice();
        let has = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
        self.to.push(
            flags(entry.qos, entry.retain)
                | has(!ids.is_empty(), HAS_IDS)
                | has(entry.share.is_some(), HAS_SHARE)
                | has(entry.flight.is_some(), HAS_FLIGHT),
        );
        put_number(self.to, entry.session.0);
        put_number(self.to, entry.body.0);
        if !ids.is_empty() {
            put_number(self.to, ids.len() as u64);
            ids.iter().for_each(|id| put_number(self.to, (*id).into()));
        }
        if let Some(share) = entry.share.as_deref() {
            put_bytes(self.to, share.as_bytes());
        }
        if let Some(flight) = entry.flight {
            self.flight(flight);
        }
    }

    fn flight(&mut self, flight: Flight) {
        put_number(self.to, flight.running);
        put_number(self.to, flight.transmissions.into());
    }

    fn letter(&mut self, letter: &StoredLetter) {
        let StoredLetter { place, receiver, cause, code, attempts, sent_ms, message } = letter;
        put_number(self.to, place.dropped_ms);
        put_bytes(self.to, receiver.as_bytes());
        put_bytes(self.to, cause.as_bytes());
        put_optional(self.to, code.map(|code| code.byte().into()));
        put_number(self.to, (*attempts).into());
        put_optional(self.to, sent_ms.map(|(first, _)| first));
        put_number(self.to, sent_ms.map_or(0, |(_, last)| last));
        self.message(message);
    }

    fn owner(&mut self, owner: Option<&Owner>) {
        put_optional_text(self.to, owner.map(Owner::client_id));
        if let Some(owner) = owner {
            put_bytes(self.to, owner.listener().as_bytes());
        }
    }

    fn message(&mut self, message: &Message) {
        let Parts { qos, retain, expires, topic, forwarded, payload } = message.parts();
        self.to.push(flags(qos, retain));
        self.instant(expires);
        put_bytes(self.to, topic.as_bytes());
        put_bytes(self.to, forwarded);
        put_bytes(self.to, message.publisher().as_bytes());
        put_bytes(self.to, payload);
    }

    /// Appends the file time of an instant. "Never" takes one byte, as most messages do not expire.
    fn instant(&mut self, at: Instant) {
        put_optional(self.to, Some(self.time.to_file(at)).filter(|millis| *millis < NEVER));
    }
}

fn flags(qos: QoS, retain: bool) -> u8 {
    qos.bits() | if retain { RETAIN } else { 0 }
}

/// The content of a frame.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub operations: Vec<Operation>,
    pub retained: Vec<RetainedRecord>,
    pub copies: Vec<BodyCopy>,
}

/// Reads all operations. `frame_ms` is the file time of the frame, in milliseconds.
pub(super) fn read_all(reader: &mut Reader<'_>, count: u32, frame_ms: u64) -> Result<Found, Malformed> {
    let mut content =
        Content { reader, scratch: Vec::new(), publisher: None, sources: SharedSources::default() };
    let mut found = Found::default();
    for _ in 0..count {
        content.operation(&mut found, frame_ms)?;
    }
    if !reader.is_empty() {
        return Err(Malformed("more operations than it names"));
    }
    if !(found.copies.is_empty() || found.operations.is_empty() && found.retained.is_empty()) {
        return Err(Malformed("copies of bodies beside other operations"));
    }
    Ok(found)
}

struct Content<'r, 'a> {
    reader: &'r mut Reader<'a>,
    scratch: Vec<u8>,
    /// The publisher of the message before, whose name the next message may share.
    publisher: Option<PublisherName>,
    sources: SharedSources,
}

impl Content<'_, '_> {
    fn operation(&mut self, found: &mut Found, frame_ms: u64) -> Result<(), Malformed> {
        let first = self.reader.byte()?;
        let fold = match first >> 6 {
            0 => Fold::Plain,
            1 => Fold::Received,
            2 => Fold::Unknown,
            _ => return Err(Malformed("a fold that this program does not know")),
        };
        match first & kind::MASK {
            kind::RETAINED => found.retained.push(RetainedRecord::Set(self.retained()?)),
            kind::RETAINED_REMOVED => {
                found.retained.push(RetainedRecord::Removed(self.reader.text()?.into()));
            }
            kind::BODY_COPY => found.copies.push(self.copy()?),
            kind => {
                let record = self.record(kind)?;
                found.operations.push(Operation { record, fold, frame_ms });
            }
        }
        Ok(())
    }

    fn record(&mut self, kind: u8) -> Result<Record, Malformed> {
        let number = self.reader.number()?;
        Ok(match kind {
            kind::SESSION => Record::Session(Box::new(self.session(SessionKey(number))?)),
            kind::SESSION_STATE => Record::SessionState(SessionState {
                key: SessionKey(number),
                connected: self.flag()?,
                ends: self.instant()?,
                will_due: self.instant()?,
            }),
            kind::SESSION_ENDED => Record::SessionEnded(SessionKey(number)),
            kind::SUBSCRIBED => Record::Subscribed(Box::new(StoredSubscription {
                session: SessionKey(number),
                filter: self.reader.text()?.into(),
                options: self.reader.byte()?,
                subscription_id: self.reader.small()?,
            })),
            kind::UNSUBSCRIBED => {
                Record::Unsubscribed { session: SessionKey(number), filter: self.reader.text()?.into() }
            }
            kind::BODY => Record::Body { number: BodyNumber(number), message: self.message()? },
            kind::BODY_DONE => Record::BodyDone(BodyNumber(number)),
            kind::BODY_RELEASED => Record::BodyReleased(BodyNumber(number)),
            kind::ENTRY => Record::Entry(Box::new(self.entry(EntryNumber(number))?)),
            kind::SENT => Record::Sent { number: EntryNumber(number), flight: self.flight()? },
            kind::RECEIVED => Record::Received(EntryNumber(number)),
            kind::ENTRY_DONE => Record::EntryDone(EntryNumber(number)),
            kind::ENTRY_ACKNOWLEDGED => Record::EntryAcknowledged(EntryNumber(number)),
            kind::INCOMING => Record::Incoming { session: SessionKey(number), packet_id: self.packet_id()? },
            kind::INCOMING_DONE => {
                Record::IncomingDone { session: SessionKey(number), packet_id: self.packet_id()? }
            }
            kind::DELAYED => Record::Delayed(Box::new(StoredDelayed {
                number: DelayedNumber(number),
                due: self.instant()?,
                owner: self.owner()?,
                message: self.message()?,
            })),
            kind::DELAYED_DONE => Record::DelayedDone(DelayedNumber(number)),
            kind::LETTER => Record::Letter(Arc::new(self.letter(LetterNumber(number))?)),
            kind::LETTER_DONE => Record::LetterDone(LetterNumber(number)),
            _ => return Err(Malformed("an operation that this program does not know")),
        })
    }

    fn session(&mut self, key: SessionKey) -> Result<StoredSession, Malformed> {
        let client_id = self.reader.text()?.into();
        let version = match self.reader.byte()? {
            3 => ProtocolVersion::V3_1,
            4 => ProtocolVersion::V3_1_1,
            5 => ProtocolVersion::V5,
            _ => return Err(Malformed("a protocol version that does not exist")),
        };
        let expiry = self.reader.small()?;
        let connected = self.flag()?;
        let (ends, will_due) = (self.instant()?, self.instant()?);
        let retry_interval = self.reader.optional()?.map(Duration::from_millis);
        let ack_timeout = self.reader.optional()?.map(Duration::from_millis);
        let mut text = || Ok(self.reader.optional_text()?.map(Into::into));
        let user_name = text()?;
        let access =
            StoredAccess { claimed_name: text()?, rules: text()?, listener: text()?, mount_point: text()? };
        let will = if self.flag()? { Some(self.will()?.shared()) } else { None };
        Ok(StoredSession {
            key,
            client_id,
            version,
            expiry,
            connected,
            ends,
            will,
            will_due,
            retry_interval,
            ack_timeout,
            user_name,
            access,
        })
    }

    fn will(&mut self) -> Result<Will, Malformed> {
        let topic = self.reader.text()?.into();
        let flags = self.reader.byte()?;
        let delay = Duration::from_millis(self.reader.number()?);
        let expiry = self.reader.optional()?.map(u32::try_from).transpose();
        let message_expiry = expiry.map_err(|_| Malformed("a Message Expiry Interval above 2^32"))?;
        let (forwarded, payload) = (self.reader.bytes()?.into(), self.reader.bytes()?.into());
        let (qos, retain) = (qos(flags)?, flags & RETAIN != 0);
        Ok(Will { topic, qos, retain, payload, forwarded, delay, message_expiry, charge: Charge::NONE })
    }

    fn entry(&mut self, number: EntryNumber) -> Result<StoredEntry, Malformed> {
        let flags = self.reader.byte()?;
        let session = SessionKey(self.reader.number()?);
        let body = BodyNumber(self.reader.number()?);
        let mut ids = Vec::new();
        if flags & HAS_IDS != 0 {
            for _ in 0..self.reader.number()? {
                ids.push(self.reader.small()?);
            }
        }
        let has_share = flags & HAS_SHARE != 0;
        let share = if has_share { Some(Arc::new(self.reader.text()?.into())) } else { None };
        let flight = if flags & HAS_FLIGHT != 0 { Some(self.flight()?) } else { None };
        let ids = SubscriptionIds::from_several(&ids);
        let (qos, retain) = (qos(flags)?, flags & RETAIN != 0);
        Ok(StoredEntry { number, session, body, qos, retain, ids, share, flight })
    }

    fn flight(&mut self) -> Result<Flight, Malformed> {
        Ok(Flight { running: self.reader.number()?, transmissions: self.reader.small()? })
    }

    fn letter(&mut self, number: LetterNumber) -> Result<StoredLetter, Malformed> {
        let dropped_ms = self.reader.number()?;
        let (receiver, cause) = (self.reader.text()?.into(), self.reader.text()?.into());
        let code = self.reader.optional()?;
        let read_code = |code| u8::try_from(code).ok().and_then(ReasonCode::from_byte);
        let code = match code {
            None => None,
            Some(code) => Some(read_code(code).ok_or(Malformed("a Reason Code that does not exist"))?),
        };
        let attempts = self.reader.small()?;
        let (first, last) = (self.reader.optional()?, self.reader.number()?);
        let message = self.message()?;
        let place = LetterPlace { dropped_ms, number };
        let sent_ms = first.map(|first| (first, last));
        Ok(StoredLetter { place, receiver, cause, code, attempts, sent_ms, message })
    }

    fn retained(&mut self) -> Result<RetainedMessage, Malformed> {
        let [client_id, user, listener] =
            [self.reader.optional_text()?, self.reader.optional_text()?, self.reader.optional_text()?];
        let source = client_id.map(|id| self.sources.share(RetainedSource::new(id, user, listener)));
        let owner = self.owner()?;
        Ok(RetainedMessage { source, owner, message: self.message()? })
    }

    fn owner(&mut self) -> Result<Option<Arc<Owner>>, Malformed> {
        let Some(client_id) = self.reader.optional_text()? else { return Ok(None) };
        Ok(Some(Owner::new(client_id, self.reader.text()?)))
    }

    fn message(&mut self) -> Result<Message, Malformed> {
        let flags = self.reader.byte()?;
        let expires = self.instant()?;
        let (topic, forwarded) = (self.reader.text()?, self.reader.bytes()?);
        let publisher = PublisherName::shared(self.reader.text()?, &mut self.publisher);
        let payload = self.reader.bytes()?;
        if topic.len() > usize::from(u16::MAX) {
            return Err(Malformed("a topic above 65,535 bytes"));
        }
        let (qos, retain) = (qos(flags)?, flags & RETAIN != 0);
        let parts = Parts { qos, retain, expires, topic, forwarded, payload };
        Ok(Message::published_by(publisher, parts, &mut self.scratch))
    }

    fn copy(&mut self) -> Result<BodyCopy, Malformed> {
        let (from, to) = (BodyNumber(self.reader.number()?), BodyNumber(self.reader.number()?));
        let mut entries = Vec::new();
        for _ in 0..self.reader.number()? {
            entries.push(EntryNumber(self.reader.number()?));
        }
        Ok(BodyCopy { from, to, entries })
    }

    fn instant(&mut self) -> Result<Instant, Malformed> {
        Ok(self.reader.optional()?.map_or(Instant::NEVER, |millis| identity().instant(millis)))
    }

    fn packet_id(&mut self) -> Result<PacketId, Malformed> {
        PacketId::new(self.reader.small()?).ok_or(Malformed("Packet Identifier 0"))
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }
}

fn qos(flags: u8) -> Result<QoS, Malformed> {
    QoS::from_bits(flags & 3).ok_or(Malformed("QoS 3"))
}
