//! The driver of a machine: what it does with the outputs, and which inputs it makes of answers.

use super::frame::{Frame, digest};
use super::node::{Disk, Process, Purpose, Service};
use super::world::{Event, Occupant, World};
use crate::replicated_log::{LogAnswer, LogRequest, LogRequestNumber, LogSnapshot, ReplicatedLog};
use bytes::Bytes;
use homing_core::persistence::ownership::{
    AppendKind, AppendReply, ChainEnd, EngineAnswer, Fitness, NextFrame, OwnershipInput, OwnershipOutput,
    Position, Timing,
};

/// The identifier of the cluster's log.
const LOG: u64 = 7;

impl<O: Occupant> World<O> {
    pub(super) fn time_out(&mut self, node: usize, cell: usize, request: LogRequestNumber) {
        let Some(process) = self.process(node, cell) else { return };
        let Some((_, purpose, _)) = process.outstanding.iter().find(|(number, ..)| *number == request) else {
            return;
        };
        match *purpose {
            Purpose::Append(id) => self.tell(node, cell, OwnershipInput::Reply(id, AppendReply::TimedOut)),
            Purpose::ReadNext(id, _) => {
                process.answered(request);
                self.tell(node, cell, OwnershipInput::Next(id, NextFrame::Unknown));
            }
            _ => {}
        }
    }

    pub(super) fn tell(&mut self, node: usize, cell: usize, input: OwnershipInput) {
        let now = self.local(node);
        let fitness = self.fitness(node);
        let Some(process) = self.process(node, cell) else { return };
        if process.fitness != fitness {
            process.fitness = fitness;
            self.tell(node, cell, OwnershipInput::Fitness(fitness));
        }
        let Some(process) = self.process(node, cell) else { return };
        let had_wake = process.machine.wake_at();
        let outputs = process.handle(input, now);
        let (may_promise, epoch) = (process.machine.may_promise(now), process.machine.epoch());
        let (wake, number) = (process.machine.wake_at(), process.number);
        let stored = process.stored.as_ref().map(|stored| stored.sent);
        self.note_stored(node, cell, stored);
        if may_promise && !self.nodes[node].is_fooled(cell) {
            self.oracle.check_lease(cell, epoch);
        }
        O::lease_changed(self, node, cell);
        for output in outputs {
            self.carry_out(node, cell, output);
        }
        if !wake.is_never() && wake != had_wake {
            let at = self.after(node, wake.since(now));
            self.events.add(at, Event::Wake { node, cell, process: number });
        }
        self.check_flushed(node, cell);
    }

    pub fn check_flushed(&mut self, node: usize, cell: usize) {
        let flushes =
            |process: &&mut Process<O::Memory>| process.service == Service::Flushing && !process.is_flushed;
        if self.process(node, cell).filter(flushes).is_some() && O::is_flushed(self, node, cell) {
            self.process(node, cell).expect("it runs").is_flushed = true;
            self.tell(node, cell, OwnershipInput::Flushed);
        }
    }

    fn carry_out(&mut self, node: usize, cell: usize, output: OwnershipOutput) {
        let fitness = self.fitness(node);
        let Some(process) = self.nodes[node].processes[cell].as_mut() else { return };
        match output {
            OwnershipOutput::Append(id, position, kind) => {
                if let AppendKind::Claim(claim) = kind {
                    assert_eq!(fitness, Fitness::Fit, "a node without room claims");
                    assert_eq!(claim.epoch, process.machine.epoch() + 1);
                }
                let content =
                    if kind == AppendKind::Group { O::group(self, node, cell) } else { Bytes::new() };
                let at = (position, self.now);
                let process = self.process(node, cell).expect("it runs");
                process.make(cell, id, at, kind, content);
                self.append(node, cell);
            }
            OwnershipOutput::Resend(id) => {
                let pending = process.pending.as_ref().map(|pending| pending.id);
                assert_eq!(pending, Some(id), "a second frame left before the first was decided");
                self.append(node, cell);
            }
            OwnershipOutput::ReadNext(id, from) => {
                self.ask(node, cell, Purpose::ReadNext(id, from), LogRequest::Read { from, bytes: 1 });
            }
            OwnershipOutput::AskLast => self.ask(node, cell, Purpose::Last, LogRequest::Last),
            OwnershipOutput::Follow => process.pending = None,
            OwnershipOutput::WriteAlarm(_) => self.alarms[cell] = true,
            OwnershipOutput::Exit(code) => {
                let epoch = process.machine.epoch();
                assert!(
                    code == 0 || self.oracle.is_over(cell, epoch),
                    "a node ended, and its cell is its own"
                );
                self.end(node, cell);
            }
            other => self.serve(node, cell, other),
        }
    }

