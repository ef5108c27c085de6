//! Opens many connections at once, then keeps them idle with keep alive. Measures the time to
//! connect, the cost of a connection, and dropped connections.

use crate::args::ConnectionsArguments;
use crate::client::{self, Broken, ClientConnection, Event, Options};
use crate::clients::ConnectPace;
use crate::clock;
use crate::crew::CrewMember;
use crate::plan::{ClientRole, LoadPlan};
use crate::process;
use crate::progress::ProgressLine;
use crate::record::{Latencies, seconds};
use crate::refused::{Refused, require};
use crate::report::{Figure, LoadDistribution, LoadReport};
use crate::run::LoadRun;
use crate::trouble::Trouble;
use crate::watch::{self, Meter};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

const SLOT: Duration = Duration::from_millis(250);

/// The observations of all connections together.
#[derive(Debug, Default)]
struct ConnectionSightings {
    connected: u64,
    failed: u64,
    dropped: u64,
    first_cause: Option<String>,
    /// The time from the first packet of the TCP handshake to CONNACK.
    connecting: Latencies,
    /// The time from PINGREQ to PINGRESP.
    pings: Latencies,
}

/// Checks the arguments.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn plan(arguments: &ConnectionsArguments) -> Result<LoadPlan, Refused> {
    require((1..=1_000_000).contains(&arguments.connections), "--connections must be from 1 to 1000000")?;
    require(arguments.concurrency > 0, "--concurrency must not be 0")?;
    let least = if arguments.common.broker.mqtt.is_v5() { 5 } else { 1 };
    let keep_alive = arguments.keep_alive.as_secs();
    require(
        (least..=65_535).contains(&keep_alive),
        &format!("--keep-alive must be from {least}s to 65535s, which is what rumqttc and MQTT take"),
    )?;
    let mut plan = LoadPlan::idle(&arguments.common, arguments.connections)?;
    plan.extent.warmup = Duration::ZERO;
    Ok(plan)
}

/// Opens many connections, then keeps them idle.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn perform(
    arguments: &ConnectionsArguments,
    plan: LoadPlan,
    member: CrewMember,
) -> Result<LoadReport, Trouble> {
    let pid = arguments.common.pid;
    let [mut storm_meter, mut idle_meter] = [Meter::new(pid, &member), Meter::new(pid, &member)];
    let run = LoadRun::new(plan, member, None);

    let options =
        |index: usize| Options { keep_alive: arguments.keep_alive, ..run.options(ClientRole::Idle, index) };
    // One client connects first, so that an absent broker gives one error and not thousands.
    drop(client::connect(&options(0)).await?);
    let idle_rss = pid.and_then(|pid| process::read(pid).ok()).map(|reading| reading.rss_bytes());

    let seen = Rc::new(RefCell::new(ConnectionSightings::default()));
    let began = run.start().await;
    let mut progress = ProgressLine::new("connections", &run.member);
    storm_meter.begin();
    let mut tasks = storm(arguments, &run, &seen, options);
    let wanted = u64::from(run.part.count);
    let settled = |seen: &ConnectionSightings| seen.connected + seen.failed;
    observe(&run, &mut progress, &seen, None, || {
        let settled = settled(&seen.borrow());
        (settled as f64 / wanted as f64, settled == wanted)
    })
    .await;
    let storm_s = seconds(clock::nanos().saturating_sub(began));
    run.member.together().await;
    storm_meter.end();

    idle_meter.begin();
    let duration = run.extent.duration;
    observe(&run, &mut progress, &seen, duration, || (1.0, seen.borrow().dropped >= wanted)).await;
    watch::last_slot(&run).await;
    idle_meter.end();
    let mut figures = figures(&seen.borrow(), storm_s);
    if let Some(cost) = storm_meter.cost() {
        let all = run.member.all_connected() as f64;
        figures.push(Figure::largest("broker CPU per connection made", cost.cpu_s * 1e6 / all, "us"));
        let grown = cost.rss_bytes.saturating_sub(idle_rss.unwrap_or(cost.rss_bytes));
        figures.push(Figure::largest("broker RSS per connection", (grown as f64 / all).floor(), "B"));
    }
    let distributions = {
        let seen = seen.borrow();
        vec![
            LoadDistribution::new("TCP and CONNECT to CONNACK", &seen.connecting),
            LoadDistribution::new("PINGREQ to PINGRESP", &seen.pings),
        ]
    };
    let mut report = LoadReport::of("connections", &run, &idle_meter, figures, distributions);
    report.cost_per = "ping".to_owned();
    report.measured = seen.borrow().pings.count();
    report.breaches = breaches(&seen.borrow(), run.part.count);
    report.derive();
    // DISCONNECT is not part of this scenario, so the sockets are just closed.
    tasks.abort_all();
    Ok(report)
}

