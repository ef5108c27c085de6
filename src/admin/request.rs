//! A request: who asks, and with which parameters.
//!
//! The table of routes admits the caller of a request for programs before its handler runs. So a
//! handler that needs the caller takes an [`Asker`], and no handler can forget the scope.

use super::access::{Caller, PeerUser, Scope};
use super::failed::Failed;
use super::state::AdminState;
use actix_web::HttpRequest;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{Data, QueryConfig, ReqData};

/// Characters of a note at most.
const NOTE: usize = 256;

/// The caller of a request, whom the table of routes has admitted.
pub(super) type Asker = ReqData<Caller>;

/// Returns the rule that a query string with a mistake is a problem with its name.
pub(super) fn query_config() -> QueryConfig {
    QueryConfig::default().error_handler(|error, _| Failed::Parameter(error.to_string()).into())
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

/// Returns true if a caller is still admitted. A caller does not outlive its token. A user of the
/// Unix socket has no token.
pub(super) fn still_admits(state: &AdminState, caller: &Caller) -> bool {
    caller.is_of_socket() || state.tokens().has(caller)
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
pub(super) fn parse_query<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failed> {
    let query = actix_web::web::Query::<T>::from_query(text);
    query.map(actix_web::web::Query::into_inner).map_err(|error| Failed::Parameter(error.to_string()))
}

/// Returns the number of rows that a request asks for: 1 to `most`, and `default` if it names none.
///
/// # Errors
/// The number is none of them.
pub(super) fn limit_of(given: Option<usize>, default: usize, most: usize) -> Result<usize, Failed> {
    let limit = given.unwrap_or(default);
    if (1..=most).contains(&limit) {
        Ok(limit)
    } else {
        Err(Failed::Parameter(format!("limit is {limit}, and must be 1 to {most}")))
    }
}

/// Returns the note of an operator for the audit log; empty for none.
///
/// # Errors
/// The note is too long.
pub(super) fn note_of(given: Option<String>) -> Result<String, Failed> {
    let note = given.unwrap_or_default();
    if note.chars().count() > NOTE {
        return Err(Failed::Parameter(format!("note has more than {NOTE} characters")));
    }
    Ok(note)
}
