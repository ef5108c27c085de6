//! The commands of `homing ctl` about the settings of the broker.

use super::actions::NoteFlag;
use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{done, noted, request, send};
use super::text::{Print, items, left, short, table};
use clap::Subcommand;
use serde_json::{Value, json};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum SettingsCommand {
    /// Show the level of the log, or set it until the next reload or start
    LogLevel {
        /// error, warn, info, debug, trace, or directives such as info,homing::broker=debug
        level: Option<String>,
        /// Set it for this long, such as 10m; then log.level of the configuration holds again
        #[arg(long = "for", value_name = "TIME", requires = "level")]
        hold: Option<String>,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// List the keys of the configuration with the values in force and their sources
    Config {
        /// Only the keys that have not their built-in default
        #[arg(long)]
        changed: bool,
    },
    /// Read the configuration and its files again; all of it, or nothing
    Reload {
        /// Check everything, show what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// Runs a command, and returns what to print.
///
/// # Errors
/// Nobody answers, the broker refuses, or the answer cannot be read.
pub(super) fn run(
    command: &SettingsCommand,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    match command {
        SettingsCommand::LogLevel { level, hold, note } => {
            log_level(broker, level.as_deref(), hold.as_deref(), note)
        }
        SettingsCommand::Config { changed } => {
            let body = request(broker, "GET", &format!("/api/v1/config?changed={changed}"))?;
            Ok(print.answer(&body, values_table))
        }
        SettingsCommand::Reload { dry_run, note } => {
            Ok(print.answer(&reload(broker, *dry_run, note)?, changes))
        }
    }
}

/// Returns the values in force as a table.
fn values_table(body: &Value) -> String {
    let rows = items(body, "keys");
    if rows.is_empty() {
        return "every key has its built-in default".to_owned();
    }
    let cells = |row: &Value| {
        let pending = match &row["pending"] {
            Value::Null => String::new(),
            value => short(value),
        };
        let [key, value, source, effect] = ["key", "value", "source", "effect"].map(|name| short(&row[name]));
        [key, value, effect, source, pending]
    };
    let columns = [left("key"), left("value"), left("reload"), left("source"), left("after a restart")];
    table(columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Has the configuration read again. Returns the answer.
fn reload(broker: &BrokerEndpoint, dry_run: bool, note: &NoteFlag) -> Result<Value, CtlError> {
    let path = noted(&format!("/api/v1/config/reload?dry_run={dry_run}"), note);
    let (status, body) = send(broker, "POST", &path, "")?;
    match body["mistakes"].as_array() {
        Some(mistakes) => {
            Err(CtlError::Configuration(mistakes.iter().map(short).collect::<Vec<_>>().join("\n")))
        }
        // It is not known yet if the new values will hold.
        None if status == 202 => Err(CtlError::Refused(short(&body["detail"]))),
        None => done((status, body)),
    }
}

/// Returns the keys whose values wait for a restart of the running broker.
///
/// # Errors
/// Nobody answers, or the configuration is refused.
pub(crate) fn pending_restart(broker: &BrokerEndpoint) -> Result<Vec<String>, CtlError> {
    let body = reload(broker, true, &NoteFlag { note: None })?;
    let pending = items(&body, "changes").iter().filter(|change| change["effect"] == "restart");
    Ok(pending.map(|change| short(&change["key"])).collect())
}

/// Returns a line for each change, for each listener, for each value that does not count, for each
/// file, and one for the clients that the files disconnected.
fn changes(body: &Value) -> String {
    let mut lines = Vec::new();
    for change in items(body, "changes") {
        let [effect, key, from, to] = ["effect", "key", "from", "to"].map(|name| short(&change[name]));
        let pending = if effect == "restart" { " (pending)" } else { "" };
        lines.push(format!("{effect:<8} {key} {from} -> {to}{pending}"));
    }
    for change in items(body, "listeners") {
        let [effect, listener, what] = ["effect", "listener", "change"].map(|name| short(&change[name]));
        let keys: Vec<String> = items(change, "keys").iter().map(short).collect();
        let keys = if keys.is_empty() { String::new() } else { format!(": {}", keys.join(", ")) };
        let pending = if effect == "restart" { " (pending)" } else { "" };
        lines.push(format!("{effect:<8} listener {listener} {what}{keys}{pending}"));
    }
    for shadowed in items(body, "shadowed") {
        lines.push(format!(
            "shadowed {}: {} wins over the file",
            short(&shadowed["key"]),
            short(&shadowed["by"])
        ));
    }
    lines.extend(items(body, "files").iter().map(file_line));
    if !items(body, "files").is_empty() {
        lines.push(disconnected_line(&body["disconnected"]));
    }
    match (lines.is_empty(), body["dry_run"].as_bool()) {
        (true, Some(true)) => "nothing would change".to_owned(),
        (true, _) => "nothing changed".to_owned(),
        _ => lines.join("\n"),
    }
}

/// Returns the line of one file that was read again.
fn file_line(file: &Value) -> String {
    let word = if file["changed"].as_bool() == Some(true) { "changed" } else { "same" };
    let [kind, key] = ["kind", "key"].map(|name| short(&file[name]));
    let of = |name: &str, before: &str| file[name].as_str().map(|text| format!("{before}{text}"));
    let listener = of("listener", " of listener ").unwrap_or_default();
    let path = of("path", ", ").unwrap_or_default();
    let detail = of("detail", ": ").filter(|detail| detail != ": ").unwrap_or_default();
    format!("{word:<8} {kind} ({key}{listener}{path}){detail}")
}

/// Returns the line of the clients that a reload disconnected, by their causes.
fn disconnected_line(clients: &Value) -> String {
    let count = |name: &str| clients[name].as_u64().unwrap_or_default();
    let by: Vec<String> = ["passwords", "tls", "bans"]
        .into_iter()
        .filter(|name| count(name) > 0)
        .map(|name| format!("{} by {name}", count(name)))
        .collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let so_far = match clients["complete"].as_bool() {
        Some(false) => " so far; the others are still being looked at (the log: config.clients_checked)",
        _ => "",
    };
    format!("clients  {} disconnected{by}{so_far}", count("total"))
}

/// Shows the level of the log, or sets it.
fn log_level(
    broker: &BrokerEndpoint,
    level: Option<&str>,
    hold: Option<&str>,
    note: &NoteFlag,
) -> Result<String, CtlError> {
    let Some(level) = level else {
        let body = request(broker, "GET", "/api/v1/log/level")?;
        return Ok(body["level"].as_str().unwrap_or_default().to_owned());
    };
    let body = json!({ "level": level, "for": hold }).to_string();
    done(send(broker, "PUT", &noted("/api/v1/log/level", note), &body)?)?;
    Ok(match hold {
        Some(hold) => format!("the log level is {level} for {hold}"),
        None => format!("the log level is {level} until the next reload or start"),
    })
}
