//! The routes of the HTTP interface.

pub(super) mod actions;
pub(super) mod audit;
pub(super) mod clients;
pub(super) mod config;
pub(super) mod expiry;
pub(super) mod health;
pub(super) mod log_level;
pub(super) mod login_code;
pub(super) mod messages;
pub(super) mod metrics;
pub(super) mod overview;
pub(super) mod slo;
pub(super) mod topics;
pub(super) mod traces;
pub(super) mod whereabouts;

use super::access::{Caller, PeerUser, Scope};
use super::problem::problem;
use super::state::AdminState;
use crate::broker::observer::Observer;
use crate::broker::question::ShardAnswer;
use crate::shard::observe::query::Query;
use actix_web::http::StatusCode;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use std::fmt;

/// The reason why a request has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// A parameter is not valid.
    Parameter(String),
    /// The cursor is none, or belongs to another listing.
    Cursor,
    /// Nothing proves who asks.
    Unauthorized,
    /// The caller's scope is too small; this one is needed.
    Forbidden(Scope),
    /// There is no session of this client.
    NoSuchClient,
    /// There is no trace with this number.
    NoSuchTrace,
    /// The client is away, so there is no connection to close.
    NotConnected,
    /// There is no such message any more.
    NoSuchMessage,
    /// The action does not fit the present state: the kind of the error, and what would fit.
    Conflict(&'static str, String),
    /// Memory or disk has no room for the change.
    NoRoom,
    /// The request was not complete in time.
    Late,
    /// A shard did not answer in time, or too many ask at once.
    Busy,
    /// The broker starts.
    Starting,
}

impl Failed {
    fn parts(&self) -> (StatusCode, &'static str, String) {
        match self {
            Failed::Parameter(what) => (StatusCode::BAD_REQUEST, "invalid-parameter", what.clone()),
            Failed::Cursor => (
                StatusCode::BAD_REQUEST,
                "invalid-cursor",
                "the cursor is not one of this listing; begin again without it".to_owned(),
            ),
            Failed::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "send Authorization: Bearer TOKEN, or use the Unix socket; `homing admin-token` makes a token"
                    .to_owned(),
            ),
            Failed::Forbidden(scope) => {
                (StatusCode::FORBIDDEN, "forbidden", format!("this needs the scope {scope}"))
            }
            Failed::NoSuchTrace => {
                let detail = "there is no trace with this number; the oldest ones are forgotten";
                (StatusCode::NOT_FOUND, "no-such-trace", detail.to_owned())
            }
            Failed::NoSuchClient => {
                (StatusCode::NOT_FOUND, "no-such-client", "there is no session of this client".to_owned())
            }
            Failed::NotConnected => {
                let detail = "the client is away, so there is no connection to close";
                (StatusCode::CONFLICT, "not-connected", detail.to_owned())
            }
            Failed::NoSuchMessage => {
                let detail = "there is no such message; it is finished or has moved, so list the messages again";
                (StatusCode::NOT_FOUND, "no-such-message", detail.to_owned())
            }
            Failed::Conflict(slug, detail) => (StatusCode::CONFLICT, slug, detail.clone()),
            Failed::NoRoom => {
                let detail = "memory or disk has no room for the change, see limits.memory and store.size_limit";
                (StatusCode::SERVICE_UNAVAILABLE, "no-room", detail.to_owned())
            }
            Failed::Late => {
                (StatusCode::REQUEST_TIMEOUT, "late", "the request was not complete in time".to_owned())
            }
            Failed::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, "busy", "the broker is busy; ask again later".to_owned())
            }
            Failed::Starting => {
                (StatusCode::SERVICE_UNAVAILABLE, "starting", "the broker starts; ask again later".to_owned())
            }
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().2)
    }
}

impl std::error::Error for Failed {}

impl ResponseError for Failed {
    fn status_code(&self) -> StatusCode {
        self.parts().0
    }

    fn error_response(&self) -> HttpResponse {
        let (status, slug, detail) = self.parts();
        problem(status, slug, &detail)
    }
}

/// Returns the caller, who must have this scope.
///
/// # Errors
/// Nothing proves who asks, or the scope is too small.
pub(super) fn caller(request: &HttpRequest, needed: Scope) -> Result<Caller, Failed> {
    let caller = known(request).ok_or(Failed::Unauthorized)?;
    permit(&caller, needed)?;
    Ok(caller)
}

/// Checks that a caller has this scope.
///
/// # Errors
/// The scope is too small.
pub(super) fn permit(caller: &Caller, needed: Scope) -> Result<(), Failed> {
    if caller.scope < needed { Err(Failed::Forbidden(needed)) } else { Ok(()) }
}

fn known(request: &HttpRequest) -> Option<Caller> {
    if let Some(user) = request.conn_data::<PeerUser>() {
        return Some(user.caller());
    }
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let token = header.strip_prefix("Bearer ")?;
    request.app_data::<Data<AdminState>>()?.tokens().caller(token)
}

/// Reads the query string.
///
/// # Errors
/// A parameter is unknown, or its value cannot be read.
pub(super) fn read_query<T: serde::de::DeserializeOwned>(request: &HttpRequest) -> Result<T, Failed> {
    parse_query(request.query_string())
}

/// Reads the text of a query string.
///
/// # Errors
/// As [`read_query`].
fn parse_query<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failed> {
    let query = actix_web::web::Query::<T>::from_query(text);
    query.map(actix_web::web::Query::into_inner).map_err(|error| Failed::Parameter(error.to_string()))
}

/// Returns the number of rows that a request asks for: 1 to `most`, and `default` if it names none.
///
/// # Errors
/// The number is none of them.
fn limit_of(given: Option<usize>, default: usize, most: usize) -> Result<usize, Failed> {
    let limit = given.unwrap_or(default);
    if (1..=most).contains(&limit) {
        Ok(limit)
    } else {
        Err(Failed::Parameter(format!("limit is {limit}, and must be 1 to {most}")))
    }
}

/// Asks a shard. One question is under way for each shard, whatever the number of callers, so that
/// questions never hold up a shard's sockets. Further callers wait their turn.
///
/// # Errors
/// Too many wait, or the shard does not answer in time.
async fn ask(
    state: &AdminState,
    observer: &Observer,
    shard: usize,
    query: Query,
) -> Result<ShardAnswer, Failed> {
    let _turn = state.turn(shard).await.ok_or(Failed::Busy)?;
    observer.ask(shard, query).await.map_err(|_| Failed::Busy)
}
