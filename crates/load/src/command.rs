//! A run from its arguments to its exit code.

use crate::args::{AddArguments, LoadArguments, LoadCommand, ReportArguments, Scenario};
use crate::crew::{Crew, CrewMember};
use crate::csv::CsvFile;
use crate::plan::LoadPlan;
use crate::report::LoadReport;
use crate::trouble::Trouble;
use crate::{add, plot, scenario, table};
use rustls::ClientConfig;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use tokio::runtime;
use tokio::task::LocalSet;

/// The exit code for arguments that do not go together. clap uses the same code for a wrong
/// argument.
const REFUSED: u8 = 2;

/// The functions of the surrounding program that the load tester calls.
#[derive(Clone, Copy, Debug)]
pub struct HostProgram {
    /// Returns the TLS configuration of a client.
    pub client_tls: ClientTls,
    /// Asks the system to let the calling thread run soon after it wakes up.
    pub wake_soon: fn(),
}

/// Returns the TLS configuration of a client that trusts the authorities in a file, or those of the
/// system, and has the certificate of a file, if there is one. An error is one line for people.
pub type ClientTls = fn(Option<&Path>, Option<ClientCertificate<'_>>) -> Result<Arc<ClientConfig>, String>;

/// The files of a client's certificate.
#[derive(Clone, Copy, Debug)]
pub struct ClientCertificate<'a> {
    /// The certificate as PEM, with those of the authorities between.
    pub certificate: &'a Path,
    /// The private key as PEM.
    pub key: &'a Path,
}

/// Runs a scenario to its end or adds reports, prints the report, and returns the exit code.
///
/// The code is 0 if nothing forbidden was seen, 1 if something was or the broker cannot be reached,
/// and 2 if the arguments are refused.
pub fn run(arguments: &LoadArguments, program: HostProgram) -> ExitCode {
    let (result, output) = match &arguments.command {
        LoadCommand::Run(scenario) => (perform(scenario, program), &scenario.common().output),
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
fn perform(scenario: &Scenario, program: HostProgram) -> Result<(LoadReport, Option<String>), Trouble> {
    let common = scenario.common();
    let plan = scenario::plan(scenario, program.client_tls)?;
    let csv = common.output.csv.as_deref().map(CsvFile::create).transpose()?;
    let crew = Crew::new(common.clients.threads, csv);
    let work = |index: u32| {
        let part = plan.of_thread(index, common.clients.threads);
        // Otherwise the times would be those of this thread wherever others want the core.
        (program.wake_soon)();
        let result = one_thread(scenario, part, crew.member(index));
        if let Err(trouble) = &result {
            crew.fail(trouble.to_string());
        }
        result
    };
    let mut parts = thread::scope(|scope| {
        let others =
            (1..common.clients.threads).map(|index| scope.spawn(move || work(index))).collect::<Vec<_>>();
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

fn one_thread(scenario: &Scenario, part: LoadPlan, member: CrewMember) -> Result<LoadReport, Trouble> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, scenario::perform(scenario, part, member))
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
