//! The commands that need no running broker of this process.

use super::output::{REFUSED, complain, failed, say};
use clap::Args;
#[cfg(feature = "admin")]
use homing::admin::credentials::token_command::{self, TokenArguments};
#[cfg(feature = "admin")]
use homing::admin::credentials::user_command::{self, UserArguments};
use homing::auth::passwd::{self, PasswdArguments, PasswdError};
use homing::config::Config;
use homing::health;
use homing::health::command::HealthArguments;
use homing::import;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `homing import`.
#[derive(Args)]
pub(crate) struct ImportArguments {
    /// mosquitto's file
    #[arg(value_name = "MOSQUITTO.CONF")]
    file: PathBuf,
    /// Print the result and exit with 0 even where something would be lost
    #[arg(long)]
    lenient: bool,
}

/// Translates a mosquitto.conf. Prints nothing to standard output where protection would be lost,
/// so that a redirected file is not started by mistake.
pub(crate) fn translate(ImportArguments { file, lenient }: &ImportArguments) -> ExitCode {
    let imported = match import::import(file) {
        Ok(imported) => imported,
        Err(error) => return failed(&error),
    };
    imported.notes.iter().for_each(|note| complain(note));
    if imported.lost > 0 && !*lenient {
        let lost = imported.lost;
        complain(&format!(
            "nothing is printed, because {lost} settings would be lost; --lenient prints it all the same"
        ));
        return ExitCode::FAILURE;
    }
    say(imported.toml.trim_end());
    ExitCode::SUCCESS
}

/// Makes or deletes a token for the HTTP interface.
#[cfg(feature = "admin")]
pub(crate) fn make_token(arguments: &TokenArguments) -> ExitCode {
    match token_command::run(arguments) {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

/// Adds, changes or deletes a user of the HTTP interface.
#[cfg(feature = "admin")]
pub(crate) fn change_user(arguments: &UserArguments) -> ExitCode {
    match user_command::run(arguments) {
        Ok(line) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

/// Changes a password file.
pub(crate) fn change_passwords(arguments: &PasswdArguments) -> ExitCode {
    match passwd::run(arguments) {
        Ok(report) => {
            report.lines.iter().for_each(|line| say(line));
            report.warnings.iter().for_each(|line| complain(line));
            if report.is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            complain(&error.to_string());
            match error {
                PasswdError::Arguments(_) | PasswdError::UserName(_) => ExitCode::from(REFUSED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Asks a broker if it is healthy. `running` is the address that a running broker has written to
/// its file.
pub(crate) fn check_health(
    arguments: &HealthArguments,
    running: Option<SocketAddr>,
    config: &Config,
) -> ExitCode {
    let target = match arguments.target(running, config) {
        Ok(target) => target,
        Err(refused) => {
            complain(&refused);
            return ExitCode::from(REFUSED);
        }
    };
    let address = &target.address;
    match health::check(&target, arguments.timeout) {
        Ok(()) => {
            say(&format!("{address} is healthy"));
            ExitCode::SUCCESS
        }
        Err(unhealthy) => {
            complain(&format!("{address} is not healthy: {unhealthy}"));
            ExitCode::FAILURE
        }
    }
}
