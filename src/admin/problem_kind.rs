//! The kinds of error answers: a table.

use actix_web::http::StatusCode;

/// The fixed facts of a kind of error.
pub(super) struct ProblemFacts {
    /// The status of the answer.
    pub(super) status: StatusCode,
    /// The end of the `type`. The slug never changes.
    pub(super) slug: &'static str,
    /// The meaning of the error, and the suggested fix.
    pub(super) meaning: &'static str,
}

/// Makes the enum, the list of its values and their facts from one table, so that no kind can be
/// missing.
macro_rules! problem_kinds {
    ($($kind:ident: $status:ident, $slug:literal, $meaning:literal;)*) => {
        /// The kind of an error. The `type` of an answer is a path that explains it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum ProblemKind {
            $($kind,)*
        }

        impl ProblemKind {
            /// Every kind, by status.
            pub(super) const ALL: &'static [ProblemKind] = &[$(ProblemKind::$kind,)*];

            /// Returns the fixed facts of the kind.
            pub(super) const fn facts(self) -> ProblemFacts {
                let (status, slug, meaning) = match self {
                    $(ProblemKind::$kind => (StatusCode::$status, $slug, $meaning),)*
                };
                ProblemFacts { status, slug, meaning }
            }
        }
    };
}

problem_kinds! {
    InvalidParameter: BAD_REQUEST, "invalid-parameter",
        "A parameter, or a field of the body, is unknown or has a value that it cannot have. \
        `detail` names it and the values that it can have.";
    InvalidCursor: BAD_REQUEST, "invalid-cursor",
        "A cursor is valid for its own listing with its own filter. Begin again without a cursor.";
    InvalidRequest: BAD_REQUEST, "invalid-request",
        "The request cannot be read, so that no path has looked at it. The status says more: 404 \
        for a part of the path that cannot be, 413 for a body of more than 64 KiB, or of 1 MiB for \
        `/api/v1/publish`.";
    Unauthorized: UNAUTHORIZED, "unauthorized",
        "Nothing proves who asks. Send a token of `homing admin-token` as `Authorization: Bearer \
        TOKEN`, log in as a user of `homing admin-user`, or use the Unix socket.";
    UnknownCredentials: UNAUTHORIZED, "unknown-credentials",
        "The user of a login is not known, or the password is another one. `admin.credentials` names \
        the file of users.";
    Forbidden: FORBIDDEN, "forbidden",
        "The scope of the caller is too small, and `detail` names the scope that the request needs; or \
        the configuration forbids the request to everybody, and `detail` names the key.";
    ForeignHost: FORBIDDEN, "foreign-host",
        "The Host header must name a loopback address, an address of the interface, or a name in \
        `admin.hosts`. So a page of another site cannot reach the interface through a browser.";
    ForeignRequest: FORBIDDEN, "foreign-request",
        "The request has the cookie of a login and changes something, or is a login itself. It must \
        come from a page of this site, and with a cookie it needs the header `X-CSRF-Token`: the text \
        `csrf` of `/api/v1/login` and `/api/v1/me`. So no other site can act through a browser.";
    NotFound: NOT_FOUND, "not-found",
        "There is no such path, or no such kind of error. `/api/v1/docs` has all paths.";
    NoSuchClient: NOT_FOUND, "no-such-client",
        "There is no session of this client. It has ended, or the client id is another. A `/` in a \
        client id is written as `%2F`.";
    NoSuchMessage: NOT_FOUND, "no-such-message",
        "The message is finished or has moved, for example from the queue into the in-flight \
        window. List the messages again.";
    NoSuchTrace: NOT_FOUND, "no-such-trace",
        "There is no trace with this number. It was deleted, or newer traces needed its room.";
    NoSuchBridge: NOT_FOUND, "no-such-bridge",
        "No `[[bridges]]` of the configuration has this name.";
    NoSuchEntry: NOT_FOUND, "no-such-entry",
        "The file has no user, ban or token of this name.";
    MethodNotAllowed: METHOD_NOT_ALLOWED, "method-not-allowed",
        "The path takes other methods. The header `Allow` names them.";
    Late: REQUEST_TIMEOUT, "late",
        "The request was not complete within 10 s. An action may be carried out all the same; look \
        before you try again.";
    LengthRequired: LENGTH_REQUIRED, "length-required",
        "A body needs the header `Content-Length`. One in chunks (`Transfer-Encoding`) is refused, \
        because it may never end.";
    NotConnected: CONFLICT, "not-connected",
        "The client is away, so there is no connection to close. Its messages wait for its return.";
    ResendForbidden: CONFLICT, "resend-forbidden",
        "MQTT 5.0 forbids to send a packet again on its connection [MQTT-4.4.0-1]. Redeliver with \
        `by=disconnect`: the messages are sent again when the client returns.";
    SessionEnds: CONFLICT, "session-ends",
        "The session ends with its connection, so a disconnect would drop the messages that it was \
        to deliver again.";
    AlreadyReceived: CONFLICT, "already-received",
        "PUBREC came, so the receiver has the message. Only PUBCOMP is awaited.";
    CannotPark: CONFLICT, "cannot-park",
        "The message cannot become a dead letter. `detail` says why. The message stays where it is.";
    CannotRepublish: CONFLICT, "cannot-republish",
        "Nobody would take the message. `detail` says why. It stays a dead letter.";
    ReservedTopic: CONFLICT, "reserved-topic",
        "The broker itself publishes this topic, and would publish it again.";
    NoFile: CONFLICT, "no-file",
        "The configuration names no file to change. `detail` names the key, and what decides instead.";
    FileUnusable: CONFLICT, "file-unusable",
        "The broker cannot read the file, or the system does not let it write the file; `detail` says why. \
        The file is unchanged. The broker needs the permission to write to the folder of the file.";
    OtherVersion: PRECONDITION_FAILED, "other-version",
        "The file was changed since it was read. Read it again, and make the change again.";
    ConfigInvalid: UNPROCESSABLE_ENTITY, "config-invalid",
        "The configuration or one of its files has mistakes, so nothing is changed. `mistakes` has \
        all of them, for files with their lines.";
    MessageRefused: UNPROCESSABLE_ENTITY, "message-refused",
        "The broker does not publish the message. `detail` has the reason that a PUBACK would have, and \
        the fault. The same message is refused again.";
    TooManyLogins: TOO_MANY_REQUESTS, "too-many-logins",
        "Five logins of the user from this address failed within a minute, or eighty with any names. Such \
        passwords are refused for five minutes. Valid tokens are admitted.";
    QuotaExceeded: TOO_MANY_REQUESTS, "quota-exceeded",
        "The message is not published, or not retained: each receiver has a full queue, or a limit of \
        memory, disk, retained or delayed messages is reached. Publish it again later.";
    ShareUsed: TOO_MANY_REQUESTS, "share-used",
        "This token or user has as many requests, live streams or unanswered messages under way as one may \
        have. `detail` says which, and how many. Nothing is published. Others have places left.";
    Busy: SERVICE_UNAVAILABLE, "busy",
        "Too many ask at once, or a thread of the broker did not answer in time. Ask again later.";
    NoRoom: SERVICE_UNAVAILABLE, "no-room",
        "Memory or disk has no room for the change, see `limits.memory` and `store.size_limit`.";
    Starting: SERVICE_UNAVAILABLE, "starting",
        "The broker starts, and clients cannot connect yet. Ask again later.";
    Standby: SERVICE_UNAVAILABLE, "standby",
        "The node stands by in a cluster, and another one serves: `owner` is its name, and `admin` the URL \
        of its interface. Nothing is passed on, because a token never travels between nodes.";
    Unconfirmed: GATEWAY_TIMEOUT, "unconfirmed",
        "A thread of the broker, or the disk, did not answer in time: 2 s for an action, 8 s for a \
        message. It may have been carried out, or may still be; look before you try again.";
}

impl ProblemKind {
    pub(super) fn of_slug(slug: &str) -> Option<ProblemKind> {
        ProblemKind::ALL.iter().copied().find(|kind| kind.facts().slug == slug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slug_of_a_kind_names_it_alone() {
        for kind in ProblemKind::ALL {
            assert_eq!(ProblemKind::of_slug(kind.facts().slug), Some(*kind));
        }
        assert_eq!(ProblemKind::of_slug("no-such-slug"), None);
    }
}
