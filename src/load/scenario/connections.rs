//! Opens many connections at once, then keeps them idle with keep alive. Measures the time to
//! connect, the cost of a connection, and dropped connections.

use crate::clock;
use crate::load::args::ConnectionsArguments;
use crate::load::client::{self, Broken, ClientConnection, Event, Options};
use crate::load::plan::{Topology, prepare};
use crate::load::process;
use crate::load::progress::ProgressLine;
use crate::load::record::{Latencies, seconds};
use crate::load::refused::require;
use crate::load::report::{Figure, LoadReport};
use crate::load::run::LoadRun;
use crate::load::trouble::Trouble;
use crate::load::watch::{self, Meter};
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

/// Opens many connections, then keeps them idle.
///
/// # Errors
/// The arguments are refused, or the broker cannot be reached.
pub(super) async fn perform(arguments: &ConnectionsArguments) -> Result<LoadReport, Trouble> {
    let common = &arguments.common;
    let (wire, extent) = prepare(common, common.qos.unwrap_or_default())?;
    check(arguments)?;
    let nobody = Topology { topics: Vec::new(), filters: Vec::new(), audiences: Vec::new(), copies: 0 };
    let run = LoadRun::new(wire, nobody, &extent, None);
    watch::for_interrupt(&run);

    let options = |index: usize| Options { keep_alive: arguments.keep_alive, ..run.wire.options("c", index) };
    // One client connects first, so that an absent broker gives one error and not thousands.
    drop(client::connect(&Options { client_id: format!("{}-0", options(0).client_id), ..options(0) }).await?);
    let idle_rss = common.pid.and_then(|pid| process::read(pid).ok()).map(|reading| reading.rss_bytes());

    let seen = Rc::new(RefCell::new(ConnectionSightings::default()));
    let mut progress = ProgressLine::new("connections");
    run.start(Duration::ZERO);
    let mut meter = Meter::new(common.pid);
    meter.begin(0);
    let began = clock::nanos();
    let mut tasks = storm(arguments, &run, &seen, options);
    let wanted = u64::from(arguments.connections);
    let settled = |seen: &ConnectionSightings| seen.connected + seen.failed;
    observe(&run, &mut progress, &seen, None, || {
        let settled = settled(&seen.borrow());
        (settled as f64 / wanted as f64, settled == wanted)
    })
    .await;
    let storm_s = seconds(clock::nanos().saturating_sub(began));
    meter.end(seen.borrow().connected);
    let storm_cost = meter.cost();

    let mut meter = Meter::new(common.pid);
    meter.begin(0);
    observe(&run, &mut progress, &seen, extent.duration, || (1.0, seen.borrow().dropped >= wanted)).await;
    meter.end(seen.borrow().pings.count());
    progress.finish();
    let mut figures = figures(&seen.borrow(), storm_s);
    if let (Some(cost), Some(cpu)) = (storm_cost, storm_cost.and_then(|cost| cost.cpu_us_per_message)) {
        figures.push(Figure::new("broker CPU per connection made", cpu, "us"));
        let grown = cost.rss_bytes.saturating_sub(idle_rss.unwrap_or(cost.rss_bytes));
        figures.push(Figure::new("broker RSS per connection", (grown / wanted) as f64, "B"));
    }
    let mut report = LoadReport::of("connections", &run, &meter, figures);
    report.cost_per = "ping";
    report.forbidden = breaches(&seen.borrow(), arguments.connections);
    // DISCONNECT is not part of this scenario, so the sockets are just closed.
    tasks.abort_all();
    Ok(report)
}

fn check(arguments: &ConnectionsArguments) -> Result<(), Trouble> {
    require((1..=1_000_000).contains(&arguments.connections), "--connections must be from 1 to 1000000")?;
    require(arguments.concurrency > 0, "--concurrency must not be 0")?;
    let least = if arguments.common.mqtt.is_v5() { 5 } else { 1 };
    let keep_alive = arguments.keep_alive.as_secs();
    require(
        (least..=65_535).contains(&keep_alive),
        &format!("--keep-alive must be from {least}s to 65535s, which is what rumqttc and MQTT take"),
    )?;
    Ok(())
}

fn storm(
    arguments: &ConnectionsArguments,
    run: &Rc<LoadRun>,
    seen: &Rc<RefCell<ConnectionSightings>>,
    options: impl Fn(usize) -> Options,
) -> JoinSet<()> {
    let places = Rc::new(Semaphore::new(arguments.concurrency as usize));
    let mut tasks = JoinSet::new();
    for index in 0..arguments.connections as usize {
        let (places, seen, run, options) =
            (Rc::clone(&places), Rc::clone(seen), Rc::clone(run), options(index));
        tasks.spawn_local(async move {
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
                        let mut seen = seen.borrow_mut();
                        seen.connected += 1;
                        seen.connecting.add(clock::nanos().saturating_sub(began));
                    }
                    // The sender stays alive, because rumqttc ends a connection without one.
                    idle(connection, &seen).await;
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
async fn idle(mut connection: ClientConnection, seen: &RefCell<ConnectionSightings>) {
    let mut pinged = None;
    loop {
        match connection.next().await {
            Ok(Event::Pinged) => pinged = Some(clock::nanos()),
            Ok(Event::Ponged) => {
                if let Some(pinged) = pinged.take() {
                    seen.borrow_mut().pings.add(clock::nanos().saturating_sub(pinged));
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
            "{} connected, {} pings, {} failed or dropped",
            seen.connected,
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
            let part = time.map_or(part, |time| passed.as_secs_f64() / time.as_secs_f64());
            progress.say(part, passed.as_secs_f64(), &text());
        }
    }
}

fn figures(seen: &ConnectionSightings, storm_s: f64) -> Vec<Figure> {
    let mut figures = vec![
        Figure::new("connected", seen.connected as f64, "connections"),
        Figure::new("in", storm_s, "s"),
        Figure::new("rate", seen.connected as f64 / storm_s, "connections/s"),
    ];
    let names = ["TCP and CONNECT to CONNACK, p50", "  p99", "  max"];
    figures.extend(Figure::quantiles(names, seen.connecting.quantiles()));
    figures.push(Figure::new("pings answered while idle", seen.pings.count() as f64, ""));
    figures.extend(Figure::quantiles(["PINGREQ to PINGRESP, p50", "  p99", "  max"], seen.pings.quantiles()));
    figures
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
