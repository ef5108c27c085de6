//! The decisions of the driver of a cell: which frame is made, what an answer of the engine means,
//! and when the next frames are asked for. It has no thread, no clock and no engine, so the
//! simulation (`tests/cells`) drives the same code as a node. `driver` carries out its actions.

use super::engine::{EngineError, MAX_FRAME};
use super::follower::{Arrival, Follower};
use super::tail::{Made, Tail, Unfit};
use crate::persistence::ownership::{
    Alarm, AppendId, AppendKind, AppendReply, CellNode, CellOwnership, ChainBreak, EXIT_LOST, EXIT_REFUSED,
    EngineAnswer, Fitness, NextFrame, OwnershipInput, OwnershipOutput, Position, Progress, Role, Start,
    Timing,
};
use crate::store::database::Database;
use crate::store::frame::FrameError;
use crate::store::frame::cluster::FrameKind;
use crate::store::replicated::NextGroup;
use crate::store::sqlite::{Mark, Sqlite};
use crate::store::wall::{FileTime, Heartbeat, resume};
use crate::store::{Moment, StoreError};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use tracing::{error, info};

/// Bytes of a group in one frame.
const PIECE: usize = MAX_FRAME - 1024;

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

/// What the driver of a cell has to do, in the order in which it is to be done.
#[derive(Debug)]
pub enum DriverAction<D = Sqlite> {
    /// Append this frame at this position.
    Append(AppendId, Position, Bytes),
    /// Read what the log holds at the position of an append.
    AskFrame(AppendId, Position),
    /// Ask the leader for the ends of the log.
    AskEnds,
    /// Read the frames behind a position. `waits` is true if the node has all frames, as far as it
    /// knows.
    Follow {
        /// The last position that the node has.
        after: u64,
        /// The node waits for an announcement first.
        waits: bool,
    },
    /// The end of the lease is another one.
    Lease(Instant),
    /// The engine has no room for new frames, or has room again.
    Full(bool),
    /// The cell is owned: start the broker with this database, which has everything up to the mark.
    Recover(D, Mark),
    /// Let clients in.
    LetIn,
    /// No frame was stored for too long.
    Isolate,
    /// The lease has ended: end the broker.
    Flush,
    /// The group is stored, and this is the mark of its last frame.
    GroupStored(Mark),
    /// Nobody may serve until a person has decided, for this reason.
    Alarmed(String),
    /// End the process with this code.
    Exit(u8),
    /// The database of this node cannot be used: end the process.
    Failed(StoreError),
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

/// See the module. Each call takes the present moment, and may add actions.
pub struct DriverCore<D: Database = Sqlite> {
    timing: Timing,
    machine: CellOwnership,
    /// The end of the log that this node has.
    tail: Tail,
    /// The way into the database; `None` once the broker has it.
    follower: Option<Follower<D>>,
    /// The moment of the call that is under way.
    now: Moment,
    /// What the machine is told next.
    queue: VecDeque<OwnershipInput>,
    pending: Option<Pending>,
    group: Option<Group>,
    /// The time of the next attempt of a group that the engine had no room for.
    group_due: Instant,
    by_lease: bool,
    lease_until: Instant,
    /// The time of the frames that the driver makes, once the node has claimed.
    time: Option<FileTime>,
    follows: Following,
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
            now: Moment { monotonic: now, ..Moment::default() },
            queue: VecDeque::new(),
            pending: None,
            group: None,
            group_due: Instant::NEVER,
            by_lease,
            lease_until: Instant::ZERO,
            time: None,
            follows: Following::Idle,
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
            let ticked = self.look_after_database();
            self.check(ticked);
        }
        if now.monotonic >= self.group_due {
            self.group_due = Instant::NEVER;
            self.tell(OwnershipInput::GroupReady);
        }
        self.tell(OwnershipInput::Tick(progress));
        is_round
    }

    /// Writes what is old enough into the database of a standby. One without room does not claim.
    fn look_after_database(&mut self) -> Result<(), StoreError> {
        let Some(follower) = &mut self.follower else { return Ok(()) };
        follower.tick(self.now.monotonic)?;
        let fitness = if follower.has_room()? { Fitness::Fit } else { Fitness::Unfit };
        self.tell(OwnershipInput::Fitness(fitness));
        Ok(())
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
        let own = self.pending.as_ref().filter(|pending| pending.id == id).map(|own| &own.made.bytes);
        let next = match found.as_ref().map(|frames| frames.first()) {
            Ok(Some((at, bytes))) if *at == position.0 && Some(bytes) == own => NextFrame::Ours,
            Ok(Some(_)) => NextFrame::Another,
            Ok(None) => NextFrame::Nothing,
            Err(_) => NextFrame::Unknown,
        };
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
    /// alarm, with its text.
    pub fn rows_seen(&mut self, reported: u64, alarm: Option<&str>, now: Moment) {
        (self.now, self.rows_read) = (now, now.monotonic);
        self.reported = self.reported.max(Position(reported));
        if let Some(alarm) = alarm {
            self.alarmed(alarm);
            self.tell(OwnershipInput::AlarmRead);
        }
    }

    /// Takes the next group of the owner's store.
    pub fn group_is_ready(&mut self, next: NextGroup, now: Moment) {
        self.now = now;
        self.group = Some(Group { next, piece: 0 });
        self.tell(OwnershipInput::GroupReady);
    }

    /// Sets the time of the frames that the driver makes: that of the owner's store.
    pub fn time_runs(&mut self, time: FileTime) {
        self.time = Some(time);
    }

    /// Takes frames of the log, in order.
    pub fn frames(&mut self, frames: Vec<(u64, Bytes)>, now: Moment) {
        (self.now, self.follows) = (now, Following::Idle);
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
        let taken = follower.take(&mut self.tail, read, bytes, arrival, self.now.monotonic);
        self.check(taken);
        self.tell(OwnershipInput::Applied(Position(position)));
        true
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
            Unfit::Unreadable(FrameError::Digest | FrameError::Incomplete) => {
                self.alarmed(&format!("frame {position}: {unfit}"));
                self.tell(OwnershipInput::AlarmRead);
            }
            Unfit::Unreadable(_) => self.actions.push(DriverAction::Exit(EXIT_REFUSED)),
        }
    }

    /// Asks for the next frames, if the node follows and has no such question under way.
    fn follow_on(&mut self) {
        if self.follows == Following::Idle && self.machine.role() == Role::Following {
            self.follows = Following::Asked;
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
            let stored = self.pending.take_if(|pending| pending.position <= self.machine.position());
            if let Some(stored) = &stored {
                self.tail.advance_made(&stored.made);
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

    fn decide(&mut self, output: OwnershipOutput, stored: Option<&Pending>) {
        let action = match output {
            OwnershipOutput::Append(id, position, kind) => return self.append(id, position, kind),
            OwnershipOutput::Resend(id) => {
                let Some(Pending { position, made, .. }) = self.pending.as_ref().filter(|own| own.id == id)
                else {
                    return;
                };
                DriverAction::Append(id, *position, made.bytes.clone())
            }
            OwnershipOutput::ReadNext(id, position) => DriverAction::AskFrame(id, position),
            OwnershipOutput::AskLast => DriverAction::AskEnds,
            OwnershipOutput::Follow => {
                (self.pending, self.time) = (None, None);
                return;
            }
            OwnershipOutput::Recover(_) => return self.recover(stored),
            OwnershipOutput::Serve | OwnershipOutput::Rejoin => DriverAction::LetIn,
            OwnershipOutput::GroupStored(_) => return self.group_stored(),
            OwnershipOutput::GroupFull(_) => {
                self.pending = None;
                self.group_due = self.now.monotonic + self.timing.retry;
                DriverAction::Full(true)
            }
            OwnershipOutput::Flush => DriverAction::Flush,
            OwnershipOutput::Isolate => DriverAction::Isolate,
            // The lease has ended with the role.
            OwnershipOutput::StopAcknowledging => return,
            OwnershipOutput::WriteAlarm(alarm) => return self.write_alarm(alarm),
            OwnershipOutput::Exit(code) => DriverAction::Exit(code),
        };
        self.actions.push(action);
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
                self.time = Some(self.time_at_the_claim());
                self.tail.make_sign(FrameKind::Claim(claim), self.moment())
            }
            (AppendKind::Release, _) => self.tail.make_sign(FrameKind::Release, self.moment()),
        };
        self.actions.push(DriverAction::Append(id, position, made.bytes.clone()));
        self.pending = Some(Pending { id, position, made });
    }

    /// Returns the moment of a frame that the driver makes.
    fn moment(&self) -> Heartbeat {
        match self.time {
            Some(time) => Heartbeat::at(self.now, time),
            None => self.tail.mark().moment,
        }
    }

    /// Goes on with the time of the log by the clocks of this node, from the last frame on.
    fn time_at_the_claim(&self) -> FileTime {
        let last = self.follower.as_ref().map_or(self.tail.mark(), Follower::mark);
        resume(Some(last.moment).filter(|_| last.position > 0), self.now).time
    }

    fn recover(&mut self, claim: Option<&Pending>) {
        let (Some(follower), Some(claim)) = (self.follower.take(), claim) else { return };
        let (database, mark) = match follower.end_with(&self.tail, &claim.made) {
            Ok(finished) => finished,
            Err(error) => return self.check(Err(error)),
        };
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
        let Some(mut group) = self.group.take() else { return };
        self.actions.push(DriverAction::Full(false));
        group.piece += 1;
        if group.piece < group.next.body.pieces(PIECE) {
            self.group = Some(group);
            self.tell(OwnershipInput::GroupReady);
        } else {
            self.actions.push(DriverAction::GroupStored(self.tail.mark()));
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

    fn check(&mut self, outcome: Result<(), StoreError>) {
        if let Err(error) = outcome {
            self.actions.push(DriverAction::Failed(error));
        }
    }
}
