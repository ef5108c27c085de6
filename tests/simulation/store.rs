//! The committing and the reading thread, as `src/store/writer` has them, around a store in memory:
//! what the shards send comes to it at once, and everything it does takes its time.
//!
//! What is committed together is the broker's own code; a crash leaves what was committed, and
//! nothing else: the database, and the frames of the log behind it (`log`).

use crate::letters::concerns_letters;
use crate::log::{Log, Source};
use crate::memory_store::{Image, Memory, Rows};
use crate::rng::Rng;
use crate::shortage::RETRY_MS;
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::persistence::records::{
    Batch, Committed, Lsn, ReadEntry, RetainedRecord, StoredDelayed, TransactionNumber,
};
use homing::shard::SharedState;
use homing::shard::durability::placement::{RecoveredShard, repartition, share_out};
use homing::shard::durability::recovery::in_flight;
use homing::shard::features::delayed::HORIZON;
use homing::shard::turn::effects::DelayedRequest;
use homing::shard::turn::effects::PageRequest;
use homing::store::coalesce::CommitGroup;
use homing::store::commit_queue::{Bounds, CommitQueue};
use homing::store::frame::{self, Head};
use homing::store::{Store, StoreReader};
use homing::time::Instant;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How often it is noted that the broker lives.
pub const HEARTBEAT_MS: u64 = 10_000;
/// The longest time between two looks of the applying thread.
const APPLY_MS: u64 = 1_000;

pub struct Disk {
    /// What was committed, as a whole.
    pub memory: Memory,
    /// The same on the disk.
    log: Log,
    /// For the applying thread alone, whose moments change nothing of what clients see.
    rng: Rng,
    writer: Writer,
}

/// What dies with the process.
struct Writer {
    queued: VecDeque<Request>,
    commit_queue: CommitQueue,
    group: CommitGroup,
    waiters: Vec<Committed>,
    /// It was told to look, or a commit is under way.
    busy: bool,
    /// There was no room for the group.
    blocked: bool,
    transactions: Transactions,
    /// When the last thing sent arrives: at each shard, at the reading thread.
    arrival: Vec<u64>,
    read_arrival: u64,
}

pub enum Request {
    Batch(Batch),
    Retained(Vec<RetainedRecord>),
}

/// A question to the reading thread.
#[derive(Debug)]
pub enum Ask {
    Page(PageRequest),
    Delayed(DelayedRequest),
}

/// What it found.
#[derive(Debug)]
pub enum Found {
    Page(PageRequest, Vec<ReadEntry>),
    Delayed(DelayedRequest, Vec<StoredDelayed>),
}

impl Writer {
    fn new(shards: u8) -> Writer {
        Writer {
            queued: VecDeque::new(),
            commit_queue: CommitQueue::default(),
            group: CommitGroup::default(),
            waiters: Vec::new(),
            busy: false,
            blocked: false,
            transactions: Transactions::default(),
            arrival: vec![0; usize::from(shards)],
            read_arrival: 0,
        }
    }
}

/// What is committed of messages that several shards take over at once.
#[derive(Default)]
struct Transactions {
    committed: BTreeMap<u8, Lsn>,
    /// The batch that each began in, and those with a part of it.
    begun: HashMap<TransactionNumber, (u8, Lsn)>,
    parts: Vec<(TransactionNumber, u8, Lsn)>,
}

impl Transactions {
    fn came(&mut self, batch: &Batch) {
        let at = (batch.shard, batch.lsn);
        self.begun.extend(batch.transactions.iter().map(|m| (m.number, at)));
        self.parts.extend(batch.participants.iter().map(|part| (part.of, at.0, at.1)));
    }

    fn committed(&mut self, upto: &[Committed]) {
        self.committed.extend(upto.iter().map(|c| (c.shard, c.lsn)));
        let Transactions { committed, parts, .. } = self;
        parts.retain(|(_, shard, lsn)| committed.get(shard).is_none_or(|upto| lsn > upto));
    }

    /// Whether a part is committed and the rest of its batch is not.
    fn are_apart(&self) -> bool {
        let is_committed =
            |(shard, lsn): &(u8, Lsn)| self.committed.get(shard).is_some_and(|upto| lsn <= upto);
        self.parts.iter().any(|(of, ..)| self.begun.get(of).is_some_and(is_committed))
    }
}

impl Disk {
    pub fn new(shards: u8) -> Disk {
        Disk { memory: Memory::default(), log: Log::default(), rng: Rng::new(1), writer: Writer::new(shards) }
    }

