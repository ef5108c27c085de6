//! The scenarios of `homing load`, one file each.

mod connections;
mod latency;
mod redelivery;
mod session;
mod throughput;

use super::args::Scenario;
use super::command::ClientTls;
use super::crew::CrewMember;
use super::plan::LoadPlan;
use super::process;
use super::refused::{Refused, require};
use super::report::LoadReport;
use super::trouble::Trouble;
use super::watch;

/// Checks the arguments of a scenario.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn plan(scenario: &Scenario, client_tls: ClientTls) -> Result<LoadPlan, Refused> {
    if let Some(pid) = scenario.common().pid {
        let readable = process::read(pid);
        let why = readable.as_ref().err().map(ToString::to_string).unwrap_or_default();
        require(readable.is_ok(), &format!("--pid {pid} cannot be read: {why}"))?;
    }
    let plan = match scenario {
        Scenario::Throughput(arguments) => throughput::plan(arguments),
        Scenario::Latency(arguments) => latency::plan(arguments),
        Scenario::Connections(arguments) => connections::plan(arguments),
        Scenario::Redelivery(arguments) => redelivery::plan(arguments),
        Scenario::Session(arguments) => session::plan(arguments),
    };
    plan?.with_tunnel(&scenario.common().broker, client_tls)
}

/// Runs the part of one thread to its end.
///
/// # Errors
/// The broker cannot be reached.
pub(super) async fn perform(
    scenario: &Scenario,
    plan: LoadPlan,
    member: CrewMember,
) -> Result<LoadReport, Trouble> {
    watch::for_interrupt(&member);
    match scenario {
        Scenario::Throughput(arguments) => throughput::perform(arguments, plan, member).await,
        Scenario::Latency(arguments) => latency::perform(arguments, plan, member).await,
        Scenario::Connections(arguments) => connections::perform(arguments, plan, member).await,
        Scenario::Redelivery(arguments) => redelivery::perform(arguments, plan, member).await,
        Scenario::Session(arguments) => session::perform(arguments, plan, member).await,
    }
}
