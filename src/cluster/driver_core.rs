//! The decisions of the driver of a cell: which frame is made, what an answer of the engine means,
//! and when the next frames are asked for. It has no thread, no clock and no engine, so the
//! simulation (`tests/cells`) drives the same code as a node. `driver` carries out its actions.

use super::engine::EngineError;
use super::follower::{Arrival, Follower};
use super::messages::DriverAction;
use super::own_frames::OwnFrames;
use super::tail::{Made, Tail, Unfit};
use crate::ownership::{
    Alarm, AppendId, AppendKind, AppendReply, CellNode, CellOwnership, EXIT_LOST, EXIT_REFUSED, EngineAnswer,
    Fitness, OwnershipInput, OwnershipOutput, Position, Progress, Role, Start, Timing,
};
use crate::store::database::Database;
use crate::store::replicated::NextGroup;
use crate::store::sqlite::{Mark, Sqlite};
use crate::store::wall::FileTime;
use crate::store::{Moment, StoreError};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use tracing::{error, info};

/// What starts a driver for a cell.
#[derive(Clone, Copy, Debug)]
pub struct CoreStart {
    /// The node and its cell.
    pub node: CellNode,
    /// The durations.
    pub timing: Timing,
    /// What the disk of the node says.
    pub start: Start,
    /// The identifier of the cluster's log.
    pub log: u64,
    /// True if a promise may leave by the lease.
    pub by_lease: bool,
    /// The time of the start.
    pub now: Instant,
}

/// See the module. Each call takes the present moment, and may add actions.
pub struct DriverCore<D: Database = Sqlite> {
    timing: Timing,
    machine: CellOwnership,
    /// The end of the log that this node has.
    tail: Tail,
    /// The way into the database; `None` once the broker has it.
    follower: Option<Follower<D>>,
    /// The position of the database when the broker got it.
    recovered_at: u64,
    /// The node ends in order, once the write under way has ended.
    leaves: bool,
    /// The moment of the call that is under way.
    now: Moment,
    /// What the machine is told next.
    queue: VecDeque<OwnershipInput>,
    own: OwnFrames,
    /// The time of the next attempt of a group that the engine had no room for.
    group_due: Instant,
    by_lease: bool,
    lease_until: Instant,
    /// A question for the next frames is under way.
    is_reading: bool,
    /// The node had all frames once, so frames that come now were made now.
    has_caught_up: bool,
    /// The last position that the engine said.
    last_known: u64,
    /// The highest position that a node has reported.
    reported: Position,
    /// The time when the rows were read last.
    rows_read: Instant,
    is_alarmed: bool,
    next_tick: Instant,
    actions: Vec<DriverAction<D>>,
}

impl<D: Database> DriverCore<D> {
    /// Begins as a standby with the database of the node.
    ///
    /// # Errors
    /// The durations do not fit each other, or the database cannot be read.
    pub fn new(start: CoreStart, database: D) -> Result<DriverCore<D>, StoreError> {
        let CoreStart { node, timing, start, log, by_lease, now } = start;
        let machine = CellOwnership::new(node, timing, start, now)
            .map_err(|error| StoreError::Failed(error.to_string()))?;
        let follower = Follower::new(database)?;
        Ok(DriverCore {
            timing,
            machine,
            tail: Tail::new(log, node.cell, follower.mark()),
            follower: Some(follower),
            recovered_at: 0,
            leaves: false,
            now: Moment { monotonic: now, ..Moment::default() },
            queue: VecDeque::new(),
            own: OwnFrames::default(),
            group_due: Instant::NEVER,
            by_lease,
            lease_until: Instant::ZERO,
            is_reading: false,
            has_caught_up: false,
            last_known: 0,
            reported: Position(0),
            rows_read: Instant::ZERO,
            is_alarmed: false,
            next_tick: now,
            actions: Vec::new(),
        })
    }

    /// Returns the ownership of the cell, as this node sees it.
    pub fn machine(&self) -> &CellOwnership {
        &self.machine
    }

    /// Returns the mark of the last frame that the node has read or written.
    pub fn mark(&self) -> Mark {
        self.tail.mark()
    }