    /// Whether all that was sent is committed.
    pub fn is_idle(&self) -> bool {
        !self.writer.busy && self.writer.queued.is_empty() && self.writer.commit_queue.is_empty()
    }
}

/// Returns the first lines that differ.
fn differs(found: &[String], expected: &[String]) -> Option<(Option<String>, Option<String>)> {
    let most = found.len().max(expected.len());
    let mut lines = (0..most).map(|n| (found.get(n).cloned(), expected.get(n).cloned()));
    lines.find(|(found, expected)| found != expected)
}

impl World {
    /// What each shard takes up of the store, as at the start of the broker; what is retained goes
    /// to `common`.
    pub fn take_up(&mut self, shared: &SharedState) -> Vec<Option<RecoveredShard>> {
        let shards = self.plan.shards;
        let now = self.clocks.read(self.now, self.instant());
        let Some(disk) = &mut self.disk else { return (0..shards).map(|_| None).collect() };
        // Another process opens it.
        let found = disk.log.recovered().unwrap_or_else(|what| {
            self.failure.get_or_insert(what);
            disk.memory.image()
        });
        let expected = disk.memory.look(Image::lines);
        if let Some((found, expected)) = differs(&found.lines(), &expected) {
            self.failure.get_or_insert(format!("a start finds {found:?} in place of {expected:?}"));
        }
        disk.memory = Memory::from_image(found);
        disk.writer = Writer::new(shards);
        let (before, ownerless) = disk.memory.look(|image| (image.rows(), image.ownerless()));
        let mut recovered = disk.memory.recover(now, HORIZON).expect("memory does not fail");
        let after = disk.memory.look(|image| image.rows());
        // What a session had begun that had ended, and was not worked off, goes with it, and so may
        // its messages.
        let mended = Rows { entries: before.entries - ownerless, ..before };
        let kept = Rows { bodies: before.bodies, ..after };
        if kept != mended
            || !(before.bodies - ownerless.min(before.bodies)..=before.bodies).contains(&after.bodies)
        {
            self.failure.get_or_insert(format!("recovery has to mend {before:?} to {after:?}"));
        }
        let copies = repartition(&mut recovered, shards);
        disk.memory.copy_bodies(&copies).expect("memory does not fail");
        disk.log = Log::opened(disk.memory.copied());
        let wanted = in_flight(&recovered.sessions);
        let mut reader = disk.memory.reader().expect("memory does not fail");
        let read = reader.entries(&wanted).expect("memory does not fail");
        if !copies.is_empty() {
            self.saw("bodies are copied for other shards");
        }
        let mut retained = shared.retained();
        for message in recovered.retained.drain(..) {
            retained.set(message, now.monotonic).expect("there is no limit");
        }
        retained.record_changes(false);
        drop(retained);
        trace!(self, "recovered {after:?}");
        share_out(recovered, read, now.monotonic + HORIZON, shards).into_iter().map(Some).collect()
    }

    /// A shard sends something to the committing thread, which takes it up some time later.
    pub fn send_to_store(&mut self, request: Request) {
        let Some(Disk { writer, .. }) = &mut self.disk else { return };
        writer.queued.push_back(request);
        if !std::mem::replace(&mut writer.busy, true) {
            let at = self.now + self.rng.below(self.plan.store_ms());
            self.schedule(at, Event::Gather);
        }
    }

    /// A shard asks for something to be read back.
    pub fn ask_store(&mut self, shard: usize, ask: Ask) {
        let at = self.now + self.rng.below(self.plan.store_ms());
        let Some(disk) = &mut self.disk else { return };
        let at = at.max(disk.writer.read_arrival);
        disk.writer.read_arrival = at;
        self.schedule(at, Event::Read { shard, ask: Box::new(ask) });
    }

