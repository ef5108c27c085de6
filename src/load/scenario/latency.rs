//! Publishes at a fixed rate. Each message is stamped with the time at which it was *due*. So a
//! stall shows in every message that it delayed, and not in one alone.

use crate::clock;
use crate::load::args::Latency;
use crate::load::clients::{Pace, RunningClients};
use crate::load::pace::Alarm;
use crate::load::plan::{Topology, prepare};
use crate::load::progress::ProgressLine;
use crate::load::refused::require;
use crate::load::report::{Figure, LoadReport};
use crate::load::run::LoadRun;
use crate::load::trouble::Trouble;
use crate::load::watch::{self, Meter};

const NANOS_PER_S: f64 = 1e9;
/// The time from the call to the first message, so that no publisher begins late.
const LEAD_NS: u64 = 20_000_000;

/// Publishes at a fixed rate and measures latencies.
///
/// # Errors
/// The arguments are refused, or the broker cannot be reached.
pub(super) async fn perform(arguments: &Latency) -> Result<LoadReport, Trouble> {
    let common = &arguments.common;
    let (wire, extent) = prepare(common, common.qos.unwrap_or_default())?;
    require((1..=1_000_000).contains(&arguments.rate), "--rate must be from 1 to 1000000 per second")?;
    let topology = Topology::new(arguments.layout, common, wire.run)?;
    let publishers = topology.topics.len();
    let run = LoadRun::new(wire, topology, &extent, None);
    watch::for_interrupt(&run);

    let mut running = RunningClients::assemble(&run).await?;
    let mut alarms = (0..publishers).map(|_| Alarm::new()).collect::<Result<Vec<_>, _>>()?;
    let (mut progress, mut meter) = (ProgressLine::new("latency"), Meter::new(common.pid));
    run.start(extent.warmup);
    // The publishers take turns: together they send one message every 1/rate seconds.
    let spacing = NANOS_PER_S / f64::from(arguments.rate);
    let start = clock::nanos() + LEAD_NS;
    running.publish(&run, |index| match alarms.pop() {
        Some(alarm) => Pace::Fixed {
            first: start + (index as f64 * spacing) as u64,
            every: spacing * publishers as f64,
            alarm,
        },
        None => Pace::Closed,
    });
    watch::publishing(&run, &extent, &mut running.producers, &mut progress, &mut meter).await;
    watch::draining(&run, &extent, &mut progress, &mut meter).await;
    progress.finish();
    let offered = Figure::new("offered rate", f64::from(arguments.rate), "messages/s");
    let mut figures = vec![offered];
    let lateness = run.lateness.borrow().quantiles();
    figures.extend(Figure::quantiles(["left late, p50", "left late, p99", "left late, max"], lateness));
    let report = LoadReport::of("latency", &run, &meter, figures);
    running.leave().await;
    Ok(report)
}
