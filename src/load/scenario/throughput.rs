//! Publishes as many messages as the broker takes, in a closed loop. Each publisher waits for
//! acknowledgements (its window) and for deliveries (end to end).

use crate::load::args::Throughput;
use crate::load::clients::{Pace, RunningClients};
use crate::load::plan::{Topology, prepare};
use crate::load::progress::ProgressLine;
use crate::load::refused::require;
use crate::load::report::LoadReport;
use crate::load::run::LoadRun;
use crate::load::trouble::Trouble;
use crate::load::watch::{self, Meter};

/// Publishes in a closed loop and measures the rate.
///
/// # Errors
/// The arguments are refused, or the broker cannot be reached.
pub(super) async fn perform(arguments: &Throughput) -> Result<LoadReport, Trouble> {
    let common = &arguments.common;
    let (wire, extent) = prepare(common, common.qos.unwrap_or_default())?;
    require(arguments.end_to_end > 0, "--end-to-end must not be 0")?;
    let topology = Topology::new(arguments.layout, common, wire.run)?;
    let run = LoadRun::new(wire, topology, &extent, Some(arguments.end_to_end));
    watch::for_interrupt(&run);

    let mut running = RunningClients::assemble(&run).await?;
    let (mut progress, mut meter) = (ProgressLine::new("throughput"), Meter::new(common.pid));
    run.start(extent.warmup);
    running.publish(&run, |_| Pace::Closed);
    watch::publishing(&run, &extent, &mut running.producers, &mut progress, &mut meter).await;
    watch::draining(&run, &extent, &mut progress, &mut meter).await;
    progress.finish();
    let report = LoadReport::of("throughput", &run, &meter, Vec::new());
    running.leave().await;
    Ok(report)
}
