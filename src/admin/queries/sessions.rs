//! Listings of sessions, and one session.

use super::ask::ask;
use super::oldest_queued::add_oldest_queued;
use super::target::ClientTarget;
use crate::access::network::network;
use crate::admin::failed::Failed;
use crate::admin::listing::{ListCursor, Listed, ListedRow};
use crate::admin::names::SessionPlace;
use crate::admin::request::{DurationText, limit_of, named, parse_query};
use crate::admin::state::AdminState;
use crate::broker::OpenListener;
use crate::broker::observer::Observer;
use crate::broker::question::SocketFacts;
use crate::clock;
use crate::mqtt::packet::ProtocolVersion;
use crate::named_enum::named_enum;
use crate::operators::query::{
    BYTES, Part, Query, QueryAnswer, SessionDetail, SessionFilter, SessionSummary,
};
use crate::operators::session_order::SessionOrder;
use crate::session::outbound::stall::Holder;
use crate::slots::SessionId;
use crate::time::duration;
use actix_web::HttpRequest;
use ipnet::IpNet;
use serde::Deserialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;
use utoipa::ToSchema;

/// Time for one page. A page that is not full by then is short, and `next` continues.
pub(super) const PAGE: Duration = Duration::from_millis(250);

/// Sessions in a page at most.
const MOST: usize = 1_000;

named_enum! {
    /// The sessions of a listing, by their connections.
    pub(crate) enum ListState {
        /// All sessions.
        All = "all",
        /// The sessions of connected clients.
        Connected = "connected",
        /// The other sessions.
        Away = "away",
    }
}

/// The parameters of a listing.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParameters {
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 1000, default = 100, example = 10)]
    limit: Option<usize>,
    pub(crate) cursor: Option<String>,
    /// The fields of each row, each once, with commas between them. Without it, a row has all.
    #[schema(example = "client_id,queued")]
    pub(crate) fields: Option<String>,
    /// The order of the rows over all pages. Each page takes a look at every session, and the
    /// answer has the number of all that fit. Without it, the rows come in no order, and a page
    /// costs its rows only. A client whose figure changes may be missing, or come twice.
    #[schema(value_type = Option<SessionOrder>)]
    pub(crate) sort: Option<String>,
    /// Only sessions in this state.
    #[schema(value_type = Option<ListState>)]
    pub(crate) state: Option<String>,
    /// Only client ids that begin with this.
    #[schema(example = "pump")]
    pub(crate) prefix: Option<String>,
    /// Only sessions of this user.
    #[schema(example = "app")]
    user: Option<String>,
    /// Only clients that are connected from this IP address, or from this network.
    #[schema(example = "10.1.0.0/16")]
    address: Option<String>,
    /// Only sessions whose last connection had this version of MQTT.
    #[schema(value_type = Option<ProtocolVersion>)]
    version: Option<String>,
    /// Only clients that are connected by this listener: its name, or its address if it has none.
    listener: Option<String>,
    /// Only connected clients with an unacknowledged message that this one holds.
    #[schema(value_type = Option<Holder>)]
    pub(crate) cause: Option<String>,
    /// Messages in the queue, at least.
    #[schema(example = 1)]
    pub(crate) min_queued: Option<usize>,
    /// Bytes in the queue, at least.
    #[schema(example = 1)]
    min_queued_bytes: Option<usize>,
    /// Messages in flight, at least.
    #[schema(example = 1)]
    min_in_flight: Option<usize>,
    /// Age of the oldest unacknowledged message, at least.
    #[schema(value_type = Option<DurationText>)]
    pub(crate) min_unacked_age: Option<String>,
}

impl ListParameters {
    /// Reads the query string of a form, in which an empty field is no filter.
    pub(crate) fn read_form(request: &HttpRequest) -> Result<ListParameters, Failed> {
        let given = request.query_string().split('&').filter(|pair| !pair.ends_with('='));
        let query = given.collect::<Vec<_>>().join("&");
        parse_query(&query)
    }

    /// Returns the order that is asked for; `None` for none. Errors: the word is none of the
    /// orders.
    pub(crate) fn order(&self) -> Result<Option<SessionOrder>, Failed> {
        let read = |word| named("sort", word, &SessionOrder::ALL, SessionOrder::name);
        self.sort.as_deref().map(read).transpose()
    }

