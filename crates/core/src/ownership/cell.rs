//! The roles of a node for one cell, and the way from one to the next. `claim_if_due` decides when
//! a standby claims; [`LogWatch`] says if the owner is silent.

use super::recovery::RecoveryWatch;
use super::tenure::{ReachChange, Tenure};
use super::undecided::{Step, UndecidedAppend};
use super::watch::LogWatch;
use super::{
    Alarm, AppendId, AppendKind, CellNode, Claim, Consequence, EXIT_LOST, EXIT_REFUSED, Fitness,
    OwnershipInput, OwnershipOutput, Position, Progress, SeenKind, Start, Timing, TimingError,
};
use crate::time::Instant;
use std::time::Duration;

/// A directory claims its own cell at once after this many crashes in 60 s. After more, a standby
/// does: what made it crash may be on its machine.
const CRASHES: u32 = 3;

/// The machine of one node for one cell. The times that it is given come from one monotonic clock,
/// which counts suspends. [`super`] has the roles.
#[derive(Debug)]
pub struct CellOwnership {
    node: CellNode,
    timing: Timing,
    log: LogEnd,
    watch: LogWatch,
    state: State,
    fitness: Fitness,
    progress: Progress,
    recovery: RecoveryWatch,
    appends: u64,
    crashes: u32,
}

/// The end of the log, as far as the node has it.
#[derive(Debug)]
struct LogEnd {
    /// The last frame that was read, or stored by this node.
    seen: Position,
    applied: Position,
    claim: Option<Claim>,
    is_released: bool,
}

#[derive(Debug)]
enum State {
    Following,
    Claiming(UndecidedAppend, Wish),
    Recovering(Tenure),
    Holding(Tenure),
    Releasing(Tenure, Flush),
    Released,
    Lost,
    Alarmed,
}

/// What a claimant does with its Claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Serve,
    /// It was drained meanwhile, and cannot take its Claim back.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    UnderWay,
    Done,
}

/// The role of a node for one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table of the module has them")]
pub enum Role {
    Following,
    Claiming,
    Recovering,
    Holding,
    Releasing,
    Released,
    Lost,
    Alarmed,
}

impl CellOwnership {
    /// Returns the machine of a process that starts, as a standby.
    ///
    /// # Errors
    /// The durations do not fit each other.
    pub fn new(
        node: CellNode,
        timing: Timing,
        start: Start,
        now: Instant,
    ) -> Result<CellOwnership, TimingError> {
        timing.check()?;
        let Start { position, claim, is_released, crashes } = start;
        Ok(CellOwnership {
            node,
            timing,
            log: LogEnd { seen: position, applied: position, claim, is_released },
            watch: LogWatch::new(now),
            state: State::Following,
            fitness: Fitness::Fit,
            progress: Progress::Moving,
            recovery: RecoveryWatch::new(now),
            appends: 0,
            crashes,
        })
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        match self.state {
            State::Following => Role::Following,
            State::Claiming(..) => Role::Claiming,
            State::Recovering(_) => Role::Recovering,
            State::Holding(_) => Role::Holding,
            State::Releasing(..) => Role::Releasing,
            State::Released => Role::Released,
            State::Lost => Role::Lost,
            State::Alarmed => Role::Alarmed,
        }
    }

    /// Returns the last position that the node has read or written.
    pub fn position(&self) -> Position {
        self.log.seen
    }

