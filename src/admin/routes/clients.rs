//! /api/v1/clients: the sessions, one session, and commands about its client.

use super::{Failed, ask, caller, limit_of, parse_query, read_query};
use crate::admin::access::Scope;
use crate::admin::cursor::ListCursor;
use crate::admin::names::SessionPlace;
use crate::admin::state::AdminState;
use crate::broker::OpenListener;
use crate::broker::observer::Observer;
use crate::broker::question::SocketFacts;
use crate::clock;
use crate::session::outbound::stall::Stall;
use crate::shard::observe::query::{
    InFlightSummary, MessageSummary, Query, QueryAnswer, SessionDetail, SessionFilter, SessionName,
    SessionSummary,
};
use crate::time::{Instant, duration};
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Time for one page. A page that is not full by then is short, and `next` continues.
const PAGE: Duration = Duration::from_millis(50);

/// Bytes of client identifiers after which a page ends.
const BYTES: usize = 256 << 10;

/// Sessions in a page at most.
const MOST: usize = 1_000;

/// The parameters of a listing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParameters {
    limit: Option<usize>,
    cursor: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) prefix: Option<String>,
    user: Option<String>,
    pub(crate) min_queued: Option<usize>,
    min_in_flight: Option<usize>,
    /// A duration such as `10s`.
    pub(crate) min_unacked_age: Option<String>,
}

/// A page of a listing.
pub(crate) struct Listed {
    /// The sessions.
    pub(crate) rows: Vec<ListedRow>,
    /// The place of the next page; `None` at the end.
    pub(crate) next: Option<ListCursor>,
}

/// A session in a listing.
pub(crate) struct ListedRow {
    /// The number of the shard.
    pub(crate) shard: usize,
    /// The session.
    pub(crate) session: SessionSummary,
    /// What its socket says; `None` while the client is away.
    pub(crate) socket: Option<SocketFacts>,
}

/// The parameters of one session.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
}

/// The session that a request is about.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The session in its shard.
    pub(crate) session: SessionName,
    /// The client identifier, or the `ref` of the request.
    pub(crate) shown: String,
    /// The shard of a session that is named by its place.
    shard: Option<usize>,
}

impl Target {
    /// Returns the session of a client.
    pub(crate) fn client(client_id: &str) -> Target {
        Target { session: SessionName::Client(client_id.into()), shown: client_id.to_owned(), shard: None }
    }

    /// Reads the target of a path. A `ref` wins over the client identifier in the path.
    ///
    /// # Errors
    /// The `ref` is none of this process.
    pub(crate) fn read(
        client_id: &str,
        reference: Option<&str>,
        state: &AdminState,
    ) -> Result<Target, Failed> {
        let Some(reference) = reference else { return Ok(Target::client(client_id)) };
        let SessionPlace { shard, id } = state.process().session(reference).ok_or(Failed::NoSuchClient)?;
        let (session, shown) = (SessionName::At(id), reference.to_owned());
        Ok(Target { session, shown, shard: Some(shard.into()) })
    }

    /// Returns the number of the session's shard.
    pub(crate) fn shard(&self, observer: &Observer) -> usize {
        match (&self.session, self.shard) {
            (_, Some(shard)) => shard,
            (SessionName::Client(client_id), None) => observer.shard_of(client_id),
            (SessionName::At(_), None) => 0,
        }
    }
}

impl ListParameters {
    /// Returns the parameters for clients that have left a message unacknowledged for a time.
    pub(crate) fn stuck(limit: usize, age: &str) -> ListParameters {
        let min_unacked_age = Some(age.to_owned());
        ListParameters { limit: Some(limit), min_unacked_age, ..ListParameters::default() }
    }

    /// Reads the query string.
    pub(crate) fn read(request: &HttpRequest) -> Result<ListParameters, Failed> {
        read_query(request)
    }

    /// Reads the query string of a form, in which an empty field is no filter.
    pub(crate) fn read_form(request: &HttpRequest) -> Result<ListParameters, Failed> {
        let given = request.query_string().split('&').filter(|pair| !pair.ends_with('='));
        let query = given.collect::<Vec<_>>().join("&");
        parse_query(&query)
    }

    fn filter(&self) -> Result<SessionFilter, Failed> {
        let connected = match self.state.as_deref() {
            None | Some("all") => None,
            Some("connected") => Some(true),
            Some("away") => Some(false),
            Some(other) => {
                let what = format!("state is {other:?}, and must be all, connected or away");
                return Err(Failed::Parameter(what));
            }
        };
        let age = self.min_unacked_age.as_deref().map(duration::parse).transpose();
        let age = age.map_err(|error| Failed::Parameter(format!("min_unacked_age: {error}")))?;
        Ok(SessionFilter {
            connected,
            prefix: self.prefix.clone().unwrap_or_default().into(),
            user: self.user.clone().map(Into::into),
            min_queued: self.min_queued.unwrap_or(0),
            min_in_flight: self.min_in_flight.unwrap_or(0),
            min_unacked_age: age.unwrap_or_default(),
        })
    }
}

/// Lists sessions. A page may be short; only an answer without `next` is the last one.
pub(crate) async fn list(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let observer = state.running()?;
    let listed = list_sessions(&state, observer, &ListParameters::read(&request)?).await?;
    let row = |row: &ListedRow| session(&state, row.shard, &row.session, row.socket.as_ref(), observer);
    let mut body = json!({ "clients": listed.rows.iter().map(row).collect::<Vec<_>>() });
    if let Some(next) = listed.next {
        body["next"] = next.encode().into();
    }
    Ok(HttpResponse::Ok().json(body))
}

