//! Error answers as RFC 9457 has them: `application/problem+json`.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde_json::{Value, json};

/// The content type of RFC 9457.
const PROBLEM_JSON: &str = "application/problem+json";

/// The kind of an error. The `type` of an answer is a path that explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    InvalidParameter,
    InvalidCursor,
    InvalidRequest,
    Unauthorized,
    Forbidden,
    ForeignHost,
    NotFound,
    NoSuchClient,
    NoSuchMessage,
    NoSuchTrace,
    MethodNotAllowed,
    Late,
    LengthRequired,
    NotConnected,
    ResendForbidden,
    SessionEnds,
    AlreadyReceived,
    CannotPark,
    CannotRepublish,
    ReservedTopic,
    ConfigInvalid,
    Busy,
    NoRoom,
    Starting,
}

/// What is fixed for a kind of error.
pub(super) struct ProblemFacts {
    /// The status of the answer.
    pub(super) status: StatusCode,
    /// The end of the `type`. It never changes.
    pub(super) slug: &'static str,
    /// What the error means, and what to do.
    pub(super) meaning: &'static str,
}

impl ProblemKind {
    /// Every kind, by status.
    pub(super) const ALL: [ProblemKind; 24] = [
        ProblemKind::InvalidParameter,
        ProblemKind::InvalidCursor,
        ProblemKind::InvalidRequest,
        ProblemKind::Unauthorized,
        ProblemKind::Forbidden,
        ProblemKind::ForeignHost,
        ProblemKind::NotFound,
        ProblemKind::NoSuchClient,
        ProblemKind::NoSuchMessage,
        ProblemKind::NoSuchTrace,
        ProblemKind::MethodNotAllowed,
        ProblemKind::Late,
        ProblemKind::LengthRequired,
        ProblemKind::NotConnected,
        ProblemKind::ResendForbidden,
        ProblemKind::SessionEnds,
        ProblemKind::AlreadyReceived,
        ProblemKind::CannotPark,
        ProblemKind::CannotRepublish,
        ProblemKind::ReservedTopic,
        ProblemKind::ConfigInvalid,
        ProblemKind::Busy,
        ProblemKind::NoRoom,
        ProblemKind::Starting,
    ];

