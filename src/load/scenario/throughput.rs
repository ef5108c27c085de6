//! Publishes as many messages as the broker takes, in a closed loop. Each publisher waits for
//! acknowledgements (its window) and for deliveries (end to end).

use crate::load::args::Throughput;
use crate::load::clients::{Pace, RunningClients};
use crate::load::crew::Seat;
use crate::load::plan::LoadPlan;
use crate::load::progress::ProgressLine;
use crate::load::refused::{Refused, require};
use crate::load::report::LoadReport;
use crate::load::run::LoadRun;
use crate::load::trouble::Trouble;
use crate::load::watch::{self, Meter};

/// Checks the arguments.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn plan(arguments: &Throughput) -> Result<LoadPlan, Refused> {
    require(arguments.end_to_end > 0, "--end-to-end must not be 0")?;
    let common = &arguments.common;
    LoadPlan::new(common, common.qos.unwrap_or_default(), arguments.layout, arguments.ramp_up)
}

/// Publishes in a closed loop and measures the rate.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn perform(
    arguments: &Throughput,
    plan: LoadPlan,
    seat: Seat,
) -> Result<LoadReport, Trouble> {
    let mut meter = Meter::new(arguments.common.pid, &seat);
    let run = LoadRun::new(plan, seat, Some(arguments.end_to_end));

    let mut running = RunningClients::assemble(&run).await?;
    run.start().await;
    let mut progress = ProgressLine::new("throughput", run.seat.leads());
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
