//! The scenarios, and what they begin and end with alike.

mod connections;
mod latency;
mod redelivery;
mod session;
mod throughput;

use super::Trouble;
use super::args::{Common, Scenario};
use super::plan::{Extent, Wire, require};
use super::process;
use super::report::{Figure, Report};
use super::run::Run;
use super::watch::Meter;
use crate::clock;
use crate::mqtt::packet::QoS;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal;

/// How long a scenario publishes unless told.
const DURATION: Duration = Duration::from_secs(10);
/// What a shell expects of a program that a second ctrl-c ended.
const INTERRUPTED: i32 = 130;

impl Scenario {
    /// Returns the arguments that every scenario has.
    pub fn common(&self) -> &Common {
        match self {
            Scenario::Throughput(arguments) => &arguments.common,
            Scenario::Latency(arguments) => &arguments.common,
            Scenario::Connections(arguments) => &arguments.common,
            Scenario::Redelivery(arguments) => &arguments.common,
            Scenario::Session(arguments) => &arguments.common,
        }
    }
}

/// Runs a scenario to its end.
///
/// # Errors
/// The arguments are refused, or the broker cannot be reached.
pub async fn perform(scenario: &Scenario) -> Result<Report, Trouble> {
    if let Some(pid) = scenario.common().pid {
        let readable = process::read(pid);
        let why = readable.as_ref().err().map(ToString::to_string).unwrap_or_default();
        require(readable.is_ok(), &format!("--pid {pid} cannot be read: {why}"))?;
    }
    match scenario {
        Scenario::Throughput(arguments) => throughput::perform(arguments).await,
        Scenario::Latency(arguments) => latency::perform(arguments).await,
        Scenario::Connections(arguments) => connections::perform(arguments).await,
        Scenario::Redelivery(arguments) => redelivery::perform(arguments).await,
        Scenario::Session(arguments) => session::perform(arguments).await,
    }
}

/// Where and how long, checked.
fn prepare(common: &Common, qos: QoS) -> Result<(Wire, Extent), Trouble> {
    let wire = Wire::new(common, qos, run_number())?;
    let extent = Extent::new(common, DURATION)?;
    Ok((wire, extent))
}

/// Different enough for runs that meet on one broker.
fn run_number() -> u32 {
    let time = (clock::unix_millis() & 0xFFFF_FFFF) as u32;
    time ^ std::process::id().rotate_left(20)
}

/// The first ctrl-c ends the run and lets it report; the second ends the program.
fn watch_for_interrupt(run: &Rc<Run>) {
    let run = Rc::clone(run);
    tokio::task::spawn_local(async move {
        if signal::ctrl_c().await.is_ok() {
            run.interrupt();
        }
        if signal::ctrl_c().await.is_ok() {
            std::process::exit(INTERRUPTED);
        }
    });
}

/// What a run amounted to. A run that was cut short has not lost what was under way.
fn report(scenario: &'static str, run: &Run, meter: &Meter, mut figures: Vec<Figure>) -> Report {
    let mut counts = run.ledger.borrow().counts();
    if counts.lost > 0 && (run.interrupted() || run.failure().is_some()) {
        figures.push(Figure::new("under way at the end", counts.lost as f64, "messages"));
        counts.lost = 0;
    }
    let record = run.record.borrow();
    let wire = &run.wire;
    Report {
        scenario,
        broker: format!("{}:{}", wire.host, wire.port),
        mqtt: wire.version.to_string(),
        qos: wire.qos.bits(),
        payload: wire.payload,
        publishers: run.topology.topics.len(),
        subscribers: run.topology.filters.len(),
        counts,
        measured_s: record.measured_s(),
        rate_per_s: record.rate(),
        latency_ms: record.latencies.quantiles(),
        cost: meter.cost(),
        cost_per: "delivered message",
        figures,
        forbidden: counts.forbidden(wire.qos),
        failure: run.failure(),
        interrupted: run.interrupted(),
        slots: record.slots().to_vec(),
    }
}
