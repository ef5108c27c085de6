//! `homing load`: a load tester on rumqttc that works against any MQTT broker, and checks what it
//! measures.
//!
//! Every message carries its publisher, its place in that publisher's sequence and the time it was
//! due, so that loss, duplicates and disorder are counted, not assumed. It shares no code with the
//! broker but a few names ([`crate::mqtt::packet`]).
//!
//! | file | concern |
//! |---|---|
//! | `args`, `plan` | what was typed; what it means, or why it is refused |
//! | `client` | rumqttc, 3.1.1 and 5.0, behind one face |
//! | `verify` | the books: what was sent against what came (pure) |
//! | `flow` | a publisher's closed loop (pure) |
//! | `run`, `crew` | the state that a run shares; its clients as tasks |
//! | `watch`, `pace` | the end of a run; a precise timer |
//! | `record`, `process` | latency and rate; a broker's CPU and memory |
//! | `withhold`, `subscriber` | withheld acknowledgements; a subscriber that returns |
//! | `progress`, `report`, `plot` | what is shown meanwhile, said at the end, drawn |
//! | `scenario` | one file each |
//!
//! One thread and one runtime of its own. Every queue is bounded by a window; what grows with time
//! is one bit per message behind a loss (`verify::Seen`) and one slot per quarter second, both up
//! to a limit.

mod args;
mod client;
mod crew;
mod flow;
mod pace;
mod plan;
mod plot;
mod process;
mod progress;
mod record;
mod report;
mod run;
mod scenario;
mod subscriber;
mod trouble;
mod verify;
mod watch;
mod withhold;

pub use args::{LoadArguments, one_line};

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

fn perform(arguments: &LoadArguments) -> Result<report::Report, Trouble> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, scenario::perform(&arguments.scenario))
}

fn conclude(arguments: &LoadArguments, report: &report::Report) -> ExitCode {
    let common = arguments.scenario.common();
    let text = if common.json { report.json() } else { report.table() };
    // A reader that has gone away (`homing load | head -1`) changes nothing.
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
