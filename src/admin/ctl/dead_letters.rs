//! `homing ctl dead-letters`: stored dead letters.

use super::actions::to_the_end;
use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, act, path_with, request};
use super::listings::{TOPIC, given, name, pages, payload, text};
use super::text::{Print, fact_lines, left, right, table};
use crate::admin::bulk::ManyDone;
use crate::admin::human::{bytes, counted, date_time};
use crate::admin::routes::dead_letters::LetterRow;
use crate::admin::segment::segment;
use clap::{Args, Subcommand};
use serde_json::json;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum DeadLettersCommand {
    /// List dead letters, the newest first
    List {
        #[command(flatten)]
        filter: FilterFlags,
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
    /// Publish the message of a dead letter again, or those of many, and remove the dead letters
    Republish {
        #[command(flatten)]
        which: LetterFlags,
        /// receiver, or topic for every subscriber
        #[arg(long, default_value = "receiver")]
        to: String,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Delete a dead letter, or many
    Delete {
        #[command(flatten)]
        which: LetterFlags,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// The properties of dead letters.
#[derive(Args, Clone, Debug)]
pub(super) struct FilterFlags {
    /// Only letters with this cause, such as expired
    #[arg(long)]
    cause: Option<String>,
    /// Only letters of the client with this identifier
    #[arg(long)]
    receiver: Option<String>,
    /// Only letters whose topic matches this filter
    #[arg(long)]
    topic: Option<String>,
    /// Only letters that were dropped at least this long ago, such as 30d
    #[arg(long, value_name = "AGE")]
    min_age: Option<String>,
    /// Only letters that were dropped at most this long ago, such as 1h
    #[arg(long, value_name = "AGE")]
    max_age: Option<String>,
}

impl FilterFlags {
    /// Returns the parameters of a path.
    fn parameters(&self) -> [(&'static str, &Option<String>); 5] {
        let FilterFlags { cause, receiver, topic, min_age, max_age } = self;
        [
            ("cause", cause),
            ("receiver", receiver),
            ("topic", topic),
            ("min_age", min_age),
            ("max_age", max_age),
        ]
    }
}

/// The dead letters that a command acts on.
#[derive(Args, Clone, Debug)]
pub(super) struct LetterFlags {
    /// The dead letter, as `list` names it
    #[arg(
        required_unless_present_any = ["cause", "receiver", "topic", "min_age", "max_age", "all"],
        conflicts_with_all = ["cause", "receiver", "topic", "min_age", "max_age", "all", "confirm"]
    )]
    id: Option<String>,
    #[command(flatten)]
    filter: FilterFlags,
    /// All
    #[arg(long, conflicts_with_all = ["cause", "receiver", "topic", "min_age", "max_age"])]
    all: bool,
    /// The confirmation that the command prints without this flag
    #[arg(long)]
    confirm: Option<String>,
}

/// Runs a command, and returns its output.
pub(super) fn run(
    command: &DeadLettersCommand,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    match command {
        DeadLettersCommand::List { filter, limit } => {
            let path = path_with("/api/v1/dead-letters", &filter.parameters());
            print.answer(pages(broker, &path, "dead_letters", (*limit, 256))?, letters_table)
        }
        DeadLettersCommand::Show { id, payload } => {
            let payload = if *payload { "?payload=true" } else { "" };
            print.answer(request(broker, "GET", &letter_path(id, payload))?, letter_text)
        }
        DeadLettersCommand::Republish { which, to, note } => match &which.id {
            Some(id) => {
                let path = letter_path(id, &format!("/republish?to={}", segment(to)));
                act(broker, "POST", &path, note)?;
                Ok("the message is published again".to_owned())
            }
            None => {
                let path = which.path("/api/v1/dead-letters/republish", Some(to));
                many(to_the_end(|| act(broker, "POST", &path, note))?, "published again", print)
            }
        },
        DeadLettersCommand::Delete { which, note } => match &which.id {
            Some(id) => {
                act(broker, "DELETE", &letter_path(id, ""), note)?;
                Ok("the dead letter is deleted".to_owned())
            }
            None => {
                let path = which.path("/api/v1/dead-letters", None);
                many(to_the_end(|| act(broker, "DELETE", &path, note))?, "deleted", print)
            }
        },
    }
}

impl LetterFlags {
    /// Returns a path with the filter and the confirmation.
    fn path(&self, path: &str, to: Option<&String>) -> String {
        let LetterFlags { filter, all, confirm, .. } = self;
        let (all, to) = (all.then(|| "true".to_owned()), to.cloned());
        let others = [("all", &all), ("to", &to), ("confirm", confirm)];
        path_with(path, &[&filter.parameters()[..], &others].concat())
    }
}

/// Returns the text for an action on many dead letters. Errors: the action waits for its
/// confirmation.
fn many(done: ManyDone, verb: &str, print: Print) -> Result<String, CtlError> {
    let letters = counted(done.count as u64, "dead letter");
    match &done.confirm {
        Some(confirm) if print == Print::Text => Err(CtlError::Refused(format!(
            "nothing is done yet: {letters} would be {verb}. Repeat the command with --confirm {confirm}"
        ))),
        _ => print.answer(json!(done), |done: ManyDone| done.of_letters(verb)),
    }
}

fn letter_path(id: &str, rest: &str) -> String {
    format!("/api/v1/dead-letters/{}{rest}", segment(id))
}

/// Returns a dead letter as facts.
fn letter_text(letter: LetterRow) -> String {
    let code = letter.reason_code.map(|code| format!(" (reason code 0x{code:02X})")).unwrap_or_default();
    let mut sent = format!("{}x", letter.attempts);
    for (name, at) in [("first", letter.first_sent_unix_ms), ("last", letter.last_sent_unix_ms)] {
        sent += &at.map(|at| format!(", {name} {} UTC", date_time(at))).unwrap_or_default();
    }
    let shown = payload(&letter.payload);
    let facts = [
        ("dead letter", letter.id),
        ("dropped", format!("{} UTC", date_time(letter.dropped_unix_ms))),
        ("cause", letter.cause + &code),
        ("receiver", letter.receiver),
        ("publisher", letter.publisher.unwrap_or_default()),
        ("topic", letter.topic),
        ("QoS", letter.qos.to_string()),
        ("sent", sent),
        ("payload", bytes(letter.payload_bytes as u64)),
    ];
    let given: Vec<_> = facts.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let lines = fact_lines(&given);
    if shown.is_empty() { lines } else { format!("{lines}\n\n{shown}") }
}

fn letters_table(rows: Vec<LetterRow>) -> String {
    table(
        &rows,
        [
            left("dead letter", |row| text(&row.id)),
            left("dropped (UTC)", |row| date_time(row.dropped_unix_ms)),
            left("cause", |row| text(&row.cause)),
            left("receiver", |row| text(&row.receiver)),
            left("topic", |row| name(&row.topic, TOPIC)),
            right("QoS", |row| text(row.qos)),
            right("bytes", |row| text(row.payload_bytes)),
            right("sent", |row| text(row.attempts)),
            left("publisher", |row| given(&row.publisher)),
        ],
    )
}
