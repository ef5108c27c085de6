//! `homing ctl`: asks a running broker through its Unix socket, and acts on clients.

mod http;
mod listings;
mod settings;
mod text;
pub mod trace;
mod wheel;

use super::segment::segment;
use clap::{Args, Subcommand};
use http::request;
use listings::{clients, clients_table, messages, messages_table};
use serde_json::Value;
use settings::SettingsCommand;
use std::io;
use std::path::{Path, PathBuf};
use text::{flat, pretty};

/// Flags of `homing ctl`.
#[derive(Args, Clone, Debug)]
pub struct CtlArguments {
    /// The Unix socket of the broker [default: admin.socket of the configuration]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum CtlCommand {
    /// Totals of the broker
    Status,
    /// List clients
    Clients {
        /// Only client identifiers that begin with this
        #[arg(long, default_value = "")]
        prefix: String,
        /// all, connected or away
        #[arg(long, default_value = "all")]
        state: String,
        /// Only clients whose oldest message is unacknowledged for this long, such as 10s
        #[arg(long, value_name = "AGE")]
        stuck: Option<String>,
        /// Number of clients at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a client: its messages in flight, its queue, and why it waits
    Client {
        /// The client identifier
        id: String,
    },
    /// List the messages of a client that are not acknowledged, with the reason why each waits
    Inflight {
        /// The client identifier
        id: String,
        /// Number of messages at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// List the queue of a client, with the reason why each message waits
    Queue {
        /// The client identifier
        id: String,
        /// Number of messages at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Send the unacknowledged messages of a client again
    Redeliver {
        /// The client identifier
        id: String,
        /// auto, resend (3.1 and 3.1.1 only) or disconnect
        #[arg(long, default_value = "auto")]
        by: String,
    },
    /// Drop one message of a client
    Skip {
        /// The client identifier
        id: String,
        /// The message, as `inflight` and `queue` name it
        message: String,
        /// A note for the audit log
        #[arg(long)]
        note: Option<String>,
    },
    /// Move one message of a client to the dead letters
    Park {
        /// The client identifier
        id: String,
        /// The message, as `inflight` and `queue` name it
        message: String,
        /// A note for the audit log
        #[arg(long)]
        note: Option<String>,
    },
    /// Print a link that logs a browser in, once and within a minute
    Dashboard,
    /// Show the deadlines by the time in which they are due
    Wheel,
    /// Delivery objectives: the share in time, and what is left of the error budget
    Slo,
    /// Disconnect a client; its session stays
    Disconnect {
        /// The client identifier
        id: String,
    },
    /// End the session of a client; its queue is dropped
    End {
        /// The client identifier
        id: String,
    },
    /// Say where the messages of a topic are, and why they wait
    Where {
        /// The topic name
        #[arg(long, required_unless_present_any = ["publisher", "receiver"])]
        topic: Option<String>,
        /// The client identifier of the publisher
        #[arg(long)]
        publisher: Option<String>,
        /// The client identifier of the receiver
        #[arg(long)]
        receiver: Option<String>,
    },
    /// List who is subscribed to a topic, or the subscriptions of a client
    Subscriptions {
        /// The topic name
        #[arg(long, conflicts_with = "client", required_unless_present = "client")]
        topic: Option<String>,
        /// The client identifier
        #[arg(long)]
        client: Option<String>,
    },
    /// List retained messages, or delete one
    Retained {
        /// A topic filter
        #[arg(default_value = "#")]
        filter: String,
        /// Number of messages at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Delete the retained message of this topic
        #[arg(long, value_name = "TOPIC", conflicts_with = "filter")]
        delete: Option<String>,
    },
    /// List the last actions of operators
    Audit {
        /// Number of actions at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    #[command(flatten)]
    Settings(SettingsCommand),
}

/// The reasons why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// Nobody answers.
    #[error("{}: {cause}; does the broker run, with this admin.socket?", .socket.display())]
    NotReachable {
        /// The Unix socket.
        socket: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The broker refused.
    #[error("{0}")]
    Refused(String),
    /// The configuration has mistakes, one on a line. Nothing changed.
    #[error("nothing is changed:\n{0}")]
    Configuration(String),
    /// The answer is not HTTP or JSON.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
}

/// Runs a command, and returns what to print.
///
/// # Errors
/// Nobody answers, the broker refuses, or the answer cannot be read.
pub fn run(arguments: &CtlArguments, socket: &Path) -> Result<String, CtlError> {
    match &arguments.command {
        CtlCommand::Status => {
            let body = request(socket, "GET", "/api/v1/overview")?;
            Ok(if arguments.json { pretty(&body) } else { flat(&body) })
        }
        CtlCommand::Clients { prefix, state, stuck, limit } => {
            let rows = clients(socket, (prefix, state, stuck.as_deref()), *limit)?;
            Ok(if arguments.json { pretty(&Value::Array(rows)) } else { clients_table(&rows) })
        }
        CtlCommand::Client { id } => {
            let body = request(socket, "GET", &format!("/api/v1/clients/{}", segment(id)))?;
            Ok(if arguments.json { pretty(&body) } else { flat(&body) })
        }
        CtlCommand::Inflight { id, limit } => {
            let rows = messages(socket, id, "inflight", *limit)?;
            Ok(if arguments.json { pretty(&Value::Array(rows)) } else { messages_table(&rows) })
        }
        CtlCommand::Queue { id, limit } => {
            let rows = messages(socket, id, "queue", *limit)?;
            Ok(if arguments.json { pretty(&Value::Array(rows)) } else { messages_table(&rows) })
        }
        CtlCommand::Redeliver { id, by } => {
            let path = format!("/api/v1/clients/{}/redeliver?by={}", segment(id), segment(by));
            let body = request(socket, "POST", &path)?;
            Ok(match (arguments.json, body["packets"].as_u64()) {
                (true, _) => pretty(&body),
                (false, Some(packets)) => format!("{packets} packets were sent again"),
                (false, None) => {
                    "disconnected; the messages are sent again when the client returns".to_owned()
                }
            })
        }
        CtlCommand::Skip { id, message, note } => {
            on_message(socket, id, message, "skip", note.as_deref())?;
            Ok("the message was dropped".to_owned())
        }
        CtlCommand::Park { id, message, note } => {
            on_message(socket, id, message, "park", note.as_deref())?;
            Ok("the message is a dead letter now".to_owned())
        }
        CtlCommand::Where { topic, publisher, receiver } => {
            let parameters = [("topic", topic), ("publisher", publisher), ("receiver", receiver)];
            let body = request(socket, "GET", &listings::where_path(&parameters))?;
            Ok(if arguments.json { pretty(&body) } else { listings::verdicts(&body) })
        }
        CtlCommand::Subscriptions { topic, client } => {
            let path = match (topic, client) {
                (Some(topic), _) => format!("/api/v1/subscriptions?matches={}", segment(topic)),
                (None, client) => {
                    let client = client.as_deref().unwrap_or_default();
                    format!("/api/v1/subscriptions?client={}", segment(client))
                }
            };
            let body = request(socket, "GET", &path)?;
            Ok(if arguments.json { pretty(&body) } else { flat(&body) })
        }
        CtlCommand::Retained { delete: Some(topic), .. } => {
            request(socket, "DELETE", &format!("/api/v1/retained?topic={}", segment(topic)))?;
            Ok("the retained message is deleted".to_owned())
        }
        CtlCommand::Retained { filter, limit, delete: None } => {
            let path = format!("/api/v1/retained?filter={}&limit={limit}", segment(filter));
            let body = request(socket, "GET", &path)?;
            Ok(if arguments.json { pretty(&body) } else { listings::retained_table(&body) })
        }
        CtlCommand::Audit { limit } => {
            let body = request(socket, "GET", &format!("/api/v1/audit?limit={limit}"))?;
            Ok(if arguments.json { pretty(&body) } else { listings::audit_table(&body) })
        }
        CtlCommand::Dashboard => {
            let body = request(socket, "POST", "/api/v1/login/code")?;
            if arguments.json {
                return Ok(pretty(&body));
            }
            let none = || CtlError::Refused("admin.addresses is off, so there are no pages".to_owned());
            let url = body["urls"].get(0).and_then(Value::as_str).ok_or_else(none)?;
            Ok(format!("{url}login#code={}", body["code"].as_str().unwrap_or_default()))
        }
        CtlCommand::Wheel => {
            let body = request(socket, "GET", "/api/v1/expiry")?;
            Ok(if arguments.json { pretty(&body) } else { wheel::text(&body) })
        }
        CtlCommand::Slo => {
            let body = request(socket, "GET", "/api/v1/slo")?;
            Ok(if arguments.json { pretty(&body) } else { listings::objectives_table(&body) })
        }
        CtlCommand::Disconnect { id } => {
            request(socket, "POST", &format!("/api/v1/clients/{}/disconnect", segment(id)))?;
            Ok("disconnected".to_owned())
        }
        CtlCommand::End { id } => {
            request(socket, "DELETE", &format!("/api/v1/clients/{}", segment(id)))?;
            Ok("the session has ended".to_owned())
        }
        CtlCommand::Settings(command) => settings::run(command, socket, arguments.json),
    }
}

/// Acts on one message of a client.
fn on_message(
    socket: &Path,
    id: &str,
    message: &str,
    verb: &str,
    note: Option<&str>,
) -> Result<Value, CtlError> {
    let note = note.map(|note| format!("?note={}", segment(note))).unwrap_or_default();
    let path = format!("/api/v1/clients/{}/messages/{}/{verb}{note}", segment(id), segment(message));
    request(socket, "POST", &path)
}