fn storm(
    arguments: &ConnectionsArguments,
    run: &Rc<LoadRun>,
    seen: &Rc<RefCell<ConnectionSightings>>,
    options: impl Fn(usize) -> Options,
) -> JoinSet<()> {
    let threads = run.member.threads() as usize;
    let places = Rc::new(Semaphore::new((arguments.concurrency as usize).div_ceil(threads)));
    let pace = ConnectPace::new(run);
    let mut tasks = JoinSet::new();
    for index in 0..run.part.count as usize {
        let (places, seen, run, options) =
            (Rc::clone(&places), Rc::clone(seen), Rc::clone(run), options(index));
        tasks.spawn_local(async move {
            pace.until(run.part.position(index)).await;
            let Ok(place) = places.acquire().await else { return };
            if run.is_ending() {
                return;
            }
            let began = clock::nanos();
            let connected = client::connect(&options).await;
            drop(place);
            match connected {
                Ok((_sender, connection, _)) => {
                    {
                        let took = clock::nanos().saturating_sub(began);
                        let mut seen = seen.borrow_mut();
                        seen.connected += 1;
                        seen.connecting.add(took);
                        run.record.borrow_mut().slot.add(took);
                        run.member.connected();
                    }
                    // The sender stays alive, because rumqttc ends a connection without one.
                    idle(connection, &run, &seen).await;
                }
                Err(Broken(cause)) => {
                    let mut seen = seen.borrow_mut();
                    seen.failed += 1;
                    seen.first_cause.get_or_insert(cause);
                }
            }
        });
    }
    tasks
}

/// Runs a connection that only sends pings at its keep alive.
async fn idle(mut connection: ClientConnection, run: &LoadRun, seen: &RefCell<ConnectionSightings>) {
    let mut pinged = None;
    loop {
        match connection.next().await {
            Ok(Event::Pinged) => pinged = Some(clock::nanos()),
            Ok(Event::Ponged) => {
                if let Some(pinged) = pinged.take() {
                    let took = clock::nanos().saturating_sub(pinged);
                    seen.borrow_mut().pings.add(took);
                    run.record.borrow_mut().slot.add(took);
                }
            }
            Ok(_) => {}
            Err(Broken(cause)) => {
                let mut seen = seen.borrow_mut();
                seen.dropped += 1;
                seen.first_cause.get_or_insert(cause);
                return;
            }
        }
    }
}

/// Shows progress until `done` returns true, the time is over, or the run is stopped.
async fn observe(
    run: &LoadRun,
    progress: &mut ProgressLine,
    seen: &RefCell<ConnectionSightings>,
    time: Option<Duration>,
    done: impl Fn() -> (f64, bool),
) {
    let text = || {
        let seen = seen.borrow();
        format!(
            "{} connected  {} pings  {} failed or dropped",
            run.member.all_connected(),
            seen.pings.count(),
            seen.failed + seen.dropped
        )
    };
    let start = Instant::now();
    let mut ticks = interval(SLOT / 10);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = start;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = run.stopped() => return,
        }
        let (part, over) = done();
        let passed = start.elapsed();
        if over || time.is_some_and(|time| passed >= time) {
            return;
        }
        if shown.elapsed() >= SLOT {
            shown = Instant::now();
            run.report();
            if run.member.leads() {
                run.member.close_slot(clock::nanos());
            }
            let part = time.map_or(part, |time| passed.as_secs_f64() / time.as_secs_f64());
            progress.say(part, passed.as_secs_f64(), &text());
        }
    }
}

fn figures(seen: &ConnectionSightings, storm_s: f64) -> Vec<Figure> {
    let connected = seen.connected as f64;
    vec![
        Figure::sum("connected", connected, "connections"),
        Figure::largest("in", storm_s, "s"),
        Figure::rate("rate", connected, storm_s, "connections/s"),
        Figure::sum("pings answered while idle", seen.pings.count() as f64, ""),
    ]
}

fn breaches(seen: &ConnectionSightings, wanted: u32) -> Vec<String> {
    let cause = seen.first_cause.clone().unwrap_or_default();
    let mut breaches = Vec::new();
    if seen.failed > 0 {
        breaches.push(format!("{} of {wanted} connections failed, the first: {cause}", seen.failed));
    }
    if seen.dropped > 0 {
        breaches.push(format!("{} connections dropped while idle, the first: {cause}", seen.dropped));
    }
    breaches
}
