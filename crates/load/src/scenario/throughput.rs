//! Publishes as many messages as the broker takes, in a closed loop. Each publisher waits for
//! acknowledgements (its window) and for deliveries (end to end).

use crate::args::Throughput;
use crate::clients::{Pace, RunningClients};
use crate::crew::CrewMember;
use crate::plan::LoadPlan;
use crate::progress::ProgressLine;
use crate::refused::{Refused, require};
use crate::report::LoadReport;
use crate::run::LoadRun;
use crate::trouble::Trouble;
use crate::watch::{self, Meter};

/// Checks the arguments.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn plan(arguments: &Throughput) -> Result<LoadPlan, Refused> {
    require(arguments.end_to_end > 0, "--end-to-end must not be 0")?;
    let common = &arguments.common;
    LoadPlan::new(common, common.messages.qos.unwrap_or_default(), arguments.layout, arguments.ramp_up)
}

/// Publishes in a closed loop and measures the rate.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn perform(
    arguments: &Throughput,
    plan: LoadPlan,
    member: CrewMember,
) -> Result<LoadReport, Trouble> {
    let mut meter = Meter::new(arguments.common.pid, &member);
    let run = LoadRun::new(plan, member, Some(arguments.end_to_end));

    let mut running = RunningClients::assemble(&run).await?;
    run.start().await;
    let mut progress = ProgressLine::new("throughput", &run.member);
    running.publish(&run, |index| {
        let part = f64::from(run.part.position(index)) / f64::from(run.all_publishers());
        Pace::Closed { wait: run.extent.ramp_up.mul_f64(part) }
    });
    watch::publishing(&run, &mut running.producers, &mut progress, &mut meter).await;
    watch::draining(&run, &mut progress, &mut meter).await;
    let report = LoadReport::of("throughput", &run, &meter, Vec::new(), Vec::new());
    running.leave(&run).await;
    Ok(report)
}
