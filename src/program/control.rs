//! The commands that ask a running broker through its Unix socket or a URL.

use super::data::socket_to_ask;
use super::output::{REFUSED, complain, say};
use homing::admin::ctl::trace::TraceArguments;
use homing::admin::ctl::{self, BrokerEndpoint, CtlArguments, CtlError, EndpointArguments, EndpointDefaults};
use homing::config::Config;
use std::path::PathBuf;
use std::process::ExitCode;

/// Carries out `homing ctl`. Exit codes: 0 done, 1 refused, 2 arguments, 3 not reachable.
pub(crate) fn control(arguments: &CtlArguments, config: &Config) -> ExitCode {
    let outcome = ask(&arguments.endpoint, config, |broker| ctl::run(arguments, broker));
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
    let run = |broker: &BrokerEndpoint| ctl::trace::run(arguments, broker);
    ask(&arguments.endpoint, config, run).map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

/// Runs a command on the broker that the flags name, or else the configuration.
///
/// # Errors
/// The exit code of a failure, which was printed.
fn ask<T>(
    named: &EndpointArguments,
    config: &Config,
    run: impl FnOnce(&BrokerEndpoint) -> Result<T, CtlError>,
) -> Result<T, ExitCode> {
    let token_file = std::env::var_os("HOMING_TOKEN_FILE").filter(|file| !file.is_empty());
    let defaults =
        EndpointDefaults { socket: socket_to_ask(config), token_file: token_file.map(PathBuf::from) };
    let broker = named.endpoint(defaults).map_err(|mistake| {
        complain(&mistake);
        ExitCode::from(REFUSED)
    })?;
    run(&broker).map_err(|error| {
        complain(&error.to_string());
        match error {
            CtlError::NotReachable { .. } => ExitCode::from(3),
            CtlError::Configuration(_) | CtlError::Argument(_) => ExitCode::from(REFUSED),
            CtlError::Refused(_) | CtlError::Answer(_) => ExitCode::FAILURE,
        }
    })
}
