//! Drives shards in memory and in virtual time: sockets of any room, the expiry queue, the
//! way between shards.
//!
//! It does for [`Shard::turn`] what `homing::broker`'s driver does, one thing after the other.

pub use crate::core_settings::settings;
use crate::core_settings::{BUCKET_MS, shared_state};
use homing::durability::read_requests::DelayedRequest;
use homing::durability::read_requests::PageRequest;
use homing::events::client_events::{ClientEvent, Occurrence};
use homing::events::refusals::Refusal;
use homing::expiry::deadline::{DeadlineKind, Registration};
use homing::login::arrival::Arrival;
use homing::login::authentication::{AuthDecision, AuthRequest};
use homing::login::listener_terms::ListenerTerms;
use homing::mqtt::packet::ProtocolVersion;
use homing::operators::publish_command::PublicationAnswer;
use homing::peers::peer_batch::{Item, PeerBatch};
use homing::persistence::records::{Batch, EntryNumber, Lsn, ReadEntry, Record, RetainedRecord, StoredEntry};
use homing::routing::retained::RetainedLimits;
use homing::routing::subscription_tree::ShardId;
use homing::session::outbound::stall::SocketView;
use homing::session::outbox::Outbox;
use homing::session::trace_steps::{TraceStep, TraceSteps};
use homing::shard::clients::connection::Leaves;
use homing::shard::clients::deadlines::{DeadlineAction, IdleConnection};
use homing::shard::randomness::Randomness;
use homing::shard::settings::OWN_DELAYED;
use homing::shard::turn::io::{EventMessages, Io, Written};
use homing::shard::{ConnectionId, Input, ReadProgress, Shard, ShardSettings, SharedState};
use homing::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Turns without new input after which shards that still have work are taken to go round in
/// circles.
const TURNS: usize = 10_000;

/// Expired deadlines of one advance after which deadlines are taken to go round in circles.
const EXPIRED: usize = 20_000;

/// A client's end of a connection, by its place in [`MemoryDriver::links`].
pub type LinkId = usize;

/// One connection and its socket.
pub struct Link {
    shard: usize,
    id: ConnectionId,
    open: bool,
    lingering: bool,
    /// Sent, and not yet read by the broker.
    unread: Vec<u8>,
    /// Bytes the socket still takes from the broker.
    room: usize,
    /// Bytes that the client's kernel does not have, beside those in `received`. `None` if it has
    /// all at once.
    pub on_the_way: Option<usize>,
    /// The bytes that the broker wrote.
    pub received: Vec<u8>,
    /// Batches that were on their way between shards when the broker last wrote.
    pub peers_told: usize,
    /// The version of an accepted CONNECT.
    pub version: Option<ProtocolVersion>,
    /// The reason in the event of a disconnect.
    pub disconnected: Option<String>,
    /// The user name in the event of a refused CONNECT.
    pub refused_as: Option<Box<str>>,
}

/// Shards with their sockets, their expiry queue and the ways between them.
pub struct MemoryDriver {
    pub now: Instant,
    pub shared: Arc<SharedState>,
    /// The listener by which [`MemoryDriver::open`] opens connections.
    pub listener: Arc<ListenerTerms>,
    pub shards: Vec<Shard>,
    pub links: Vec<Link>,
    registrations: Vec<(usize, Registration)>,
    peer_batches: VecDeque<(ShardId, PeerBatch)>,
    /// If true, peer batches stay on their way.
    pub delays_peer_batches: bool,
    /// If a shard is named, peer batches to it stay on their way.
    pub busy: Option<ShardId>,
    /// The number of items that the shards sent each other.
    pub sent_items: usize,
    pub passed_on: usize,
    /// The connections whose sockets were written to, in order.
    pub writes: Vec<LinkId>,
    /// The batches that the shards asked the store to commit.
    pub batches: Vec<Batch>,
    /// If true, commits wait for [`MemoryDriver::commit`]. Otherwise they are made at once.
    pub delays_commits: bool,
    uncommitted: Vec<(usize, Lsn)>,
    /// The pages that the shards requested and do not have yet.
    pages: Vec<(usize, PageRequest)>,
    /// The topics of messages that the store cannot read any more.
    pub unreadable: Vec<String>,
    /// The requests to the authenticator that are not decided yet, with their shards.
    pub auth_requests: Vec<(usize, AuthRequest)>,
    /// The steps of traces.
    pub trace_steps: Vec<TraceStep>,
    /// The events about refused requests.
    pub refusals: Vec<Refusal>,
    /// The answers to messages of operators.
    pub answers: Vec<PublicationAnswer>,
}

