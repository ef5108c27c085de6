//! `homing load`: a load tester that works against any MQTT broker. The tester also checks that no
//! message is lost, duplicated or out of order. The MQTT client is rumqttc.
//!
//! Every message carries its publisher, its sequence number and the time at which it was due. So
//! loss, duplicates and disorder are counted, not assumed. The load tester shares no code with the
//! broker but the names of [`crate::mqtt::packet`], the rule for topic names, the clock, the
//! durations of the configuration and the reader of certificates; and with `homing health` the
//! request for a WebSocket.
//!
//! | file | concern |
//! |---|---|
//! | `args` | the command line |
//! | `plan` | the meaning of the arguments, or the reason why they are refused |
//! | `pattern` | client ids and topics with variables (pure) |
//! | `credentials` | user names and passwords |
//! | `client` | rumqttc for 3.1.1 and 5.0, behind one interface; TLS and WebSocket |
//! | `verify` | the deliveries: messages sent against messages received (pure) |
//! | `flow` | the closed loop of one publisher (pure) |
//! | `crew` | the threads of a run: start, stop, and the board with their slots of time |
//! | `run` | the state that the clients of one thread share |
//! | `clients`, `subscriber` | the clients as tasks; a subscriber that leaves and returns |
//! | `withhold` | the plan by which acknowledgements are withheld (pure) |
//! | `watch`, `pace` | the progress and the end of a run; a precise timer |
//! | `record`, `process` | latency and rate; CPU and memory of the broker |
//! | `progress`, `csv` | the display and the file during a run |
//! | `report`, `add` | the report at the end; the sum of several reports |
//! | `table`, `plot` | the report for people, and its picture |
//! | `scenario` | one file for each scenario |
//!
//! Each thread has a runtime and clients of its own, and every message stays in one thread. Every
//! queue is bounded by a window. Two things grow with time, up to a limit: one bit for each message
//! behind a gap (`verify::Seen`), and one slot for each quarter of a second.

mod add;
mod args;
mod client;
mod clients;
mod credentials;
mod crew;
mod csv;
mod flow;
mod pace;
mod pattern;
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
mod table;
mod trouble;
mod verify;
mod watch;
mod withhold;

pub use args::{LoadArguments, one_line};

use crate::scheduling;
use args::{AddArguments, LoadCommand, ReportArguments, Scenario};
use crew::{Crew, Seat};
use csv::CsvFile;
use plan::LoadPlan;
use report::LoadReport;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use tokio::runtime;
use tokio::task::LocalSet;
use trouble::Trouble;

/// The exit code for arguments that do not go together. clap uses the same code for a wrong
/// argument.
const REFUSED: u8 = 2;

/// Runs a scenario to its end or adds reports, prints the report, and returns the exit code.
///
/// The code is 0 if nothing forbidden was seen, 1 if something was or the broker cannot be reached,
/// and 2 if the arguments are refused.
pub fn run(arguments: &LoadArguments) -> ExitCode {
    let (result, output) = match &arguments.command {
        LoadCommand::Run(scenario) => (perform(scenario), &scenario.common().output),
        LoadCommand::Add(arguments) => (add_reports(arguments), &arguments.output),
    };
    match result {
        Ok((report, complaint)) => conclude(output, &report, complaint),
        Err(trouble) => {
            complain(&trouble.to_string());
            if matches!(trouble, Trouble::Refused(_)) { ExitCode::from(REFUSED) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs the threads of a scenario. This thread is the first of them. Returns the report, and the
/// error of the CSV file.
fn perform(scenario: &Scenario) -> Result<(LoadReport, Option<String>), Trouble> {
    let common = scenario.common();
    let plan = scenario::plan(scenario)?;
    let csv = common.output.csv.as_deref().map(CsvFile::create).transpose()?;
    let crew = Crew::new(common.threads, csv);
    let work = |index: u32| {
        let part = plan.of_thread(index, common.threads);
        let result = one_thread(scenario, part, crew.seat(index));
        if let Err(trouble) = &result {
            crew.fail(trouble.to_string());
        }
        result
    };
    let mut parts = thread::scope(|scope| {
        let others = (1..common.threads).map(|index| scope.spawn(move || work(index))).collect::<Vec<_>>();
        let mut parts = vec![work(0)?];
        for other in others {
            let panicked = |_| Trouble::Runtime(io::Error::other("a thread panicked"));
            parts.push(other.join().map_err(panicked)??);
        }
        Ok::<_, Trouble>(parts)
    })?;
    let mut report = parts.remove(0);
    let (slots, csv_error) = crew.finish();
    report.slots = slots;
    Ok((report.add(parts), csv_error))
}

fn one_thread(scenario: &Scenario, part: LoadPlan, seat: Seat) -> Result<LoadReport, Trouble> {
    // Otherwise the times would be those of this thread wherever others want the core.
    scheduling::wake_soon();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, scenario::perform(scenario, part, seat))
}

/// Adds reports. Returns the sum, and a warning or the error of the CSV file.
fn add_reports(arguments: &AddArguments) -> Result<(LoadReport, Option<String>), Trouble> {
    let (report, warning) = add::add(arguments)?;
    if let Some(warning) = warning {
        complain(&warning);
    }
    let mut csv_error = None;
    if let Some(path) = &arguments.output.csv {
        let mut csv = CsvFile::create(path)?;
        report.slots.iter().for_each(|slot| csv.line(report.started_unix_s + slot.at_s, slot));
        csv_error = csv.finish();
    }
    Ok((report, csv_error))
}

/// Prints the report and draws it. A complaint is the reason why a file of it is not whole.
fn conclude(output: &ReportArguments, report: &LoadReport, mut complaint: Option<String>) -> ExitCode {
    let text = if output.json { report.json() } else { table::draw(report) };
    // An error only means that the reader has gone, as in `homing load | head -1`.
    drop(writeln!(io::stdout().lock(), "{text}"));
    if let Some(path) = &output.plot
        && let Err(error) = std::fs::write(path, plot::draw(report))
    {
        complaint = Some(format!("cannot write {}: {error}", path.display()));
    }
    match complaint {
        Some(complaint) => {
            complain(&complaint);
            ExitCode::FAILURE
        }
        None => report.exit_code(),
    }
}

fn complain(text: &str) {
    drop(writeln!(io::stderr().lock(), "homing: load: {text}"));
}
