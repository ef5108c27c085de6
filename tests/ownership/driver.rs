//! What the threads of a node do around its driver: they carry out its actions, and hand it the
//! answers of the engine.

use super::node::{Process, Purpose, Service, input, snapshot};
use super::owner::Owner;
use super::world::{Event, Node, Occupant, WILL_GRACE, World};
use crate::memory_store::Memory;
use crate::replicated_log::{LogAnswer, LogRequest, LogRequestNumber, ReplicatedLog};
use homing::cluster::driver_core::DriverCore;
use homing::cluster::engine::EngineError;
use homing::cluster::messages::DriverAction;
use homing::store::frame::cluster::{FrameKind, check_sign};
use homing_core::ownership::{AppendReply, OwnershipInput, Position, Progress, Role, Timing};

/// Bytes that a standby reads at once.
pub(super) const READ: usize = 4096;
/// The time that a node waits for the next frame before it asks for it.
const WAITS: u64 = 250;

impl<O: Occupant> World<O> {
    /// Calls the driver of a process that runs, and does what follows.
    pub(super) fn call(&mut self, node: usize, cell: usize, call: impl FnOnce(&mut DriverCore<Memory>)) {
        let (now, real) = (self.local(node), self.now);
        let Some(process) = self.process(node, cell) else { return };
        let (role, had_wake) = (process.machine().role(), process.machine().wake_at());
        let actions = process.call(real, call);
        let (number, stored) = (process.number, process.stored);
        let (may_promise, epoch) = (process.may_promise(now), process.machine().epoch());
        self.note_stored(node, cell, stored);
        if may_promise && !self.nodes[node].is_fooled(cell) {
            self.oracle.check_lease(cell, epoch);
        }
        for action in actions {
            if self.is_running(node, cell, number) {
                self.carry_out(node, cell, action);
            }
        }
        let Some(process) = self.process(node, cell).filter(|process| process.number == number) else {
            return;
        };
        let now_role = process.machine().role();
        let has_lost = role != now_role && matches!(now_role, Role::Alarmed | Role::Lost);
        let wake = process.machine().wake_at();
        if has_lost {
            self.change_service(node, cell, Service::None);
        }
        if wake != had_wake && !wake.is_never() {
            let at = self.after(node, wake.since(now));
            self.events.add(at, Event::Wake { node, cell, process: number });
        }
        self.check_flushed(node, cell);
    }

    /// Tells the machine of a process something.
    pub fn tell(&mut self, node: usize, cell: usize, told: OwnershipInput) {
        let now = self.moment(node);
        self.call(node, cell, input(told, now));
    }

    pub fn check_flushed(&mut self, node: usize, cell: usize) {
        let flushes =
            |process: &&mut Process<O::Memory>| process.service == Service::Flushing && !process.is_flushed;
        if self.process(node, cell).filter(flushes).is_none() {
            return;
        }
        let has_work = self.process(node, cell).and_then(|of| of.owner.as_mut()).is_some_and(Owner::has_work);
        if !has_work && O::is_flushed(self, node, cell) {
            self.process(node, cell).expect("it runs").is_flushed = true;
            self.tell(node, cell, OwnershipInput::Flushed);
        }
    }

    fn carry_out(&mut self, node: usize, cell: usize, action: DriverAction<Memory>) {
        match action {
            DriverAction::Append(id, position, frame) => {
                self.check_claim(node, &frame);
                let after = Position(position.0 - 1);
                self.ask(node, cell, Purpose::Append(id), LogRequest::Append { after, frame });
            }
            DriverAction::AskFrame(id, from) => {
                self.ask(node, cell, Purpose::ReadNext(id, from), LogRequest::Read { from, bytes: 1 });
            }
            DriverAction::AskRows => self.look_at_rows(node, cell),
            DriverAction::AskEnds => self.ask(node, cell, Purpose::Last, LogRequest::Last),
            DriverAction::Follow { after, waits } => {
                let from = Position(after + 1);
                if waits {
                    // It waits for an announcement, or asks without one.
                    let at = self.now + WAITS;
                    let process = self.process(node, cell).expect("it runs");
                    process.waits = Some((at, from));
                    let process = process.number;
                    self.events.add(at, Event::Follow { node, cell, process, at });
                } else {
                    self.ask(node, cell, Purpose::Follow, LogRequest::Read { from, bytes: READ });
                }
            }
            DriverAction::Write(write) => {
                self.process(node, cell).expect("it runs").write = Some(write);
                self.schedule_write(node, cell);
            }
            DriverAction::Alarmed(_) => self.alarms[cell] = true,
            DriverAction::Exit(code) => {
                let machine = self.process(node, cell).expect("it runs").machine();
                let (epoch, role) = (machine.epoch(), machine.role());
                let is_right = code == 0 || role == Role::Following || self.oracle.is_over(cell, epoch);
                assert!(is_right, "a node ended, and its cell is its own");
                self.end(node, cell);
            }
            DriverAction::Failed(error) => {
                assert!(self.nodes[node].disk_full_until + 2 * WAITS > self.now, "{error}");
                self.end(node, cell);
            }
            other => self.serve(node, cell, other),
        }
    }

