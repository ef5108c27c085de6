//! What stands around shards, in memory and in virtual time: sockets of any room, the expiry queue, the way between shards.
//!
//! It does what `homing::broker`'s shell, connections and expiry actor do, one thing after the other.

use homing::expiry::deadline::{DeadlineKind, Registration};
use homing::journal::record::{Batch, Lsn};
use homing::mqtt::charge::Budget;
use homing::mqtt::packet::ProtocolVersion;
use homing::mqtt::session::SessionPolicy;
use homing::mqtt::session::queue::{QueueLimits, QueuePolicy};
use homing::mqtt::session::retry::{AckPolicy, OnAckTimeout, OnExhausted, RetryPolicy};
use homing::mqtt::session::sender::SendPolicy;
use homing::mqtt::session::stall::SocketView;
use homing::mqtt::session::terms::Terms;
use homing::routing::retained::{Retained, RetainedLimits};
use homing::routing::shard::connection::Leaves;
use homing::routing::shard::deadline::{OWN_DELAYED, Overdue, Summons};
use homing::routing::shard::delayed::DelayedLimits;
use homing::routing::shard::effects::Event;
use homing::routing::shard::exchange::{Item, Parcel};
use homing::routing::shard::totals::Totals;
use homing::routing::shard::turn::STEPS_PER_TURN;
use homing::routing::shard::{Common, ConnectionId, Flushed, PartialShare, Progress, Settings, Shard};
use homing::routing::subscription_tree::ShardId;
use homing::time::Instant;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Turns without new input after which shards that still have work are taken to go round in circles.
const TURNS: usize = 10_000;

/// Verdicts of one advance after which deadlines are taken to go round in circles.
const VERDICTS: usize = 20_000;

const BUCKET_MS: u64 = 250;

/// Generous settings, for a script to make narrower.
pub fn settings() -> Settings {
    let queue = QueueLimits { messages: 1_000, bytes: 1 << 20, policy: QueuePolicy::Refuse };
    let retry = RetryPolicy {
        min_interval: Duration::from_millis(100),
        interval: Duration::from_secs(20),
        backoff: 2.0,
        max_interval: Duration::from_secs(300),
        jitter: 0.2,
        attempts: 5,
        on_exhausted: OnExhausted::Disconnect,
        resends_per_tick: 1_000,
    };
    let ack = AckPolicy {
        timeout: Duration::from_secs(60),
        max_timeout: Duration::from_secs(600),
        on_timeout: OnAckTimeout::Auto,
    };
    Settings {
        session: SessionPolicy {
            send: SendPolicy {
                stored_queue: queue.clone(),
                queue,
                terms: Terms::new(retry, ack),
                rules: Vec::new(),
                outbox: 1 << 20,
                in_flight: 1_000,
            },
            receive_maximum: 100,
        },
        packet_size: 1 << 20,
        connect_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(30),
        sessions: 1_000,
        session_expiry: 3_600,
        topic_levels: 16,
        subscriptions_per_client: 100,
        topic_alias_maximum: 10,
        delayed: DelayedLimits { messages: 100, bytes: 1 << 20, horizon: 3600 },
        last_disconnects: 16,
        reports: false,
        keep_alive_maximum: 0,
        allow_never: true,
        hold_timeout: Duration::from_secs(10),
        expiry_interval: Duration::from_millis(BUCKET_MS),
        steps_per_turn: STEPS_PER_TURN,
    }
}

/// A client's end of a connection, by its place in [`World::links`].
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
    /// What the broker wrote.
    pub received: Vec<u8>,
    /// Of an accepted CONNECT.
    pub version: Option<ProtocolVersion>,
}

/// See the module's text.
pub struct World {
    pub now: Instant,
    pub common: Arc<Common>,
    pub shards: Vec<Shard>,
    pub links: Vec<Link>,
    registrations: Vec<(usize, Registration)>,
    parcels: VecDeque<(ShardId, Parcel)>,
    /// Whether parcels stay on their way.
    pub holds_parcels: bool,
    /// or those to this shard.
    pub busy: Option<ShardId>,
    /// Items that the shards have sent each other, and shared messages among them.
    pub told: usize,
    pub passed_on: usize,
    /// Whose sockets were written to, in order.
    pub writes: Vec<LinkId>,
    /// What the shards had committed, which is as soon as they ask,
    pub batches: Vec<Batch>,
    /// or when [`World::commit`] says.
    pub holds_commits: bool,
    uncommitted: Vec<(usize, Lsn)>,
}

