//! Publishes at a fixed rate. Each message is stamped with the time at which it was *due*. So a
//! stall shows in every message that it delayed, and not in one alone.

use crate::args::Latency;
use crate::clients::{Pace, RunningClients};
use crate::crew::CrewMember;
use crate::pace::{Alarm, Schedule};
use crate::plan::LoadPlan;
use crate::progress::ProgressLine;
use crate::refused::{Refused, require};
use crate::report::{Figure, LoadDistribution, LoadReport};
use crate::run::LoadRun;
use crate::trouble::Trouble;
use crate::watch::{self, Meter};
use std::time::Duration;

/// The time from the call to the first message, so that no publisher begins late.
const LEAD_NS: u64 = 20_000_000;

/// Checks the arguments.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn plan(arguments: &Latency) -> Result<LoadPlan, Refused> {
    require((1..=1_000_000).contains(&arguments.rate), "--rate must be from 1 to 1000000 per second")?;
    let common = &arguments.common;
    LoadPlan::new(common, common.messages.qos.unwrap_or_default(), arguments.layout, arguments.ramp_up)
}

/// Publishes at a fixed rate and measures latencies.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn perform(
    arguments: &Latency,
    plan: LoadPlan,
    member: CrewMember,
) -> Result<LoadReport, Trouble> {
    let mut meter = Meter::new(arguments.common.pid, &member);
    let run = LoadRun::new(plan, member, None);

    let mut running = RunningClients::assemble(&run).await?;
    let publishers = run.topology.topics.len();
    let mut alarms = (0..publishers).map(|_| Alarm::new()).collect::<Result<Vec<_>, _>>()?;
    let start = run.start().await + LEAD_NS;
    let mut progress = ProgressLine::new("latency", &run.member);
    // The publishers of all threads take turns with the messages of one schedule.
    let schedule = Schedule::new(arguments.rate, run.extent.ramp_up);
    let all = run.all_publishers();
    running.publish(&run, |index| match alarms.pop() {
        Some(alarm) => {
            let first = u64::from(run.part.position(index));
            Pace::Fixed { start, schedule, first, step: u64::from(all), alarm }
        }
        None => Pace::Closed { wait: Duration::ZERO },
    });
    watch::publishing(&run, &mut running.producers, &mut progress, &mut meter).await;
    watch::draining(&run, &mut progress, &mut meter).await;
    // Each thread has its share of the rate.
    let rate = f64::from(arguments.rate) * publishers as f64 / f64::from(all);
    let figures = vec![Figure::sum("offered rate", rate, "messages/s")];
    let late = LoadDistribution::new("left late", &run.lateness.borrow());
    let report = LoadReport::of("latency", &run, &meter, figures, vec![late]);
    running.leave(&run).await;
    Ok(report)
}
