//! The scenarios of `homing load`, one file each.

mod connections;
mod latency;
mod redelivery;
mod session;
mod throughput;

use super::args::Scenario;
use super::process;
use super::refused::require;
use super::report::LoadReport;
use super::trouble::Trouble;

/// Runs a scenario to its end.
///
/// # Errors
/// The arguments are refused, or the broker cannot be reached.
pub(super) async fn perform(scenario: &Scenario) -> Result<LoadReport, Trouble> {
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