impl MemoryDriver {
    /// Stored queues have the same bounds as others.
    pub fn new(settings: &ShardSettings, shards: u8) -> MemoryDriver {
        let mut settings = settings.clone();
        settings.session.send.stored_queue = settings.session.send.queue.clone();
        let shared = Arc::new(shared_state(RetainedLimits { messages: 50, bytes: 100_000 }));
        let shard = |here| {
            Shard::new(
                ShardId(here),
                shards,
                settings.clone(),
                Arc::clone(&shared),
                Randomness::reproducible(here.into()),
            )
        };
        MemoryDriver {
            now: Instant::ZERO,
            shards: (0..shards).map(shard).collect(),
            shared: Arc::clone(&shared),
            listener: Arc::default(),
            links: Vec::new(),
            registrations: Vec::new(),
            peer_batches: VecDeque::new(),
            delays_peer_batches: false,
            busy: None,
            delays_commits: false,
            sent_items: 0,
            passed_on: 0,
            writes: Vec::new(),
            batches: Vec::new(),
            uncommitted: Vec::new(),
            pages: Vec::new(),
            unreadable: Vec::new(),
            auth_requests: Vec::new(),
            trace_steps: Vec::new(),
            refusals: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Commits the batches that were delayed. Later ones are committed at once.
    pub fn commit(&mut self) {
        self.delays_commits = false;
        for (shard, lsn) in std::mem::take(&mut self.uncommitted) {
            self.shards[shard].begin_turn();
            self.shards[shard].committed(self.now, lsn);
        }
        self.settle();
    }

    /// The authenticator decides the oldest request.
    pub fn decide(&mut self, decision: AuthDecision) {
        let (shard, request) = self.auth_requests.remove(0);
        self.shards[shard].begin_turn();
        self.shards[shard].input(self.now, Input::Authenticated(request.connection, decision));
        self.settle();
    }

    /// Sessions that outlive their connections are stored.
    pub fn keep_in_store(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.keep_in_store(0));
    }

    /// Reads back the pages that the shards requested. Returns their number.
    pub fn read_pages(&mut self) -> usize {
        let mut pages = 0;
        for (shard, page) in std::mem::take(&mut self.pages) {
            pages += 1;
            let read = page.wanted.iter().filter_map(|(number, _)| self.stored(*number)).collect();
            self.shards[shard].input(self.now, Input::Page(page, read));
        }
        self.settle();
        pages
    }

    /// Returns an entry as it was recorded, unless it is unreadable.
    fn stored(&self, number: EntryNumber) -> Option<ReadEntry> {
        let records = || {
            self.batches
                .iter()
                .flat_map(|b| b.records.iter().chain(b.participants.iter().flat_map(|p| &p.records)))
        };
        let entry = records().find_map(|record| match record {
            Record::Entry(entry) if entry.number == number => Some(entry),
            _ => None,
        })?;
        let message = records().find_map(|record| match record {
            Record::Body { number, message } if *number == entry.body => Some(message.clone()),
            _ => None,
        })?;
        if self.unreadable.iter().any(|topic| *topic == message.topic()) {
            return None;
        }
        let StoredEntry { qos, retain, ids, share, .. } = *entry.clone();
        Some(ReadEntry { number, message, qos, retain, ids, share })
    }

    /// Opens a connection. Connections arrive at the shards in turn.
    pub fn open(&mut self) -> LinkId {
        self.open_from(Arrival { listener: Arc::clone(&self.listener), ..Arrival::local() })
    }

    /// Opens a connection that arrives so.
    pub fn open_from(&mut self, arrival: Arrival) -> LinkId {
        let shard = self.links.len() % self.shards.len();
        let id = self.shards[shard].accept(self.now, arrival);
        self.links.push(Link {
            shard,
            id,
            open: true,
            lingering: false,
            unread: Vec::new(),
            room: usize::MAX,
            on_the_way: None,
            received: Vec::new(),
            peers_told: 0,
            version: None,
            disconnected: None,
            refused_as: None,
        });
        self.settle();
        self.links.len() - 1
    }

    pub fn id(&self, link: LinkId) -> ConnectionId {
        self.links[link].id
    }

    pub fn is_open(&self, link: LinkId) -> bool {
        self.links[link].open && !self.links[link].lingering
    }

    /// The client sends these bytes, and the shards run until they have no work.
    pub fn send(&mut self, link: LinkId, bytes: &[u8]) {
        self.links[link].unread.extend_from_slice(bytes);
        self.read(link);
        self.settle();
    }

    /// The client sends these bytes, and the broker reads them. No turn follows.
    pub fn send_unsettled(&mut self, link: LinkId, bytes: &[u8]) {
        self.links[link].unread.extend_from_slice(bytes);
        self.read(link);
    }

    /// The kernel has these bytes, and the reactor has not reported them.
    pub fn arrive(&mut self, link: LinkId, bytes: &[u8]) {
        self.links[link].unread.extend_from_slice(bytes);
    }

    /// The client's socket breaks.
    pub fn close(&mut self, link: LinkId) {
        self.gone(link);
        self.settle();
    }

    /// The client's socket takes so many bytes more.
    pub fn make_room(&mut self, link: LinkId, room: usize) {
        self.links[link].room = room;
        self.flush_one(link);
        self.settle();
    }

    pub fn stop(&mut self) {
        for shard in &mut self.shards {
            shard.input(self.now, Input::Stop);
        }
        self.settle();
    }

    /// Time passes, with every expired deadline in its order.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        for _ in 0..EXPIRED {
            let next = self.registrations.iter().map(|(_, r)| r.deadline).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                for shard in &mut self.shards {
                    shard.input(end, Input::Housekeeping { next: Instant::NEVER });
                }
                return self.settle();
            };
            self.now = self.now.max(next);
            let now = self.now;
            let due: Vec<_> = self.registrations.extract_if(.., |(_, r)| r.deadline <= now).collect();
            for (shard, due) in due {
                self.expired_deadline(shard, due);
            }
            self.settle();
        }
        panic!("deadlines come and come within {by:?}");
    }

    /// Suspends the machine for this time. The broker wakes with it.
    pub fn suspend(&mut self, by: Duration) {
        self.now = self.now + by;
        let now = self.now;
        self.shards.iter_mut().for_each(|shard| shard.input(now, Input::Woke));
        self.advance(Duration::ZERO);
    }

    fn expired_deadline(&mut self, shard: usize, due: Registration) {
        self.shards[shard].begin_turn();
        if due.kind == DeadlineKind::Housekeeping {
            return self.shards[shard].input(self.now, Input::DelayedDue);
        }
        match self.shards[shard].expired_deadline(self.now, due.kind, due.slot, due.generation) {
            Some(DeadlineAction::Retransmit(id)) => {
                let Some(link) = self.link_of(shard, id) else { return };
                self.read(link);
                let Link { on_the_way, ref unread, ref received, .. } = self.links[link];
                let unsent = on_the_way.map_or(0, |bytes| bytes + received.len());
                let view = SocketView { unsent, arrived: unread.len(), ..SocketView::default() };
                self.shards[shard].input(self.now, Input::AcknowledgementDue(id, view));
            }
            Some(DeadlineAction::Disconnect(id)) => {
                let Some(link) = self.link_of(shard, id) else { return };
                match IdleConnection::check(self.now, id, &mut self.shards[shard]) {
                    IdleConnection::Abandon => self.gone(link),
                    IdleConnection::Paused => self.resume(shard, id),
                    IdleConnection::NotYet | IdleConnection::Disconnected => {}
                }
            }
            None => {}
        }
    }

    fn link_of(&self, shard: usize, id: ConnectionId) -> Option<LinkId> {
        self.links.iter().position(|link| link.open && link.shard == shard && link.id == id)
    }

    fn gone(&mut self, link: LinkId) {
        let Link { shard, id, open, .. } = self.links[link];
        if open {
            self.links[link].open = false;
            self.shards[shard].input(self.now, Input::Closed(id, "closed by the peer"));
        }
    }

    /// The broker reads a socket, as far as it wants to.
    fn read(&mut self, link: LinkId) {
        loop {
            let Link { shard, id, open, lingering, ref mut unread, .. } = self.links[link];
            if !open || lingering || unread.is_empty() {
                return;
            }
            let connection = self.shards[shard].connection(id);
            // A socket that is not paused is read empty at once.
            let size = if connection.reads() { unread.len() } else { connection.read_size() };
            if size == 0 {
                return;
            }
            let rest = unread.split_off(size.min(unread.len()));
            let bytes = std::mem::replace(unread, rest);
            self.take_in(link, &bytes);
        }
    }

    fn take_in(&mut self, link: LinkId, bytes: &[u8]) {
        let Link { shard, id, .. } = self.links[link];
        self.shards[shard].begin_turn();
        let progress = self.with_shard(shard, |shard, now, io| shard.take_in(now, id, bytes, io));
        let ReadProgress::Home { shard: to, unread } = progress else { return };
        assert!(!unread.is_empty(), "the CONNECT goes with the socket");
        let (_, arrival) = self.shards[shard].moved(id).expect("an open connection");
        let to = usize::from(to.0);
        assert_ne!(to, shard, "a socket is handed to another shard");
        let id = self.shards[to].accept(self.now, arrival);
        self.shards[to].input(self.now, Input::Unread(id, unread));
        self.links[link].shard = to;
        self.links[link].id = id;
        self.take_in(link, &[]);
    }

    /// Runs turn after turn, until no shard has anything to do.
    pub fn settle(&mut self) {
        for _ in 0..TURNS {
            self.turn();
            if !self.delays_peer_batches {
                self.deliver_peer_batches();
            }
            if !self.shards.iter().any(Shard::has_work) {
                return;
            }
        }
        panic!("the shards always find something to do");
    }

    /// Delivers the batches that are on their way between shards.
    pub fn deliver_peer_batches(&mut self) {
        let is_free = |(to, _): &(ShardId, PeerBatch)| Some(*to) != self.busy;
        while let Some((to, peer_batch)) =
            self.peer_batches.iter().position(is_free).and_then(|at| self.peer_batches.remove(at))
        {
            let shard = &mut self.shards[usize::from(to.0)];
            shard.begin_turn();
            shard.take_peer_batch(self.now, peer_batch);
        }
    }

    /// Runs one turn of every shard that asks for one, as the broker does: what a shard has to do
    /// and does not ask for is left undone.
    pub fn turn(&mut self) {
        for shard in 0..self.shards.len() {
            if self.shards[shard].has_work() {
                self.with_shard(shard, |shard, now, io| shard.turn(now, io));
            }
        }
    }

    /// Calls a shard with its I/O, and does what follows.
    fn with_shard<T>(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut Shard, Instant, &mut ShardIo<'_>) -> T,
    ) -> T {
        let now = self.now;
        let MemoryDriver {
            shards,
            links,
            peer_batches,
            pages,
            auth_requests,
            writes,
            batches,
            trace_steps,
            refusals,
            answers,
            ..
        } = self;
        let later = Later::default();
        let mut io = ShardIo {
            shard: at,
            links,
            peer_batches,
            pages,
            auth_requests,
            writes,
            batches,
            trace_steps,
            refusals,
            answers,
            clock: now,
            later,
        };
        let result = call(&mut shards[at], now, &mut io);
        let Later { committed, registered, items, shared, close, resume } = io.later;
        self.sent_items += items;
        self.passed_on += shared;
        for registration in registered {
            self.register(at, registration);
        }
        for lsn in committed {
            if self.delays_commits {
                self.uncommitted.push((at, lsn));
            } else {
                self.shards[at].begin_turn();
                self.shards[at].committed(now, lsn);
            }
        }
        close.into_iter().for_each(|link| self.gone(link));
        resume.into_iter().for_each(|id| self.resume(at, id));
        result
    }

    fn resume(&mut self, shard: usize, id: ConnectionId) {
        let Some(link) = self.link_of(shard, id) else { return };
        if self.shards[shard].connection(id).has_unread() {
            self.take_in(link, &[]);
        }
        self.read(link);
    }

    /// As the expiry queue has it: a deadline expires at the end of the deadline's bucket, or of
    /// the present one.
    fn register(&mut self, shard: usize, mut new: Registration) {
        if new.kind == DeadlineKind::Housekeeping && new.slot != OWN_DELAYED {
            return;
        }
        if !new.deadline.is_never() {
            let bucket = new.deadline.max(self.now).as_millis() / BUCKET_MS + 1;
            new.deadline = Instant::from_millis(bucket * BUCKET_MS);
        }
        let same = |(at, r): &(usize, Registration)| *at == shard && r.kind == new.kind && r.slot == new.slot;
        self.registrations.retain(|old| !same(old));
        if !new.deadline.is_never() {
            self.registrations.push((shard, new));
        }
    }

    fn flush_one(&mut self, link: LinkId) {
        let Link { shard, id, .. } = self.links[link];
        self.with_shard(shard, |shard, now, io| shard.flush_connection(now, id, io));
    }
}

