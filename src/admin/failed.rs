//! The reasons why a request has no answer, and the answer of each (RFC 9457).

use super::access::Scope;
use super::credentials::RefusedToken;
use super::problem::{problem_of, respond};
use super::problem_kind::ProblemKind;
use super::serving_node::ServingNode;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use std::fmt;

/// The reason why a request has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// A parameter is not valid.
    Parameter(String),
    /// The cursor is invalid, or belongs to another listing.
    Cursor,
    /// Nothing proves who asks.
    Unauthorized,
    /// The token is not in the file.
    UnknownToken,
    TokenEnded,
    /// The user, password, token or code of a login is not known.
    UnknownCredentials,
    /// Too many logins of this address failed.
    TooManyLogins,
    /// The request has the cookie of a login, and another site may have sent it.
    ForeignRequest,
    /// The caller's scope is too small; the needed scope.
    Forbidden(Scope),
    /// Nobody may see payloads.
    PayloadsHidden,
    /// There is no session of this client.
    NoSuchClient,
    /// There is no trace with this number.
    NoSuchTrace,
    /// There is no bridge of this name.
    NoSuchBridge,
    /// The client is away, so there is no connection to close.
    NotConnected,
    /// There is no such message any more.
    NoSuchMessage,
    /// The action does not fit the present state: the kind of the error, and a hint.
    Conflict(ProblemKind, String),
    /// A configuration or a file has these mistakes, so nothing is changed.
    Mistakes(Vec<String>),
    /// Memory or disk has no room for the change.
    NoRoom,
    /// The request was not complete in time.
    Late,
    /// A shard did not answer in time, or too many ask at once. Nothing was changed.
    Busy,
    /// A shard did not answer to an action in time, which may have been carried out.
    Unconfirmed,
    Starting,
    /// This node stands by, and another one serves.
    Standby(ServingNode),
}

impl Failed {
    pub(super) fn kind(&self) -> ProblemKind {
        self.parts().0
    }

    /// Returns the name of its kind, as the audit log has it.
    pub(super) fn slug(&self) -> &'static str {
        self.kind().facts().slug
    }

    /// Returns the kind of the error, and its detail.
    fn parts(&self) -> (ProblemKind, String) {
        let (kind, detail) = match self {
            Failed::Parameter(what) => return (ProblemKind::InvalidParameter, what.clone()),
            Failed::Conflict(kind, detail) => return (*kind, detail.clone()),
            Failed::Mistakes(mistakes) => {
                let detail = format!("nothing is changed: {}", mistakes.join("; "));
                return (ProblemKind::ConfigInvalid, detail);
            }
            Failed::Standby(serving) => return (ProblemKind::Standby, serving.to_string()),
            Failed::Forbidden(scope) => {
                return (ProblemKind::Forbidden, format!("this needs the scope {scope}"));
            }
            Failed::Cursor => {
                (ProblemKind::InvalidCursor, "the cursor is not one of this listing; begin again without it")
            }
            Failed::Unauthorized => (
                ProblemKind::Unauthorized,
                "send Authorization: Bearer TOKEN, log in, or use the Unix socket; `homing admin-token` makes a token, `homing admin-user` a user",
            ),
            Failed::UnknownToken => (
                ProblemKind::Unauthorized,
                "this token is not known: it is none of the file that admin.credentials names",
            ),
            Failed::TokenEnded => {
                (ProblemKind::Unauthorized, "this token has ended; `homing admin-token` makes another one")
            }
            Failed::UnknownCredentials => {
                (ProblemKind::UnknownCredentials, "the user is not known, or the password is another one")
            }
            Failed::TooManyLogins => (
                ProblemKind::TooManyLogins,
                "too many logins like this one from this address failed; try again in 5 minutes",
            ),
            Failed::ForeignRequest => (
                ProblemKind::ForeignRequest,
                "a request that changes something needs X-CSRF-Token with the text `csrf` of /api/v1/me, and must come from a page of this site",
            ),
            Failed::PayloadsHidden => (
                ProblemKind::Forbidden,
                "nobody may see payloads: admin.payloads of the configuration is never",
            ),
            Failed::NoSuchTrace => (
                ProblemKind::NoSuchTrace,
                "there is no trace with this number; the oldest ones are forgotten",
            ),
            Failed::NoSuchBridge => (
                ProblemKind::NoSuchBridge,
                "there is no bridge of this name; `homing ctl bridges` lists them",
            ),
            Failed::NoSuchClient => (ProblemKind::NoSuchClient, "there is no session of this client"),
            Failed::NotConnected => {
                (ProblemKind::NotConnected, "the client is away, so there is no connection to close")
            }
            Failed::NoSuchMessage => (
                ProblemKind::NoSuchMessage,
                "there is no such message; it is finished or has moved, so list the messages again",
            ),
            Failed::NoRoom => (
                ProblemKind::NoRoom,
                "memory or disk has no room for the change, see limits.memory and store.size_limit",
            ),
            Failed::Late => (ProblemKind::Late, "the request was not complete in time"),
            Failed::Busy => (ProblemKind::Busy, "the broker is busy; ask again later"),
            Failed::Unconfirmed => (
                ProblemKind::Unconfirmed,
                "no answer within 2 s; the action may have been carried out, so look before you try again",
            ),
            Failed::Starting => {
                (ProblemKind::Starting, "the broker starts, and clients cannot connect yet; ask again later")
            }
        };
        (kind, detail.to_owned())
    }
}

impl From<RefusedToken> for Failed {
    fn from(refused: RefusedToken) -> Failed {
        match refused {
            RefusedToken::Unknown => Failed::UnknownToken,
            RefusedToken::Ended => Failed::TokenEnded,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().1)
    }
}

impl std::error::Error for Failed {}

impl ResponseError for Failed {
    fn status_code(&self) -> StatusCode {
        self.kind().facts().status
    }

    fn error_response(&self) -> HttpResponse {
        let (kind, detail) = self.parts();
        let mut problem = problem_of(kind, kind.facts().status, &detail);
        if let Failed::Mistakes(mistakes) = self {
            problem.mistakes = Some(mistakes.clone());
        }
        if let Failed::Standby(ServingNode { owner, pages }) = self {
            (problem.owner, problem.admin) = (owner.clone(), pages.clone());
        }
        let mut answer = respond(&problem);
        let retry_after = match kind {
            ProblemKind::TooManyLogins => Some("300"),
            ProblemKind::Busy
            | ProblemKind::QuotaExceeded
            | ProblemKind::ShareUsed
            | ProblemKind::Standby
            | ProblemKind::Starting => Some("1"),
            _ => None,
        };
        if let Some(seconds) = retry_after {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        answer
    }
}
