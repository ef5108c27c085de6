//! The thread that carries out the ownership of a cell: `homing-cluster`. It hands answers, frames
//! and the time to the decisions (`driver_core`), and does what they say. It never waits for the
//! engine (`workers`) or for the broker: these have threads of their own. For the disk it waits only
//! when it claims the cell or leaves; a standby's database is written by a thread of its own.

use super::append_times::AppendTimes;
use super::driver_core::{CoreStart, DriverCore};
use super::engine::{Bounds, Engine, EngineError};
use super::messages::{
    Cell, DriverAction, DriverDoor, DriverInput, End, IsAlive, NodeEvent, NodeFacts, RowsSeen,
};
use super::owner_log::{OwnerLog, OwnerState};
use super::row::WakeRows;
use super::workers::{AppendJob, Workers};
use crate::broker::owner_door::OwnerDoor;
use crate::clock;
use crate::log::stderr;
use crate::ownership::{AppendReply, EXIT_LOST, EXIT_REFUSED, OwnershipInput, Progress, Role};
use crate::store::database::Database;
use crate::store::sqlite::{Mark, Sqlite};
use crate::store::{Moment, StoreError};
use crate::time::{Instant, millis};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{error, info, warn};

/// The time after which an append that is not decided is reported, and reported again.
const STUCK: Duration = Duration::from_secs(20);

/// What starts a driver.
pub(super) struct DriverStart {
    pub engine: Arc<dyn Engine>,
    pub core: CoreStart,
    pub database: Sqlite,
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
    let failed = |error: std::io::Error| StoreError::Failed(error.to_string());
    let (sender, inputs) = channel();
    let DriverStart { engine, core, database, keeps_clients, facts, events, wake_rows, append_times } = start;
    let (stored, of_store) = channel();
    let driver = Driver {
        core: DriverCore::new(core, database)?,
        workers: Workers::start(&engine, &sender, append_times).map_err(failed)?,
        to_self: sender.clone(),
        stored,
        of_store: Some(of_store),
        state: Arc::default(),
        keeps_clients,
        door: None,
        is_alive: None,
        recovery: None,
        facts,
        events,
        wake_rows,
        stuck_said: Instant::ZERO,
        is_stuck: false,
        no_reply: String::new(),
        last_group: 0,
        role: Role::Following,
        has_ended: false,
    };
    let run = move || driver.run(&inputs);
    Builder::new().name("homing-cluster".into()).spawn(run).map_err(failed)?;
    Ok(DriverDoor::new(sender))
}

struct Driver {
    core: DriverCore,
    workers: Workers,
    to_self: Sender<DriverInput>,
    stored: Sender<Mark>,
    of_store: Option<Receiver<Mark>>,
    state: Arc<OwnerState>,
    keeps_clients: bool,
    door: Option<OwnerDoor>,
    is_alive: Option<IsAlive>,
    /// Counts what the broker has recovered.
    recovery: Option<Arc<AtomicU64>>,
    facts: Arc<Mutex<NodeFacts>>,
    events: UnboundedSender<NodeEvent>,
    wake_rows: WakeRows,
    stuck_said: Instant,
    /// True if clients wait for a thread or the disk of this node, which hangs.
    is_stuck: bool,
    /// Why the last append had no answer.
    no_reply: String,
    /// The position of the last group of this node.
    last_group: u64,
    /// The role that was reported last.
    role: Role,
    has_ended: bool,
}