    /// Carries out what is about clients, and about what they are owed.
    fn serve(&mut self, node: usize, cell: usize, output: OwnershipOutput) {
        let now = self.local(node);
        let process = self.nodes[node].processes[cell].as_mut().expect("it runs");
        match output {
            OwnershipOutput::Recover(_) => {
                process.recovery = self.rng.between(50, 400);
                let number = process.number;
                let at = self.now + process.recovery;
                self.events.add(at, Event::Recovered { node, cell, process: number });
            }
            OwnershipOutput::Serve => {
                self.oracle.serves(cell, self.now, process.recovery);
                self.change_service(node, cell, Service::Open);
            }
            OwnershipOutput::GroupStored(id) => {
                let stored = process.stored.as_ref().filter(|stored| stored.id == id);
                let frame = stored.expect("the group").frame.clone();
                O::group_stored(self, node, cell, &frame);
            }
            OwnershipOutput::GroupFull(id) => {
                let pending = process.pending.take_if(|pending| pending.id == id).expect("the group");
                O::group_full(self, node, cell, &pending.frame);
            }
            OwnershipOutput::Flush => self.change_service(node, cell, Service::Flushing),
            OwnershipOutput::Isolate => {
                assert!(!process.machine.may_promise(now), "isolated, and it may promise");
                self.change_service(node, cell, Service::Isolated);
            }
            OwnershipOutput::Rejoin => self.change_service(node, cell, Service::Open),
            OwnershipOutput::StopAcknowledging => self.change_service(node, cell, Service::None),
            other => unreachable!("{other:?}"),
        }
    }

    fn change_service(&mut self, node: usize, cell: usize, service: Service) {
        self.process(node, cell).expect("it runs").service = service;
        O::service_changed(self, node, cell);
    }

    fn append(&mut self, node: usize, cell: usize) {
        let process = self.nodes[node].processes[cell].as_mut().expect("it runs");
        let pending = process.pending.as_ref().expect("made");
        let (id, frame) = (pending.id, pending.bytes.clone());
        let after = Position(pending.position.0 - 1);
        self.ask(node, cell, Purpose::Append(id), LogRequest::Append { after, frame });
    }

    fn ask(&mut self, node: usize, cell: usize, purpose: Purpose, request: LogRequest) {
        let now = self.local(node);
        let process = self.nodes[node].processes[cell].as_mut().expect("it runs");
        let number = process.request(purpose, now);
        self.engine.log(node, cell).request(number, request);
        if matches!(purpose, Purpose::Append(_) | Purpose::ReadNext(..)) {
            let at = self.after(node, Timing::default().append_timeout);
            self.events.add(at, Event::Timeout { node, cell, request: number });
        }
    }

