//! A store in memory, for tests. The committed state is one value that can be copied, so a
//! simulation that crashes continues from the copy.

use homing::mqtt::message::{Message, Parts};
use homing::mqtt::owner::Owner;
use homing::mqtt::packet::PacketId;
use homing::mqtt::packet::QoS;
use homing::mqtt::retained_message::{RetainedMessage, RetainedSource};
use homing::operators::stored::StoredPlace;
use homing::operators::wanted::Wanted;
use homing::persistence::letter::{LetterNumber, StoredLetter};
use homing::persistence::records::{
    BodyCopy, BodyNumber, CountedDelayed, DelayedNumber, EntryNumber, ReadEntry, Record, Recovered,
    RecoveredBody, RecoveredEntry, RecoveredSession, RetainedRecord, SessionKey, StoredDelayed, StoredEntry,
    StoredSession, StoredSubscription,
};
use homing::store::coalesce::CommitGroup;
use homing::store::operation::Operation;
use homing::store::sqlite::{Figures, Mark};
use homing::store::statistics::StoreStatistics;
use homing::store::wall::{FileTime, Heartbeat, Resumed, resume};
use homing::store::{Moment, OpenReader, Store, StoreError, StoreReader, ViewedEntry};
use homing::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::warn;

/// The store. A clone is a second handle of the same store.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Shared with readers. The lock is held for one call.
    image: Arc<Mutex<Image>>,
    opened: FileTime,
    disk: Disk,
}

/// What is the matter with the disk of a store.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<AtomicU8>);

impl Disk {
    const FULL: u8 = 1;
    const LOCKED: u8 = 2;

    /// Sets whether there is no room, or another process has the database locked.
    pub fn set(&self, is_full: bool, is_locked: bool) {
        let state = if is_full { Disk::FULL } else { u8::from(is_locked) * Disk::LOCKED };
        self.0.store(state, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), StoreError> {
        match self.0.load(Ordering::Relaxed) {
            Disk::FULL => Err(StoreError::Full("the disk".into())),
            Disk::LOCKED => Err(StoreError::Busy("another process".into())),
            _ => Ok(()),
        }
    }
}

/// The committed state. Times are times of the file, as in any store.
#[derive(Clone, Debug, Default)]
pub struct Image {
    sessions: BTreeMap<SessionKey, KeptSession>,
    subscriptions: BTreeMap<(SessionKey, Box<str>), StoredSubscription>,
    incoming: BTreeSet<(SessionKey, PacketId)>,
    bodies: BTreeMap<BodyNumber, Kept>,
    entries: BTreeMap<EntryNumber, KeptEntry>,
    retained: BTreeMap<Box<str>, Kept>,
    delayed: BTreeMap<DelayedNumber, (u64, Kept)>,
    letters: BTreeMap<LetterNumber, Arc<StoredLetter>>,
    highest_number: u64,
    /// The last heartbeat; `None` if the broker never ran.
    heartbeat: Option<Heartbeat>,
    /// The last frame of a log that was applied.
    mark: Mark,
}

#[derive(Clone, Debug)]
struct KeptSession {
    session: StoredSession,
    ends: u64,
    will_due: u64,
}

#[derive(Clone, Debug)]
struct Kept {
    message: Message,
    expires: u64,
    /// The source of a retained message.
    source: Option<Arc<RetainedSource>>,
    /// The client for which a retained or delayed message counts.
    owner: Option<Arc<Owner>>,
}

#[derive(Clone, Debug)]
struct KeptEntry {
    entry: StoredEntry,
    received: bool,
}

impl Memory {
    /// Returns a store that begins with a copied state.
    pub fn from_image(image: Image) -> Memory {
        Memory { image: Arc::new(Mutex::new(image)), ..Memory::default() }
    }

    /// Returns a copy of the committed state.
    pub fn image(&self) -> Image {
        self.lock().clone()
    }

    /// Returns a store of its own with the same state and the same mapping of times.
    pub fn copied(&self) -> Memory {
        Memory { image: Arc::new(Mutex::new(self.image())), opened: self.opened, disk: Disk::default() }
    }

    /// Makes every change of a sealed group.
    pub fn write(&self, group: &CommitGroup) {
        self.lock().write(self.opened, group);
    }

