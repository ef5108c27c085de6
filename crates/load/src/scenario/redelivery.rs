//! Subscribers withhold acknowledgements by plan, lose their connections, and come back. Measures
//! the messages that the broker sends again, their times, and whether all arrive in the end.
//!
//! The phases are *live* (publish, then observe), *away*, *back* (everything is acknowledged) and
//! *again* (nothing may arrive any more).

use crate::args::{Layout, Redelivery};
use crate::client::Acks;
use crate::clients::{self, Pace, RunningClients};
use crate::clock;
use crate::crew::CrewMember;
use crate::plan::{Extent, LoadPlan};
use crate::progress::ProgressLine;
use crate::record::seconds;
use crate::refused::{Refused, require};
use crate::report::{Figure, LoadDistribution, LoadReport};
use crate::run::LoadRun;
use crate::subscriber::{self, RedeliveryPhase, RedeliverySubscriber, Sightings};
use crate::trouble::Trouble;
use crate::watch::{self, Meter};
use crate::withhold::Policy;
use homing_core::mqtt::packet::QoS;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;

/// The default of `--messages`: what any broker queues for one session.
const MESSAGES: u64 = 100;
/// The time at the end in which nothing may arrive.
const SILENCE: Duration = Duration::from_millis(500);
/// The time in which nothing moves before everything counts as acknowledged. Acknowledgements that
/// were lost with the connection make the broker send their messages right behind CONNACK.
const SETTLED: Duration = Duration::from_millis(100);
const GOODBYE: Duration = Duration::from_secs(2);

/// Checks the arguments.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn plan(arguments: &Redelivery) -> Result<LoadPlan, Refused> {
    let common = &arguments.common;
    let qos = common.messages.qos.unwrap_or(QoS::AtLeastOnce);
    require(
        qos != QoS::AtMostOnce,
        "redelivery needs --qos 1 or 2: QoS 0 has no acknowledgement to withhold",
    )?;
    require(arguments.nth > 0, "--nth must not be 0")?;
    let plan = LoadPlan::new(common, qos, Layout::OneToOne, Duration::ZERO)?;
    let messages = common.messages.messages.or(Some(MESSAGES));
    let extent =
        Extent { messages, duration: common.messages.duration, warmup: Duration::ZERO, ..plan.extent };
    Ok(LoadPlan { extent, ..plan })
}

/// Withholds acknowledgements and observes redeliveries.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn perform(
    arguments: &Redelivery,
    plan: LoadPlan,
    member: CrewMember,
) -> Result<LoadReport, Trouble> {
    let mut meter = Meter::new(arguments.common.pid, &member);
    let run = LoadRun::new(plan, member, None);

    let (announce, phases) = channel::channel(RedeliveryPhase::Live);
    let sightings = Rc::new(RefCell::new(Sightings::default()));
    let policy = Policy { plan: arguments.plan, nth: arguments.nth, late: arguments.late };
    let clients =
        run.topology.filters.iter().enumerate().map(|(receiver, filter)| {
            (subscriber::options(&run, receiver, Acks::ByHand), Some(filter.clone()))
        });
    let mut subscribers = JoinSet::new();
    for (receiver, (sender, connection)) in
        clients::connect(&run, clients.collect()).await?.into_iter().enumerate()
    {
        let subscriber = RedeliverySubscriber {
            run: Rc::clone(&run),
            receiver,
            policy,
            crash_after: run.extent.messages.unwrap_or(MESSAGES).div_ceil(2),
            phases: phases.clone(),
            sightings: Rc::clone(&sightings),
        };
        subscribers.spawn_local(subscriber.live(sender, connection));
    }
    let mut running = RunningClients::default();
    running.publishers(&run).await?;

    run.start().await;
    let mut progress = ProgressLine::new("redelivery", &run.member);
    running.publish(&run, |_| Pace::Closed { wait: Duration::ZERO });
    watch::publishing(&run, &mut running.producers, &mut progress, &mut meter).await;
    let drained_s = observe_and_return(arguments, &run, &announce, &sightings, &mut progress).await;
    watch::last_slot(&run).await;
    meter.end();

    let gaps = LoadDistribution::new("resent on a live connection after", &sightings.borrow().gaps);
    let figures = figures(&sightings.borrow(), drained_s);
    let report = LoadReport::of("redelivery", &run, &meter, figures, vec![gaps]);
    announce.send_replace(RedeliveryPhase::Done);
    let all = async { while subscribers.join_next().await.is_some() {} };
    drop(tokio::time::timeout(GOODBYE, all).await);
    running.leave(&run).await;
    if run.failure().is_none() {
        subscriber::clear_sessions(&run).await?;
    }
    Ok(report)
}

/// Goes from the last published message to the end. Returns the seconds from the return until
/// everything had arrived.
async fn observe_and_return(
    arguments: &Redelivery,
    run: &LoadRun,
    announce: &channel::Sender<RedeliveryPhase>,
    sightings: &RefCell<Sightings>,
    progress: &mut ProgressLine,
) -> f64 {
    let finished = |run: &LoadRun| run.complete() && run.deliveries.borrow().open() == 0;
    pause(run, arguments.observe, finished).await;
    announce.send_replace(RedeliveryPhase::Away);
    pause(run, arguments.away, |_| false).await;
    let returned = clock::nanos();
    announce.send_replace(RedeliveryPhase::Back);
    let back = |run: &LoadRun| finished(run) && sightings.borrow().returned == run.topology.filters.len();
    let (mut all, mut drained_s);
    loop {
        all = watch::quiet(run, run.extent.patience, progress, back).await;
        drained_s = seconds(clock::nanos().saturating_sub(returned));
        let moved = run.moved();
        pause(run, SETTLED, |_| false).await;
        // A broker that sends again without end must not keep the run.
        if !all || run.moved() == moved || drained_s > run.extent.patience.as_secs_f64() {
            break;
        }
    }
    if all {
        announce.send_replace(RedeliveryPhase::Again);
        pause(run, SILENCE, |_| false).await;
    }
    drained_s
}

/// Waits for `time`. Stops earlier if `done` returns true, or if the run is interrupted or failed.
async fn pause(run: &LoadRun, time: Duration, done: impl Fn(&LoadRun) -> bool) {
    let over = |run: &LoadRun| done(run) || run.interrupted() || run.failure().is_some();
    let watching = async {
        while !over(run) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    drop(tokio::time::timeout(time, watching).await);
}

fn figures(seen: &Sightings, drained_s: f64) -> Vec<Figure> {
    vec![
        Figure::sum("resent on a live connection", seen.resent_live as f64, "messages"),
        Figure::sum("redelivered at the return", seen.redelivered_at_return as f64, "messages"),
        Figure::largest("all acknowledged after the return", drained_s, "s"),
        Figure::sum("came after all was acknowledged", seen.after_the_end as f64, "messages"),
        Figure::sum("connections cut by the broker", seen.cut_by_broker as f64, ""),
    ]
}
