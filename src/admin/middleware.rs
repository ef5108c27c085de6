//! Middleware of every request: its time, its number, the headers of its answer, and its count.

use super::access::PeerUser;
use super::failed::Failed;
use super::pages::entry::PageReader;
use super::pages::page;
use super::problem::{problem_answer, problem_of, respond};
use super::problem_kind::ProblemKind;
use super::request_origin::RequestNumber;
use super::state::AdminState;
use super::unread_body;
use crate::clock;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage, ResponseError};
use std::time::Duration;

/// Time for the head of a request. A thousand clients that send one byte a second hold all places
/// for 1,000 / 256 times as long: 12 s. A TLS handshake before it may take as long again.
pub(super) const HEAD: Duration = Duration::from_secs(3);

/// Time for a whole request, with its body and the answers of the shards.
const REQUEST: Duration = Duration::from_secs(10);

/// Time for a whole request of somebody who proves nothing. Otherwise a slow body would hold a
/// place for three times as long as a slow head. No request that everybody may make waits for a
/// shard.
const UNPROVEN_REQUEST: Duration = HEAD;

/// Headers of every answer. No answer may be stored, framed, or load anything from elsewhere.
const HEADERS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
];

/// The header of an answer that has the number of its request. The audit log has the number, too.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Refuses a request whose Host is not this interface, and one whose body has no length. No answer
/// may be stored.
pub(super) async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let number = request.app_data::<Data<AdminState>>().map_or(0, |state| state.next_request());
    request.extensions_mut().insert(RequestNumber(number));
    // No name is resolved to a Unix socket.
    let is_unix = request.conn_data::<PeerUser>().is_some();
    let own = is_unix
        || request.app_data::<Data<AdminState>>().is_some_and(|state| {
            let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
            host.is_some_and(|host| state.is_own_host(host))
        });
    let mut response = if unread_body::has_no_length(&request) {
        unread_body::refuse(request)
    } else if own {
        if let Some(state) = request.app_data::<Data<AdminState>>().filter(|_| shows_something(&request)) {
            state.credentials.look().await;
        }
        // A publisher has proven who asks, and may not look.
        let proven = matches!(PageReader::of(request.request()), Ok(_) | Err(Failed::Forbidden(_)));
        let time = if proven { REQUEST } else { UNPROVEN_REQUEST };
        // Keeps no copy of the request, because the router needs the only one.
        match tokio::time::timeout(time, answered(request, next)).await {
            Ok(response) => response?,
            Err(_) => return Err(late(number)),
        }
    } else {
        let detail = "the Host header names neither loopback, nor an address of this interface, nor a name in admin.hosts";
        request.into_response(problem_answer(ProblemKind::ForeignHost, detail))
    };
    add_headers(response.headers_mut(), number);
    Ok(response)
}

/// Returns true if a request may show a credential: a token, a login, or a form of one.
fn shows_something(request: &ServiceRequest) -> bool {
    let has = |name| request.headers().contains_key(name);
    has(AUTHORIZATION) || has(COOKIE) || !request.method().is_safe()
}

/// Returns the answer to a request that was not complete in time. The answer is an error, because
/// the request is gone.
fn late(number: u64) -> Error {
    let mut response = Failed::Late.error_response();
    add_headers(response.headers_mut(), number);
    InternalError::from_response(Failed::Late, response).into()
}

/// Adds the headers of every answer: those that are fixed, and the number of the request.
fn add_headers(headers: &mut HeaderMap, number: u64) {
    headers.insert(REQUEST_ID, HeaderValue::from(number));
    for (name, value) in HEADERS {
        // The files of the pages are the only answers that may be stored.
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// Returns the answer to a request: an error in the form that its reader expects.
async fn answered(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse, Error> {
    let response = next.call(request).await?.map_into_boxed_body();
    Ok(page::framed(in_own_words(response)).await)
}

/// Returns a problem in place of an error that the HTTP server found in a request for programs,
/// such as an invalid trace number. Other responses are unchanged.
fn in_own_words(response: ServiceResponse) -> ServiceResponse {
    let found = response.response().error().filter(|error| error.as_error::<Failed>().is_none());
    let Some(found) = found.filter(|_| page::is_for_programs(response.request().path())) else {
        return response;
    };
    let body = problem_of(ProblemKind::InvalidRequest, response.status(), &found.to_string());
    response.into_response(respond(&body))
}

/// Counts a request and its duration.
pub(super) async fn count(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let began = clock::nanos();
    let state = request.app_data::<Data<AdminState>>().cloned();
    let answer = next.call(request).await;
    let took = Duration::from_nanos(clock::nanos().saturating_sub(began));
    let (route, status) = match &answer {
        Ok(response) => (response.request().match_pattern(), response.status()),
        Err(error) => (None, error.as_response_error().status_code()),
    };
    if let Some(state) = state {
        state.requests.count(route, status.as_u16(), took);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::StatusCode;

    #[test]
    fn the_answer_to_a_late_request_has_the_headers_of_every_answer() {
        let error = late(7);
        assert_eq!(error.as_response_error().status_code(), StatusCode::REQUEST_TIMEOUT);
        let answer = error.error_response();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
        for (name, value) in HEADERS {
            assert_eq!(answer.headers().get(&name).map(HeaderValue::as_bytes), Some(value.as_bytes()));
        }
    }
}
