//! The reasons why a request has no answer, and the answer of each (RFC 9457).

use super::access::Scope;
use super::problem::problem;
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
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
