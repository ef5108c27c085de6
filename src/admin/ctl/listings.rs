//! The listings of `homing ctl`, over as many pages as they take.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::request;
use super::text::{TextColumn, items, left, right, table};
use crate::admin::payloads::MOST;
use crate::admin::segment::segment;
use crate::escape;
use crate::mqtt::topic::first_chars;
use crate::time::duration;
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// Characters of a topic in a table at most.
pub(super) const TOPIC: usize = 256;

/// Characters of a client identifier in the table of clients at most.
const CLIENT_ID: usize = 64;

/// The clients that are listed: the filters of the interface.
#[derive(Args, Clone, Debug)]
pub(super) struct ClientsFlags {
    /// Only client identifiers that begin with this
    #[arg(long)]
    prefix: Option<String>,
    /// all, connected or away
    #[arg(long)]
    state: Option<String>,
    /// Only clients with this user name
    #[arg(long)]
    user: Option<String>,
    /// 3.1, 3.1.1 or 5.0
    #[arg(long)]
    version: Option<String>,
    /// Only clients of the listener with this name or address
    #[arg(long)]
    listener: Option<String>,
    /// Only clients whose oldest message is unacknowledged for this long, such as 10s
    #[arg(long, value_name = "AGE")]
    stuck: Option<String>,
    /// application or network: who holds the oldest unacknowledged message
    #[arg(long)]
    cause: Option<String>,
    /// Only clients with so many messages in the queue, at least
    #[arg(long, value_name = "MESSAGES")]
    min_queued: Option<String>,
    /// Only clients with so many bytes in the queue, at least
    #[arg(long, value_name = "BYTES")]
    min_queued_bytes: Option<String>,
    /// Only clients with so many messages in flight, at least
    #[arg(long, value_name = "MESSAGES")]
    min_in_flight: Option<String>,
    /// Number of clients at most
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

/// Returns the clients that the flags ask for, over as many pages as it takes.
pub(super) fn clients(broker: &BrokerEndpoint, flags: &ClientsFlags) -> Result<Vec<Value>, CtlError> {
    let filter = [
        ("prefix", &flags.prefix),
        ("state", &flags.state),
        ("user", &flags.user),
        ("version", &flags.version),
        ("listener", &flags.listener),
        ("min_unacked_age", &flags.stuck),
        ("cause", &flags.cause),
        ("min_queued", &flags.min_queued),
        ("min_queued_bytes", &flags.min_queued_bytes),
        ("min_in_flight", &flags.min_in_flight),
    ];
    pages(broker, &path_with("/api/v1/clients", &filter), "clients", (flags.limit, 1_000))
}

/// Returns up to `limit` rows of a listing, over as many pages of `page` rows as it takes. `path`
/// has the query string of the filter. `field` has the rows.
pub(super) fn pages(
    broker: &BrokerEndpoint,
    path: &str,
    field: &str,
    (limit, page): (usize, usize),
) -> Result<Vec<Value>, CtlError> {
    let body = listing(broker, path, field, (limit, page))?;
    Ok(items(&body, field).to_vec())
}

/// Returns the last answer of a listing, with the rows of all pages as [`pages`] takes them.
pub(super) fn listing(
    broker: &BrokerEndpoint,
    path: &str,
    field: &str,
    (limit, page): (usize, usize),
) -> Result<Value, CtlError> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let most = (limit - rows.len()).min(page);
        let mut body = request(broker, "GET", &format!("{path}&limit={most}{cursor}"))?;
        rows.extend(items(&body, field).iter().cloned());
        match body["next"].as_str().filter(|_| rows.len() < limit) {
            Some(next) => cursor = format!("&cursor={}", segment(next)),
            None => {
                body[field] = rows.into();
                return Ok(body);
            }
        }
    }
}

/// Returns a value as the text of a cell; empty for null.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escape::visible(text),
        other => other.to_string(),
    }
}

/// Returns a name as the text of a cell, with a mark where it is cut: after so many characters. JSON
/// has the whole name.
pub(super) fn name(value: &Value, most: usize) -> String {
    let whole = value.as_str().unwrap_or_default();
    let first = first_chars(whole, most);
    if first.len() == whole.len() { escape::visible(first) } else { escape::visible(first) + "..." }
}