    /// Returns the position of the last frame that the database of a standby has, or had when the
    /// node became the owner.
    pub fn database_position(&self) -> u64 {
        self.follower.as_ref().map_or(self.recovered_at, Follower::written)
    }

    /// Returns the durations of the cluster.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Writes what a standby has taken in, and returns the mark of the last frame. What cannot be
    /// written is also in the log, so a failure costs a later start some time.
    pub fn finish(&mut self) -> Mark {
        let _ = self.follower.take().map(Follower::finish);
        self.tail.mark()
    }

    /// Returns the end of the lease by which promises may leave; [`Instant::ZERO`] without one.
    pub fn lease_until(&self) -> Instant {
        self.lease_until
    }

    /// Takes the actions that are to be done now.
    pub fn take_actions(&mut self) -> Vec<DriverAction<D>> {
        self.write_on();
        self.follow_on();
        std::mem::take(&mut self.actions)
    }

    /// Returns the time of the next [`DriverCore::tick`].
    pub fn wake_at(&self) -> Instant {
        self.next_tick.min(self.machine.wake_at()).min(self.group_due)
    }

    /// Lets time pass. Returns true each [`Timing::early_beat`].
    pub fn tick(&mut self, progress: Progress, now: Moment) -> bool {
        self.now = now;
        let is_round = now.monotonic >= self.next_tick;
        if is_round {
            self.next_tick = now.monotonic + self.timing.early_beat;
            self.look_after_database();
        }
        if now.monotonic >= self.group_due {
            self.group_due = Instant::NEVER;
            self.tell(OwnershipInput::GroupReady);
        }
        self.tell(OwnershipInput::Tick(progress));
        is_round
    }

    /// Says whether a standby may claim.
    fn look_after_database(&mut self) {
        let Some(follower) = &mut self.follower else { return };
        match follower.writes().fitness() {
            Ok(fitness) => self.tell(OwnershipInput::Fitness(fitness)),
            Err(error) => self.actions.push(DriverAction::Failed(error)),
        }
    }

    /// Begins the next write, if it is due. A node does not claim while one is under way, and begins
    /// none while it claims: so a new owner has its database at once.
    fn write_on(&mut self) {
        if !matches!(self.machine.role(), Role::Following | Role::Alarmed) {
            return;
        }
        let Some(follower) = &mut self.follower else { return };
        if let Some(write) = follower.writes().next(self.now.monotonic) {
            self.actions.push(DriverAction::Write(write));
            self.tell(OwnershipInput::Fitness(Fitness::Unfit));
        }
    }

    /// Takes the outcome of a write, with the database. A node that leaves takes any: what was not
    /// written is in the log.
    pub fn written(&mut self, outcome: Result<D, StoreError>, now: Moment) {
        self.now = now;
        match (outcome, &mut self.follower) {
            (Ok(database), Some(follower)) => follower.writes().done(database),
            (Err(error), _) if !self.leaves => return self.actions.push(DriverAction::Failed(error)),
            _ => self.follower = None,
        }
        if self.leaves {
            return self.actions.push(DriverAction::Exit(0));
        }
        self.write_on();
        self.look_after_database();
    }

    /// Takes something that concerns the ownership alone.
    pub fn take(&mut self, input: OwnershipInput, now: Moment) {
        self.now = now;
        self.tell(input);
    }

    /// Takes an answer to an append.
    pub fn replied(&mut self, id: AppendId, reply: AppendReply, now: Moment) {
        self.take(OwnershipInput::Reply(id, reply), now);
    }

    /// Takes what the log holds at the position of an append.
    pub fn found(
        &mut self,
        id: AppendId,
        position: Position,
        found: Result<Vec<(u64, Bytes)>, EngineError>,
        now: Moment,
    ) {
        let next = self.own.compare(id, position, &found);
        self.take(OwnershipInput::Next(id, next), now);
    }

    /// Takes the last position as the leader says it; `None` if it says nothing.
    pub fn log_ends(&mut self, last: Option<u64>, now: Moment) {
        self.now = now;
        let Some(last) = last else { return self.tell(OwnershipInput::LastUnknown) };
        self.last_known = last;
        self.has_caught_up |= last <= self.machine.position().0;
        let (last, reported, rows_read) = (Position(last), self.reported, self.rows_read);
        self.tell(OwnershipInput::Last(EngineAnswer { last, reported, rows_read }));
    }

