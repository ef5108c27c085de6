//! Fills queues for absent subscribers, then drains them at their return. Rate and CPU are measured
//! for the drain alone.

use crate::args::{Layout, SessionArguments};
use crate::client::Acks;
use crate::clients::{self, Pace, RunningClients};
use crate::clock;
use crate::crew::CrewMember;
use crate::plan::{Extent, LoadPlan};
use crate::progress::ProgressLine;
use crate::record::seconds;
use crate::refused::{Refused, require};
use crate::report::{Figure, LoadReport};
use crate::run::LoadRun;
use crate::subscriber;
use crate::trouble::Trouble;
use crate::watch::{self, Meter};
use homing_core::mqtt::packet::QoS;
use std::time::Duration;
use tokio::task::JoinSet;

/// The default of `--messages`. Homing and mosquitto queue 1,000 for one session.
const MESSAGES: u64 = 500;

/// Checks the arguments.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn plan(arguments: &SessionArguments) -> Result<LoadPlan, Refused> {
    let common = &arguments.common;
    let qos = common.messages.qos.unwrap_or(QoS::AtLeastOnce);
    require(qos != QoS::AtMostOnce, "session needs --qos 1 or 2: QoS 0 is not queued for who is away")?;
    let plan = LoadPlan::new(common, qos, Layout::OneToOne, Duration::ZERO)?;
    let messages = common.messages.messages.or(common.messages.duration.is_none().then_some(MESSAGES));
    let extent =
        Extent { messages, duration: common.messages.duration, warmup: Duration::ZERO, ..plan.extent };
    Ok(LoadPlan { extent, ..plan })
}

/// Fills the queues of absent subscribers, then drains them.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn perform(
    arguments: &SessionArguments,
    plan: LoadPlan,
    member: CrewMember,
) -> Result<LoadReport, Trouble> {
    let run = LoadRun::new(plan, member, None);

    let subscribers = |run: &LoadRun, with_filter: Option<()>| {
        let filters = run.topology.filters.iter().enumerate();
        let client = |(receiver, filter): (usize, &String)| {
            (subscriber::options(run, receiver, Acks::AtOnce), with_filter.map(|()| filter.clone()))
        };
        filters.map(client).collect::<Vec<_>>()
    };
    let mut leaving = JoinSet::new();
    for client in clients::connect(&run, subscribers(&run, Some(()))).await? {
        leaving.spawn_local(subscriber::leave(client));
    }
    while leaving.join_next().await.is_some() {}
    let mut running = RunningClients::default();
    running.publishers(&run).await?;
    let mut unused = Meter::new(None, &run.member);
    let began = run.start().await;
    let mut progress = ProgressLine::new("session", &run.member);
    running.publish(&run, |_| Pace::Closed { wait: Duration::ZERO });
    watch::publishing(&run, &mut running.producers, &mut progress, &mut unused).await;
    watch::quiet(&run, run.extent.patience, &mut progress, LoadRun::settled).await;
    let built_s = seconds(clock::nanos().saturating_sub(began));
    let queued = run.deliveries.borrow().counts().sent;
    drop(progress);

    let mut meter = Meter::new(arguments.common.pid, &run.member);
    run.start_again().await;
    meter.begin();
    if !run.interrupted() {
        running.receive(&run, subscribers(&run, None)).await?;
    }
    let mut progress = ProgressLine::new("session", &run.member);
    watch::draining(&run, &mut progress, &mut meter).await;
    let (drained_from, drained) = run.record.borrow().measured_time();
    let figures = vec![
        Figure::sum("queued while away", queued as f64, "messages"),
        Figure::rate("queued at", queued as f64, built_s, "messages/s"),
        Figure::largest("drained in", seconds(drained - drained_from), "s"),
    ];
    let report = LoadReport::of("session", &run, &meter, figures, Vec::new());
    running.leave(&run).await;
    if run.failure().is_none() {
        subscriber::clear_sessions(&run).await?;
    }
    Ok(report)
}