    pub(super) fn limit(&self) -> Result<usize, Failed> {
        limit_of(self.limit, 100, MOST)
    }

    pub(super) fn filter(&self, observer: &Observer) -> Result<SessionFilter, Failed> {
        let state = self.state.as_deref().unwrap_or(ListState::All.name());
        let connected = match named("state", state, &ListState::ALL, ListState::name)? {
            ListState::All => None,
            ListState::Connected => Some(true),
            ListState::Away => Some(false),
        };
        let age = self.min_unacked_age.as_deref().map(duration::parse).transpose();
        let age = age.map_err(|error| Failed::Parameter(format!("min_unacked_age: {error}")))?;
        Ok(SessionFilter {
            connected,
            prefix: self.prefix.clone().unwrap_or_default().into(),
            user: self.user.clone().map(Into::into),
            version: self.version.as_deref().map(version).transpose()?,
            listener: self.listener.as_deref().map(|label| listener(observer, label)).transpose()?,
            min_queued: self.min_queued.unwrap_or(0),
            min_queued_bytes: self.min_queued_bytes.unwrap_or(0),
            min_in_flight: self.min_in_flight.unwrap_or(0),
            min_unacked_age: age.unwrap_or_default(),
        })
    }
}

/// Returns the filter for connected clients of a user, of the listener with a label, and with a
/// beginning of the client identifier. Errors: there is no such listener.
pub(crate) fn connected_of(
    observer: &Observer,
    user: Option<String>,
    listener: Option<String>,
    prefix: Option<String>,
) -> Result<SessionFilter, Failed> {
    let state = Some(ListState::Connected.name().to_owned());
    ListParameters { state, user, listener, prefix, ..ListParameters::default() }.filter(observer)
}

fn version(text: &str) -> Result<ProtocolVersion, Failed> {
    named("version", text, &ProtocolVersion::ALL, ProtocolVersion::name)
}

/// Returns the label of a listener, if one has or had it.
fn listener(observer: &Observer, label: &str) -> Result<Box<str>, Failed> {
    if observer.statistics().listeners().of_label(label).is_none() {
        let labels: Vec<String> = observer.listeners().open().iter().map(OpenListener::label).collect();
        let what = format!("listener is {label:?}, and must be one of {}", labels.join(", "));
        return Err(Failed::Parameter(what));
    }
    Ok(label.into())
}

/// The part of a filter that only a socket answers: who holds the oldest unacknowledged message,
/// and the address of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SocketFilter {
    holder: Option<Holder>,
    network: Option<IpNet>,
}

impl SocketFilter {
    pub(super) fn of(parameters: &ListParameters) -> Result<SocketFilter, Failed> {
        let ListParameters { cause, address, .. } = parameters;
        let holder = cause.as_deref().map(|word| named("cause", word, &Holder::ALL, Holder::name));
        let read = |text: &str| {
            let wrong =
                |_| format!("address is {text:?}, and must be an IP address or a network: 10.1.0.0/16");
            network(text).map_err(|error| Failed::Parameter(wrong(error)))
        };
        let network = address.as_deref().map(read);
        Ok(SocketFilter { holder: holder.transpose()?, network: network.transpose()? })
    }

    /// Returns the filter of the sessions that may have such a socket.
    pub(super) fn narrowed(self, filter: SessionFilter) -> SessionFilter {
        let connected = if self.admits_all() { filter.connected } else { filter.connected.or(Some(true)) };
        let least = if self.holder.is_some() { Duration::from_millis(1) } else { Duration::ZERO };
        SessionFilter { connected, min_unacked_age: filter.min_unacked_age.max(least), ..filter }
    }

    /// Returns true if each session is wanted, whatever its socket.
    pub(super) fn admits_all(self) -> bool {
        self == SocketFilter::default()
    }

    pub(super) fn admits(self, socket: Option<&SocketFacts>) -> bool {
        let holder = socket.and_then(|socket| socket.stall).map(|stall| stall.cause.holder());
        let from = || socket?.address.parse::<SocketAddr>().ok().map(|address| address.ip().to_canonical());
        self.holder.is_none_or(|wanted| holder == Some(wanted))
            && self.network.is_none_or(|network| from().is_some_and(|address| network.contains(&address)))
    }
}

