//! The commands of `homing ctl` about the tokens of the HTTP interface, in `admin.credentials`.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, act, done, noted, request, send};
use super::listings::text;
use super::text::{Print, left, table};
use crate::admin::access::Scope;
use crate::admin::credentials::end_text;
use crate::admin::routes::tokens::{TokenMade, Tokens};
use crate::admin::segment::segment;
use clap::Subcommand;
use serde_json::json;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TokensCommand {
    /// List the tokens and users of admin.credentials, without their secrets
    List,
    /// Make a token, and print it once; one of the same name is replaced
    Add {
        /// The name of the token, which the log shows
        name: String,
        /// publisher, viewer, operator or admin
        #[arg(long, default_value = "viewer")]
        scope: Scope,
        /// The time after which the token is refused, such as 30d [default: never]
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Remove a token or a user: it is refused at once
    Remove {
        /// The name
        name: String,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// Runs a command, and returns its output.
pub(super) fn run(
    command: &TokensCommand,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    Ok(match command {
        TokensCommand::List => print.answer(request(broker, "GET", "/api/v1/tokens")?, tokens_table)?,
        TokensCommand::Add { name, scope, expires, note } => {
            let body = json!({ "name": name, "scope": scope, "expires": expires }).to_string();
            let answer = done(send(broker, "POST", &noted("/api/v1/tokens", note), &body)?)?;
            print.answer(answer, |TokenMade { token, .. }| token)?
        }
        TokensCommand::Remove { name, note } => {
            act(broker, "DELETE", &format!("/api/v1/tokens/{}", segment(name)), note)?;
            "removed".to_owned()
        }
    })
}

fn tokens_table(Tokens { tokens }: Tokens) -> String {
    if tokens.is_empty() {
        return "there is no token".to_owned();
    }
    table(
        &tokens,
        [
            left("kind", |row| if row.is_user { "user" } else { "token" }.to_owned()),
            left("scope", |row| text(row.scope)),
            left("ends", |row| row.ends_unix_ms.map_or_else(|| "never".to_owned(), end_text)),
            left("name", |row| text(&row.name)),
        ],
    )
}
