//! The commands of `homing ctl` about the clients that may not enter, in `bans.file`.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, act, done, noted, path_with, send};
use super::listings::{pages, text};
use super::text::{Print, left, table};
use crate::admin::credentials::end_text;
use crate::admin::human::counted;
use crate::admin::routes::bans::{BanRow, BansEdited};
use clap::{Args, Subcommand};
use serde_json::json;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum BansCommand {
    /// List the bans of bans.file
    List {
        /// Number of bans at most
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
    },
    /// Ban, and disconnect whom the ban concerns
    Add {
        #[command(flatten)]
        ban: BanFlags,
        /// The time for which the ban holds, such as 1h [default: no end]
        #[arg(long = "for", value_name = "TIME")]
        lasts: Option<String>,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Remove a ban
    Remove {
        #[command(flatten)]
        ban: BanFlags,
        #[command(flatten)]
        note: NoteFlag,
    },
}

#[derive(Args, Clone, Debug)]
pub(super) struct BanFlags {
    /// client, user, address or serial
    kind: String,
    /// A client id or a glob of client ids, a user name, a network, or the serial number of a
    /// certificate
    value: String,
}

/// Runs a command, and returns its output.
pub(super) fn run(command: &BansCommand, broker: &BrokerEndpoint, print: Print) -> Result<String, CtlError> {
    let changed = |word: &'static str| {
        move |BansEdited { disconnected }: BansEdited| {
            format!("{word}; {} disconnected", counted(disconnected.total, "client"))
        }
    };
    Ok(match command {
        BansCommand::List { limit } => {
            print.answer(pages(broker, "/api/v1/bans?", "bans", (*limit, 1_000))?, bans_table)?
        }
        BansCommand::Add { ban: BanFlags { kind, value }, lasts, note } => {
            let body = json!({ "kind": kind, "value": value, "for": lasts }).to_string();
            let answer = done(send(broker, "POST", &noted("/api/v1/bans", note), &body)?)?;
            print.answer(answer, changed("banned"))?
        }
        BansCommand::Remove { ban: BanFlags { kind, value }, note } => {
            let (kind, value) = (Some(kind.clone()), Some(value.clone()));
            let path = path_with("/api/v1/bans", &[("kind", &kind), ("value", &value)]);
            print.answer(act(broker, "DELETE", &path, note)?, changed("removed"))?
        }
    })
}

fn bans_table(rows: Vec<BanRow>) -> String {
    if rows.is_empty() {
        return "there is no ban".to_owned();
    }
    let until = |row: &BanRow| row.until_unix_ms.map_or_else(|| "no end".to_owned(), end_text);
    table(
        &rows,
        [left("kind", |row| text(&row.kind)), left("until", until), left("value", |row| text(&row.value))],
    )
}