impl World {
    /// Queues have the same bounds here whether they are stored or not.
    pub fn new(settings: &Settings, shards: u8) -> World {
        let mut settings = settings.clone();
        settings.session.send.stored_queue = settings.session.send.queue.clone();
        let common = Arc::new(Common {
            retained: Mutex::new(Retained::new(RetainedLimits { messages: 50, bytes: 100_000 })),
            budget: Arc::new(Budget::new(u64::MAX)),
            partial: PartialShare::new(u64::MAX),
            store_full: AtomicBool::new(false),
            totals: Totals::default(),
            store_room: AtomicI64::new(i64::MAX),
        });
        let shard =
            |here| Shard::new(ShardId(here), shards, settings.clone(), Arc::clone(&common), here.into());
        World {
            now: Instant::ZERO,
            shards: (0..shards).map(shard).collect(),
            common: Arc::clone(&common),
            links: Vec::new(),
            registrations: Vec::new(),
            parcels: VecDeque::new(),
            holds_parcels: false,
            busy: None,
            holds_commits: false,
            told: 0,
            passed_on: 0,
            writes: Vec::new(),
            batches: Vec::new(),
            uncommitted: Vec::new(),
        }
    }

    /// Commits what was held back, and from here on all as soon as the shards ask.
    pub fn commit(&mut self) {
        self.holds_commits = false;
        for (shard, lsn) in std::mem::take(&mut self.uncommitted) {
            self.shards[shard].committed(self.now, lsn);
        }
        self.settle();
    }

