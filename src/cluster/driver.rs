//! The thread that carries out the ownership of a cell: `homing-cluster`. It hands answers, frames
//! and the time to the pure machine ([`crate::persistence::ownership`]), and does what the machine
//! says. It never waits for the engine (`workers`) or for the broker: these have threads of
//! their own.

use super::append_times::AppendTimes;
use super::engine::{Engine, EngineError, MAX_FRAME};
use super::follower::{Arrival, Follower};
use super::messages::{Cell, DriverDoor, DriverInput, IsAlive, NodeEvent, NodeFacts};
use super::owner_log::{OwnerLog, OwnerState};
use super::row::WakeRows;
use super::tail::{Made, Tail, Unfit};
use super::workers::{AppendJob, Workers};
use crate::broker::owner_door::OwnerDoor;
use crate::clock;
use crate::log::stderr;
use crate::persistence::ownership::{
    Alarm, AppendId, AppendKind, AppendReply, CellNode, CellOwnership, ChainBreak, EXIT_LOST, EXIT_REFUSED,
    EngineAnswer, NextFrame, OwnershipInput, OwnershipOutput, Position, Progress, Role, Start, Timing,
};
use crate::store::frame::cluster::FrameKind;
use crate::store::replicated::NextGroup;
use crate::store::sqlite::{Mark, Sqlite};
use crate::store::wall::{FileTime, Heartbeat, resume};
use crate::store::{Moment, StoreError};
use crate::time::{Instant, millis};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{error, info, warn};

/// Bytes of a group in one frame.
const PIECE: usize = MAX_FRAME - 1024;
/// The time after which an append that is not decided is reported, and reported again.
const STUCK: Duration = Duration::from_secs(20);

/// What starts a driver.
pub(super) struct DriverStart {
    pub engine: Arc<dyn Engine>,
    pub node: CellNode,
    pub timing: Timing,
    pub start: Start,
    pub log: u64,
    pub database: Sqlite,
    /// True if a promise may leave by the lease.
    pub by_lease: bool,
    /// True if clients stay while the node is isolated.
    pub keeps_clients: bool,
    pub facts: Arc<Mutex<NodeFacts>>,
    pub events: UnboundedSender<NodeEvent>,
    pub wake_rows: WakeRows,
    pub append_times: Arc<AppendTimes>,
}

/// Starts the driver.
///
/// # Errors
/// The durations do not fit each other, the database cannot be read, or the system refuses a
/// thread.
pub(super) fn start(start: DriverStart) -> Result<DriverDoor, StoreError> {
    let failed = |error: &dyn std::fmt::Display| StoreError::Failed(error.to_string());
    let (sender, inputs) = channel();
    let now = clock::now();
    let DriverStart {
        engine,
        node,
        timing,
        start,
        log,
        database,
        by_lease,
        keeps_clients,
        facts,
        events,
        wake_rows,
        append_times,
    } = start;
    let machine = CellOwnership::new(node, timing, start, now).map_err(|error| failed(&error))?;
    let follower = Follower::new(database)?;
    let (stored, of_store) = channel();
    let driver = Driver {
        timing,
        tail: Tail::new(log, node.cell, follower.mark()),
        follower: Some(follower),
        machine,
        workers: Workers::start(&engine, &sender, append_times).map_err(|error| failed(&error))?,
        to_self: sender.clone(),
        queue: VecDeque::new(),
        pending: None,
        group: None,
        group_due: Instant::NEVER,
        stored,
        of_store: Some(of_store),
        state: Arc::default(),
        by_lease,
        keeps_clients,
        door: None,
        is_alive: None,
        time: None,
        follows: Following::Idle,
        has_caught_up: false,
        last_known: 0,
        reported: Position(0),
        facts,
        events,
        wake_rows,
        stuck_said: Instant::ZERO,
        no_reply: String::new(),
        reported_role: Role::Following,
        next_tick: now,
        has_ended: false,
    };
    let run = move || driver.run(&inputs);
    Builder::new().name("homing-cluster".into()).spawn(run).map_err(|error| failed(&error))?;
    Ok(DriverDoor::new(sender))
}

