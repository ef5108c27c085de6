//! The listings of `homing ctl`, over as many pages as they take.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{path_with, request};
use super::text::{Print, left, right, table};
use crate::admin::credentials;
use crate::admin::human::{budget, count, percent};
use crate::admin::payloads::{MOST, PayloadView};
use crate::admin::routes::audit::Audit;
use crate::admin::routes::bridges::Bridges;
use crate::admin::routes::delayed::DelayedMessages;
use crate::admin::routes::mosquitto::{ListenerRow, Listeners};
use crate::admin::routes::sinks::Sinks;
use crate::admin::routes::slo::{ObjectiveRow, ObjectivesAnswer};
use crate::admin::routes::slow::SlowAnswer;
use crate::admin::routes::topics::{RetainedMessages, SubscriptionsAnswer};
use crate::admin::routes::whereabouts::{GroupRow, SubscriberRow, Whereabouts};
use crate::admin::rows::bridge::BridgeRow;
use crate::admin::rows::client::{ClientRow, StallRow};
use crate::admin::rows::sink::SinkRow;
use crate::admin::segment::segment;
use crate::escape;
use crate::mqtt::topic::first_chars;
use crate::time::duration;
use clap::Args;
use serde_json::Value;
use std::fmt::Display;
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
    /// Only clients that are connected from this IP address or network, such as 10.1.0.0/16
    #[arg(long)]
    address: Option<String>,
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
    /// client_id, oldest_unacked, queued, queued_bytes or in_flight; or none, which is quicker for
    /// more than 100,000 clients
    #[arg(long, default_value = "client_id")]
    sort: String,
    /// Number of clients at most
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

/// Lists the clients that the flags ask for, over as many pages as it takes. Returns the output.
pub(super) fn clients(
    broker: &BrokerEndpoint,
    flags: &ClientsFlags,
    print: Print,
) -> Result<String, CtlError> {
    let sort = Some(flags.sort.clone()).filter(|sort| sort != "none");
    let filter = [
        ("sort", &sort),
        ("address", &flags.address),
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
    let path = path_with("/api/v1/clients", &filter);
    let mut body = listing(broker, &path, "clients", (flags.limit, 1_000))?;
    let total = body["total"].as_u64();
    print.answer(body["clients"].take(), |rows: Vec<ClientRow>| {
        let more = total.filter(|total| *total > rows.len() as u64);
        let more = more.map(|total| format!("\n{} of {}; raise --limit", rows.len(), count(total)));
        clients_table(rows) + &more.unwrap_or_default()
    })
}

/// Returns up to `limit` rows of a listing, over as many pages of `page` rows as it takes. `path`
/// has the query string of the filter. `field` has the rows.
pub(super) fn pages(
    broker: &BrokerEndpoint,
    path: &str,
    field: &str,
    (limit, page): (usize, usize),
) -> Result<Value, CtlError> {
    Ok(listing(broker, path, field, (limit, page))?[field].take())
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
        rows.append(body[field].as_array_mut().unwrap_or(&mut Vec::new()));
        match body["next"].as_str().filter(|_| rows.len() < limit) {
            Some(next) => cursor = format!("&cursor={}", segment(next)),
            None => {
                body[field] = rows.into();
                return Ok(body);
            }
        }
    }
}

pub(super) fn text(value: impl Display) -> String {
    escape::visible(&value.to_string())
}

/// Returns a value as the text of a cell; empty without one.
pub(super) fn given(value: &Option<impl Display>) -> String {
    value.as_ref().map(text).unwrap_or_default()
}

/// Returns a name as the text of a cell, with a mark where it is cut: after so many characters.
/// JSON has the whole name.
pub(super) fn name(whole: &str, most: usize) -> String {
    let first = first_chars(whole, most);
    if first.len() == whole.len() { escape::visible(first) } else { escape::visible(first) + "..." }
}

/// Returns a number of seconds as the text of a cell.
pub(super) fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map(duration::seconds).unwrap_or_default()
}