/// Returns a number of seconds as the text of a cell.
pub(super) fn seconds(value: &Value) -> String {
    let time = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.map(duration::seconds).unwrap_or_default()
}

/// Returns the payload of a row as the text of a cell; empty without one.
pub(super) fn payload(row: &Value) -> String {
    let payload = &row["payload"];
    let shown = match (&payload["text"], &payload["base64"]) {
        (Value::String(shown), _) => escape::visible(shown),
        (_, Value::String(encoded)) => format!("base64 {encoded}"),
        _ => return String::new(),
    };
    let more = if payload["complete"] == Value::Bool(false) { " ..." } else { "" };
    shown + more
}

/// Returns the column of payloads. Without any, the column is empty, and has no name either.
pub(super) fn payload_column(rows: &[Value]) -> TextColumn {
    left(if rows.iter().any(|row| row["payload"].is_object()) { "payload" } else { "" })
}

/// Returns clients as a table.
pub(super) fn clients_table(rows: &[Value]) -> String {
    let cells = |row: &Value| {
        let oldest = &row["oldest_unacknowledged"];
        [
            name(&row["client_id"], CLIENT_ID),
            text(&row["version"]),
            text(&row["state"]),
            text(&row["in_flight"]),
            text(&row["queued"]),
            seconds(&oldest["age"]),
            text(&oldest["detail"]),
        ]
    };
    let columns = [
        left("client"),
        left("version"),
        left("state"),
        right("in flight"),
        right("queued"),
        right("oldest"),
        left("cause"),
    ];
    table(columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Returns the clients that come first by a figure as a table.
pub(super) fn top_table(body: &Value) -> String {
    let out = clients_table(items(body, "clients"));
    let is_complete = body["complete"] == Value::Bool(true);
    if is_complete { out } else { format!("{out}\nnot all clients were looked at; the broker is busy") }
}

/// Returns a path with the parameters that are given.
pub(super) fn path_with(path: &str, parameters: &[(&str, &Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let given: Vec<String> = given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
    format!("{path}?{}", given.join("&"))
}

/// Returns the verdicts of a search, one on each line.
pub(super) fn verdicts(body: &Value) -> String {
    let verdicts: Vec<String> = items(body, "verdicts").iter().map(text).collect();
    if verdicts.is_empty() {
        "no message and no subscription was found".to_owned()
    } else {
        verdicts.join("\n")
    }
}

/// Returns shared groups as a table.
pub(super) fn groups_table(rows: &[Value]) -> String {
    let cells = |row: &Value| [name(&row["filter"], TOPIC), text(&row["members"])];
    table([left("group and filter"), right("members")], &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Returns listeners as a table.
pub(super) fn listeners_table(body: &Value) -> String {
    let cells = |row: &Value| {
        let tls = match (&row["tls"], &row["mtls"]) {
            (Value::Bool(true), Value::Bool(true)) => "mutual",
            (Value::Bool(true), _) => "yes",
            _ => "no",
        };
        let anonymous = if row["allow_anonymous"] == Value::Bool(true) { "yes" } else { "no" };
        [
            text(&row["address"]),
            text(&row["name"]),
            text(&row["protocol"]),
            tls.to_owned(),
            anonymous.to_owned(),
            text(&row["connections"]),
        ]
    };
    let columns = [
        left("address"),
        left("name"),
        left("protocol"),
        left("TLS"),
        left("anonymous"),
        right("connections"),
    ];
    table(columns, &items(body, "listeners").iter().map(cells).collect::<Vec<_>>())
}

/// Returns slow deliveries as a table.
pub(super) fn slow_table(body: &Value) -> String {
    let rows = items(body, "deliveries");
    if rows.is_empty() {
        return "no delivery took more than a second within the last hour".to_owned();
    }
    let cells = |row: &Value| {
        [
            text(&row["receiver"]),
            name(&row["topic"], TOPIC),
            seconds(&row["longest"]),
            text(&row["deliveries"]),
            seconds(&row["ago"]),
        ]
    };
    let columns = [left("client"), left("topic"), right("slowest"), right("deliveries"), right("last ago")];
    table(columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Returns retained messages as a table.
pub(super) fn retained_table(body: &Value) -> String {
    let cells = |row: &Value| {
        [
            name(&row["topic"], TOPIC),
            text(&row["qos"]),
            text(&row["payload_bytes"]),
            seconds(&row["expires_in"]),
            payload(row),
        ]
    };
    let rows = items(body, "retained");
    let columns = [left("topic"), right("QoS"), right("bytes"), right("expires in"), payload_column(rows)];
    let out = table(columns, &rows.iter().map(cells).collect::<Vec<_>>());
    if body["complete"] == Value::Bool(true) {
        return out;
    }
    let has_most = rows.len() == MOST && rows.iter().any(|row| !row["payload"].is_null());
    match has_most {
        true => format!("{out}\nthere are more; narrow the filter: --payload shows {MOST} at most"),
        false => format!("{out}\nthere are more; narrow the filter, or raise --limit"),
    }
}

/// Returns delayed messages as a table.
pub(super) fn delayed_table(body: &Value) -> String {
    let cells = |row: &Value| {
        let message = &row["message"];
        [
            text(&row["id"]),
            name(&message["topic"], TOPIC),
            text(&message["qos"]),
            text(&message["payload_bytes"]),
            seconds(&row["due_in"]),
        ]
    };
    let columns = [left("message"), left("topic"), right("QoS"), right("bytes"), right("due in")];
    let out = table(columns, &items(body, "delayed").iter().map(cells).collect::<Vec<_>>());
    if body["next"].is_null() { out } else { format!("{out}\nthere are more; raise --limit") }
}

/// Returns actions of operators as a table.
pub(super) fn audit_table(body: &Value) -> String {
    let cells = |row: &Value| {
        [
            text(&row["unix_ms"]),
            text(&row["who"]),
            text(&row["action"]),
            text(&row["target"]),
            text(&row["result"]),
            text(&row["arguments"]),
        ]
    };
    let columns =
        [right("unix ms"), left("who"), left("action"), left("on"), left("result"), left("arguments")];
    table(columns, &items(body, "actions").iter().map(cells).collect::<Vec<_>>())
}

/// Returns delivery objectives as a table.
pub(super) fn objectives_table(body: &Value) -> String {
    let rows = items(body, "objectives");
    if rows.is_empty() {
        return "no objectives; [[slo]] of the configuration sets them".to_owned();
    }
    let percent = |value: &Value, places: usize| {
        value.as_f64().map(|share| format!("{:.places$} %", share * 100.0)).unwrap_or_default()
    };
    let cells = |row: &Value| {
        let within = Duration::from_secs_f64(row["within"].as_f64().unwrap_or_default());
        [
            text(&row["name"]),
            name(&row["topic"], TOPIC),
            duration::format(within),
            percent(&row["target"], 3),
            percent(&row["ratio"], 3),
            percent(&row["budget_left"], 0),
            text(&row["in_time"]),
            text(&row["late"]),
            text(&row["dropped"]),
            text(&row["open"]),
        ]
    };
    let columns = [
        left("objective"),
        left("topic"),
        right("within"),
        right("target"),
        right("in time"),
        right("budget left"),
        right("good"),
        right("late"),
        right("dropped"),
        right("open"),
    ];
    table(columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_client_identifier_is_cut_with_a_mark() {
        let row = |client_id: &str| json!({ "client_id": client_id, "version": "5.0" });
        let table = clients_table(&[row(&"é".repeat(60_000)), row("pump")]);
        let cut = format!("{}...  5.0", "é".repeat(64));
        assert!(table.lines().all(|line| line.chars().count() < 200) && table.contains(&cut), "{table}");
    }

    #[test]
    fn a_listing_that_is_cut_says_how_to_see_more() {
        let row = |payload: Value| json!({ "topic": "a", "qos": 0, "payload_bytes": 2, "payload": payload });
        let last = |payload: Value| {
            let rows = vec![row(payload); MOST];
            let table = retained_table(&json!({ "retained": rows, "complete": false }));
            table.lines().last().map(ToOwned::to_owned)
        };
        let cut = "there are more; narrow the filter, or raise --limit".to_owned();
        assert_eq!(last(Value::Null), Some(cut));
        let cut = "there are more; narrow the filter: --payload shows 16 at most".to_owned();
        assert_eq!(last(json!({ "text": "on", "complete": true })), Some(cut));
    }
}
