//! The commands of `homing ctl` about the users of clients, in `auth.password_file` and in the
//! files of single listeners.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, act, done, noted, path_with, send};
use super::listings::{pages, text};
use super::text::{Print, left, table};
use crate::admin::human::counted;
use crate::admin::routes::users::{UserChanged, UserRow};
use crate::admin::segment::segment;
use crate::auth::passwd::HashChoice;
use crate::auth::passwd::secret::{self, Repeat, SecretSource};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

/// The listener whose own file is meant.
#[derive(Clone, Debug, Args)]
pub(super) struct ListenerFlag {
    /// Name of a listener with a file of its own [default: the file of the broker]
    #[arg(long, value_name = "NAME")]
    pub(super) listener: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum UsersCommand {
    /// List the users of auth.password_file, by name
    List {
        #[command(flatten)]
        of: ListenerFlag,
        /// Number of users at most
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
    },
    /// Add a user, or change its password; asks for the password on the terminal
    Set {
        /// The user name
        name: String,
        /// Read the password from the first line of standard input
        #[arg(long, conflicts_with = "device")]
        stdin: bool,
        /// Make a random secret for a device, store it as scram, and print it
        #[arg(long, conflicts_with = "hash")]
        device: bool,
        /// Kind of hash [default: argon2id]
        #[arg(long, value_enum)]
        hash: Option<HashChoice>,
        #[command(flatten)]
        of: ListenerFlag,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Remove a user, and end its connections
    Remove {
        /// The user name
        name: String,
        #[command(flatten)]
        of: ListenerFlag,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// Runs a command, and returns its output. Errors: there is no password, nobody answers, or the
/// broker refuses.
pub(super) fn run(command: &UsersCommand, broker: &BrokerEndpoint, print: Print) -> Result<String, CtlError> {
    Ok(match command {
        UsersCommand::List { of, limit } => {
            let path = path_with("/api/v1/users", &[("listener", &of.listener)]);
            print.answer(pages(broker, &path, "users", (*limit, 1_000))?, users_table)?
        }
        UsersCommand::Set { name, stdin, device, hash, of, note } => {
            let source = match (stdin, device) {
                (true, _) => SecretSource::Stdin,
                (false, true) => SecretSource::Random,
                (false, false) => SecretSource::Terminal,
            };
            let password = secret::read(source, Repeat::Twice);
            let password = password.map_err(|error| CtlError::Argument(error.to_string()))?;
            let hash = hash.unwrap_or(if *device { HashChoice::Scram } else { HashChoice::Argon2id });
            let word = hash.to_possible_value().map(|value| value.get_name().to_owned());
            let body = json!({ "password": *password, "hash": word }).to_string();
            let answer = done(send(broker, "PUT", &noted(&path(name, of), note), &body)?)?;
            if *device {
                return Ok(password.as_str().to_owned());
            }
            print.answer(answer, |UserChanged { added, disconnected }| {
                let action = if added { "added" } else { "changed" };
                format!("{action}, and in force; {} disconnected", counted(disconnected.total, "client"))
            })?
        }
        UsersCommand::Remove { name, of, note } => {
            let answer = act(broker, "DELETE", &path(name, of), note)?;
            print.answer(answer, |UserChanged { disconnected, .. }| {
                format!("removed; {} disconnected", counted(disconnected.total, "client"))
            })?
        }
    })
}

fn path(name: &str, of: &ListenerFlag) -> String {
    path_with(&format!("/api/v1/users/{}", segment(name)), &[("listener", &of.listener)])
}

fn users_table(rows: Vec<UserRow>) -> String {
    if rows.is_empty() {
        return "there is no user".to_owned();
    }
    table(&rows, [left("user", |row| text(&row.name)), left("hash", |row| text(&row.hash))])
}
