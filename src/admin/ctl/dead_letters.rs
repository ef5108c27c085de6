//! `homing ctl dead-letters`: stored dead letters.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::request;
use super::listings::{pages, text};
use super::text::{Print, flat, left, right, table};
use crate::admin::segment::segment;
use clap::Subcommand;
use serde_json::Value;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum DeadLettersCommand {
    /// List dead letters, the newest first
    List {
        /// Only those with this cause, such as expired
        #[arg(long)]
        cause: Option<String>,
        /// Only those of the client with this identifier
        #[arg(long)]
        receiver: Option<String>,
        /// Only those with a topic that this filter matches
        #[arg(long)]
        topic: Option<String>,
        /// Number of dead letters at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a dead letter
    Show {
        /// The dead letter, as `list` names it
        id: String,
        /// Show the beginning of the payload, too; the audit log notes it
        #[arg(long)]
        payload: bool,
    },
    /// Publish the message of a dead letter again, and remove the dead letter
    Republish {
        /// The dead letter, as `list` names it
        id: String,
        /// receiver, or topic for every subscriber
        #[arg(long, default_value = "receiver")]
        to: String,
        /// A note for the audit log
        #[arg(long)]
        note: Option<String>,
    },
    /// Delete a dead letter
    Delete {
        /// The dead letter, as `list` names it
        id: String,
        /// A note for the audit log
        #[arg(long)]
        note: Option<String>,
    },
}

/// Runs a command, and returns what to print.
///
/// # Errors
/// Nobody answers, or the broker refuses.
pub(super) fn run(
    command: &DeadLettersCommand,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    match command {
        DeadLettersCommand::List { cause, receiver, topic, limit } => {
            let parameters = [("cause", cause), ("receiver", receiver), ("topic", topic)];
            let path = format!("/api/v1/dead-letters?{}", query(&parameters));
            Ok(print.rows(pages(broker, &path, "dead_letters", (*limit, 256))?, letters_table))
        }
        DeadLettersCommand::Show { id, payload } => {
            let payload = if *payload { "?payload=true" } else { "" };
            Ok(print.answer(&request(broker, "GET", &letter_path(id, payload))?, flat))
        }
        DeadLettersCommand::Republish { id, to, note } => {
            let parameters = query(&[("to", &Some(to.clone())), ("note", note)]);
            request(broker, "POST", &letter_path(id, &format!("/republish?{parameters}")))?;
            Ok("the message is published again".to_owned())
        }
        DeadLettersCommand::Delete { id, note } => {
            request(broker, "DELETE", &letter_path(id, &format!("?{}", query(&[("note", note)]))))?;
            Ok("the dead letter is deleted".to_owned())
        }
    }
}

fn letter_path(id: &str, rest: &str) -> String {
    format!("/api/v1/dead-letters/{}{rest}", segment(id))
}

/// Returns the parameters that are given, as a query string.
fn query(parameters: &[(&str, &Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    given.map(|(name, value)| format!("{name}={}", segment(value))).collect::<Vec<_>>().join("&")
}

fn letters_table(rows: &[Value]) -> String {
    let cells = |row: &Value| {
        ["id", "cause", "receiver", "topic", "qos", "payload_bytes", "attempts", "publisher"]
            .map(|field| text(&row[field]))
    };
    let columns = [
        left("dead letter"),
        left("cause"),
        left("receiver"),
        left("topic"),
        right("QoS"),
        right("bytes"),
        right("sent"),
        left("publisher"),
    ];
    table(columns, &rows.iter().map(cells).collect::<Vec<_>>())
}