    /// The next part of a write takes a while.
    fn schedule_write(&mut self, node: usize, cell: usize) {
        let (at, process) = (self.now + self.rng.between(1, 80), self.process(node, cell).expect("it runs"));
        let process = process.number;
        self.events.add(at, Event::Write { node, cell, process });
    }

    /// The writing thread of a standby writes a part, or has written everything.
    pub(super) fn write(&mut self, node: usize, cell: usize) {
        self.set_disk(node, cell);
        let (now, hangs_until) = (self.moment(node), self.nodes[node].hangs_until);
        let hangs = hangs_until > self.now;
        let Some(process) = self.process(node, cell) else { return };
        if hangs {
            let process = process.number;
            return self.events.add(hangs_until, Event::Write { node, cell, process });
        }
        let mut write = process.write.take().expect("a write is under way");
        let outcome = match write.step() {
            Ok(true) => {
                process.write = Some(write);
                return self.schedule_write(node, cell);
            }
            Ok(false) => write.run(),
            Err(error) => Err(error),
        };
        self.call(node, cell, |core| core.written(outcome, now));
    }

    /// A node that had no room for a while does not claim.
    fn check_claim(&self, node: usize, frame: &[u8]) {
        let Node { disk_full_from, disk_full_until, .. } = self.nodes[node];
        let is_full = disk_full_until > self.now && disk_full_from + 1000 < self.now;
        let is_claim = is_full && matches!(check_sign(frame), Ok((_, FrameKind::Claim(_))));
        assert!(!is_claim, "a node without room claims");
    }