    /// Returns the epoch of the last Claim that the node has read or written; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.log.claim.map_or(0, |claim| claim.epoch)
    }

    /// Returns the end of the lease; [`Instant::ZERO`] without one.
    pub fn lease_until(&self) -> Instant {
        match &self.state {
            State::Holding(tenure) => tenure.lease_until(),
            _ => Instant::ZERO,
        }
    }

    /// Returns the time of the first attempt of an append that is not decided, for who reports that
    /// the engine hangs.
    pub fn undecided_since(&self) -> Option<Instant> {
        self.pending().map(|append| append.first_sent)
    }

    /// Returns the time at which a tick is due beside those that come each [`Timing::early_beat`].
    pub fn wake_at(&self) -> Instant {
        self.pending().map_or(Instant::NEVER, UndecidedAppend::wake_at)
    }

    /// Takes an input, and adds what follows to `outputs`, in the order in which it is to be done.
    pub fn handle(&mut self, input: OwnershipInput, now: Instant, outputs: &mut Vec<OwnershipOutput>) {
        match input {
            OwnershipInput::Frame(position, kind) => self.frame_seen(position, kind, now),
            OwnershipInput::Applied(position) => self.log.applied = self.log.applied.max(position),
            OwnershipInput::Last(answer) => {
                self.watch.answered(answer, self.log.seen, now, &self.timing);
                if self.watch.shows_loss(&self.timing) {
                    self.alarm(Some(Alarm::LostFrames), outputs);
                }
            }
            OwnershipInput::LastUnknown => self.watch.unanswered(),
            OwnershipInput::Reply(id, reply) => self.step(id, |append| append.replied(reply), now, outputs),
            OwnershipInput::Next(id, next) => {
                let retry = self.timing.retry;
                self.step(id, |append| append.found(next, now, retry), now, outputs);
            }
            OwnershipInput::GroupReady => self.in_tenure(Tenure::group_waits),
            OwnershipInput::Promised => self.in_tenure(|tenure| tenure.promised(now)),
            OwnershipInput::Recovered => self.recovered(outputs),
            OwnershipInput::Drain => self.drain(outputs),
            OwnershipInput::Flushed => self.flushed(),
            OwnershipInput::AlarmRead => self.alarm(None, outputs),
            OwnershipInput::Broken(broken) => match broken.consequence() {
                Consequence::Alarm => self.alarm(Some(Alarm::ChangedFrames), outputs),
                Consequence::Stop => self.lost(EXIT_REFUSED, outputs),
            },
            OwnershipInput::Fitness(fitness) => self.fitness = fitness,
            OwnershipInput::Tick(progress) => self.tick(progress, now, outputs),
        }
        self.claim_if_due(now, outputs);
        self.append_if_due(now, outputs);
        self.ask_if_due(now, outputs);
    }

    fn frame_seen(&mut self, position: Position, kind: SeenKind, now: Instant) {
        // A claimant and an owner learn of other frames by their own appends, which are refused.
        if !matches!(self.state, State::Following) || position != self.log.seen.next() {
            return;
        }
        self.log.advance(position, kind);
        self.watch.frame_seen(now);
        if kind == SeenKind::Release {
            self.watch.hurry();
        }
    }

    fn tick(&mut self, progress: Progress, now: Instant, outputs: &mut Vec<OwnershipOutput>) {
        self.progress = match progress {
            Progress::Recovered(done) => self.recovery.look(done, now, &self.timing),
            other => other,
        };
        if let Some(id) = self.pending().map(|append| append.id) {
            self.step(id, |append| append.tick(now), now, outputs);
        }
        if let State::Holding(tenure) = &mut self.state {
            outputs.extend(tenure.isolation(now, &self.timing).map(OwnershipOutput::from));
        }
    }

    /// Asks the leader for the end of the log: a standby again and again, an owner only while an
    /// append hangs, because the log may have become shorter.
    fn ask_if_due(&mut self, now: Instant, outputs: &mut Vec<OwnershipOutput>) {
        let hangs = |append: &UndecidedAppend| now.since(append.first_sent) > self.timing.append_timeout;
        let asks = match self.state {
            State::Following => true,
            _ => self.pending().is_some_and(hangs),
        };
        if asks && self.watch.asks(now, &self.timing) {
            outputs.push(OwnershipOutput::AskLast);
        }
        let suspicion = self.suspicion().filter(|_| matches!(self.state, State::Following));
        if suspicion.is_some_and(|suspicion| self.watch.asks_rows(suspicion, now, &self.timing)) {
            outputs.push(OwnershipOutput::AskRows);
        }
    }

    /// Claims if the cell has no owner, or one that is silent for too long.
    fn claim_if_due(&mut self, now: Instant, outputs: &mut Vec<OwnershipOutput>) {
        let is_ready = matches!(self.state, State::Following)
            && self.fitness == Fitness::Fit
            && self.log.applied == self.log.seen;
        if !is_ready || !self.finds_no_owner(now) {
            return;
        }
        let claim = Claim {
            node: self.node.node,
            directory: self.node.directory,
            boot: self.node.boot,
            epoch: self.epoch() + 1,
            lease: self.timing.lease,
        };
        let append = self.new_append(AppendKind::Claim(claim), now, outputs);
        self.state = State::Claiming(append, Wish::Serve);
    }

    fn finds_no_owner(&self, now: Instant) -> bool {
        match self.suspicion() {
            Some(suspicion) => self.watch.is_silent(suspicion, now, &self.timing),
            // No lease can be valid. An answer and the rows are needed all the same: the log may
            // have moved, or lost frames that another node has applied, or there is an alarm.
            None => self.watch.has_rows() && self.watch.is_current(now, &self.timing),
        }
    }

    /// Returns the silence after which this node claims; `None` if no other node can have a lease.
    fn suspicion(&self) -> Option<Duration> {
        let claim = self.log.claim.filter(|claim| !self.log.is_released && !self.is_own(*claim))?;
        Some(self.timing.suspicion_for(claim.lease) + self.timing.rank_step * self.node.rank())
    }

    /// Returns true if the last owner was an earlier process of this directory. It has ended,
    /// because this process has the directory's lock. A copy of the disk on another machine has
    /// another boot. A copy on the same machine that runs as another node has another name: the
    /// lock of a copy says nothing of the process that has the original.
    fn is_own(&self, claim: Claim) -> bool {
        let CellNode { node, directory, boot, .. } = self.node;
        let is_earlier = claim.node == node && claim.directory == directory && claim.boot == boot;
        is_earlier && self.crashes <= CRASHES
    }

    /// Appends the next frame of an owner, if nothing is under way.
    fn append_if_due(&mut self, now: Instant, outputs: &mut Vec<OwnershipOutput>) {
        let kind = match &self.state {
            // A group is a sign of life, too: with some clients served, a standby would wait for
            // ever while the others hang. A recovery has to go on: it may wait for its group.
            State::Holding(_) if self.progress == Progress::Stuck => None,
            State::Recovering(tenure)
            | State::Holding(tenure)
            | State::Releasing(tenure, Flush::UnderWay) => tenure.due(now, self.progress, &self.timing),
            State::Releasing(tenure, Flush::Done) if tenure.pending.is_none() => {
                Some(if tenure.has_group() { AppendKind::Group } else { AppendKind::Release })
            }
            _ => None,
        };
        if let Some(kind) = kind {
            let append = self.new_append(kind, now, outputs);
            self.in_tenure(|tenure| tenure.sends(append));
        }
    }

    fn new_append(
        &mut self,
        kind: AppendKind,
        now: Instant,
        outputs: &mut Vec<OwnershipOutput>,
    ) -> UndecidedAppend {
        self.appends += 1;
        let append = UndecidedAppend::new(AppendId(self.appends), kind, self.log.seen.next(), now);
        outputs.push(OwnershipOutput::Append(append.id, append.position, kind));
        append
    }

    /// Applies `change` to the append with this number, if it is still undecided.
    fn step(
        &mut self,
        id: AppendId,
        change: impl FnOnce(&mut UndecidedAppend) -> Step,
        now: Instant,
        outputs: &mut Vec<OwnershipOutput>,
    ) {
        let Some(append) = self.pending_mut().filter(|append| append.id == id) else { return };
        let step = change(append);
        let append = *append;
        match step {
            Step::Wait => {}
            Step::Read => outputs.push(OwnershipOutput::ReadNext(id, append.position)),
            Step::Resend => outputs.push(OwnershipOutput::Resend(id)),
            Step::Stored => self.stored(append, now, outputs),
            Step::Fenced => self.fenced(outputs),
            Step::Full => self.full(append, now, outputs),
        }
    }

    fn stored(&mut self, append: UndecidedAppend, now: Instant, outputs: &mut Vec<OwnershipOutput>) {
        self.log.advance(append.position, SeenKind::from(append.kind));
        self.watch.frame_seen(now);
        let timing = self.timing;
        match append.kind {
            AppendKind::Claim(claim) => {
                let tenure = Tenure::begin(append, &timing);
                let is_leaving = matches!(self.state, State::Claiming(_, Wish::Leave));
                let (state, output) = if is_leaving {
                    (State::Releasing(tenure, Flush::UnderWay), OwnershipOutput::Flush)
                } else {
                    self.recovery = RecoveryWatch::new(now);
                    (State::Recovering(tenure), OwnershipOutput::Recover(claim.epoch))
                };
                self.state = state;
                outputs.push(output);
            }
            AppendKind::Release => {
                self.state = State::Released;
                outputs.push(OwnershipOutput::Exit(0));
            }
            AppendKind::Group | AppendKind::Beat => {
                if append.kind == AppendKind::Group {
                    outputs.push(OwnershipOutput::GroupStored(append.id));
                }
                let change = self.tenure_mut().and_then(|tenure| tenure.stored(append, &timing));
                outputs.extend(change.map(OwnershipOutput::from));
            }
        }
    }

    /// Another node wrote the frame at the position of the pending append.
    fn fenced(&mut self, outputs: &mut Vec<OwnershipOutput>) {
        match self.state {
            State::Claiming(_, Wish::Serve) => {
                self.state = State::Following;
                // The next Claim needs an answer that is younger than this one's end.
                self.watch.unanswered();
                outputs.push(OwnershipOutput::Follow);
            }
            State::Claiming(_, Wish::Leave) => {
                self.state = State::Released;
                outputs.push(OwnershipOutput::Exit(0));
            }
            _ => self.lost(EXIT_LOST, outputs),
        }
    }

    fn lost(&mut self, code: u8, outputs: &mut Vec<OwnershipOutput>) {
        if self.has_ended() {
            return;
        }
        self.state = State::Lost;
        outputs.extend([OwnershipOutput::StopAcknowledging, OwnershipOutput::Exit(code)]);
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, State::Released | State::Lost | State::Alarmed)
    }

    fn full(&mut self, append: UndecidedAppend, now: Instant, outputs: &mut Vec<OwnershipOutput>) {
        match append.kind {
            // The same as a Claim that came second: nothing of it is in the log.
            AppendKind::Claim(_) => self.fenced(outputs),
            // The others wait for their suspicion, as after a crash.
            AppendKind::Release => {
                self.state = State::Released;
                outputs.push(OwnershipOutput::Exit(0));
            }
            AppendKind::Group => {
                outputs.push(OwnershipOutput::GroupFull(append.id));
                self.in_tenure(Tenure::group_refused);
            }
            AppendKind::Beat => {
                let rest_until = now + self.timing.retry;
                self.in_tenure(|tenure| tenure.beat_refused(rest_until));
            }
        }
    }

    fn recovered(&mut self, outputs: &mut Vec<OwnershipOutput>) {
        self.replace(|state| match state {
            State::Recovering(tenure) => {
                outputs.push(OwnershipOutput::Serve);
                State::Holding(tenure)
            }
            other => other,
        });
    }

    fn drain(&mut self, outputs: &mut Vec<OwnershipOutput>) {
        self.replace(|state| match state {
            State::Following => {
                outputs.push(OwnershipOutput::Exit(0));
                State::Released
            }
            State::Claiming(append, _) => State::Claiming(append, Wish::Leave),
            // The lease ends here, before the Release may be sent.
            State::Recovering(tenure) | State::Holding(tenure) => {
                outputs.push(OwnershipOutput::Flush);
                State::Releasing(tenure, Flush::UnderWay)
            }
            other => other,
        });
    }

    fn flushed(&mut self) {
        if let State::Releasing(_, flush) = &mut self.state {
            *flush = Flush::Done;
        }
    }

    /// Ends all service. `to_write` is the alarm if this node raises it.
    fn alarm(&mut self, to_write: Option<Alarm>, outputs: &mut Vec<OwnershipOutput>) {
        if self.has_ended() {
            return;
        }
        self.state = State::Alarmed;
        outputs.push(OwnershipOutput::StopAcknowledging);
        outputs.extend(to_write.map(OwnershipOutput::WriteAlarm));
    }

    fn replace(&mut self, change: impl FnOnce(State) -> State) {
        let state = std::mem::replace(&mut self.state, State::Lost);
        self.state = change(state);
    }

    fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match &mut self.state {
            State::Recovering(tenure) | State::Holding(tenure) | State::Releasing(tenure, _) => Some(tenure),
            _ => None,
        }
    }

    fn in_tenure(&mut self, change: impl FnOnce(&mut Tenure)) {
        self.tenure_mut().map(change).unwrap_or_default();
    }

    fn pending(&self) -> Option<&UndecidedAppend> {
        match &self.state {
            State::Claiming(append, _) => Some(append),
            State::Recovering(tenure) | State::Holding(tenure) | State::Releasing(tenure, _) => {
                tenure.pending.as_ref()
            }
            _ => None,
        }
    }

    fn pending_mut(&mut self) -> Option<&mut UndecidedAppend> {
        match &mut self.state {
            State::Claiming(append, _) => Some(append),
            State::Recovering(tenure) | State::Holding(tenure) | State::Releasing(tenure, _) => {
                tenure.pending.as_mut()
            }
            _ => None,
        }
    }
}

impl LogEnd {
    fn advance(&mut self, position: Position, kind: SeenKind) {
        self.seen = position;
        match kind {
            SeenKind::Claim(claim) => {
                self.claim = Some(claim);
                self.is_released = false;
            }
            SeenKind::Release => self.is_released = true,
            SeenKind::Other => {}
        }
    }
}

impl From<AppendKind> for SeenKind {
    fn from(kind: AppendKind) -> SeenKind {
        match kind {
            AppendKind::Claim(claim) => SeenKind::Claim(claim),
            AppendKind::Release => SeenKind::Release,
            AppendKind::Group | AppendKind::Beat => SeenKind::Other,
        }
    }
}

impl From<ReachChange> for OwnershipOutput {
    fn from(change: ReachChange) -> OwnershipOutput {
        match change {
            ReachChange::Isolate => OwnershipOutput::Isolate,
            ReachChange::Rejoin => OwnershipOutput::Rejoin,
        }
    }
}