impl Driver {
    fn run(mut self, inputs: &Receiver<DriverInput>) {
        self.carry_out();
        while !self.has_ended {
            match inputs.recv_timeout(self.core.wake_at().since(clock::now())) {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.carry_out();
            let now = Moment::now();
            if now.monotonic >= self.core.wake_at() {
                self.tick(now);
                self.carry_out();
            }
        }
    }

    fn tick(&mut self, now: Moment) {
        let progress = match (&self.is_alive, &self.recovery) {
            (Some(is_alive), _) if !is_alive() => Progress::Stuck,
            (None, Some(recovery)) => Progress::Recovered(recovery.load(Ordering::Relaxed)),
            _ => Progress::Moving,
        };
        self.report_hang(progress == Progress::Stuck);
        if self.core.tick(progress, now) {
            if self.door.as_ref().is_some_and(|door| door.lease().take_used()) {
                self.core.take(OwnershipInput::Promised, now);
            }
            self.report_stuck(now.monotonic);
        }
    }

    fn take(&mut self, input: DriverInput) {
        let now = Moment::now();
        match input {
            DriverInput::Reply(id, reply) => self.core.replied(id, reply, now),
            DriverInput::NoReply(id, why) => {
                self.no_reply = why;
                self.core.replied(id, AppendReply::TimedOut, now);
            }
            DriverInput::Refused(id, why) => {
                self.refused(why);
                // It is sent again, as one without an answer: somebody may mend it.
                self.core.replied(id, AppendReply::TimedOut, now);
            }
            DriverInput::Frame(id, position, found) => self.core.found(id, position, found, now),
            DriverInput::Ends(ends) => self.take_ends(ends, now),
            DriverInput::Frames(frames) => self.core.frames(frames, now),
            DriverInput::Written(outcome) => self.core.written(outcome.map(|database| *database), now),
            DriverInput::Rows(RowsSeen { reported, alarm, asked }) => {
                self.core.rows_seen(reported, alarm.as_deref(), asked, now);
            }
            DriverInput::Replaced => {
                warn!(
                    event = "cluster.replaced",
                    "the cluster has a new log: the next start of this node follows it"
                );
                self.exit(EXIT_LOST);
            }
            DriverInput::Group(next) => self.core.group_is_ready(next, now),
            DriverInput::TimeRuns(time) => self.core.time_runs(time),
            DriverInput::Recovered(door, is_alive) => {
                (self.door, self.is_alive) = (Some(door), Some(is_alive));
                self.core.take(OwnershipInput::Recovered, now);
                self.set_lease(self.core.lease_until());
            }
            DriverInput::Drain => self.core.take(OwnershipInput::Drain, now),
            DriverInput::Flushed => self.core.take(OwnershipInput::Flushed, now),
        }
    }

    fn take_ends(&mut self, ends: Result<Bounds, EngineError>, now: Moment) {
        match ends {
            Ok(bounds) => {
                let last = bounds.last;
                self.state.set_capacity(bounds.capacity);
                self.facts(|facts| facts.bounds = Some(bounds));
                self.core.log_ends(Some(last), now);
            }
            Err(error) => {
                tracing::debug!(event = "cluster.no_ends", %error, "the engine does not say where the log ends");
                self.core.log_ends(None, now);
            }
        }
    }

    /// Does what the last calls have decided, and reports what has changed.
    fn carry_out(&mut self) {
        for action in self.core.take_actions() {
            self.act(action);
        }
        self.report();
    }

    fn act(&mut self, action: DriverAction) {
        match action {
            DriverAction::Append(id, position, frame) => {
                self.workers.append(AppendJob { id, position, frame });
            }
            DriverAction::AskFrame(id, position) => self.workers.ask_frame(id, position),
            DriverAction::AskEnds => self.workers.ask_ends(),
            DriverAction::AskRows => self.wake_rows(),
            DriverAction::Follow { after, waits } => self.workers.follow(after, waits),
            DriverAction::Write(write) => self.workers.write(write),
            DriverAction::Lease(until) => self.set_lease(until),
            DriverAction::Full(is_full) => self.state.set_full(is_full),
            DriverAction::Recover(database, mark) => self.recover(database, mark),
            DriverAction::LetIn => self.emit(NodeEvent::LetIn),
            DriverAction::Isolate => self.isolate(),
            DriverAction::Flush => self.emit(NodeEvent::Flush),
            DriverAction::GroupStored(mark) => {
                self.last_group = mark.position;
                let _ = self.stored.send(mark);
            }
            DriverAction::Alarmed(why) => self.alarmed(why),
            DriverAction::Exit(code) => self.exit(code),
            DriverAction::Failed(error) => fail(&error),
        }
    }

    fn set_lease(&self, until: Instant) {
        self.state.set_lease(until);
        if let Some(door) = &self.door {
            door.lease().set_until(until);
        }
    }

    fn recover(&mut self, database: Sqlite, mark: Mark) {
        let Some(of_store) = self.of_store.take() else { return };
        self.recovery = Some(database.progress());
        let log = OwnerLog::new(self.to_self.clone(), of_store, Arc::clone(&self.state));
        self.emit(NodeEvent::Recover(Box::new(Cell { database, mark, log: Box::new(log) })));
    }

    fn isolate(&self) {
        warn!(
            event = "cluster.isolated",
            keeps_clients = self.keeps_clients,
            "no frame was stored for too long: this node may be cut off"
        );
        if !self.keeps_clients {
            self.emit(NodeEvent::ShutOut);
        }
    }

    /// Notes the alarm; the thread of the rows writes it for the others.
    fn alarmed(&self, why: String) {
        error!(
            event = "cluster.alarm",
            why,
            "acknowledged messages may be lost: nobody serves until a person has decided; see `homing cluster status`"
        );
        self.facts(|facts| facts.alarm.clone_from(&why));
        self.emit(NodeEvent::Alarmed(why));
    }

    fn exit(&mut self, code: u8) {
        self.has_ended = true;
        if code == 0 {
            let mark = self.core.finish();
            return self.emit(NodeEvent::Left(End { mark, groups: self.last_group }));
        }
        match code {
            EXIT_REFUSED => error!(
                event = "cluster.exit",
                code,
                "the log in NATS is that of another cluster, or a newer program wrote it: see cluster.name and cluster.nats"
            ),
            _ => error!(
                event = "cluster.exit",
                code,
                "this node is no part of what the cluster does now: it ends, and its next start stands by"
            ),
        }
        stderr::flush();
        std::process::exit(code.into());
    }

    fn emit(&self, event: NodeEvent) {
        // A process that ends has nobody who listens.
        let _ = self.events.send(event);
    }

    /// Reports that the engine refuses a frame, which is no want of room and no hang.
    fn refused(&mut self, why: String) {
        let now = clock::now();
        if self.no_reply != why || now.since(self.stuck_said) >= STUCK {
            self.stuck_said = now;
            error!(
                event = "cluster.refused",
                why,
                "NATS refuses the frames of this node: nothing is stored until a person has mended it there"
            );
        }
        self.no_reply = why;
    }

    /// Reports that this node hangs, or works again.
    fn report_hang(&mut self, is_stuck: bool) {
        match (self.is_stuck, is_stuck) {
            (false, true) => warn!(
                event = "cluster.hangs",
                "clients wait for a thread or the disk of this node, which hangs: it appends nothing, so that \
                 another node takes over; see broker.thread_hangs, and the disk"
            ),
            (true, false) => info!(event = "cluster.works_again", "this node works again"),
            _ => {}
        }
        self.is_stuck = is_stuck;
    }

    fn report_stuck(&mut self, now: Instant) {
        let since = self.core.machine().undecided_since();
        let is_late = since.is_some_and(|since| now.since(since) > self.core.timing().append_timeout);
        let trouble = if is_late { self.no_reply.clone() } else { String::new() };
        self.facts(|facts| facts.trouble = trouble);
        let Some(since) = since else { return };
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

    fn report(&mut self) {
        let (machine, mark, database) =
            (self.core.machine(), self.core.mark(), self.core.database_position());
        let role = machine.role();
        self.facts(|facts| {
            facts.role = role;
            facts.epoch = machine.epoch();
            facts.owner = mark.owner.filter(|owner| !owner.is_released).map(|owner| owner.claim.node);
            (facts.position, facts.digest, facts.database) = (mark.position, mark.digest, database);
            facts.lease_until = machine.lease_until();
            facts.undecided_since = machine.undecided_since().unwrap_or(Instant::NEVER);
        });
        if self.role != role {
            info!(event = "cluster.role", from = ?self.role, to = ?role, epoch = machine.epoch(), "this node has another role");
            self.role = role;
            self.wake_rows();
        }
    }

    fn wake_rows(&self) {
        // Its thread lives as long as the process.
        let _ = self.wake_rows.send(());
    }

    fn facts<T>(&self, change: impl FnOnce(&mut NodeFacts) -> T) -> T {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ends the process, because its database cannot be used.
fn fail(error: &StoreError) {
    error!(event = "store.failed", %error, "the database of this node cannot be written: it ends, and another node serves");
    stderr::flush();
    std::process::exit(1);
}
