//! The outputs and the exit codes of the program.

use homing::config::ConfigRefusal;
use homing::log::stderr;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code for wrong arguments or configuration; nothing was started. clap uses the same
/// code.
pub(crate) const REFUSED: u8 = 2;

/// Writes every mistake of the configuration to standard error, and returns the exit code of a
/// refusal.
pub(crate) fn refuse(refusal: &ConfigRefusal) -> ExitCode {
    for problem in &refusal.0 {
        complain(&problem.to_string());
    }
    ExitCode::from(REFUSED)
}

/// Writes the reason of a failure to standard error, and returns the exit code of a failure.
pub(crate) fn failed(error: &impl Display) -> ExitCode {
    complain(&error.to_string());
    ExitCode::FAILURE
}

/// Writes a line to standard output. A missing reader (`homing | head -1`) does not stop the
/// broker.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Lets `print` write to standard output. A reader that closes it early, as `head` does, is no
/// failure.
pub(crate) fn printed(print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> ExitCode {
    let mut output = io::stdout().lock();
    match print(&mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes the line by which the command fails to standard error, behind all log lines.
pub(crate) fn complain(text: &str) {
    stderr::flush();
    drop(writeln!(io::stderr().lock(), "homing: {text}"));
}