/// Returns a hash of a filter, so that a cursor of another listing is refused.
pub(super) fn filter_hash(filter: &impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    filter.hash(&mut hasher);
    hasher.finish() as u32
}

/// Asks the shards, one after the other, until the page is full or its time is over. Errors: a
/// parameter or the cursor is not valid, or a shard does not answer.
pub(crate) async fn list_sessions(state: &AdminState, parameters: &ListParameters) -> Result<Listed, Failed> {
    let observer = state.running()?;
    let (limit, filter) = (parameters.limit()?, parameters.filter(observer)?);
    let by_socket = SocketFilter::of(parameters)?;
    let hash = filter_hash(&(&filter, by_socket));
    let is_own = |cursor: &ListCursor| cursor.filter == hash && usize::from(cursor.shard) < observer.shards();
    let mut at = match &parameters.cursor {
        None => Some(ListCursor { shard: 0, slot: 0, filter: hash }),
        Some(text) => Some(ListCursor::decode(text).filter(is_own).ok_or(Failed::Cursor)?),
    };
    let (started, mut rows, mut bytes) = (clock::now(), Vec::new(), 0);
    let has_room = |rows: usize, bytes: usize| rows < limit && bytes < BYTES;
    while let Some(cursor) = at.filter(|_| has_room(rows.len(), bytes) && clock::now().since(started) < PAGE)
    {
        let query = Query::Sessions { from: cursor.slot, most: limit - rows.len(), filter: filter.clone() };
        let answer = ask(state, usize::from(cursor.shard), query).await?;
        let QueryAnswer::Sessions(Part { rows: found, next }) = &answer.answer else { break };
        bytes += found.iter().map(|row| row.client_id.len()).sum::<usize>();
        let shard = usize::from(cursor.shard);
        let listed = |row: &SessionSummary| {
            let socket = answer.socket_of(row.id).cloned();
            ListedRow { shard, session: row.clone(), socket }
        };
        rows.extend(found.iter().map(listed).filter(|row| by_socket.admits(row.socket.as_ref())));
        at = match next {
            Some(slot) => Some(ListCursor { slot: *slot, ..cursor }),
            None if usize::from(cursor.shard) + 1 < observer.shards() => {
                Some(ListCursor { shard: cursor.shard + 1, slot: 0, ..cursor })
            }
            None => None,
        };
    }
    add_oldest_queued(observer, &mut rows.iter_mut().map(|row| &mut row.session).collect::<Vec<_>>()).await;
    Ok(Listed { rows, next: at })
}

/// Returns the session of a client with its messages, and the facts of its socket. Errors: there is
/// no such session, or its shard does not answer.
pub(crate) async fn find(
    state: &AdminState,
    target: &ClientTarget,
) -> Result<(SessionDetail, Option<SocketFacts>), Failed> {
    let observer = state.running()?;
    let query = Query::Session { client: target.session.clone() };
    let answer = ask(state, target.shard(observer), query).await?;
    match answer.answer {
        QueryAnswer::Session(Some(mut detail)) => {
            add_oldest_queued(observer, &mut [&mut detail.row]).await;
            let socket = answer.sockets.into_iter().next();
            Ok((*detail, socket))
        }
        _ => Err(Failed::NoSuchClient),
    }
}

/// Returns the `ref` of a session, which names it in this process.
pub(crate) fn reference_of(state: &AdminState, shard: usize, id: SessionId) -> String {
    let shard = u8::try_from(shard).unwrap_or(u8::MAX);
    state.process.session_name(SessionPlace { shard, id })
}

/// Returns the age of the oldest message that a client has not acknowledged, at the least; `None`
/// without one.
/// Errors: there is no session of this client, or its shard does not answer.
pub(crate) async fn oldest_unacknowledged(
    state: &AdminState,
    client_id: &str,
) -> Result<Option<Duration>, Failed> {
    let (detail, _) = find(state, &ClientTarget::client(client_id)).await?;
    Ok(detail.row.oldest.map(|oldest| oldest.age.least))
}
