//! The commands of `homing ctl` that act on clients and their messages.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, act, client_path, path_with, read};
use super::text::Print;
use crate::admin::bulk::ManyDone;
use crate::admin::commands::ActionDone;
use crate::admin::segment::segment;
use clap::Subcommand;
use serde_json::{Value, json};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum ActionCommand {
    /// Send the unacknowledged messages of a client again
    Redeliver {
        /// The client identifier
        id: String,
        /// auto, resend (3.1 and 3.1.1 only) or disconnect
        #[arg(long, default_value = "auto")]
        by: String,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Drop one message of a client
    Skip {
        /// The client identifier
        id: String,
        /// The message, as `inflight` and `queue` name it
        message: String,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Move one message of a client to the dead letters
    Park {
        /// The client identifier
        id: String,
        /// The message, as `inflight` and `queue` name it
        message: String,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Drop the queue of a client; its messages in flight stay
    Purge {
        /// The client identifier
        id: String,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Disconnect a client, or all clients of a user, a listener or a prefix; their sessions stay
    Disconnect {
        /// The client identifier
        #[arg(
            required_unless_present_any = ["user", "listener", "prefix"],
            conflicts_with_all = ["user", "listener", "prefix"]
        )]
        id: Option<String>,
        /// All clients with this user name
        #[arg(long)]
        user: Option<String>,
        /// All clients of the listener with this name or address
        #[arg(long)]
        listener: Option<String>,
        /// All clients whose identifiers begin with this
        #[arg(long)]
        prefix: Option<String>,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// End the session of a client; its queue is dropped
    End {
        /// The client identifier
        id: String,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// Runs a command, and returns its output.
pub(super) fn run(
    command: &ActionCommand,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    Ok(match command {
        ActionCommand::Redeliver { id, by, note } => {
            let path = client_path(id, &format!("/redeliver?by={}", segment(by)));
            print.answer(act(broker, "POST", &path, note)?, redelivered)?
        }
        ActionCommand::Skip { id, message, note } => {
            act(broker, "POST", &message_path(id, message, "skip"), note)?;
            "the message was dropped".to_owned()
        }
        ActionCommand::Park { id, message, note } => {
            act(broker, "POST", &message_path(id, message, "park"), note)?;
            "the message is a dead letter now".to_owned()
        }
        ActionCommand::Purge { id, note } => {
            let done = to_the_end(|| act(broker, "DELETE", &client_path(id, "/queue"), note))?;
            print.answer(json!(done), |done: ManyDone| format!("{} messages were dropped", done.count))?
        }
        ActionCommand::Disconnect { id: Some(id), note, .. } => {
            act(broker, "POST", &client_path(id, "/disconnect"), note)?;
            "disconnected".to_owned()
        }
        ActionCommand::Disconnect { id: None, user, listener, prefix, note } => {
            let named = [("user", user), ("listener", listener), ("prefix", prefix)];
            let path = path_with("/api/v1/connections", &named);
            let done = to_the_end(|| act(broker, "DELETE", &path, note))?;
            print.answer(json!(done), |done: ManyDone| format!("{} clients were disconnected", done.count))?
        }
        ActionCommand::End { id, note } => {
            act(broker, "DELETE", &client_path(id, ""), note)?;
            "the session has ended".to_owned()
        }
    })
}

/// Repeats an action on many things until the broker is done with all. Returns the last answer,
/// with the sums of all.
pub(super) fn to_the_end(act: impl Fn() -> Result<Value, CtlError>) -> Result<ManyDone, CtlError> {
    let (mut count, mut refused) = (0, 0);
    loop {
        let done: ManyDone = read(act()?)?;
        count += done.count;
        refused += done.refused;
        if done.complete || done.confirm.is_some() {
            return Ok(ManyDone { count, refused, ..done });
        }
    }
}

fn message_path(id: &str, message: &str, verb: &str) -> String {
    client_path(id, &format!("/messages/{}/{verb}", segment(message)))
}

/// Returns the text of a redelivery.
fn redelivered(done: ActionDone) -> String {
    match done.packets {
        Some(packets) => format!("{packets} packets were sent again"),
        None => "disconnected; the messages are sent again when the client returns".to_owned(),
    }
}