    /// Returns what is fixed for the kind.
    pub(super) const fn facts(self) -> ProblemFacts {
        let (status, slug, meaning) = match self {
            ProblemKind::InvalidParameter => (
                StatusCode::BAD_REQUEST,
                "invalid-parameter",
                "A parameter, or a field of the body, is unknown or has a value that it cannot have. `detail` names it and the values that it can have.",
            ),
            ProblemKind::InvalidCursor => (
                StatusCode::BAD_REQUEST,
                "invalid-cursor",
                "A cursor is valid for its own listing with its own filter. Begin again without a cursor.",
            ),
            ProblemKind::InvalidRequest => (
                StatusCode::BAD_REQUEST,
                "invalid-request",
                "The request cannot be read, so that no path has looked at it. The status says more: 404 for a part of the path that cannot be, 413 for a body of more than 64 KiB.",
            ),
            ProblemKind::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "Nothing proves who asks. Send a token of `homing admin-token` as `Authorization: Bearer TOKEN`, or use the Unix socket.",
            ),
            ProblemKind::Forbidden => (
                StatusCode::FORBIDDEN,
                "forbidden",
                "The scope of the token is too small. `detail` names the scope that the request needs.",
            ),
            ProblemKind::ForeignHost => (
                StatusCode::FORBIDDEN,
                "foreign-host",
                "The Host header must name a loopback address, an address of the interface, or a name in `admin.hosts`. So a page of another site cannot reach the interface through a browser.",
            ),
            ProblemKind::NotFound => (
                StatusCode::NOT_FOUND,
                "not-found",
                "There is no such path, or no such kind of error. `/api/v1/docs` has all paths.",
            ),
            ProblemKind::NoSuchClient => (
                StatusCode::NOT_FOUND,
                "no-such-client",
                "There is no session of this client. It has ended, or the client id is another. A `/` in a client id is written as `%2F`.",
            ),
            ProblemKind::NoSuchMessage => (
                StatusCode::NOT_FOUND,
                "no-such-message",
                "The message is finished or has moved, for example from the queue into the in-flight window. List the messages again.",
            ),
            ProblemKind::NoSuchTrace => (
                StatusCode::NOT_FOUND,
                "no-such-trace",
                "There is no trace with this number. It was deleted, or newer traces needed its room.",
            ),
            ProblemKind::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "The path takes other methods. The header `Allow` names them.",
            ),
            ProblemKind::Late => (
                StatusCode::REQUEST_TIMEOUT,
                "late",
                "The request was not complete within 10 s. An action may be carried out all the same; look before you try again.",
            ),
            ProblemKind::LengthRequired => (
                StatusCode::LENGTH_REQUIRED,
                "length-required",
                "A body needs the header `Content-Length`. One in chunks (`Transfer-Encoding`) is refused, because it may never end.",
            ),
            ProblemKind::NotConnected => (
                StatusCode::CONFLICT,
                "not-connected",
                "The client is away, so there is no connection to close. Its messages wait for its return.",
            ),
            ProblemKind::ResendForbidden => (
                StatusCode::CONFLICT,
                "resend-forbidden",
                "MQTT 5.0 forbids to send a packet again on its connection [MQTT-4.4.0-1]. Redeliver with `by=disconnect`: the messages are sent again when the client returns.",
            ),
            ProblemKind::SessionEnds => (
                StatusCode::CONFLICT,
                "session-ends",
                "The session ends with its connection, so a disconnect would drop the messages that it was to deliver again.",
            ),
            ProblemKind::AlreadyReceived => (
                StatusCode::CONFLICT,
                "already-received",
                "PUBREC came, so the receiver has the message. Only PUBCOMP is awaited.",
            ),
            ProblemKind::CannotPark => (
                StatusCode::CONFLICT,
                "cannot-park",
                "The message cannot become a dead letter. `detail` says why. The message stays where it is.",
            ),
            ProblemKind::CannotRepublish => (
                StatusCode::CONFLICT,
                "cannot-republish",
                "Nobody would take the message. `detail` says why. It stays a dead letter.",
            ),
            ProblemKind::ReservedTopic => (
                StatusCode::CONFLICT,
                "reserved-topic",
                "The broker itself publishes this topic, and would publish it again.",
            ),
            ProblemKind::ConfigInvalid => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "config-invalid",
                "The configuration or one of its files has mistakes, so nothing is changed. `mistakes` has all of them.",
            ),
            ProblemKind::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "Too many ask at once, or a thread of the broker did not answer in time. Ask again later.",
            ),
            ProblemKind::NoRoom => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no-room",
                "Memory or disk has no room for the change, see `limits.memory` and `store.size_limit`.",
            ),
            ProblemKind::Starting => (
                StatusCode::SERVICE_UNAVAILABLE,
                "starting",
                "The broker starts, and clients cannot connect yet. Ask again later.",
            ),
        };
        ProblemFacts { status, slug, meaning }
    }

    /// Returns the kind with a slug.
    pub(super) fn of_slug(slug: &str) -> Option<ProblemKind> {
        ProblemKind::ALL.into_iter().find(|kind| kind.facts().slug == slug)
    }
}

/// Returns an error answer. `detail` says what is wrong and what would be right.
pub(super) fn problem(kind: ProblemKind, detail: &str) -> HttpResponse {
    respond(&problem_body(kind, kind.facts().status, detail))
}

/// Returns the fields that every error answer has.
pub(super) fn problem_body(kind: ProblemKind, status: StatusCode, detail: &str) -> Value {
    let title = status.canonical_reason().unwrap_or_default();
    json!({
        "type": format!("/api/problems/{}", kind.facts().slug),
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    })
}

/// Returns an error answer with this body, and the status that the body names.
pub(super) fn respond(body: &Value) -> HttpResponse {
    let status = body["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status).content_type(PROBLEM_JSON).body(body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_in_the_list_once_and_its_slug_names_it() {
        for (at, kind) in ProblemKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?} stands at its own place");
            assert_eq!(ProblemKind::of_slug(kind.facts().slug), Some(kind));
        }
        assert_eq!(ProblemKind::Starting as usize + 1, ProblemKind::ALL.len());
        assert_eq!(ProblemKind::of_slug("no-such-slug"), None);
    }
}