/// A frame whose outcome is not known.
struct Pending {
    id: AppendId,
    position: Position,
    made: Made,
}

/// The group that the store has handed in, and how much of it the log has.
struct Group {
    next: NextGroup,
    piece: usize,
}

/// The question for the next frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Following {
    Idle,
    Asked,
}

struct Driver {
    timing: Timing,
    machine: CellOwnership,
    /// The end of the log that this node has.
    tail: Tail,
    /// The way into the database; `None` once the broker has it.
    follower: Option<Follower>,
    workers: Workers,
    to_self: Sender<DriverInput>,
    /// What the machine is told next.
    queue: VecDeque<OwnershipInput>,
    pending: Option<Pending>,
    group: Option<Group>,
    /// The time of the next attempt of a group that the engine had no room for.
    group_due: Instant,
    stored: Sender<Mark>,
    of_store: Option<Receiver<Mark>>,
    state: Arc<OwnerState>,
    by_lease: bool,
    keeps_clients: bool,
    door: Option<OwnerDoor>,
    is_alive: Option<IsAlive>,
    /// The time of the frames that the driver makes, once the broker runs.
    time: Option<FileTime>,
    follows: Following,
    /// The node had all frames once, so frames that come now were made now.
    has_caught_up: bool,
    /// The last position that the engine said.
    last_known: u64,
    /// The highest position that a node has reported.
    reported: Position,
    facts: Arc<Mutex<NodeFacts>>,
    events: UnboundedSender<NodeEvent>,
    wake_rows: WakeRows,
    stuck_said: Instant,
    /// Why the last append had no answer.
    no_reply: String,
    /// The role in the last row.
    reported_role: Role,
    next_tick: Instant,
    has_ended: bool,
}