/// Returns a number of seconds as the text of a cell; empty without one.
pub(super) fn given_seconds(value: Option<f64>) -> String {
    value.map(seconds).unwrap_or_default()
}

/// Returns a payload as the text of a cell; empty without one.
pub(super) fn payload(payload: &Option<PayloadView>) -> String {
    let (shown, is_complete) = match payload {
        Some(PayloadView { text: Some(text), is_complete, .. }) => (escape::visible(text), is_complete),
        Some(PayloadView { base64: Some(encoded), is_complete, .. }) => {
            (format!("base64 {}", escape::visible(encoded)), is_complete)
        }
        _ => return String::new(),
    };
    if *is_complete { shown } else { shown + " ..." }
}

/// Returns the name of the column of payloads. Without any, the column is empty, and has no name
/// either.
pub(super) fn payload_column(has_any: bool) -> &'static str {
    if has_any { "payload" } else { "" }
}

fn clients_table(rows: Vec<ClientRow>) -> String {
    table(
        &rows,
        [
            left("client", |row| name(&row.client_id, CLIENT_ID)),
            left("state", |row| text(row.state)),
            right("for", |row| given_seconds(row.connected_for.or(row.away_for))),
            left("user", |row| row.user.as_deref().map(|user| name(user, CLIENT_ID)).unwrap_or_default()),
            left("address", |row| given(&row.address)),
            left("listener", |row| given(&row.listener)),
            left("version", |row| text(row.version)),
            right("in flight", |row| text(row.in_flight)),
            right("queued", |row| text(row.queued)),
            right("oldest", |row| row.oldest_unacknowledged.as_ref().map(StallRow::age).unwrap_or_default()),
            left("cause", |row| {
                given(&row.oldest_unacknowledged.as_ref().and_then(|oldest| oldest.detail.as_deref()))
            }),
        ],
    )
}

/// Returns the verdicts of a search, one on each line.
pub(super) fn verdicts(found: Whereabouts) -> String {
    let verdicts: Vec<String> = found.verdicts.iter().map(text).collect();
    if verdicts.is_empty() {
        "no message and no subscription was found".to_owned()
    } else {
        verdicts.join("\n")
    }
}

/// Returns the subscribers and the shared groups as two tables, without an empty one.
pub(super) fn subscribers_tables(answer: SubscriptionsAnswer) -> String {
    let SubscriptionsAnswer { subscriptions, shared_groups, complete } = answer;
    let filters = |row: &SubscriberRow| {
        row.filters.iter().map(|filter| name(filter, TOPIC)).collect::<Vec<_>>().join(" ")
    };
    let mut parts = Vec::new();
    if !subscriptions.is_empty() {
        parts.push(table(
            &subscriptions,
            [
                left("client", |row| name(&row.client_id, CLIENT_ID)),
                left("state", |row| text(row.state)),
                right("QoS", |row| given(&row.qos)),
                left("filters", filters),
            ],
        ));
    }
    parts.extend(subscriptions.iter().filter_map(|row| {
        let why = escape::visible(row.denied.as_deref()?);
        Some(format!("{} may not read the topic: {why}", name(&row.client_id, CLIENT_ID)))
    }));
    parts.extend(shared_groups.filter(|groups| !groups.is_empty()).map(groups_table));
    if parts.is_empty() {
        parts.push("no subscription was found".to_owned());
    }
    if !complete {
        parts.push("not all: a thread has more subscribers than one answer".to_owned());
    }
    parts.join("\n\n")
}

pub(super) fn groups_table(rows: Vec<GroupRow>) -> String {
    let filter = |row: &GroupRow| name(&row.filter, TOPIC);
    table(&rows, [left("group and filter", filter), right("members", |row| text(row.members))])
}

