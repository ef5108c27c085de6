//! The list of clients: its filters, its order, and its place among all that fit.

use super::entry::{SubmittedForm, Visit};
use super::frame::PageFrame;
use super::page::{PageResult, or_mistake, render_form};
use super::views::{ClientView, count, long, shown, view_of};
use crate::admin::access::Scope;
use crate::admin::bulk::{ConnectionFilter, disconnect};
use crate::admin::queries::sessions::ListParameters;
use crate::admin::queries::sorted::sorted_sessions;
use crate::admin::queries::sorted_pass::SortedPage;
use crate::admin::rows::client::ClientRow;
use crate::admin::segment::segment;
use crate::broker::OpenListener;
use crate::mqtt::packet::ProtocolVersion;
use crate::operators::session_order::SessionOrder;
use actix_web::HttpRequest;
use askama::Template;
use serde::Deserialize;
use std::time::Duration;

#[derive(Template)]
#[template(path = "clients.html", config = "src/admin/askama.toml")]
struct ClientsPage {
    frame: PageFrame,
    mistake: Option<String>,
    rows: Vec<ListedClient>,
    form: ClientsForm,
    /// The names of the listeners, and those of the versions.
    listeners: Vec<String>,
    versions: Vec<&'static str>,
    is_filtered: bool,
    heads: Vec<ColumnHead>,
    /// The place of the page among all that fit.
    place: String,
    is_complete: bool,
    next: Option<String>,
    /// The query string of the first page; `None` on it.
    first: Option<String>,
    /// True if the login may disconnect all clients that fit the filter.
    may_disconnect: bool,
}

struct ListedClient {
    view: ClientView,
    /// The state, and for how long.
    state: String,
    user: String,
    address: String,
    listener: String,
    /// The age of the oldest message of the queue; empty without one.
    queued_for: String,
}

/// The columns, each with its class and the order that its head asks for.
const COLUMNS: [(&str, &str, Option<SessionOrder>); 11] = [
    ("client", "", Some(SessionOrder::ClientId)),
    ("state", "", None),
    ("user", "", None),
    ("address", "", None),
    ("listener", "", None),
    ("version", "", None),
    ("queued", "number", Some(SessionOrder::Queued)),
    ("queued for", "number", None),
    ("in flight", "number", Some(SessionOrder::InFlight)),
    ("unacknowledged for", "number", Some(SessionOrder::OldestUnacknowledged)),
    ("where it is", "", None),
];

struct ColumnHead {
    name: &'static str,
    class: &'static str,
    /// The query string of the list in the order of the column; `None` without one.
    query: Option<String>,
    /// The value of `aria-sort`, if the list is in this order.
    sorted: Option<&'static str>,
}

/// The fields of the filter, as text. The page shows them again beside a mistake.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClientsForm {
    prefix: String,
    user: String,
    address: String,
    listener: String,
    version: String,
    state: String,
    cause: String,
    min_unacked_age: String,
    min_queued: String,
    sort: String,
    cursor: String,
}

impl ClientsForm {
    /// Returns true if the filter names clients as a disconnect of many does: by user, listener or
    /// the beginning of the client identifier, and by nothing else.
    fn names_connections(&self) -> bool {
        let ClientsForm { prefix, user, listener, .. } = self;
        let ClientsForm { address, version, state, cause, min_unacked_age, min_queued, .. } = self;
        let others = [address, version, cause, min_unacked_age, min_queued];
        [prefix, user, listener].iter().any(|text| !text.is_empty())
            && others.iter().all(|text| text.is_empty())
            && state != "away"
    }
}

/// The form that disconnects all clients that fit.
#[derive(Deserialize)]
pub(super) struct DisconnectForm {
    #[serde(default)]
    user: String,
    #[serde(default)]
    listener: String,
    #[serde(default)]
    prefix: String,
}

/// Disconnects all clients of a user, a listener or a prefix, and goes back to the list. Their
/// number is on the page with the form, and their sessions stay, so nothing asks again.
pub(super) async fn disconnect_all(form: SubmittedForm<DisconnectForm>) -> PageResult {
    let SubmittedForm { visit, operator, fields } = form;
    let DisconnectForm { user, listener, prefix } = fields;
    let named = [("user", &user), ("listener", &listener), ("prefix", &prefix)];
    let given = named.into_iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let filter = ConnectionFilter { user: some(user), listener: some(listener), prefix: some(prefix) };
    let done = disconnect(&operator, filter).await?;
    let more = if done.complete { "" } else { " More are left, so do it again." };
    let said = match done.count {
        0 => "No client that fits is connected. Nothing was done.".to_owned(),
        1 => format!("1 client was disconnected. Its session stays.{more}"),
        many => format!("{} clients were disconnected. Their sessions stay.{more}", count(many as u64)),
    };
    Ok(visit.answered(&format!("/clients?{}", pairs.join("&")), said))
}