impl Driver {
    fn run(mut self, inputs: &Receiver<DriverInput>) {
        while !self.has_ended {
            self.follow_on();
            let now = clock::now();
            let until = self.next_tick.min(self.machine.wake_at()).min(self.group_due);
            match inputs.recv_timeout(until.since(now)) {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = clock::now();
            if now >= self.group_due {
                self.group_due = Instant::NEVER;
                self.tell(OwnershipInput::GroupReady);
            }
            if now >= self.next_tick.min(self.machine.wake_at()) {
                self.tick(now);
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        if now >= self.next_tick {
            self.next_tick = now + self.timing.early_beat;
            if self.door.as_ref().is_some_and(|door| door.lease().take_used()) {
                self.tell(OwnershipInput::Promised);
            }
            self.report_stuck(now);
            let ticked = self.follower.as_mut().map_or(Ok(()), |follower| follower.tick(now));
            self.check(ticked);
        }
        let is_alive = self.is_alive.as_ref().is_none_or(|is_alive| is_alive());
        self.tell(OwnershipInput::Tick(if is_alive { Progress::Moving } else { Progress::Stuck }));
    }

    fn take(&mut self, input: DriverInput) {
        match input {
            DriverInput::Reply(id, reply) => self.tell(OwnershipInput::Reply(id, reply)),
            DriverInput::NoReply(id, why) => {
                self.no_reply = why;
                self.tell(OwnershipInput::Reply(id, AppendReply::TimedOut));
            }
            DriverInput::Frame(id, position, found) => self.take_next(id, position, found),
            DriverInput::Ends(Ok(bounds)) => {
                let last = Position(bounds.last);
                self.last_known = bounds.last;
                self.has_caught_up |= bounds.last <= self.machine.position().0;
                self.facts(|facts| facts.bounds = Some(bounds));
                let reported = self.reported;
                self.tell(OwnershipInput::Last(EngineAnswer { last, reported }));
            }
            DriverInput::Ends(Err(error)) => {
                tracing::debug!(event = "cluster.no_ends", %error, "the engine does not say where the log ends");
                self.tell(OwnershipInput::LastUnknown);
            }
            DriverInput::Frames(frames) => {
                self.follows = Following::Idle;
                self.take_frames(frames);
            }
            DriverInput::Rows(rows) => {
                self.reported = self.reported.max(Position(rows.reported));
                if let Some(alarm) = rows.alarm {
                    self.alarmed(&alarm);
                    self.tell(OwnershipInput::AlarmRead);
                }
            }
            DriverInput::Group(next) => {
                self.group = Some(Group { next, piece: 0 });
                self.tell(OwnershipInput::GroupReady);
            }
            DriverInput::TimeRuns(time) => self.time = Some(time),
            DriverInput::Recovered(door, is_alive) => {
                (self.door, self.is_alive) = (Some(door), Some(is_alive));
                self.tell(OwnershipInput::Recovered);
            }
            DriverInput::Drain => self.tell(OwnershipInput::Drain),
            DriverInput::Flushed => self.tell(OwnershipInput::Flushed),
        }
    }

    fn take_next(&mut self, id: AppendId, position: Position, found: Result<Vec<(u64, Bytes)>, EngineError>) {
        let own = self.pending.as_ref().filter(|pending| pending.id == id).map(|own| &own.made.bytes);
        let next = match found.as_ref().map(|frames| frames.first()) {
            Ok(Some((at, bytes))) if *at == position.0 && Some(bytes) == own => NextFrame::Ours,
            Ok(Some(_)) => NextFrame::Another,
            Ok(None) => NextFrame::Nothing,
            Err(_) => NextFrame::Unknown,
        };
        self.tell(OwnershipInput::Next(id, next));
    }

    /// Asks for the next frames, if the node follows and has no such question under way.
    fn follow_on(&mut self) {
        if self.follows == Following::Idle && self.machine.role() == Role::Following {
            self.follows = Following::Asked;
            let after = self.machine.position().0;
            self.workers.follow(after, after >= self.last_known);
        }
    }

    fn take_frames(&mut self, frames: Vec<(u64, Bytes)>) {
        for (position, bytes) in frames {
            let Some(follower) = &mut self.follower else { return };
            let next = self.machine.position().next();
            if self.machine.role() != Role::Following || position < next.0 {
                continue;
            }
            if position > next.0 {
                error!(
                    event = "cluster.purged",
                    position,
                    wanted = next.0,
                    "the log begins behind this node's database: the next start fetches a snapshot"
                );
                return self.exit(EXIT_LOST);
            }
            let read = match follower.read(&self.tail, position, &bytes) {
                Ok(read) => read,
                Err(unfit) => return self.unfit(position, unfit),
            };
            self.last_known = self.last_known.max(position);
            self.tell(OwnershipInput::Frame(Position(position), read.kind));
            if self.machine.position().0 != position {
                continue;
            }
            let arrival = if self.has_caught_up { Arrival::Now(Moment::now()) } else { Arrival::Late };
            let Some(follower) = &mut self.follower else { return };
            let taken = follower.take(&mut self.tail, read, &bytes, arrival, clock::now());
            self.check(taken);
            self.tell(OwnershipInput::Applied(Position(position)));
        }
    }

    fn unfit(&mut self, position: u64, unfit: Unfit) {
        error!(event = "cluster.unfit", position, why = %unfit, "a frame of the log does not continue what this node has");
        match unfit {
            Unfit::Broken(broken) => {
                if let ChainBreak::AnotherPredecessor(_) | ChainBreak::AnotherEpoch { .. } = broken {
                    self.alarmed(&format!("frame {position}: {broken}"));
                }
                self.tell(OwnershipInput::Broken(broken));
            }
            Unfit::Unreadable(_) => self.exit(EXIT_REFUSED),
        }
    }

    /// Tells the machine something, and does what follows.
    fn tell(&mut self, input: OwnershipInput) {
        self.queue.push_back(input);
        if self.queue.len() > 1 {
            // The call that is under way takes it.
            return;
        }
        while let Some(input) = self.queue.front().copied() {
            let before = self.machine.role();
            let mut outputs = Vec::new();
            self.machine.handle(input, clock::now(), &mut outputs);
            let stored = self.pending.take_if(|pending| pending.position <= self.machine.position());
            if let Some(stored) = &stored {
                self.tail.advance_made(&stored.made);
            }
            self.renew_lease();
            if before != self.machine.role() {
                self.report_role(before);
            }
            for output in outputs {
                self.carry_out(output, stored.as_ref());
            }
            self.queue.pop_front();
        }
        self.report();
        if self.reported_role != self.machine.role() {
            self.reported_role = self.machine.role();
            let _ = self.wake_rows.send(());
        }
    }

    fn renew_lease(&mut self) {
        let until = if self.by_lease { self.machine.lease_until() } else { Instant::ZERO };
        self.state.set_lease(until);
        if let Some(door) = &self.door {
            door.lease().set_until(until);
        }
    }

    fn carry_out(&mut self, output: OwnershipOutput, stored: Option<&Pending>) {
        match output {
            OwnershipOutput::Append(id, position, kind) => self.append(id, position, kind),
            OwnershipOutput::Resend(id) => {
                if let Some(pending) = self.pending.as_ref().filter(|pending| pending.id == id) {
                    self.send(pending);
                }
            }
            OwnershipOutput::ReadNext(id, position) => self.workers.ask_frame(id, position),
            OwnershipOutput::AskLast => self.workers.ask_ends(),
            OwnershipOutput::Follow => self.pending = None,
            OwnershipOutput::Recover(_) => self.recover(stored),
            OwnershipOutput::Serve | OwnershipOutput::Rejoin => self.emit(NodeEvent::LetIn),
            OwnershipOutput::GroupStored(_) => self.group_stored(),
            OwnershipOutput::GroupFull(_) => {
                self.pending = None;
                self.state.set_full(true);
                self.group_due = clock::now() + self.timing.retry;
            }
            OwnershipOutput::Flush => self.emit(NodeEvent::Flush),
            OwnershipOutput::Isolate => {
                warn!(
                    event = "cluster.isolated",
                    keeps_clients = self.keeps_clients,
                    "no frame was stored for too long: this node may be cut off"
                );
                if !self.keeps_clients {
                    self.emit(NodeEvent::ShutOut);
                }
            }
            // The lease has ended with the role.
            OwnershipOutput::StopAcknowledging => {}
            OwnershipOutput::WriteAlarm(alarm) => self.write_alarm(alarm),
            OwnershipOutput::Exit(code) => self.exit(code),
        }
    }

    fn append(&mut self, id: AppendId, position: Position, kind: AppendKind) {
        let made = match (kind, &self.group) {
            (AppendKind::Group, Some(group)) => self.tail.make_piece(&group.next, group.piece, PIECE),
            // The store hands in a group before it says so.
            (AppendKind::Group | AppendKind::Beat, _) => self.tail.make_sign(FrameKind::Beat, self.moment()),
            (AppendKind::Claim(claim), _) => {
                info!(
                    event = "cluster.claims",
                    epoch = claim.epoch,
                    position = position.0,
                    "this node claims the cell"
                );
                self.tail.make_sign(FrameKind::Claim(claim), self.moment())
            }
            (AppendKind::Release, _) => self.tail.make_sign(FrameKind::Release, self.moment()),
        };
        let pending = Pending { id, position, made };
        self.send(&pending);
        self.pending = Some(pending);
    }

    fn send(&self, pending: &Pending) {
        let Pending { id, position, made } = pending;
        self.workers.append(AppendJob { id: *id, position: *position, frame: made.bytes.clone() });
    }

    /// Returns the moment of a frame that the driver makes. Until the broker runs, time counts from
    /// the last frame: sessions that were connected expire from there on. The clocks are those of this
    /// node: those of the owner before may be days apart, and what they say would count as passed.
    fn moment(&self) -> Heartbeat {
        match self.time {
            Some(time) => Heartbeat::at(Moment::now(), time),
            None => match self.follower.as_ref().map_or_else(|| self.tail.mark(), Follower::mark).moment {
                // The time of a new log begins with the wall clock, as that of a new store.
                none if none == Heartbeat::default() => {
                    let now = Moment::now();
                    Heartbeat::at(now, resume(None, now).time)
                }
                last => last,
            },
        }
    }

    fn recover(&mut self, claim: Option<&Pending>) {
        let (Some(follower), Some(claim)) = (self.follower.take(), claim) else { return };
        let finished = follower.end_with(&self.tail, &claim.made);
        let (database, mark) = match finished {
            Ok(finished) => finished,
            Err(error) => return self.check(Err(error)),
        };
        let Some(of_store) = self.of_store.take() else { return };
        let log = OwnerLog::new(self.to_self.clone(), of_store, Arc::clone(&self.state));
        info!(
            event = "cluster.owner",
            epoch = self.machine.epoch(),
            position = mark.position,
            "this node owns the cell, and recovers its sessions"
        );
        self.emit(NodeEvent::Recover(Box::new(Cell { database, mark, log: Box::new(log) })));
    }

    /// A piece of the group is stored. With the last one, so is the group.
    fn group_stored(&mut self) {
        let Some(mut group) = self.group.take() else { return };
        self.state.set_full(false);
        group.piece += 1;
        if group.piece < group.next.body.pieces(PIECE) {
            self.group = Some(group);
            self.tell(OwnershipInput::GroupReady);
        } else {
            let _ = self.stored.send(self.tail.mark());
        }
    }

    fn write_alarm(&mut self, alarm: Alarm) {
        let why = match alarm {
            Alarm::LostFrames => "the engine has fewer frames than a node has applied",
            Alarm::ChangedFrames => "a frame of the log was changed",
        };
        self.alarmed(why);
    }

    /// Notes the alarm; the thread of the rows writes it for the others.
    fn alarmed(&mut self, why: &str) {
        let is_new = self.facts(|facts| {
            let is_new = facts.alarm.is_empty();
            if is_new {
                facts.alarm = why.to_owned();
            }
            is_new
        });
        if is_new {
            error!(
                event = "cluster.alarm",
                why,
                "acknowledged messages may be lost: nobody serves until a person has decided; see `homing cluster status`"
            );
            self.emit(NodeEvent::Alarmed(why.to_owned()));
        }
    }

    fn exit(&mut self, code: u8) {
        self.has_ended = true;
        if code == 0 {
            return self.emit(NodeEvent::Left);
        }
        error!(
            event = "cluster.exit",
            code, "this node does not own the cell any more, and ends without a word to anybody"
        );
        stderr::flush();
        std::process::exit(code.into());
    }

    /// Ends the process if its database cannot be used.
    fn check(&mut self, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            error!(event = "store.failed", %error, "the database of this node cannot be written: it ends, and another node serves");
            stderr::flush();
            std::process::exit(1);
        }
    }

    fn emit(&self, event: NodeEvent) {
        // A process that ends has nobody who listens.
        let _ = self.events.send(event);
    }

    fn report_role(&self, before: Role) {
        let role = self.machine.role();
        info!(event = "cluster.role", from = ?before, to = ?role, epoch = self.machine.epoch(), "this node has another role");
    }

    fn report_stuck(&mut self, now: Instant) {
        let Some(since) = self.machine.undecided_since() else { return };
        let for_ms = millis(now.since(since));
        if now.since(since) >= STUCK && now.since(self.stuck_said) >= STUCK {
            self.stuck_said = now;
            let leader = self.facts(|facts| facts.bounds.as_ref().and_then(|bounds| bounds.leader.clone()));
            warn!(
                event = "cluster.engine_stuck",
                for_ms,
                leader = leader.unwrap_or_default(),
                why = self.no_reply,
                "the engine does not store the next frame; if all its servers run, restart the one that leads the log"
            );
        }
    }

    fn report(&self) {
        let mark = self.tail.mark();
        self.facts(|facts| {
            facts.role = self.machine.role();
            facts.epoch = self.machine.epoch();
            facts.owner = mark.owner.filter(|owner| !owner.is_released).map(|owner| owner.claim.node);
            (facts.position, facts.digest) = (mark.position, mark.digest);
            facts.lease_until = self.machine.lease_until();
            facts.undecided_since = self.machine.undecided_since().unwrap_or(Instant::NEVER);
        });
    }

    fn facts<T>(&self, change: impl FnOnce(&mut NodeFacts) -> T) -> T {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