/// Asks the shards, one after the other, until the page is full or its time is over.
///
/// # Errors
/// A parameter or the cursor is not valid, or a shard does not answer.
pub(crate) async fn list_sessions(
    state: &AdminState,
    observer: &Observer,
    parameters: &ListParameters,
) -> Result<Listed, Failed> {
    let (limit, filter) = (limit_of(parameters.limit, 100, MOST)?, parameters.filter()?);
    let mut hasher = DefaultHasher::new();
    filter.hash(&mut hasher);
    let hash = hasher.finish() as u32;
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
        let answer = ask(state, observer, usize::from(cursor.shard), query).await?;
        let QueryAnswer::Sessions(found, next) = &answer.answer else { break };
        bytes += found.iter().map(|row| row.client_id.len()).sum::<usize>();
        let shard = usize::from(cursor.shard);
        let listed = |row: &SessionSummary| {
            let socket = answer.socket_of(row.id).cloned();
            ListedRow { shard, session: row.clone(), socket }
        };
        rows.extend(found.iter().map(listed));
        at = match next {
            Some(slot) => Some(ListCursor { slot: *slot, ..cursor }),
            None if usize::from(cursor.shard) + 1 < observer.shards() => {
                Some(ListCursor { shard: cursor.shard + 1, slot: 0, ..cursor })
            }
            None => None,
        };
    }
    Ok(Listed { rows, next: at })
}

/// Returns one session with its messages and filters.
pub(crate) async fn one(
    request: HttpRequest,
    path: Path<String>,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let observer = state.running()?;
    let OneParameters { reference } = read_query(&request)?;
    let target = Target::read(&path, reference.as_deref(), &state)?;
    let (detail, socket) = find(&state, observer, &target).await?;
    let mut body = session(&state, target.shard(observer), &detail.row, socket.as_ref(), observer);
    body["in_flight_messages"] = detail.in_flight.iter().map(in_flight).collect();
    body["queue"] = detail.queue.iter().map(message).collect();
    body["subscriptions"] = detail.filters.iter().map(|filter| Value::from(&**filter)).collect();
    Ok(HttpResponse::Ok().json(body))
}

/// Returns the session of a client with its messages, and what its socket says.
///
/// # Errors
/// There is no such session, or its shard does not answer.
pub(crate) async fn find(
    state: &AdminState,
    observer: &Observer,
    target: &Target,
) -> Result<(SessionDetail, Option<SocketFacts>), Failed> {
    let query = Query::Session { client: target.session.clone() };
    let answer = ask(state, observer, target.shard(observer), query).await?;
    match answer.answer {
        QueryAnswer::Session(Some(detail)) => {
            let socket = answer.sockets.into_iter().next();
            Ok((*detail, socket))
        }
        _ => Err(Failed::NoSuchClient),
    }
}

/// Returns a session as JSON. Times are in seconds.
fn session(
    state: &AdminState,
    shard: usize,
    row: &SessionSummary,
    socket: Option<&SocketFacts>,
    observer: &Observer,
) -> Value {
    let now = clock::now();
    let listener = row.connection.and_then(|_| observer.listeners().get(usize::from(row.listener.0)));
    let listener = listener.map(OpenListener::label);
    let diagnosed = socket.and_then(|socket| socket.stall);
    let place = SessionPlace { shard: u8::try_from(shard).unwrap_or(u8::MAX), id: row.id };
    json!({
        "client_id": &*row.client_id,
        "ref": state.process().session_name(place),
        "user": row.user.as_deref(),
        "version": row.version.to_string(),
        "state": row.state(),
        "address": socket.map(|socket| &socket.address),
        "listener": listener,
        "session_expiry": row.expiry,
        "ends_in": until(now, row.ends),
        "in_flight": row.in_flight,
        "queued": row.queued,
        "queued_bytes": row.queued_bytes,
        "held": row.held,
        "subscription_count": row.subscriptions,
        "oldest_unacknowledged": row.oldest.map(|oldest| stall(&diagnosed.unwrap_or(oldest), diagnosed.is_some())),
        "next_deadline_in": until(now, row.due),
    })
}

fn stall(stall: &Stall, diagnosed: bool) -> Value {
    json!({
        "packet_id": stall.packet_id.get(),
        "age": stall.age.as_secs_f64(),
        "transmissions": stall.transmissions,
        "cause": diagnosed.then(|| stall.cause.name()),
        "detail": diagnosed.then(|| stall.cause.detail()),
        "unsent_bytes": diagnosed.then_some(stall.view.unsent),
    })
}

fn in_flight(row: &InFlightSummary) -> Value {
    json!({
        "packet_id": row.packet_id.get(),
        "waits_for": row.waits_for(),
        "age": row.age.as_secs_f64(),
        "transmissions": row.transmissions,
        "sent_on_this_connection": row.sent_here,
        "next_deadline_in": until(clock::now(), row.due),
        "message": row.message.as_ref().map(message),
    })
}

/// Returns a message as JSON.
pub(crate) fn message(row: &MessageSummary) -> Value {
    json!({
        "topic": &*row.topic,
        "qos": row.qos as u8,
        "payload_bytes": row.payload,
        "retain": row.retain,
        "expires_in": until(clock::now(), row.expires),
    })
}

/// Returns the seconds until a time, or null for never.
pub(crate) fn until(now: Instant, then: Instant) -> Option<f64> {
    (!then.is_never()).then(|| then.since(now).as_secs_f64())
}