    /// The committing thread takes what may be committed together of what has come.
    pub fn gather(&mut self) {
        let most = self.plan.store.map_or(1, |store| store.records);
        let part = self.rng.percent(20).then(|| self.rng.next());
        let Some(Disk { writer, .. }) = &mut self.disk else { return };
        let came = match part {
            Some(part) => (part % (writer.queued.len() as u64 + 1)) as usize,
            None => writer.queued.len(),
        };
        for request in writer.queued.drain(..came) {
            match request {
                Request::Batch(batch) => {
                    writer.transactions.came(&batch);
                    writer.commit_queue.push(Instant::ZERO, batch);
                }
                Request::Retained(changes) => changes.into_iter().for_each(|c| writer.group.retain(c)),
            }
        }
        let mut bounds = Bounds { records: most, bytes: 1 << 20 };
        if writer.blocked {
            // What is folded in may be room.
            bounds = Bounds { records: u64::MAX, bytes: usize::MAX };
        }
        writer.commit_queue.take(bounds, &mut writer.group, &mut writer.waiters);
        if writer.group.recorded() > 0 || !writer.waiters.is_empty() {
            writer.group.seal();
            // What comes to nothing needs no sync.
            let took = if writer.group.is_empty() { 0 } else { self.rng.between(1, self.plan.store_ms()) };
            self.schedule(self.now + took, Event::Commit);
        } else if writer.queued.is_empty() {
            writer.busy = false;
        } else {
            self.schedule(self.now + 1, Event::Gather);
        }
    }

    /// The transaction is done.
    pub fn commit(&mut self) {
        if self.disk.as_ref().is_some_and(|disk| self.is_too_large(&disk.memory, &disk.writer.group)) {
            return self.wait_for_room();
        }
        let moves_letters = self.disk.as_ref().is_some_and(|disk| concerns_letters(&disk.writer.group));
        if moves_letters && self.crashes_at_letter() {
            self.saw("the broker crashes before a commit of a dead letter");
            return self.crash();
        }
        let Some(Disk { writer, memory, log, .. }) = &mut self.disk else { return };
        writer.blocked = false;
        if !writer.group.is_empty() {
            memory.commit(&mut writer.group).expect("memory does not fail");
            log.append(memory, &mut writer.group, |to, head, time, group| {
                frame::encode(to, head, group, time)
            });
        }
        writer.group.clear();
        let waiters = std::mem::take(&mut writer.waiters);
        writer.transactions.committed(&waiters);
        let apart = writer.transactions.are_apart() && self.phase == Phase::Chaos;
        trace!(self, "committed {waiters:?}");
        if apart && self.plan.crashes_apart > 0 && self.rng.percent(50) {
            self.plan.crashes_apart -= 1;
            self.saw("a part is committed, its batch is not, and the broker crashes");
            return self.crash();
        }
        self.check_custodies(None);
        if moves_letters && self.crashes_at_letter() {
            self.saw("the broker crashes after a commit of a dead letter");
            return self.crash();
        }
        for committed in waiters {
            let at = self.now + self.rng.below(self.plan.store_ms());
            let Some(Disk { writer, .. }) = &mut self.disk else { return };
            let arrival = &mut writer.arrival[usize::from(committed.shard)];
            *arrival = at.max(*arrival);
            let at = *arrival;
            self.schedule(at, Event::Committed(committed));
        }
        self.schedule(self.now, Event::Gather);
    }

    /// The transaction does not fit: it is tried again, and what frees room goes ahead of it.
    fn wait_for_room(&mut self) {
        let Some(Disk { writer, memory, log, .. }) = &mut self.disk else { return };
        writer.blocked = true;
        let ahead = writer.group.has_ahead();
        if ahead {
            memory.commit_ahead(&writer.group).expect("memory does not fail");
            let group = &writer.group;
            let mut alone = CommitGroup::default();
            alone.absorb_all(group.ahead().cloned(), group.retained_removed().cloned(), 0);
            log.append(memory, &mut alone, |to, head, time, _| frame::encode_ahead(to, head, group, time));
            writer.group.went_ahead();
        }
        self.check_custodies(None);
        trace!(self, "a commit waits for room");
        self.saw("a commit waits for room");
        if ahead {
            self.saw("what frees room goes ahead");
        }
        self.schedule(self.now + RETRY_MS, Event::Gather);
    }

    pub fn committed(&mut self, Committed { shard, lsn }: Committed) {
        self.check_custodies(Some(Committed { shard, lsn }));
        let (now, shard) = (self.instant(), usize::from(shard));
        self.nodes[shard].core.committed(now, lsn);
        self.after_core(shard);
    }