    /// Carries out what is about the store and the clients of an owner.
    fn serve(&mut self, node: usize, cell: usize, action: DriverAction<Memory>) {
        let now = self.local(node);
        let process = self.nodes[node].processes[cell].as_mut().expect("it runs");
        match action {
            DriverAction::Lease(until) => {
                if let Some(owner) = &process.owner {
                    owner.set_lease(until);
                }
                O::lease_changed(self, node, cell);
            }
            DriverAction::Full(is_full) => {
                if let Some(owner) = &process.owner {
                    owner.set_full(is_full);
                }
            }
            DriverAction::Recover(database, mark) => {
                (process.cell, process.recovered) = (Some((database, mark)), 1);
                let (process, took) = (process.number, self.rng.between(50, 400));
                self.nodes[node].recovery = took;
                self.events.add(self.now + took, Event::Recovered { node, cell, process });
            }
            DriverAction::LetIn => {
                let recovery = self.nodes[node].recovery;
                self.oracle.serves(cell, self.now, recovery);
                self.change_service(node, cell, Service::Open);
            }
            DriverAction::Isolate => {
                assert!(!process.may_promise(now), "isolated, and it may promise");
                self.change_service(node, cell, Service::Isolated);
            }
            DriverAction::Flush => self.change_service(node, cell, Service::Flushing),
            DriverAction::GroupStored(mark) => {
                if let Some(owner) = &process.owner {
                    owner.is_stored(mark);
                }
                self.work(node, cell);
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// A new owner has read its database.
    pub(super) fn has_recovered(&mut self, node: usize, cell: usize) {
        let (now, moment, hangs_until) = (self.now, self.moment(node), self.nodes[node].hangs_until);
        let Some(process) = self.process(node, cell) else { return };
        if hangs_until > now {
            let process = process.number;
            return self.events.add(hangs_until, Event::Recovered { node, cell, process });
        }
        let Some((database, mark)) = process.cell.take() else { return };
        let (owner, recovered) = Owner::start(database, mark, WILL_GRACE, moment);
        owner.set_lease(process.core.lease_until());
        process.owner = Some(owner);
        O::recovered(self, node, cell, recovered);
        self.work(node, cell);
        self.tell(node, cell, OwnershipInput::Recovered);
    }

    /// The committing thread works until it has to wait.
    pub fn work(&mut self, node: usize, cell: usize) {
        loop {
            let moment = self.moment(node);
            let Some(owner) = self.process(node, cell).and_then(|process| process.owner.as_mut()) else {
                return;
            };
            let (group, committed) = owner.work(moment);
            let time = owner.take_time();
            let is_done = group.is_none() && committed.is_empty();
            if let Some(time) = time {
                self.call(node, cell, |core| core.time_runs(time));
            }
            if let Some(group) = group {
                self.call(node, cell, |core| core.group_is_ready(group, moment));
            }
            for committed in committed {
                O::committed(self, node, cell, committed);
            }
            if is_done {
                return;
            }
        }
    }

    fn change_service(&mut self, node: usize, cell: usize, service: Service) {
        self.process(node, cell).expect("it runs").service = service;
        O::service_changed(self, node, cell);
    }

    pub(super) fn ask(&mut self, node: usize, cell: usize, purpose: Purpose, request: LogRequest) {
        let now = self.local(node);
        let process = self.nodes[node].processes[cell].as_mut().expect("it runs");
        let number = process.request(purpose, now);
        self.engine.log(node, cell).request(number, request);
        if !matches!(purpose, Purpose::PutSnapshot(_) | Purpose::Trim) {
            let at = self.after(node, Timing::default().append_timeout);
            self.events.add(at, Event::Timeout { node, cell, request: number });
        }
    }

    /// An answer did not come in time.
    pub(super) fn time_out(&mut self, node: usize, cell: usize, request: LogRequestNumber) {
        let now = self.moment(node);
        let Some(process) = self.process(node, cell) else { return };
        let Some((_, purpose, _)) = process.outstanding.iter().find(|(number, ..)| *number == request) else {
            return;
        };
        let purpose = *purpose;
        if !matches!(purpose, Purpose::Append(_)) {
            process.answered(request);
        }
        let late = || Err(EngineError::TimedOut("the model".to_owned()));
        self.call(node, cell, |core| match purpose {
            Purpose::Append(id) => core.replied(id, AppendReply::TimedOut, now),
            Purpose::ReadNext(id, from) => core.found(id, from, late(), now),
            Purpose::Last => core.log_ends(None, now),
            Purpose::Follow => core.frames(Vec::new(), now),
            Purpose::PutSnapshot(_) | Purpose::Trim => {}
        });
    }

    pub(super) fn take_answers(&mut self, node: usize, cell: usize) {
        if self.nodes[node].stopped_until > self.now {
            return;
        }
        while let Some((number, answer)) = self.engine.log(node, cell).next_answer() {
            let now = self.moment(node);
            let Some(purpose) = self.process(node, cell).and_then(|process| process.answered(number)) else {
                continue;
            };
            match (purpose, answer) {
                (Purpose::Append(id), LogAnswer::Append(reply)) => {
                    self.call(node, cell, |core| core.replied(id, reply, now));
                }
                (Purpose::ReadNext(id, from), LogAnswer::Frames(frames)) => {
                    let found = frames.into_iter().map(|(at, bytes)| (at.0, bytes)).collect();
                    self.call(node, cell, |core| core.found(id, from, Ok(found), now));
                }
                (Purpose::Follow, LogAnswer::Frames(frames)) => {
                    let frames = frames.into_iter().map(|(at, bytes)| (at.0, bytes)).collect();
                    self.call(node, cell, |core| core.frames(frames, now));
                }
                (Purpose::Last, LogAnswer::Last(last)) => {
                    let process = self.process(node, cell).expect("it has asked");
                    if last <= process.position() {
                        process.caught_up.get_or_insert(last);
                    }
                    self.call(node, cell, |core| core.log_ends(Some(last.0), now));
                }
                (Purpose::PutSnapshot(position), LogAnswer::Done) => self.trim(node, cell, position),
                (Purpose::Trim, LogAnswer::Done) => {}
                (purpose, answer) => unreachable!("{answer:?} for {purpose:?}"),
            }
        }
    }

    /// A node copies its database for a snapshot, which takes a while.
    pub(super) fn begin_snapshot(&mut self, node: usize, cell: usize) {
        let database = self.nodes[node].disks[cell].database.copied();
        let (position, took) = (Position(database.mark().position), self.rng.between(10, 2000));
        self.copies.push(database);
        let (copy, process) = (self.copies.len() - 1, self.process(node, cell).expect("it runs").number);
        self.events.add(self.now + took, Event::Copied { node, cell, process, position, copy });
    }

    pub(super) fn put_snapshot(&mut self, node: usize, cell: usize, (position, copy): (Position, usize)) {
        let snapshot = snapshot(position, copy);
        self.ask(node, cell, Purpose::PutSnapshot(position), LogRequest::PutSnapshot(snapshot));
    }

    /// A snapshot is kept. If it is newer than the one that was certain before, the frames before
    /// that one are needless.
    fn trim(&mut self, node: usize, cell: usize, position: Position) {
        let kept = self.snapshots[cell];
        if position > kept {
            self.snapshots[cell] = position;
            self.ask(node, cell, Purpose::Trim, LogRequest::Trim(kept));
        }
    }

    /// Lets the time of a process pass.
    pub(super) fn pass_time(&mut self, node: usize, cell: usize) {
        let (now, hangs) = (self.moment(node), self.nodes[node].hangs_until > self.now);
        let Some(process) = self.process(node, cell) else { return };
        let progress = match (process.owner.is_some(), hangs) {
            (true, true) => Progress::Stuck,
            (true, false) => Progress::Moving,
            (false, _) => {
                process.recovered += u64::from(process.cell.is_some() && !hangs);
                Progress::Recovered(process.recovered)
            }
        };
        self.call(node, cell, |core| {
            core.tick(progress, now);
        });
    }
}
