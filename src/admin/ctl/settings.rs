//! The commands of `homing ctl` about the settings of the broker.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, done, noted, read, request, send};
use super::listings::{given, text};
use super::text::{Print, left, table};
use crate::admin::routes::config::{
    ChangedListener, ConfigAnswer, Disconnected, ReadFile, ReloadAnswer, UnderWay,
};
use crate::admin::routes::log_level::LogLevel;
use crate::config::{KeyChange, ReloadEffect, Shadowed};
use crate::escape;
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
        lasts: Option<String>,
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

/// Runs a command, and returns its output.
pub(super) fn run(
    command: &SettingsCommand,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    match command {
        SettingsCommand::LogLevel { level, lasts, note } => {
            log_level(broker, level.as_deref(), lasts.as_deref(), note)
        }
        SettingsCommand::Config { changed } => {
            let body = request(broker, "GET", &format!("/api/v1/config?changed={changed}"))?;
            print.answer(body, values_table)
        }
        SettingsCommand::Reload { dry_run, note } => print.answer(reload(broker, *dry_run, note)?, changes),
    }
}

fn values_table(ConfigAnswer { keys }: ConfigAnswer) -> String {
    if keys.is_empty() {
        return "every key has its built-in default".to_owned();
    }
    table(
        &keys,
        [
            left("key", |row| text(&row.key)),
            left("value", |row| text(&row.value)),
            left("reload", |row| text(row.effect)),
            left("source", |row| text(&row.source)),
            left("after a restart", |row| given(&row.pending)),
        ],
    )
}

/// Has the configuration read again. Returns the answer.
fn reload(broker: &BrokerEndpoint, dry_run: bool, note: &NoteFlag) -> Result<Value, CtlError> {
    let path = noted(&format!("/api/v1/config/reload?dry_run={dry_run}"), note);
    match send(broker, "POST", &path, "")? {
        // The reload has not ended: its outcome is not known yet.
        (202, body) => Err(CtlError::Refused(text(read::<UnderWay>(body)?.detail))),
        answer => done(answer),
    }
}

/// Returns the keys whose values wait for a restart of the running broker. Errors: nobody answers,
/// or the configuration is refused.
pub(crate) fn pending_restart(broker: &BrokerEndpoint) -> Result<Vec<String>, CtlError> {
    let answer: ReloadAnswer = read(reload(broker, true, &NoteFlag { note: None })?)?;
    let pending = answer.changes.iter().filter(|change| change.effect == ReloadEffect::Restart);
    Ok(pending.map(|change| text(&change.key)).collect())
}

/// Returns a line for each change, for each listener, for each value that does not count, for each
/// file, and one for the clients that the files disconnected.
fn changes(answer: ReloadAnswer) -> String {
    let pending = |effect| if effect == ReloadEffect::Restart { " (pending)" } else { "" };
    let mut lines = Vec::new();
    for KeyChange { key, from, to, effect, .. } in &answer.changes {
        let (from, to) = (escape::visible(from), escape::visible(to));
        lines.push(format!("{:<8} {key} {from} -> {to}{}", effect.name(), pending(*effect)));
    }
    for ChangedListener { listener, change, keys, effect } in &answer.listeners {
        let keys = if keys.is_empty() { String::new() } else { format!(": {}", keys.join(", ")) };
        let listener = escape::visible(listener);
        let pending = pending(*effect);
        lines.push(format!("{:<8} listener {listener} {change}{keys}{pending}", effect.name()));
    }
    for Shadowed { key, by } in &answer.shadowed {
        lines.push(format!("shadowed {key}: {} wins over the file", escape::visible(by)));
    }
    lines.extend(answer.files.iter().map(file_line));
    if !answer.files.is_empty() {
        lines.push(disconnected_line(&answer.disconnected));
    }
    match (lines.is_empty(), answer.dry_run) {
        (true, true) => "nothing would change".to_owned(),
        (true, false) => "nothing changed".to_owned(),
        _ => lines.join("\n"),
    }
}

/// Returns the line of one file that was read again.
fn file_line(file: &ReadFile) -> String {
    let word = if file.changed { "changed" } else { "same" };
    let after = |mark: &str, text: &str| format!("{mark}{}", escape::visible(text));
    let listener = file.listener.as_ref().map(|name| after(" of listener ", name)).unwrap_or_default();
    let path = file.path.as_ref().map(|path| after(", ", path)).unwrap_or_default();
    let detail = if file.detail.is_empty() { String::new() } else { after(": ", &file.detail) };
    format!("{word:<8} {} ({}{listener}{path}){detail}", file.kind, file.key)
}

/// Returns the line of the clients that a reload disconnected, by their causes.
fn disconnected_line(clients: &Disconnected) -> String {
    let by = [("passwords", clients.passwords), ("tls", clients.tls), ("bans", clients.bans)];
    let by = by.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} by {name}"));
    let by: Vec<String> = by.collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let so_far = match clients.complete {
        false => " so far; the others are still being looked at (the log: config.clients_checked)",
        true => "",
    };
    format!("clients  {} disconnected{by}{so_far}", clients.total)
}

/// Shows the level of the log, or sets it.
fn log_level(
    broker: &BrokerEndpoint,
    level: Option<&str>,
    lasts: Option<&str>,
    note: &NoteFlag,
) -> Result<String, CtlError> {
    let Some(level) = level else {
        let answer: LogLevel = read(request(broker, "GET", "/api/v1/log/level")?)?;
        return Ok(answer.level.unwrap_or_default());
    };
    let body = json!({ "level": level, "for": lasts }).to_string();
    done(send(broker, "PUT", &noted("/api/v1/log/level", note), &body)?)?;
    Ok(match lasts {
        Some(hold) => format!("the log level is {level} for {hold}"),
        None => format!("the log level is {level} until the next reload or start"),
    })
}