pub(super) fn listeners_table(Listeners { listeners }: Listeners) -> String {
    let tls = |row: &ListenerRow| match (row.tls, row.mtls) {
        (true, true) => "mutual".to_owned(),
        (true, false) => "yes".to_owned(),
        (false, _) => "no".to_owned(),
    };
    table(
        &listeners,
        [
            left("address", |row| text(&row.address)),
            left("name", |row| given(&row.name)),
            left("protocol", |row| text(row.protocol)),
            left("TLS", tls),
            left("anonymous", |row| if row.allow_anonymous { "yes" } else { "no" }.to_owned()),
            right("connections", |row| given(&row.connections)),
        ],
    )
}

pub(super) fn slow_table(SlowAnswer { deliveries }: SlowAnswer) -> String {
    if deliveries.is_empty() {
        return "no delivery took more than a second within the last hour".to_owned();
    }
    table(
        &deliveries,
        [
            left("client", |row| text(&row.receiver)),
            left("topic", |row| name(&row.topic, TOPIC)),
            right("slowest", |row| seconds(row.longest)),
            right("deliveries", |row| text(row.deliveries)),
            right("last ago", |row| seconds(row.ago as f64)),
        ],
    )
}

pub(super) fn retained_table(RetainedMessages { retained, complete, .. }: RetainedMessages) -> String {
    let has_payloads = retained.iter().any(|row| row.payload.is_some());
    let out = table(
        &retained,
        [
            left("topic", |row| name(&row.topic, TOPIC)),
            right("QoS", |row| text(row.qos)),
            right("bytes", |row| text(row.payload_bytes)),
            right("expires in", |row| given_seconds(row.expires_in)),
            left(payload_column(has_payloads), |row| payload(&row.payload)),
        ],
    );
    if complete {
        return out;
    }
    match has_payloads && retained.len() == MOST {
        true => format!("{out}\nthere are more; narrow the filter: --payload shows {MOST} at most"),
        false => format!("{out}\nthere are more; narrow the filter, or raise --limit"),
    }
}

pub(super) fn delayed_table(DelayedMessages { delayed, next }: DelayedMessages) -> String {
    let out = table(
        &delayed,
        [
            left("message", |row| text(&row.id)),
            left("topic", |row| name(&row.message.topic, TOPIC)),
            right("QoS", |row| text(row.message.qos)),
            right("bytes", |row| text(row.message.payload_bytes)),
            right("due in", |row| given_seconds(row.due_in)),
        ],
    );
    if next.is_none() { out } else { format!("{out}\nthere are more; raise --limit") }
}

pub(super) fn audit_table(Audit { actions }: Audit) -> String {
    table(
        &actions,
        [
            left("time", |row| credentials::end_text(row.unix_ms)),
            left("who", |row| text(&row.who)),
            left("action", |row| text(&row.action)),
            left("on", |row| text(&row.target)),
            left("result", |row| text(&row.result)),
            left("arguments", |row| text(&row.arguments)),
        ],
    )
}

pub(super) fn bridges_table(Bridges { bridges }: Bridges) -> String {
    if bridges.is_empty() {
        return "no bridges; [[bridges]] of the configuration makes them".to_owned();
    }
    let oldest = |row: &BridgeRow| row.session.oldest_queued_age.map(seconds).unwrap_or_default();
    table(
        &bridges,
        [
            left("bridge", |row| text(&row.name)),
            left("state", |row| text(row.state.name())),
            right("for", |row| seconds(row.since)),
            left("address", |row| text(&row.address)),
            left("version", |row| row.version.as_deref().map(text).unwrap_or_default()),
            right("queued", |row| text(row.session.queued)),
            right("oldest", oldest),
            right("in flight", |row| text(row.session.in_flight)),
            right("sent", |row| text(row.sent)),
            right("received", |row| text(row.received)),
            left("what is wrong", |row| text(row.troubles().join("; "))),
        ],
    )
}