    pub(super) fn take_answers(&mut self, node: usize, cell: usize) {
        if self.nodes[node].stopped_until > self.now {
            return;
        }
        while let Some((number, answer)) = self.engine.log(node, cell).next_answer() {
            let Some(purpose) = self.process(node, cell).and_then(|process| process.answered(number)) else {
                continue;
            };
            match (purpose, answer) {
                (Purpose::Append(id), LogAnswer::Append(reply)) => {
                    self.tell(node, cell, OwnershipInput::Reply(id, reply));
                }
                (Purpose::ReadNext(id, from), LogAnswer::Frames(frames)) => {
                    let process = self.process(node, cell).expect("it has asked");
                    let own =
                        process.pending.as_ref().filter(|pending| pending.id == id).map(|own| own.digest);
                    let next = match frames.first() {
                        Some((at, bytes)) if *at == from && Some(digest(bytes)) == own => NextFrame::Ours,
                        Some(_) => NextFrame::Another,
                        None => NextFrame::Nothing,
                    };
                    self.tell(node, cell, OwnershipInput::Next(id, next));
                }
                (Purpose::Follow, LogAnswer::Frames(frames)) => {
                    let next = self.process(node, cell).map(|process| process.machine.position().next());
                    if frames.first().is_some_and(|(first, _)| Some(*first) > next) {
                        self.ask(node, cell, Purpose::GetSnapshot, LogRequest::GetSnapshot);
                    }
                    for (position, bytes) in frames {
                        self.follow(node, cell, position, &bytes);
                    }
                }
                (Purpose::Last, LogAnswer::Last(last)) => {
                    let reported = self.engine.reported(cell);
                    self.tell(node, cell, OwnershipInput::Last(EngineAnswer { last, reported }));
                    self.read_on(node, cell, last);
                }
                (Purpose::GetSnapshot, LogAnswer::Snapshot(snapshot)) => self.restore(node, cell, snapshot),
                (Purpose::PutSnapshot(position), LogAnswer::Done) => self.trim(node, cell, position),
                (Purpose::Trim, LogAnswer::Done) => {}
                (purpose, answer) => unreachable!("{answer:?} for {purpose:?}"),
            }
        }
    }

    /// Begins anew with a snapshot: the frames before it are gone.
    fn restore(&mut self, node: usize, cell: usize, snapshot: Option<LogSnapshot>) {
        let at = self.process(node, cell).map(|process| process.machine.position());
        if let Some(snapshot) = snapshot.filter(|snapshot| Some(snapshot.position) > at) {
            self.nodes[node].disks[cell] = Disk::from_snapshot(&snapshot);
            self.end(node, cell);
        }
    }

    pub(super) fn put_snapshot(&mut self, node: usize, cell: usize) {
        let snapshot = self.nodes[node].disks[cell].snapshot();
        self.ask(node, cell, Purpose::PutSnapshot(snapshot.position), LogRequest::PutSnapshot(snapshot));
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

    pub(super) fn read_on(&mut self, node: usize, cell: usize, end: Position) {
        let Some(process) = self.process(node, cell) else { return };
        let from = process.machine.position().next();
        if process.is_following() && end >= from && !process.asks_for(Purpose::Follow) {
            self.ask(node, cell, Purpose::Follow, LogRequest::Read { from, bytes: 4096 });
        }
    }

    fn follow(&mut self, node: usize, cell: usize, position: Position, bytes: &Bytes) {
        let Some(process) = self.process(node, cell) else { return };
        if !process.is_following() || position != process.machine.position().next() {
            return;
        }
        let frame = Frame::read(bytes);
        let end = ChainEnd {
            log: LOG,
            cell: cell as u16,
            epoch: process.machine.epoch(),
            position: process.machine.position(),
            digest: u128::from(process.tail),
        };
        if let Err(broken) = end.check(&frame.link(LOG, position)) {
            return self.tell(node, cell, OwnershipInput::Broken(broken));
        }
        self.tell(node, cell, OwnershipInput::Frame(position, frame.seen()));
        // It may have claimed instead: then the frame is read again after its Claim is lost.
        let Some(process) = self.process(node, cell) else { return };
        if process.machine.position() != position {
            return;
        }
        process.tail = digest(bytes);
        process.unapplied.push((position, process.tail, frame));
        self.tell(node, cell, OwnershipInput::Applied(position));
    }
}