/// The I/O of one shard.
struct ShardIo<'a> {
    shard: usize,
    links: &'a mut [Link],
    peer_batches: &'a mut VecDeque<(ShardId, PeerBatch)>,
    pages: &'a mut Vec<(usize, PageRequest)>,
    auth_requests: &'a mut Vec<(usize, AuthRequest)>,
    trace_steps: &'a mut Vec<TraceStep>,
    refusals: &'a mut Vec<Refusal>,
    answers: &'a mut Vec<PublicationAnswer>,
    writes: &'a mut Vec<LinkId>,
    batches: &'a mut Vec<Batch>,
    clock: Instant,
    later: Later,
}

/// The effects of a call, to be carried out after it.
#[derive(Default)]
struct Later {
    committed: Vec<Lsn>,
    registered: Vec<Registration>,
    /// Items for peers, and shared messages among them.
    items: usize,
    shared: usize,
    close: Vec<LinkId>,
    resume: Vec<ConnectionId>,
}

impl ShardIo<'_> {
    fn link_of(&self, id: ConnectionId) -> Option<LinkId> {
        self.links.iter().position(|link| link.open && link.shard == self.shard && link.id == id)
    }
}

impl Io for ShardIo<'_> {
    fn write(&mut self, id: ConnectionId, outbox: &mut Outbox) -> Option<Written> {
        let at = self.link_of(id)?;
        let link = &mut self.links[at];
        let mut wrote = 0;
        while outbox.writable() > 0 && wrote < link.room {
            let before = link.received.len();
            for piece in outbox.pieces() {
                let room = link.room - wrote - (link.received.len() - before);
                link.received.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            let taken = link.received.len() - before;
            outbox.advance(taken);
            wrote += taken;
        }
        if wrote > 0 {
            link.peers_told = self.peer_batches.len();
            self.writes.push(at);
        }
        if link.room != usize::MAX {
            link.room -= wrote;
        }
        Some(Written::plain(wrote))
    }

    fn read_clock(&mut self) -> Instant {
        self.clock
    }

    fn await_writable(&mut self, _: ConnectionId) {}

    fn finish(&mut self, id: ConnectionId, leaves: Leaves) {
        let Some(link) = self.link_of(id) else { return };
        match leaves {
            Leaves::Client => self.later.close.push(link),
            Leaves::Broker => self.links[link].lingering = true,
        }
    }

    fn store_retained(&mut self, _: Vec<RetainedRecord>) {}

    fn commit(&mut self, batch: Batch) {
        self.later.committed.push(batch.lsn);
        self.batches.push(batch);
    }

    fn read_page(&mut self, request: PageRequest) {
        self.pages.push((self.shard, request));
    }

    fn read_delayed(&mut self, _: DelayedRequest) {}

    fn send_to_peer(&mut self, to: ShardId, batch: PeerBatch) {
        self.later.items += batch.items.len();
        self.later.shared += batch.items.iter().filter(|i| matches!(i, Item::Share(_))).count();
        self.peer_batches.push_back((to, batch));
    }

    fn register(&mut self, _: Instant, batch: Vec<Registration>) {
        self.later.registered.extend(batch);
    }

    fn read_now(&mut self, id: ConnectionId) {
        self.later.resume.push(id);
    }

    fn resume(&mut self, id: ConnectionId) {
        self.later.resume.push(id);
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.auth_requests.push((self.shard, request));
    }

    fn answer_operator(&mut self, answer: PublicationAnswer) {
        self.answers.push(answer);
    }

    fn trace(&mut self, steps: TraceSteps) {
        self.trace_steps.extend(steps.steps);
    }

    fn report(&mut self, now: Instant, event: &ClientEvent) -> EventMessages {
        if let (Occurrence::Connected { .. }, Some(connection)) = (&event.occurrence, event.connection)
            && let Some(link) = self.link_of(connection)
        {
            self.links[link].version = event.version;
        }
        if let (Occurrence::Disconnected(why), Some(connection)) = (&event.occurrence, event.connection)
            && let Some(link) = self.link_of(connection)
        {
            self.links[link].disconnected = Some(format!("{why:?}"));
        }
        if let (Occurrence::Refused { user_name, .. }, Some(connection)) =
            (&event.occurrence, event.connection)
            && let Some(link) = self.link_of(connection)
        {
            self.links[link].refused_as.clone_from(user_name);
        }
        if let Occurrence::RequestRefused(refusal) = &event.occurrence {
            self.refusals.push((**refusal).clone());
        }
        EventMessages { event: None, last_disconnect: homing::broker::events::record(now, event) }
    }
}
