//! The commands that ask a running broker through its Unix socket.

use super::data::socket_to_ask;
use super::output::{REFUSED, complain, say};
use homing::admin::ctl::trace::TraceArguments;
use homing::admin::ctl::{self, CtlArguments, CtlError};
use homing::config::Config;
use std::path::Path;
use std::process::ExitCode;

/// Carries out `homing ctl`. Exit codes: 0 done, 1 refused, 2 arguments, 3 not reachable.
pub(crate) fn control(arguments: &CtlArguments, config: &Config) -> ExitCode {
    let outcome = ask_by_socket(arguments.socket.as_deref(), config, |socket| ctl::run(arguments, socket));
    outcome.map_or_else(
        |code| code,
        |text| {
            say(&text);
            ExitCode::SUCCESS
        },
    )
}

/// Prints the steps of a new trace until it ends. Exit codes as of `control`.
pub(crate) fn follow(arguments: &TraceArguments, config: &Config) -> ExitCode {
    let run = |socket: &Path| ctl::trace::run(arguments, socket);
    ask_by_socket(arguments.socket.as_deref(), config, run).map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

/// Runs a command on the Unix socket of the broker.
///
/// # Errors
/// The exit code of a failure, which was printed.
fn ask_by_socket<T>(
    named: Option<&Path>,
    config: &Config,
    run: impl FnOnce(&Path) -> Result<T, CtlError>,
) -> Result<T, ExitCode> {
    let Some(socket) = named.map(Path::to_path_buf).or_else(|| socket_to_ask(config)) else {
        complain("there is no Unix socket: set admin.socket, or name it with --socket");
        return Err(ExitCode::from(REFUSED));
    };
    run(&socket).map_err(|error| {
        complain(&error.to_string());
        match error {
            CtlError::NotReachable { .. } => ExitCode::from(3),
            CtlError::Configuration(_) => ExitCode::from(REFUSED),
            CtlError::Refused(_) | CtlError::Answer(_) => ExitCode::FAILURE,
        }
    })
}
