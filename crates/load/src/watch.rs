//! Watches a run: shows progress while it publishes, limits the wait while it drains, and measures
//! the cost of the broker.

use super::crew::CrewMember;
use super::process::{self, Cost, ProcessReading};
use super::progress::ProgressLine;
use super::record::seconds;
use super::run::LoadRun;
use crate::clock;
use homing_core::mqtt::packet::QoS;
use std::time::Duration;
use tokio::signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// The length of a slot, and the interval of the display.
const SLOT: Duration = Duration::from_millis(250);
/// The interval at which a drain is checked.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum time that a QoS 0 run, or an interrupted run, waits for late messages.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// The exit code that a shell expects of a program that ctrl-c ended.
const INTERRUPTED: i32 = 130;

/// Measures the cost of the broker over the counted part of a run.
pub(super) struct Meter {
    pid: Option<u32>,
    first: Option<ProcessReading>,
    cost: Option<Cost>,
}

impl Meter {
    /// Returns a meter of this process; with `None`, a meter without readings. Only the leading
    /// thread measures, for all threads.
    pub(super) fn new(pid: Option<u32>, member: &CrewMember) -> Meter {
        Meter { pid: pid.filter(|_| member.leads()), first: None, cost: None }
    }

    /// Takes the first reading; later calls do nothing. A process that does not exist has no cost.
    /// The clients report that the broker is gone.
    pub(super) fn begin(&mut self) {
        if self.first.is_none() {
            self.first = self.read();
        }
    }

    /// Takes the last reading; later calls do nothing.
    pub(super) fn end(&mut self) {
        if let (None, Some(first), Some(last)) = (self.cost, &self.first, self.read()) {
            self.cost = Some(last.since(first));
        }
    }

    fn read(&self) -> Option<ProcessReading> {
        self.pid.and_then(|pid| process::read(pid).ok())
    }

    /// Returns the cost between the two readings; `None` before the second.
    pub(super) fn cost(&self) -> Option<Cost> {
        self.cost
    }
}

/// Waits for ctrl-c in a task of the leading thread. The first ctrl-c ends the run, which still
/// reports. The second ends the program.
pub(super) fn for_interrupt(member: &CrewMember) {
    if !member.leads() {
        return;
    }
    let member = member.clone();
    tokio::task::spawn_local(async move {
        if signal::ctrl_c().await.is_ok() {
            member.interrupt();
        }
        if signal::ctrl_c().await.is_ok() {
            std::process::exit(INTERRUPTED);
        }
    });
}

/// Waits until the publishers are done, the time is over, or something stops the run. Then stops
/// the run.
pub(super) async fn publishing(
    run: &LoadRun,
    producers: &mut JoinSet<()>,
    progress: &mut ProgressLine,
    meter: &mut Meter,
) {
    let (start, extent) = (Instant::now(), &run.extent);
    let end = extent.duration.map(|duration| start + duration);
    let warm = start + extent.warmup;
    let mut cold = true;
    let mut ticks = interval(SLOT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut timed_out = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => run.tick(progress, done(run, start.elapsed())),
            () = sleep_until(warm), if cold => {
                cold = false;
                meter.begin();
            }
            joined = producers.join_next() => if joined.is_none() { break },
            () = sleep_until(end.unwrap_or(start)), if end.is_some() => { timed_out = true; break }
            () = run.stopped() => { timed_out = true; break }
        }
    }
    if timed_out {
        run.record.borrow_mut().end(clock::nanos());
        meter.end();
    }
    run.stop();
    while producers.join_next().await.is_some() {}
}

fn done(run: &LoadRun, passed: Duration) -> f64 {
    let time = run.extent.duration.map_or(0.0, |duration| passed.as_secs_f64() / duration.as_secs_f64());
    run.extent.messages.map_or(time, |messages| run.sent_of(messages).max(time))
}

/// Waits for messages that are under way, as long as some arrive. Returns true if all arrived.
pub(super) async fn draining(run: &LoadRun, progress: &mut ProgressLine, meter: &mut Meter) -> bool {
    let stragglers = run.wire.qos == QoS::AtMostOnce || run.interrupted();
    let patience = run.extent.patience;
    let patience = if stragglers { patience.min(STRAGGLERS) } else { patience };
    let all = quiet(run, patience, progress, |run| run.complete()).await;
    last_slot(run).await;
    meter.end();
    all
}

/// Waits for all threads, and closes the last slot.
pub(super) async fn last_slot(run: &LoadRun) {
    run.report();
    run.member.together().await;
    if run.member.leads() {
        run.member.close_last_slot(clock::nanos());
    }
}

/// Waits until `done` returns true, nothing has moved for `patience`, or the run failed. Returns
/// true if `done` did.
pub(super) async fn quiet(
    run: &LoadRun,
    patience: Duration,
    progress: &mut ProgressLine,
    done: impl Fn(&LoadRun) -> bool,
) -> bool {
    let (mut moved, mut since, mut shown) = (run.moved(), clock::nanos(), clock::nanos());
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if done(run) {
            return true;
        }
        let now = clock::nanos();
        if run.moved() != moved {
            (moved, since) = (run.moved(), now);
        }
        if run.failure().is_some() || seconds(now - since) >= patience.as_secs_f64() {
            return false;
        }
        if seconds(now - shown) >= SLOT.as_secs_f64() {
            shown = now;
            run.tick(progress, 1.0);
        }
        looks.tick().await;
    }
}
