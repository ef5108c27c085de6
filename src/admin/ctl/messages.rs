//! The listings of the messages of one client.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::client_path;
use super::listings::{TOPIC, name, pages, payload, payload_column, seconds, text};
use super::text::{Print, left, right, table};
use crate::admin::payloads::MOST;
use clap::Args;
use serde_json::Value;

#[derive(Args, Clone, Debug)]
pub(super) struct MessageFlags {
    /// The client identifier
    id: String,
    /// Number of messages at most
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Show the beginnings of the payloads, too; the audit log notes each page of up to 16
    #[arg(long)]
    payload: bool,
}

/// Lists the messages of a part of a client: `inflight` or `queue`. Returns what to print.
///
/// # Errors
/// Nobody answers, the broker refuses, or the answer cannot be read.
pub(super) fn run(
    flags: &MessageFlags,
    part: &str,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    // Fewer messages with payloads come in one answer.
    let (query, page) = if flags.payload { ("payload=true", MOST) } else { ("", 256) };
    let path = client_path(&flags.id, &format!("/{part}?{query}"));
    Ok(print.rows(pages(broker, &path, "messages", (flags.limit, page))?, messages_table))
}

/// Returns unfinished messages as a table.
fn messages_table(rows: &[Value]) -> String {
    let cells = |row: &Value| {
        let (message, wait) = (&row["message"], &row["wait"]);
        [
            text(&row["mid"]),
            text(&row["packet_id"]),
            name(&message["topic"], TOPIC),
            text(&message["qos"]),
            text(&message["payload_bytes"]),
            seconds(&row["age"]),
            text(&row["transmissions"]),
            text(&wait["reason"]),
            text(&wait["ends_with"]),
            payload(row),
        ]
    };
    let columns = [
        left("message"),
        right("packet"),
        left("topic"),
        right("QoS"),
        right("bytes"),
        right("age"),
        right("sent"),
        left("waits"),
        left("until"),
        payload_column(rows),
    ];
    table(columns, &rows.iter().map(cells).collect::<Vec<_>>())
}