    /// Returns what is the matter with the disk, to change it.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the last frame of a log that was applied.
    pub fn mark(&self) -> Mark {
        self.lock().mark
    }

    /// Returns the mapping of times.
    pub fn time(&self) -> FileTime {
        self.opened
    }

    /// Records a number that was given, and a heartbeat.
    pub fn reaches(&self, number: u64, heartbeat: Heartbeat) {
        let mut image = self.lock();
        image.highest_number = image.highest_number.max(number);
        image.heartbeat = Some(heartbeat);
    }

    /// Drops the clocks of the last heartbeat, as a node does with the database of another.
    pub fn without_clocks(self) -> Memory {
        let mut image = self.lock();
        image.heartbeat = image.heartbeat.map(Heartbeat::without_clocks);
        image.mark.moment = image.mark.moment.without_clocks();
        drop(image);
        self
    }

    /// Calls `at` with the committed state and returns its result. The store is locked meanwhile.
    pub fn look<T>(&self, at: impl FnOnce(&Image) -> T) -> T {
        at(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Image> {
        // A panic elsewhere ends the process. In tests the state of the last whole commit is good
        // enough.
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl homing::store::database::Database for Memory {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn mark(&self) -> Result<Mark, StoreError> {
        Ok(self.lock().mark)
    }

    fn heartbeat(&self) -> Result<Option<Heartbeat>, StoreError> {
        Ok(self.lock().heartbeat)
    }

    fn apply(&mut self, group: &CommitGroup, time: FileTime, mark: &Mark) -> Result<(), StoreError> {
        self.disk.check()?;
        let mut image = self.lock();
        image.write(time, group);
        image.moves(mark);
        Ok(())
    }

    fn apply_ahead(&mut self, group: &CommitGroup, time: FileTime) -> Result<(), StoreError> {
        self.lock().write_ahead(time, group);
        Ok(())
    }

    fn apply_copies(&mut self, copies: &[BodyCopy], mark: &Mark) -> Result<(), StoreError> {
        self.disk.check()?;
        Store::copy_bodies(self, copies)?;
        self.lock().moves(mark);
        Ok(())
    }

    fn disconnect(&mut self, ended_ms: u64, mark: &Mark) -> Result<(), StoreError> {
        self.disk.check()?;
        let mut image = self.lock();
        let connected = image.sessions.values_mut().filter(|kept| kept.session.connected);
        for KeptSession { session, ends, will_due } in connected {
            session.connected = false;
            let expiry_ms = u64::from(session.expiry) * 1000;
            *ends = if session.expiry == u32::MAX { u64::MAX } else { ended_ms + expiry_ms };
            *will_due = session.will.as_ref().map_or(u64::MAX, |will| {
                mark.moment.file_millis + (will.delay.as_millis() as u64).min(expiry_ms)
            });
        }
        image.moves(mark);
        Ok(())
    }

    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<(Recovered, CommitGroup), StoreError> {
        let mut whole = self.image();
        let resumed = resume(whole.heartbeat, now);
        self.opened = resumed.time;
        let mends = whole.mends();
        whole.mend();
        Ok((whole.recovered(resumed, now.monotonic + horizon), mends))
    }

    fn progress(&self) -> Arc<AtomicU64> {
        Arc::default()
    }

    fn time(&self) -> FileTime {
        self.opened
    }

    fn wait_shortly(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn figures(&mut self) -> Result<Figures, StoreError> {
        let has_room = !matches!(self.disk.check(), Err(StoreError::Full(_)));
        Ok(Figures { bytes: 0, room: i64::MAX, has_room })
    }

    fn limit_size(&mut self, _: Option<u64>) -> Result<(), StoreError> {
        Ok(())
    }

    fn opener(&self, _: Arc<StoreStatistics>) -> OpenReader {
        Store::opener(self)
    }
}

impl Image {
    /// Makes every change of a sealed group. `now` maps its times to file times.
    fn write(&mut self, now: FileTime, group: &CommitGroup) {
        let image = self;
        image.highest_number = image.highest_number.max(group.highest_number());
        for record in group.retained() {
            match record {
                RetainedRecord::Set(RetainedMessage { message, source, owner }) => {
                    let (source, owner) = (source.clone(), owner.clone());
                    let kept = Kept { source, owner, ..Kept::new(message, now) };
                    image.retained.insert(message.topic().into(), kept);
                }
                RetainedRecord::Removed(removed) => drop(image.retained.remove(removed.topic())),
            }
        }
        group.operations().for_each(|operation| image.apply(now, operation));
    }

    /// Makes those changes that need no room.
    fn write_ahead(&mut self, now: FileTime, group: &CommitGroup) {
        for record in group.retained() {
            if let RetainedRecord::Removed(removed) = record {
                self.retained.remove(removed.topic());
            }
        }
        group.ahead().for_each(|operation| self.apply(now, operation));
    }

    /// Moves the mark. No frame is applied twice.
    fn moves(&mut self, mark: &Mark) {
        assert!(mark.position > self.mark.position, "{} is applied twice", mark.position);
        self.mark = *mark;
        self.heartbeat = Some(mark.moment);
        self.highest_number = self.highest_number.max(mark.next_number.saturating_sub(1));
    }

    /// Returns the operations that take out what [`Image::mend`] does.
    fn mends(&self) -> CommitGroup {
        let mut whole = self.clone();
        whole.mend();
        let mut mends = CommitGroup::default();
        for (session, filter) in
            self.subscriptions.keys().filter(|key| !whole.subscriptions.contains_key(*key))
        {
            mends.fold(Record::Unsubscribed { session: *session, filter: filter.clone() });
        }
        for (session, packet_id) in self.incoming.difference(&whole.incoming) {
            mends.fold(Record::IncomingDone { session: *session, packet_id: *packet_id });
        }
        for number in self.entries.keys().filter(|number| !whole.entries.contains_key(number)) {
            mends.fold(Record::EntryDone(*number));
        }
        for number in self.bodies.keys().filter(|number| !whole.bodies.contains_key(number)) {
            mends.fold(Record::BodyDone(*number));
        }
        mends
    }
}

impl Store for Memory {
    fn recover(&mut self, now: Moment, horizon: Duration) -> Result<Recovered, StoreError> {
        let mut image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let resumed = resume(image.heartbeat, now);
        self.opened = resumed.time;
        image.heartbeat.get_or_insert(Heartbeat::at(now, self.opened));
        image.mend();
        Ok(image.recovered(resumed, now.monotonic + horizon))
    }

    fn copy_bodies(&mut self, copies: &[BodyCopy]) -> Result<(), StoreError> {
        let mut image = self.lock();
        for copy in copies {
            let Some(body) = image.bodies.get(&copy.from).cloned() else { continue };
            image.bodies.insert(copy.to, body);
            image.highest_number = image.highest_number.max(copy.to.0);
            for number in &copy.entries {
                if let Some(kept) = image.entries.get_mut(number) {
                    kept.entry.body = copy.to;
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self, group: &mut CommitGroup) -> Result<(), StoreError> {
        self.write(group);
        Ok(())
    }

    fn commit_ahead(&mut self, group: &CommitGroup) -> Result<(), StoreError> {
        self.lock().write_ahead(self.opened, group);
        Ok(())
    }

    fn heartbeat(&mut self, now: Moment) -> Result<(), StoreError> {
        self.lock().heartbeat = Some(Heartbeat::at(now, self.opened));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn has_room(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn bytes(&self) -> u64 {
        let image = self.lock();
        let delayed = image.delayed.values().map(|(_, kept)| kept);
        let kept = image.bodies.values().chain(image.retained.values()).chain(delayed);
        let messages: u64 = kept.map(|kept| kept.message.size() as u64).sum();
        messages + image.letters.values().map(|letter| letter.size() as u64).sum::<u64>()
    }

    fn opener(&self) -> OpenReader {
        let store = self.clone();
        Box::new(move || Ok(Box::new(store.clone())))
    }
}

impl StoreReader for Memory {
    fn entries(&mut self, wanted: &[(EntryNumber, BodyNumber)]) -> Result<Vec<ReadEntry>, StoreError> {
        let (image, now, mut scratch) = (self.lock(), self.opened, Vec::new());
        let read = wanted.iter().filter_map(|(number, body)| {
            let entry = &image.entries.get(number)?.entry;
            Some(ReadEntry {
                number: *number,
                message: image.bodies.get(body)?.at(now, &mut scratch),
                qos: entry.qos,
                retain: entry.retain,
                ids: entry.ids.clone(),
                share: entry.share.clone(),
            })
        });
        Ok(read.collect())
    }

    fn delayed(
        &mut self,
        from: (Instant, DelayedNumber),
        until: Instant,
        most: usize,
    ) -> Result<Vec<StoredDelayed>, StoreError> {
        let now = self.opened;
        Ok(self.lock().due(now, (now.to_file(from.0), from.1), now.to_file(until), most))
    }

    fn view(
        &mut self,
        places: &[StoredPlace],
        _: Instant,
        _: &Wanted,
        each: &mut dyn FnMut(ViewedEntry<'_>),
    ) -> Result<(), StoreError> {
        let image = self.lock();
        for (number, body) in places {
            let (Some(kept), Some(body)) = (image.entries.get(number), image.bodies.get(body)) else {
                continue;
            };
            each(ViewedEntry {
                number: *number,
                topic: body.message.topic(),
                publisher: body.message.publisher(),
                qos: kept.entry.qos,
                retain: kept.entry.retain,
                payload: body.message.payload().len(),
                expires: self.opened.instant(body.expires),
                age: Duration::ZERO,
            });
        }
        Ok(())
    }
}

/// The number of rows of each kind, without retained messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Sessions.
    pub sessions: usize,
    /// Subscriptions of all sessions.
    pub subscriptions: usize,
    /// Packet identifiers of QoS 2 messages that clients have begun.
    pub incoming: usize,
    /// Messages that entries share.
    pub bodies: usize,
    /// Deliveries that are pending.
    pub entries: usize,
    /// Delayed messages.
    pub delayed: usize,
    /// Dead letters.
    pub letters: usize,
}

/// Queries of the committed state, for simulations that check the gates of a broker.
impl Image {
    /// Returns the last heartbeat; `None` if the broker never ran.
    pub fn heartbeat(&self) -> Option<Heartbeat> {
        self.heartbeat
    }

    /// Returns the highest number that was given to a row.
    pub fn highest_number(&self) -> u64 {
        self.highest_number
    }

    /// Returns a line for each row, with everything that a restart makes use of. Two states with
    /// the same lines are the same.
    pub fn lines(&self) -> Vec<String> {
        let message = |kept: &Kept| {
            let Parts { qos, retain, topic, forwarded, payload, .. } = kept.message.parts();
            let expires = kept.expires;
            format!("{qos:?} {retain} {topic} {expires} {forwarded:?} {payload:?}")
        };
        let mut lines = vec![format!("{} {:?}", self.highest_number, self.heartbeat)];
        for KeptSession { session, ends, will_due } in self.sessions.values() {
            let StoredSession { key, client_id, version, expiry, connected, .. } = session;
            let has_will = session.will.is_some();
            lines.push(format!(
                "session {key:?} {client_id} {version:?} {expiry} {connected} {ends} {will_due} {has_will}"
            ));
        }
        lines.extend(self.subscriptions.values().map(|subscription| format!("{subscription:?}")));
        lines.extend(self.incoming.iter().map(|incoming| format!("incoming {incoming:?}")));
        lines.extend(self.bodies.iter().map(|(number, kept)| format!("{number:?} {}", message(kept))));
        lines.extend(self.entries.values().map(|kept| format!("{kept:?}")));
        lines.extend(self.retained.values().map(|kept| format!("retained {}", message(kept))));
        let delayed = self.delayed.iter();
        lines.extend(delayed.map(|(number, (due, kept))| format!("{number:?} {due} {}", message(kept))));
        lines.extend(self.letters.values().map(|letter| format!("{:?}", letter.place)));
        lines
    }

    /// Returns the number of rows of each kind.
    pub fn rows(&self) -> Rows {
        Rows {
            sessions: self.sessions.len(),
            subscriptions: self.subscriptions.len(),
            incoming: self.incoming.len(),
            bodies: self.bodies.len(),
            entries: self.entries.len(),
            delayed: self.delayed.len(),
            letters: self.letters.len(),
        }
    }

    /// Returns the number of entries without a message whose Packet Identifier is withheld.
    pub fn withheld_ids(&self) -> usize {
        let is_withheld =
            |kept: &&KeptEntry| kept.received && kept.entry.flight.is_some_and(|flight| flight.is_withheld());
        self.entries.values().filter(is_withheld).count()
    }

    /// Returns the session of a client.
    pub fn session(&self, client_id: &str) -> Option<&StoredSession> {
        self.sessions.values().map(|kept| &kept.session).find(|session| *session.client_id == *client_id)
    }

    /// Returns the subscription of a session to a filter.
    pub fn subscription(&self, session: SessionKey, filter: &str) -> Option<&StoredSubscription> {
        self.subscriptions.get(&(session, filter.into()))
    }

    /// Returns true if the session has begun a QoS 2 message with this packet identifier.
    pub fn has_incoming(&self, session: SessionKey, packet_id: PacketId) -> bool {
        self.incoming.contains(&(session, packet_id))
    }

    /// Returns the entries of a session with their messages. The message is `None` once PUBREC has
    /// come.
    pub fn entries(&self, of: SessionKey) -> impl Iterator<Item = (&StoredEntry, Option<&Message>)> {
        let message = |kept: &KeptEntry| self.bodies.get(&kept.entry.body).map(|kept| &kept.message);
        let own = self.entries.values().filter(move |kept| kept.entry.session == of);
        own.map(move |kept| (&kept.entry, message(kept).filter(|_| !kept.received)))
    }

    /// Returns the messages of pending deliveries, and the messages that members of a group inherit
    /// from ended sessions. A QoS 2 message that an ended session had begun is left out.
    pub fn pending(&self) -> impl Iterator<Item = &Message> {
        let waits = |kept: &&KeptEntry| {
            !kept.received && (kept.is_inherited() || self.sessions.contains_key(&kept.entry.session))
        };
        let bodies = self.entries.values().filter(waits).filter_map(|kept| self.bodies.get(&kept.entry.body));
        bodies.map(|kept| &kept.message)
    }

    /// Returns the number of entries of ended sessions that nobody inherits. Such entries remain if
    /// the broker died before their deletion, and a recovery drops them.
    pub fn ownerless(&self) -> usize {
        let is_ownerless =
            |kept: &&KeptEntry| !self.sessions.contains_key(&kept.entry.session) && !kept.is_inherited();
        self.entries.values().filter(is_ownerless).count()
    }

    /// Returns all retained messages.
    pub fn all_retained(&self) -> impl Iterator<Item = &Message> {
        self.retained.values().map(|kept| &kept.message)
    }

    /// Returns the retained message of a topic.
    pub fn retained(&self, topic: &str) -> Option<&Message> {
        self.retained.get(topic).map(|kept| &kept.message)
    }

    /// Returns all dead letters.
    pub fn letters(&self) -> impl Iterator<Item = &StoredLetter> {
        self.letters.values().map(|letter| &**letter)
    }

    /// Returns true if there is a dead letter with this number.
    pub fn has_letter(&self, number: LetterNumber) -> bool {
        self.letters.contains_key(&number)
    }

    /// Returns the message of a delivery that is pending; `None` if there is no such delivery, or
    /// PUBREC has come, or the message was dropped and only its Packet Identifier is withheld.
    pub fn pending_message(&self, number: EntryNumber) -> Option<&Message> {
        let is_withheld = |entry: &StoredEntry| entry.flight.is_some_and(|flight| flight.is_withheld());
        let kept = self.entries.get(&number)?;
        let has_message = !kept.received && !is_withheld(&kept.entry);
        self.bodies.get(&kept.entry.body).filter(|_| has_message).map(|kept| &kept.message)
    }

    /// Returns all delayed messages.
    pub fn delayed(&self) -> impl Iterator<Item = &Message> {
        self.delayed.values().map(|(_, kept)| &kept.message)
    }
}

impl KeptEntry {
    /// Returns true if another member of the group inherits the entry when its session ends.
    // 5.0 [MQTT-4.8.2-5]: QoS 2 that was begun with one receiver goes to nobody else.
    fn is_inherited(&self) -> bool {
        !self.received && (self.entry.flight.is_none() || self.entry.qos != QoS::ExactlyOnce)
    }
}

/// Returns a dead letter as another store gives it back: its message is a copy without an expiry
/// time and without the RETAIN flag.
fn recovered_letter(letter: &StoredLetter, scratch: &mut Vec<u8>) -> StoredLetter {
    let message = &letter.message;
    let parts = Parts { retain: false, expires: Instant::NEVER, ..message.parts() };
    StoredLetter {
        message: Message::published_by(message.shared_publisher(), parts, scratch),
        ..letter.clone()
    }
}

/// Returns the message with another expiry time. Copies the message only if the time differs.
fn with_expiry(message: &Message, expires: Instant, scratch: &mut Vec<u8>) -> Message {
    let header = message.header();
    if header.expires == expires {
        return message.clone();
    }
    let parts = Parts { expires, ..message.parts() };
    Message::published_by(message.shared_publisher(), parts, scratch)
}

impl Kept {
    fn new(message: &Message, now: FileTime) -> Kept {
        Kept {
            message: message.clone(),
            expires: now.to_file(message.header().expires),
            source: None,
            owner: None,
        }
    }

    fn at(&self, now: FileTime, scratch: &mut Vec<u8>) -> Message {
        with_expiry(&self.message, now.instant(self.expires), scratch)
    }

    fn retained_at(&self, now: FileTime, scratch: &mut Vec<u8>) -> RetainedMessage {
        RetainedMessage {
            message: self.at(now, scratch),
            source: self.source.clone(),
            owner: self.owner.clone(),
        }
    }
}

impl Image {
    fn apply(&mut self, now: FileTime, operation: &Operation) {
        match &operation.record {
            Record::Session(session) => {
                let kept = KeptSession {
                    session: (**session).clone(),
                    ends: now.to_file(session.ends),
                    will_due: now.to_file(session.will_due),
                };
                self.sessions.insert(session.key, kept);
            }
            Record::SessionState(state) => {
                if let Some(kept) = self.sessions.get_mut(&state.key) {
                    kept.session.connected = state.connected;
                    (kept.ends, kept.will_due) = (now.to_file(state.ends), now.to_file(state.will_due));
                }
            }
            Record::SessionEnded(key) => self.end_session(*key),
            Record::Subscribed(subscription) => {
                let at = (subscription.session, subscription.filter.clone());
                self.subscriptions.insert(at, (**subscription).clone());
            }
            Record::Unsubscribed { session, filter } => {
                self.subscriptions.remove(&(*session, filter.clone()));
            }
            Record::Body { number, message } => {
                self.bodies.insert(*number, Kept::new(message, now));
            }
            Record::BodyDone(number) | Record::BodyReleased(number) => drop(self.bodies.remove(number)),
            Record::Entry(entry) => {
                let kept = KeptEntry { entry: (**entry).clone(), received: operation.is_received() };
                self.entries.insert(entry.number, kept);
            }
            Record::Sent { number, flight } => {
                if let Some(kept) = self.entries.get_mut(number) {
                    kept.entry.flight = Some(*flight);
                    kept.received |= operation.is_received();
                }
            }
            Record::Received(number) => {
                if let Some(kept) = self.entries.get_mut(number) {
                    kept.received = true;
                }
            }
            Record::EntryDone(number) | Record::EntryAcknowledged(number) => {
                self.entries.remove(number);
            }
            Record::Incoming { session, packet_id } => {
                self.incoming.insert((*session, *packet_id));
            }
            Record::IncomingDone { session, packet_id } | Record::IncomingRefused { session, packet_id } => {
                self.incoming.remove(&(*session, *packet_id));
            }
            Record::Delayed(delayed) => {
                let kept = Kept { owner: delayed.owner.clone(), ..Kept::new(&delayed.message, now) };
                self.delayed.insert(delayed.number, (now.to_file(delayed.due), kept));
            }
            Record::DelayedDone(number) => drop(self.delayed.remove(number)),
            Record::Letter(letter) => {
                self.letters.insert(letter.place.number, Arc::clone(letter));
            }
            Record::LetterDone(number) => drop(self.letters.remove(number)),
            Record::Nothing => {}
        }
    }

    fn end_session(&mut self, key: SessionKey) {
        self.sessions.remove(&key);
        self.subscriptions.retain(|(session, _), _| *session != key);
        self.incoming.retain(|(session, _)| *session != key);
    }

    /// Takes out what refers to nothing, or is referred to by nothing.
    fn mend(&mut self) {
        let Image { sessions, subscriptions, incoming, bodies, entries, .. } = self;
        let before = (subscriptions.len(), incoming.len(), entries.len(), bodies.len());
        subscriptions.retain(|(session, _), _| sessions.contains_key(session));
        incoming.retain(|(session, _)| sessions.contains_key(session));
        entries.retain(|_, kept| {
            let has_body = kept.received || bodies.contains_key(&kept.entry.body);
            has_body && (sessions.contains_key(&kept.entry.session) || kept.is_inherited())
        });
        let waiting = entries.values().filter(|kept| !kept.received);
        let referred: BTreeSet<BodyNumber> = waiting.map(|kept| kept.entry.body).collect();
        bodies.retain(|number, _| referred.contains(number));
        let after = (subscriptions.len(), incoming.len(), entries.len(), bodies.len());
        if before != after {
            warn!(
                event = "store.orphans_removed",
                ?before,
                ?after,
                "the store had subscriptions, identifiers, entries or bodies of nobody's"
            );
        }
    }

    fn recovered(&self, resumed: Resumed, until: Instant) -> Recovered {
        let Resumed { time: now, down, .. } = resumed;
        let mut sessions: BTreeMap<SessionKey, RecoveredSession> = BTreeMap::new();
        let mut orphaned = Vec::new();
        for (key, kept) in &self.sessions {
            let session = StoredSession {
                ends: now.instant(kept.ends),
                will_due: now.instant(kept.will_due),
                ..kept.session.clone()
            };
            let (subscriptions, incoming, entries) = (Vec::new(), Vec::new(), Vec::new());
            sessions.insert(*key, RecoveredSession { session, subscriptions, incoming, entries });
        }
        for ((key, _), subscription) in &self.subscriptions {
            sessions.entry(*key).and_modify(|s| s.subscriptions.push(subscription.clone()));
        }
        for (key, packet_id) in &self.incoming {
            sessions.entry(*key).and_modify(|s| s.incoming.push(*packet_id));
        }
        for kept in self.entries.values() {
            let entry = self.recovered_entry(now, kept);
            match sessions.get_mut(&kept.entry.session) {
                Some(session) => session.entries.push(entry),
                None => orphaned.push(entry),
            }
        }
        let mut scratch = Vec::new();
        Recovered {
            next_number: self.highest_number + 1,
            progress: Arc::default(),
            down,
            sessions: sessions.into_values().collect(),
            orphaned,
            retained: self.retained.values().map(|kept| kept.retained_at(now, &mut scratch)).collect(),
            delayed: self.due(now, (0, DelayedNumber(0)), now.to_file(until), usize::MAX),
            delayed_in_all: self
                .delayed
                .iter()
                .map(|(number, (_, kept))| CountedDelayed {
                    number: *number,
                    size: kept.message.size(),
                    owner: kept.owner.clone(),
                })
                .collect(),
            letters: self.letters.values().map(|letter| recovered_letter(letter, &mut scratch)).collect(),
        }
    }

    fn recovered_entry(&self, now: FileTime, kept: &KeptEntry) -> RecoveredEntry {
        let StoredEntry { number, body, qos, flight, .. } = kept.entry;
        let body = self.bodies.get(&body).filter(|_| !kept.received).map(|body_kept| RecoveredBody {
            number: body,
            size: body_kept.message.size() as u32,
            expires: now.instant(body_kept.expires),
        });
        let ids = kept.entry.ids.as_slice().len() as u32;
        RecoveredEntry { number, body, qos, flight, shared: kept.entry.share.is_some(), ids }
    }

    /// Delayed messages from the one on and due before, in the order they are due.
    fn due(&self, now: FileTime, from: (u64, DelayedNumber), until: u64, most: usize) -> Vec<StoredDelayed> {
        let mut scratch = Vec::new();
        let is_due = |at: &(u64, DelayedNumber)| *at >= from && at.0 < until;
        let all = self.delayed.iter().map(|(number, (due, kept))| ((*due, *number), kept));
        let mut due: Vec<_> = all.filter(|(at, _)| is_due(at)).collect();
        due.sort_by_key(|(at, _)| *at);
        let of = |((due, number), kept): ((u64, DelayedNumber), &Kept)| StoredDelayed {
            number,
            due: now.instant(due),
            message: kept.at(now, &mut scratch),
            owner: kept.owner.clone(),
        };
        due.into_iter().take(most).map(of).collect()
    }
}