pub(super) async fn list(visit: Visit) -> PageResult {
    let state = &visit.state;
    let observer = state.running()?;
    let form: ClientsForm = visit.read()?;
    let listed = match ListParameters::read_form(&visit.request) {
        Ok(parameters) => match parameters.order() {
            Ok(order) => {
                let order = order.unwrap_or(SessionOrder::ClientId);
                sorted_sessions(state, (&parameters, order)).await
            }
            Err(mistake) => Err(mistake),
        },
        Err(mistake) => Err(mistake),
    };
    let (listed, mistake) = or_mistake(listed, SortedPage::default)?;
    let is_mistaken = mistake.is_some();
    let pairs: Vec<&str> = given_pairs(&visit.request).collect();
    let page = ClientsPage {
        frame: PageFrame::of(&visit, "/clients").await,
        is_filtered: pairs.iter().any(|pair| *pair != "state=all" && !pair.starts_with("sort=")),
        heads: heads(&pairs, &form.sort),
        place: place(&listed),
        is_complete: listed.is_complete || is_mistaken,
        rows: listed.rows.iter().map(|row| ListedClient::of(view_of(state, row))).collect(),
        listeners: observer.listeners().open().iter().map(OpenListener::label).collect(),
        versions: ProtocolVersion::ALL.map(ProtocolVersion::name).to_vec(),
        next: listed.next.map(|cursor| query(pairs.iter().copied(), &format!("cursor={cursor}"))),
        first: (!form.cursor.is_empty()).then(|| pairs.join("&")),
        may_disconnect: visit.login.caller.scope >= Scope::Operator && form.names_connections(),
        mistake,
        form,
    };
    Ok(render_form(&page, is_mistaken))
}

/// Returns the fields of the form that are given, as the query string has them.
fn given_pairs(request: &HttpRequest) -> impl Iterator<Item = &str> {
    let pairs = request.query_string().split('&');
    pairs.filter(|pair| !(pair.is_empty() || pair.ends_with('=') || pair.starts_with("cursor=")))
}

/// Returns a query string with one more pair.
fn query<'a>(pairs: impl Iterator<Item = &'a str>, last: &str) -> String {
    pairs.map(|pair| format!("{pair}&")).collect::<String>() + last
}

/// Returns the place of a page among all sessions that fit, such as `1-100 of 5,222`.
fn place(SortedPage { rows, total, before, .. }: &SortedPage) -> String {
    let (first, last) = (count(*before as u64 + 1), count((before + rows.len()) as u64));
    format!("{first}-{last} of {}", count(*total as u64))
}

/// Returns the heads of the columns. `pairs` are the fields of the form that are given, and `sort`
/// is the order of the list.
fn heads(pairs: &[&str], sort: &str) -> Vec<ColumnHead> {
    let head = |(name, class, order): (&'static str, &'static str, Option<SessionOrder>)| {
        let others = || pairs.iter().copied().filter(|pair| !pair.starts_with("sort="));
        let is_first = |order: SessionOrder| sort.is_empty() && order == SessionOrder::ClientId;
        let in_order = order.filter(|order| sort == order.name() || is_first(*order));
        let direction = |order| if order == SessionOrder::ClientId { "ascending" } else { "descending" };
        let query = order.map(|order| query(others(), &format!("sort={order}")));
        ColumnHead { name, class, query, sorted: in_order.map(direction) }
    };
    COLUMNS.map(head).into()
}

impl ListedClient {
    fn of(view: ClientView) -> ListedClient {
        let ClientRow { user, address, listener, oldest_queued_age, .. } = &view.client;
        let oldest = oldest_queued_age.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        ListedClient {
            state: state_words(&view.client),
            user: user.as_deref().map(shown).unwrap_or_default(),
            address: address.clone().unwrap_or_default(),
            listener: listener.clone().unwrap_or_default(),
            queued_for: oldest.map(long).unwrap_or_default(),
            view,
        }
    }
}

/// Returns the state of a client, and for how long it has been in it.
fn state_words(client: &ClientRow) -> String {
    let since = client.connected_for.or(client.away_for).map(|secs| long(Duration::from_secs_f64(secs)));
    since.map_or_else(|| client.state.to_string(), |since| format!("{} for {since}", client.state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_the_filter_and_says_if_the_list_is_in_its_order() {
        let of = |pairs: &[&str], sort: &str, name: &str| {
            let found = heads(pairs, sort).into_iter().find(|head| head.name == name);
            found.map(|head| (head.query, head.sorted))
        };
        let sorted = |query: &str, sorted| Some((Some(query.to_owned()), sorted));
        let pairs = ["prefix=a%2Fb", "sort=queued"];
        assert_eq!(
            of(&pairs, "queued", "unacknowledged for"),
            sorted("prefix=a%2Fb&sort=oldest_unacked", None)
        );
        assert_eq!(of(&pairs, "queued", "queued"), sorted("prefix=a%2Fb&sort=queued", Some("descending")));
        assert_eq!(of(&[], "", "client"), sorted("sort=client_id", Some("ascending")));
        assert_eq!(of(&[], "", "user"), Some((None, None)));
    }
}