    /// Takes the highest position that a row of a node has, and whether somebody has written an
    /// alarm, with its text, as they were asked for at a time.
    pub fn rows_seen(&mut self, reported: u64, alarm: Option<&str>, asked: Instant, now: Moment) {
        (self.now, self.rows_read) = (now, asked);
        self.reported = self.reported.max(Position(reported));
        if let Some(alarm) = alarm {
            self.alarmed(alarm);
            self.tell(OwnershipInput::AlarmRead);
        }
    }

    /// Takes the next group of the owner's store.
    pub fn group_is_ready(&mut self, next: NextGroup, now: Moment) {
        self.now = now;
        self.own.take_group(next);
        self.tell(OwnershipInput::GroupReady);
    }

    /// Sets the time of the frames that the driver makes: that of the owner's store.
    pub fn time_runs(&mut self, time: FileTime) {
        self.own.time_runs(time);
    }

    /// Takes frames of the log, in order.
    pub fn frames(&mut self, frames: Vec<(u64, Bytes)>, now: Moment) {
        (self.now, self.is_reading) = (now, false);
        for (position, bytes) in frames {
            if !self.take_frame(position, &bytes) {
                return;
            }
        }
    }

    /// Takes the next frame. Returns false if no more is taken.
    fn take_frame(&mut self, position: u64, bytes: &Bytes) -> bool {
        let Some(follower) = &self.follower else { return false };
        let next = self.machine.position().next();
        if self.machine.role() != Role::Following || position < next.0 {
            return true;
        }
        if position > next.0 {
            error!(
                event = "cluster.purged",
                position,
                wanted = next.0,
                "the log begins behind this node's database: the next start fetches a snapshot"
            );
            self.actions.push(DriverAction::Exit(EXIT_LOST));
            return false;
        }
        let read = match follower.read(&self.tail, position, bytes) {
            Ok(read) => read,
            Err(unfit) => {
                self.unfit(position, unfit);
                return false;
            }
        };
        self.last_known = self.last_known.max(position);
        self.tell(OwnershipInput::Frame(Position(position), read.kind));
        if self.machine.position().0 != position {
            // The node has claimed instead. The frame is read again after the Claim is lost.
            return true;
        }
        let arrival = if self.has_caught_up { Arrival::Now(self.now) } else { Arrival::Late(self.now) };
        let Some(follower) = &mut self.follower else { return false };
        follower.take(&mut self.tail, read, bytes, arrival, self.now.monotonic);
        self.tell(OwnershipInput::Applied(Position(position)));
        true
    }

    fn unfit(&mut self, position: u64, unfit: Unfit) {
        error!(event = "cluster.unfit", position, why = %unfit, "a frame of the log does not continue what this node has");
        if unfit.shows_a_change() {
            self.alarmed(&format!("frame {position}: {unfit}"));
        }
        match unfit {
            Unfit::Broken(broken) => self.tell(OwnershipInput::Broken(broken)),
            Unfit::Unreadable(_) if unfit.shows_a_change() => self.tell(OwnershipInput::AlarmRead),
            Unfit::Unreadable(_) => self.actions.push(DriverAction::Exit(EXIT_REFUSED)),
        }
    }

    /// Asks for the next frames, if the node follows, has room for them in memory, and has no such
    /// question under way.
    fn follow_on(&mut self) {
        let is_full = self.follower.as_mut().is_none_or(|follower| follower.writes().is_full());
        if self.machine.role() == Role::Following && !self.is_reading && !is_full {
            self.is_reading = true;
            let after = self.machine.position().0;
            self.actions.push(DriverAction::Follow { after, waits: after >= self.last_known });
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
            let mut outputs = Vec::new();
            self.machine.handle(input, self.now.monotonic, &mut outputs);
            let stored = self.own.stored(self.machine.position());
            if let Some(stored) = &stored {
                self.tail.advance_made(stored);
            }
            self.renew_lease();
            for output in outputs {
                self.decide(output, stored.as_ref());
            }
            self.queue.pop_front();
        }
    }