    /// The reading thread comes to a question.
    pub fn read(&mut self, shard: usize, ask: Ask) {
        let Some(Disk { log, .. }) = &mut self.disk else { return };
        let found = match ask {
            Ask::Page(request) => {
                let (read, source) = log.read(&request.wanted);
                self.saw(match source {
                    Source::Memory => "a page is read from memory",
                    Source::Database => "a page is read from the database",
                    Source::Both => "a page is read from memory and the database",
                });
                Found::Page(request, read)
            }
            Ask::Delayed(request) => {
                let read = log.up_to_date().delayed(request.from, request.until, request.most);
                Found::Delayed(request, read.expect("memory does not fail"))
            }
        };
        let Some(Disk { writer, .. }) = &mut self.disk else { return };
        let arrival = &mut writer.arrival[shard];
        *arrival = (self.now + self.rng.below(self.plan.store_ms())).max(*arrival);
        let at = *arrival;
        self.schedule(at, Event::Found { shard, found: Box::new(found) });
    }

    pub fn found(&mut self, shard: usize, found: Found) {
        let now = self.instant();
        let core = &mut self.nodes[shard].core;
        match found {
            Found::Page(request, read) => {
                core.take_page(now, &request, read);
                self.saw("a page of a long queue is read back");
            }
            Found::Delayed(request, read) => {
                if !read.is_empty() {
                    self.saw("messages for later are read back");
                }
                self.nodes[shard].core.take_delayed(now, request, read);
            }
        }
        self.after_core(shard);
    }

    pub fn heartbeat(&mut self) {
        let now = self.clocks.beat(self.now, self.instant());
        if let Some(disk) = &mut self.disk {
            disk.memory.heartbeat(now).expect("memory does not fail");
            let mut nothing = CommitGroup::default();
            let put = |to: &mut Vec<u8>, head: &Head, time, group: &CommitGroup| {
                frame::encode(to, head, group, time)
            };
            disk.log.append(&disk.memory, &mut nothing, put);
            self.schedule(self.now + HEARTBEAT_MS, Event::Heartbeat);
        }
    }

    /// The applying thread looks in a while.
    pub fn await_apply(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        let at = self.now + disk.rng.between(1, APPLY_MS);
        self.schedule(at, Event::Apply);
    }

    /// The applying thread takes what the log has and the database does not.
    pub fn take_unapplied(&mut self) {
        let most = 4 * self.plan.store_ms();
        let Some(Disk { log, rng, .. }) = &mut self.disk else { return };
        if log.take() {
            let at = self.now + rng.between(1, most);
            self.schedule(at, Event::Applied);
        } else {
            self.await_apply();
        }
    }

    /// The transaction of the applying thread is done.
    pub fn applied(&mut self) {
        let Some(Disk { log, .. }) = &mut self.disk else { return };
        log.apply();
        self.await_apply();
    }

    /// Deliveries that the store has.
    pub fn entries_left(&self) -> usize {
        let left = |disk: &Disk| disk.memory.look(|image| image.rows().entries - image.withheld_ids());
        self.disk.as_ref().map_or(0, left)
    }

    /// All is quiet, and everybody is there: nothing is unfinished any more.
    pub fn check_store_settled(&self) -> Result<(), String> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let rows = disk.memory.look(|image| image.rows());
        // The identifier of a dropped message is withheld until its session ends.
        let left = self.entries_left();
        let offline = self.nodes.iter().any(|n| n.core.snapshot().sessions > n.core.snapshot().connected);
        // A client whose Clean Start came to nothing has forgotten what it began in the session
        // that is there all the same.
        let vague = self.oracle.live.iter().flatten().any(|live| self.oracle.sessions[live.number].vague);
        let letters: usize = (0..self.nodes.len()).map(|shard| self.letters_of(shard).len()).sum();
        if letters != rows.letters {
            return Err(format!("the shards have {letters} dead letters, and the store {}", rows.letters));
        }
        let owes = left + rows.bodies > 0 && !offline || rows.incoming > 0 && !vague || rows.delayed > 0;
        if owes || !disk.is_idle() {
            Err(format!("the store has {rows:?} when all is quiet"))
        } else {
            Ok(())
        }
    }

    /// Everybody has left: nothing of anybody is kept, and what is retained is what the broker has
    /// retained. The store is gone after this.
    pub fn close_store(&mut self) -> Result<(), String> {
        let Some(disk) = self.disk.take() else { return Ok(()) };
        if !disk.is_idle() {
            return Err("the store is still at work when all is quiet".into());
        }
        let rows = disk.memory.look(|image| image.rows());
        if rows != Default::default() {
            return Err(format!("the store leaks: {rows:?}"));
        }
        let kept = disk.memory.look(|image| image.all_retained().count());
        let retained = self.shared.retained().len();
        if kept != retained {
            return Err(format!("{kept} messages are kept as retained, {retained} are"));
        }
        Ok(())
    }
}
