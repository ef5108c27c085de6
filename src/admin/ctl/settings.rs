//! The commands of `homing ctl` that change how the broker works.

use super::CtlError;
use super::http::{done, request, send};
use clap::Subcommand;
use serde_json::json;
use std::path::Path;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum SettingsCommand {
    /// Show the level of the log, or set it until the next reload or start
    LogLevel {
        /// error, warn, info, debug, trace, or directives such as info,homing::broker=debug
        level: Option<String>,
        /// Set it for this long, such as 10m; then log.level of the configuration holds again
        #[arg(long = "for", value_name = "TIME", requires = "level")]
        hold: Option<String>,
    },
}

/// Runs a command, and returns what to print.
///
/// # Errors
/// Nobody answers, the broker refuses, or the answer cannot be read.
pub(super) fn run(command: &SettingsCommand, socket: &Path) -> Result<String, CtlError> {
    let SettingsCommand::LogLevel { level, hold } = command;
    let Some(level) = level else {
        let body = request(socket, "GET", "/api/v1/log/level")?;
        return Ok(body["level"].as_str().unwrap_or_default().to_owned());
    };
    let body = json!({ "level": level, "for": hold }).to_string();
    done(send(socket, "PUT", "/api/v1/log/level", &body)?)?;
    Ok(match hold {
        Some(hold) => format!("the log level is {level} for {hold}"),
        None => format!("the log level is {level} until the next reload or start"),
    })
}