    fn renew_lease(&mut self) {
        let until = if self.by_lease { self.machine.lease_until() } else { Instant::ZERO };
        if until != self.lease_until {
            self.lease_until = until;
            self.actions.push(DriverAction::Lease(until));
        }
    }

    fn decide(&mut self, output: OwnershipOutput, stored: Option<&Made>) {
        let action = match output {
            OwnershipOutput::Append(id, position, kind) => return self.append(id, position, kind),
            OwnershipOutput::Resend(id) => {
                let Some((position, bytes)) = self.own.pending(id) else { return };
                DriverAction::Append(id, position, bytes.clone())
            }
            OwnershipOutput::ReadNext(id, position) => DriverAction::AskFrame(id, position),
            OwnershipOutput::AskLast => DriverAction::AskEnds,
            OwnershipOutput::AskRows => DriverAction::AskRows,
            OwnershipOutput::Follow => return self.own.claim_is_lost(),
            OwnershipOutput::Recover(_) => return self.recover(stored),
            OwnershipOutput::Serve | OwnershipOutput::Rejoin => DriverAction::LetIn,
            OwnershipOutput::GroupStored(_) => return self.group_stored(),
            OwnershipOutput::GroupFull(_) => {
                self.own.refused();
                self.group_due = self.now.monotonic + self.timing.retry;
                DriverAction::Full(true)
            }
            OwnershipOutput::Flush => DriverAction::Flush,
            OwnershipOutput::Isolate => DriverAction::Isolate,
            // The lease has ended with the role.
            OwnershipOutput::StopAcknowledging => return,
            OwnershipOutput::WriteAlarm(alarm) => return self.write_alarm(alarm),
            OwnershipOutput::Exit(code) => return self.exit(code),
        };
        self.actions.push(action);
    }

    /// Ends the process. A node that leaves in order waits for the write under way.
    fn exit(&mut self, code: u8) {
        let is_writing = |follower: &mut Follower<D>| follower.writes().is_under_way();
        self.leaves = code == 0 && self.follower.as_mut().is_some_and(is_writing);
        if !self.leaves {
            self.actions.push(DriverAction::Exit(code));
        }
    }

    fn append(&mut self, id: AppendId, position: Position, kind: AppendKind) {
        if let AppendKind::Claim(claim) = kind {
            info!(
                event = "cluster.claims",
                epoch = claim.epoch,
                position = position.0,
                "this node claims the cell"
            );
            let last = self.follower.as_ref().map_or(self.tail.mark(), Follower::mark);
            self.own.claims_behind(last, self.now);
        }
        let frame = self.own.make(&self.tail, (id, position, kind), self.now);
        self.actions.push(DriverAction::Append(id, position, frame));
    }

    fn recover(&mut self, claim: Option<&Made>) {
        let (Some(follower), Some(claim)) = (self.follower.take(), claim) else { return };
        let (database, mark) = match follower.end_with(&self.tail, claim, self.now.monotonic) {
            Ok(finished) => finished,
            Err(error) => return self.actions.push(DriverAction::Failed(error)),
        };
        self.recovered_at = mark.position;
        info!(
            event = "cluster.owner",
            epoch = self.machine.epoch(),
            position = mark.position,
            "this node owns the cell, and recovers its sessions"
        );
        self.actions.push(DriverAction::Recover(database, mark));
    }

    /// A piece of the group is stored. With the last one, so is the group.
    fn group_stored(&mut self) {
        let Some(is_whole) = self.own.piece_is_stored() else { return };
        self.actions.push(DriverAction::Full(false));
        if is_whole {
            self.actions.push(DriverAction::GroupStored(self.tail.mark()));
        } else {
            self.tell(OwnershipInput::GroupReady);
        }
    }

    fn write_alarm(&mut self, alarm: Alarm) {
        self.alarmed(match alarm {
            Alarm::LostFrames => "the engine has fewer frames than a node has applied",
            Alarm::ChangedFrames => "a frame of the log was changed",
        });
    }

    fn alarmed(&mut self, why: &str) {
        if !self.is_alarmed {
            self.is_alarmed = true;
            self.actions.push(DriverAction::Alarmed(why.to_owned()));
        }
    }
}
