//! `homing doctor`.

use super::data::{data_directory, socket_to_ask};
use super::output::say;
use homing::config::{Config, Refusal};
use homing::doctor::{self, Patient};
use homing::finding::{Finding, Severity};
use std::process::ExitCode;

/// Examines the broker of this configuration, and prints the findings. Exit code 1 if one of them
/// is a fail.
pub(crate) fn examine(config: &Config) -> ExitCode {
    let patient = Patient { config, data: data_directory(config), socket: socket_to_ask(config) };
    report(&doctor::examine(&patient))
}

/// Prints the problems of a configuration that was refused. Exit code 1.
pub(crate) fn examine_refused(refusal: &Refusal) -> ExitCode {
    report(&doctor::refused(refusal))
}

fn report(findings: &[Finding]) -> ExitCode {
    findings.iter().for_each(|finding| say(&finding.to_string()));
    match findings.iter().any(|finding| finding.severity == Severity::Fail) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
