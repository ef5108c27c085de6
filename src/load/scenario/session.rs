//! Fills queues for absent subscribers, then drains them at their return. Rate and CPU are measured
//! for the drain alone.

use crate::clock;
use crate::load::args::{Layout, SessionArguments};
use crate::load::client::Acks;
use crate::load::clients::{self, Pace, RunningClients};
use crate::load::plan::{Extent, Topology, prepare};
use crate::load::progress::ProgressLine;
use crate::load::record::seconds;
use crate::load::refused::require;
use crate::load::report::{Figure, LoadReport};
use crate::load::run::LoadRun;
use crate::load::subscriber;
use crate::load::trouble::Trouble;
use crate::load::watch::{self, Meter};
use crate::mqtt::packet::QoS;
use std::time::Duration;

/// The default of `--messages`. Homing and mosquitto queue 1,000 for one session.
const MESSAGES: u64 = 500;

/// Fills the queues of absent subscribers, then drains them.
///
/// # Errors
/// The arguments are refused, or the broker cannot be reached.
pub(super) async fn perform(arguments: &SessionArguments) -> Result<LoadReport, Trouble> {
    let common = &arguments.common;
    let qos = common.qos.unwrap_or(QoS::AtLeastOnce);
    require(qos != QoS::AtMostOnce, "session needs --qos 1 or 2: QoS 0 is not queued for who is away")?;
    let (wire, extent) = prepare(common, qos)?;
    let messages = common.messages.or(common.duration.is_none().then_some(MESSAGES));
    let extent = Extent { messages, duration: common.duration, warmup: Duration::ZERO, ..extent };
    let topology = Topology::new(Layout::OneToOne, common, wire.run)?;
    let run = LoadRun::new(wire, topology, &extent, None);
    watch::for_interrupt(&run);

    let subscribers = |run: &LoadRun, with_filter: Option<()>| {
        let filters = run.topology.filters.iter().enumerate();
        let client = |(receiver, filter): (usize, &String)| {
            (subscriber::options(run, receiver, Acks::AtOnce), with_filter.map(|()| filter.clone()))
        };
        filters.map(client).collect::<Vec<_>>()
    };
    for client in clients::connect(&run, subscribers(&run, Some(()))).await? {
        subscriber::leave(client).await;
    }
    let mut running = RunningClients::default();
    running.publishers(&run).await?;
    let (mut progress, mut meter) = (ProgressLine::new("session"), Meter::new(None));
    let began = clock::nanos();
    running.publish(&run, |_| Pace::Closed);
    watch::publishing(&run, &extent, &mut running.producers, &mut progress, &mut meter).await;
    watch::quiet(&run, extent.patience, &mut progress, LoadRun::settled).await;
    let built_s = seconds(clock::nanos().saturating_sub(began));
    let queued = run.deliveries.borrow().counts().sent;

    let mut meter = Meter::new(common.pid);
    run.start(Duration::ZERO);
    meter.begin(0);
    if !run.interrupted() {
        running.receive(&run, subscribers(&run, None)).await?;
    }
    watch::draining(&run, &extent, &mut progress, &mut meter).await;
    progress.finish();
    let figures = vec![
        Figure::new("queued while away", queued as f64, "messages"),
        Figure::new("queued at", queued as f64 / built_s, "messages/s"),
        Figure::new("drained in", run.record.borrow().measured_s(), "s"),
    ];
    let report = LoadReport::of("session", &run, &meter, figures);
    running.leave().await;
    if run.failure().is_none() {
        subscriber::clear_sessions(&run).await?;
    }
    Ok(report)
}
