//! The listings of the messages of one client.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::client_path;
use super::listings::{TOPIC, given, given_seconds, listing, name, payload, payload_column, text};
use super::text::{Print, left, right, table};
use crate::admin::human::sent_age;
use crate::admin::payloads::MOST;
use crate::admin::routes::messages::UnfinishedRow;
use clap::Args;

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

/// Lists the messages of a part of a client: `inflight` or `queue`. Returns the output.
pub(super) fn run(
    flags: &MessageFlags,
    part: &str,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    // Fewer messages with payloads come in one answer.
    let (query, page) = if flags.payload { ("payload=true", MOST) } else { ("", 256) };
    let path = client_path(&flags.id, &format!("/{part}?{query}"));
    let mut found = listing(broker, &path, "messages", (flags.limit, page))?;
    let store_error = found["store_error"].as_str().map(text);
    let text = |rows: Vec<UnfinishedRow>| match &store_error {
        None => messages_table(&rows),
        Some(why) => format!("{}\nthe store did not answer: {why}", messages_table(&rows)),
    };
    print.answer(found["messages"].take(), text)
}

fn messages_table(rows: &[UnfinishedRow]) -> String {
    let topic = |row: &UnfinishedRow| match &row.message {
        Some(message) => name(&message.topic, TOPIC),
        None if row.packet_id.is_some() => "(PUBREL)".to_owned(),
        None => "(in the store)".to_owned(),
    };
    let has_payloads = rows.iter().any(|row| row.payload.is_some());
    table(
        rows,
        [
            left("message", |row| given(&row.mid)),
            right("packet", |row| given(&row.packet_id)),
            left("topic", topic),
            right("QoS", |row| given(&row.message.as_ref().map(|message| message.qos))),
            right("bytes", |row| given(&row.message.as_ref().map(|message| message.payload_bytes))),
            right("age", |row| match row.age {
                Some(age) => sent_age(age, row.sent_before_start),
                None => given_seconds(row.queued_for),
            }),
            right("sent", |row| text(row.transmissions)),
            left("waits", |row| text(row.wait.reason)),
            left("until", |row| given(&row.wait.ends_with)),
            left(payload_column(has_payloads), |row| payload(&row.payload)),
        ],
    )
}