    /// Sessions that outlive their connections are stored.
    pub fn keep_in_store(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.keep_in_store(0));
    }

    /// Opens a connection; they arrive at the shards in turn.
    pub fn open(&mut self) -> LinkId {
        let shard = self.links.len() % self.shards.len();
        let id = self.shards[shard].accept(self.now);
        self.links.push(Link {
            shard,
            id,
            open: true,
            lingering: false,
            unread: Vec::new(),
            room: usize::MAX,
            received: Vec::new(),
            version: None,
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

    /// The client sends, and everything is done that follows from it at once.
    pub fn send(&mut self, link: LinkId, bytes: &[u8]) {
        self.links[link].unread.extend_from_slice(bytes);
        self.read(link);
        self.settle();
    }

    /// The client sends, and what it sent is read: no turn follows.
    pub fn send_unsettled(&mut self, link: LinkId, bytes: &[u8]) {
        self.links[link].unread.extend_from_slice(bytes);
        self.read(link);
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
            for id in shard.connection_ids() {
                shard.shut_down(self.now, id);
            }
        }
        self.settle();
    }

    /// Time passes, with every verdict in its order.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        for _ in 0..VERDICTS {
            let next = self.registrations.iter().map(|(_, r)| r.deadline).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                for shard in &mut self.shards {
                    shard.chore(end, Instant::NEVER);
                }
                return self.settle();
            };
            self.now = self.now.max(next);
            let now = self.now;
            let due: Vec<_> = self.registrations.extract_if(.., |(_, r)| r.deadline <= now).collect();
            for (shard, due) in due {
                self.verdict(shard, due);
            }
            self.settle();
        }
        panic!("deadlines come and come within {by:?}");
    }

    /// The machine is suspended for so long, and the broker wakes with it.
    pub fn suspend(&mut self, by: Duration) {
        self.now = self.now + by;
        let now = self.now;
        self.shards.iter_mut().for_each(|shard| shard.woke(now));
        self.advance(Duration::ZERO);
    }

    fn verdict(&mut self, shard: usize, due: Registration) {
        self.shards[shard].begin_turn();
        if due.kind == DeadlineKind::Chore {
            return self.shards[shard].publish_delayed(self.now);
        }
        match self.shards[shard].verdict(self.now, due.kind, due.slot, due.generation) {
            Some(Summons::Retransmit(id)) => {
                self.shards[shard].acknowledgement_due(self.now, id, SocketView::default());
            }
            Some(Summons::Disconnect(id)) => {
                let link = self.link_of(shard, id);
                if self.shards[shard].disconnect_if_due(self.now, id) == Overdue::Abandon
                    && let Some(link) = link
                {
                    self.gone(link);
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
            self.shards[shard].closed(self.now, id, "closed by the peer");
        }
    }

    /// The broker reads a socket, as far as it wants to.
    fn read(&mut self, link: LinkId) {
        let Link { shard, id, open, lingering, .. } = self.links[link];
        if !open || lingering || !self.shards[shard].reads(id) {
            return;
        }
        let bytes = std::mem::take(&mut self.links[link].unread);
        self.take_in(link, &bytes);
    }

    fn take_in(&mut self, link: LinkId, bytes: &[u8]) {
        let Link { shard, id, .. } = self.links[link];
        self.shards[shard].begin_turn();
        let mut progress = self.shards[shard].receive(self.now, id, bytes);
        while progress == Progress::Flush {
            self.flush(shard);
            progress = self.shards[shard].receive(self.now, id, &[]);
        }
        let Progress::Home { shard: home, unread } = progress else { return };
        assert!(!unread.is_empty(), "the CONNECT goes with the socket");
        self.shards[shard].moved(id);
        let home = usize::from(home.0);
        assert_ne!(home, shard, "a socket is handed to another shard");
        let id = self.shards[home].accept(self.now);
        self.shards[home].keep_unread(id, unread);
        self.links[link].shard = home;
        self.links[link].id = id;
        self.take_in(link, &[]);
    }

    /// Turn after turn, until nobody has anything to do.
    pub fn settle(&mut self) {
        for _ in 0..TURNS {
            self.turn();
            if !self.holds_parcels {
                self.deliver_parcels();
            }
            if !self.shards.iter().any(Shard::has_work) {
                return;
            }
        }
        panic!("the shards always find something to do");
    }

    /// What is on its way between shards arrives.
    pub fn deliver_parcels(&mut self) {
        let is_free = |(to, _): &(ShardId, Parcel)| Some(*to) != self.busy;
        while let Some((to, parcel)) =
            self.parcels.iter().position(is_free).and_then(|at| self.parcels.remove(at))
        {
            let shard = &mut self.shards[usize::from(to.0)];
            shard.begin_turn();
            shard.take_parcel(self.now, parcel);
        }
    }

    /// One turn's end in every shard.
    pub fn turn(&mut self) {
        for shard in 0..self.shards.len() {
            self.shards[shard].begin_turn();
            self.shards[shard].work(self.now);
            self.flush(shard);
        }
    }

    fn flush(&mut self, shard: usize) {
        {
            self.shards[shard].flush_begins(self.now);
            let mut dirty = std::mem::take(&mut self.shards[shard].effects().dirty);
            while !dirty.is_empty() && !self.shards[shard].turn().is_over() {
                if let Some(link) = self.link_of(shard, dirty.remove(0)) {
                    self.flush_one(link);
                }
            }
            if !dirty.is_empty() {
                self.shards[shard].flush_stopped(dirty);
            }
            if let Some(batch) = self.shards[shard].seal_batch(self.now) {
                if self.holds_commits {
                    self.uncommitted.push((shard, batch.lsn));
                } else {
                    self.shards[shard].committed(self.now, batch.lsn);
                }
                self.batches.push(batch);
            }
            self.shards[shard].seal_parcels();
            let effects = self.shards[shard].effects();
            let events = std::mem::take(&mut effects.events);
            let resume = std::mem::take(&mut effects.resume);
            let registrations = std::mem::take(&mut effects.registrations);
            for (_, parcel) in &effects.parcels {
                self.told += parcel.items.len();
                self.passed_on += parcel.items.iter().filter(|i| matches!(i, Item::Share(_))).count();
            }
            self.parcels.extend(effects.parcels.drain(..));
            for registration in registrations {
                self.register(shard, registration);
            }
            for event in events {
                if let Event::Connected { connection, version, .. } = event
                    && let Some(link) = self.link_of(shard, connection)
                {
                    self.links[link].version = Some(version);
                }
            }
            for id in resume {
                self.resume(shard, id);
            }
        }
    }

    fn resume(&mut self, shard: usize, id: ConnectionId) {
        let Some(link) = self.link_of(shard, id) else { return };
        if self.shards[shard].has_unread(id) {
            self.take_in(link, &[]);
        }
        self.read(link);
    }

    /// As the expiry queue has it: a verdict comes with the end of the deadline's bucket, or of the present one.
    fn register(&mut self, shard: usize, mut new: Registration) {
        if new.kind == DeadlineKind::Chore && new.slot != OWN_DELAYED {
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
        let Link { shard, id, open, room, .. } = self.links[link];
        if !open {
            return;
        }
        let Some(outbox) = self.shards[shard].outbox(id) else { return };
        let mut wrote = 0;
        while outbox.writable() > 0 && wrote < room {
            let pieces: Vec<u8> = outbox.pieces().iter().flat_map(|piece| piece.to_vec()).collect();
            let taken = &pieces[..pieces.len().min(room - wrote)];
            self.links[link].received.extend_from_slice(taken);
            outbox.advance(taken.len());
            wrote += taken.len();
        }
        if wrote > 0 {
            self.writes.push(link);
        }
        if room != usize::MAX {
            self.links[link].room -= wrote;
        }
        match self.shards[shard].flushed(self.now, id, wrote) {
            Flushed::Drained | Flushed::Blocked | Flushed::Fenced | Flushed::Gone => {}
            Flushed::Finished(Leaves::Client) => self.gone(link),
            Flushed::Finished(Leaves::Broker) => self.links[link].lingering = true,
        }
    }
}