pub(super) fn sinks_table(Sinks { sinks }: Sinks) -> String {
    if sinks.is_empty() {
        return "no sinks; [[sinks]] of the configuration makes them".to_owned();
    }
    let oldest = |row: &SinkRow| row.session.oldest().map(seconds).unwrap_or_default();
    table(
        &sinks,
        [
            left("sink", |row| text(&row.name)),
            left("state", |row| text(row.state.name())),
            right("for", |row| seconds(row.since)),
            left("url", |row| text(&row.url)),
            left("last answer", |row| text(row.answer())),
            right("queued", |row| text(row.session.queued)),
            right("oldest", oldest),
            right("in flight", |row| text(row.session.in_flight)),
            right("requests", |row| text(row.requests)),
            right("p99", |row| text(row.time())),
            right("delivered", |row| text(row.delivered)),
            right("refused", |row| text(row.refused)),
            left("what is wrong", |row| text(row.troubles().join("; "))),
        ],
    )
}

pub(super) fn objectives_table(ObjectivesAnswer { objectives }: ObjectivesAnswer) -> String {
    if objectives.is_empty() {
        return "no objectives; [[slo]] of the configuration sets them".to_owned();
    }
    let within = |row: &ObjectiveRow| {
        Duration::try_from_secs_f64(row.within).map(duration::format).unwrap_or_default()
    };
    table(
        &objectives,
        [
            left("objective", |row| text(&row.name)),
            left("topic", |row| name(&row.topic, TOPIC)),
            right("within", within),
            right("target", |row| percent(row.target)),
            right("in time", |row| row.ratio.map(percent).unwrap_or_default()),
            right("budget left", |row| row.budget_left.map(budget).unwrap_or_default()),
            right("good", |row| text(row.in_time)),
            right("late", |row| text(row.late)),
            right("dropped", |row| text(row.dropped)),
            right("open", |row| text(row.open)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_client_identifier_is_cut_with_a_mark() {
        let row = |client_id: &str| {
            let row = json!({
                "client_id": client_id, "ref": "1", "version": "5.0", "state": "away", "session_expiry": 0,
                "in_flight": 0, "queued": 0, "queued_bytes": 0, "held": 0, "subscription_count": 0,
            });
            serde_json::from_value(row).expect("a client")
        };
        let table = clients_table(vec![row(&"é".repeat(60_000)), row("pump")]);
        let cut = format!("{}...  away", "é".repeat(64));
        assert!(table.lines().all(|line| line.chars().count() < 200) && table.contains(&cut), "{table}");
    }

    #[test]
    fn subscribers_and_shared_groups_are_two_tables_and_a_denial_has_its_reason() {
        let client = |id: &str, denied: Value| json!({ "client_id": id, "state": "away", "qos": 1, "filters": ["a/#", "a/+"], "denied": denied });
        let text = |answer: Value| subscribers_tables(serde_json::from_value(answer).expect("an answer"));
        let found = json!({
            "subscriptions": [client("pump-7", Value::Null), client("pump-8", json!("line 7 of acl denies it"))],
            "shared_groups": [{ "filter": "$share/g/a/#", "members": 2 }],
            "complete": true,
        });
        let expected = "\
client  state  QoS  filters
pump-7  away     1  a/# a/+
pump-8  away     1  a/# a/+

pump-8 may not read the topic: line 7 of acl denies it

group and filter  members
$share/g/a/#            2";
        assert_eq!(text(found), expected);
        let nobody = json!({ "subscriptions": [], "complete": true });
        assert_eq!(text(nobody), "no subscription was found");
    }

    #[test]
    fn a_listing_that_is_cut_says_how_to_see_more() {
        let row = |payload: Value| json!({ "topic": "a", "qos": 0, "payload_bytes": 2, "payload": payload });
        let last = |payload: Value| {
            let rows = vec![row(payload); MOST];
            let page = serde_json::from_value(json!({ "retained": rows, "complete": false }));
            let table = retained_table(page.expect("a page"));
            table.lines().last().map(ToOwned::to_owned)
        };
        let cut = "there are more; narrow the filter, or raise --limit".to_owned();
        assert_eq!(last(Value::Null), Some(cut));
        let cut = "there are more; narrow the filter: --payload shows 16 at most".to_owned();
        assert_eq!(last(json!({ "text": "on", "complete": true })), Some(cut));
    }
}
