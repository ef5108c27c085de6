//! `homing load`: a load tester that works against any MQTT broker. The tester also checks that no
//! message is lost, duplicated or out of order. The MQTT client is rumqttc.
//!
//! Every message carries its publisher, its sequence number and the time at which it was due. So
//! loss, duplicates and disorder are counted, not assumed. The load tester shares no code with the
//! broker but the names of [`crate::mqtt::packet`], the clock, the durations of the configuration
//! and the reader of certificates.
//!
//! | file | concern |
//! |---|---|
//! | `args` | the command line |
//! | `plan` | the meaning of the arguments, or the reason why they are refused |
//! | `credentials` | user name and password |
//! | `client` | rumqttc for 3.1.1 and 5.0, behind one interface; TLS |
//! | `verify` | the deliveries: messages sent against messages received (pure) |
//! | `flow` | the closed loop of one publisher (pure) |
//! | `run` | the state that the clients of a run share |
//! | `clients`, `subscriber` | the clients as tasks; a subscriber that leaves and returns |
//! | `withhold` | the plan by which acknowledgements are withheld (pure) |
//! | `watch`, `pace` | the progress and the end of a run; a precise timer |
//! | `record`, `process` | latency and rate; CPU and memory of the broker |
//! | `progress`, `report`, `plot` | the display during a run; the report at its end; the picture |
//! | `scenario` | one file for each scenario |
//!
//! Everything runs on one thread, with a runtime of its own. Every queue is bounded by a window.
//! Two things grow with time, up to a limit: one bit for each message behind a gap
//! (`verify::Seen`), and one slot for each quarter of a second.

mod args;
mod client;
mod clients;
mod credentials;
mod flow;
mod pace;
mod plan;
mod plot;
mod process;
mod progress;
mod record;
mod refused;
mod report;
mod run;
mod scenario;
mod subscriber;
mod trouble;
mod verify;
mod watch;
mod withhold;

pub use args::{LoadArguments, one_line};

use crate::scheduling;
use std::io::{self, Write};
use std::process::ExitCode;
use tokio::runtime;
use tokio::task::LocalSet;
use trouble::Trouble;

/// The exit code for arguments that do not go together. clap uses the same code for a wrong
/// argument.
const REFUSED: u8 = 2;

/// Runs a scenario to its end, prints the report, and returns the exit code.
///
/// The code is 0 if nothing forbidden was seen, 1 if something was or the broker cannot be reached,
/// and 2 if the arguments are refused.
pub fn run(arguments: &LoadArguments) -> ExitCode {
    match perform(arguments) {
        Ok(report) => conclude(arguments, &report),
        Err(trouble) => {
            complain(&trouble.to_string());
            if matches!(trouble, Trouble::Refused(_)) { ExitCode::from(REFUSED) } else { ExitCode::FAILURE }
        }
    }
}

fn perform(arguments: &LoadArguments) -> Result<report::LoadReport, Trouble> {
    // Otherwise the times would be those of this thread wherever others want the core.
    scheduling::wake_soon();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, scenario::perform(&arguments.scenario))
}

fn conclude(arguments: &LoadArguments, report: &report::LoadReport) -> ExitCode {
    let common = arguments.scenario.common();
    let text = if common.json { report.json() } else { report.table() };
    // An error only means that the reader has gone, as in `homing load | head -1`.
    drop(writeln!(io::stdout().lock(), "{text}"));
    if let Some(path) = &common.plot
        && let Err(error) = std::fs::write(path, plot::draw(report))
    {
        complain(&format!("cannot write {}: {error}", path.display()));
        return ExitCode::FAILURE;
    }
    report.exit_code()
}

fn complain(text: &str) {
    drop(writeln!(io::stderr().lock(), "homing: load: {text}"));
}
