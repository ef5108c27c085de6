//! Counts the events of one shard's clients: connects, disconnects, logins and sessions.
//!
//! Nothing here is on the way of a message.

use crate::events::client_events::{DisconnectKind, Occurrence};
use crate::login::authentication::AuthDecision;
use crate::mqtt::packet::ReasonCode;
use crate::named_enum::named_enum;

/// The results of CONNECT that have a label of their own: the reason codes of CONNACK that the
/// broker uses, and the name of each label.
// 5.0 section 3.2.2.2
pub const CONNECT_RESULTS: [(ReasonCode, &str); 16] = [
    (ReasonCode::SUCCESS, "success"),
    (ReasonCode::UNSPECIFIED_ERROR, "unspecified_error"),
    (ReasonCode::MALFORMED_PACKET, "malformed_packet"),
    (ReasonCode::PROTOCOL_ERROR, "protocol_error"),
    (ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "implementation_specific_error"),
    (ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, "unsupported_protocol_version"),
    (ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, "client_identifier_not_valid"),
    (ReasonCode::BAD_USER_NAME_OR_PASSWORD, "bad_user_name_or_password"),
    (ReasonCode::NOT_AUTHORIZED, "not_authorized"),
    (ReasonCode::SERVER_UNAVAILABLE, "server_unavailable"),
    (ReasonCode::SERVER_BUSY, "server_busy"),
    (ReasonCode::BANNED, "banned"),
    (ReasonCode::BAD_AUTHENTICATION_METHOD, "bad_authentication_method"),
    (ReasonCode::PACKET_TOO_LARGE, "packet_too_large"),
    (ReasonCode::QUOTA_EXCEEDED, "quota_exceeded"),
    (ReasonCode::CONNECTION_RATE_EXCEEDED, "connection_rate_exceeded"),
];

/// The label of all other reason codes.
pub const OTHER_RESULT: &str = "other";

named_enum! {
    /// The result of a login: the decision about the credentials of a CONNECT.
    pub enum LoginResult {
        /// The credentials are right.
        Allowed = "allowed",
        /// The credentials are wrong.
        Denied = "denied",
        /// Too many logins from the address have failed.
        Blocked = "blocked",
        /// The authenticator had too much to do, or could not decide.
        Unavailable = "unavailable",
    }
}

impl LoginResult {
    /// Returns the result of a decision, or `None` if the client has to answer a challenge first.
    pub(crate) const fn of(decision: &AuthDecision) -> Option<LoginResult> {
        match decision {
            AuthDecision::Allow(_) => Some(LoginResult::Allowed),
            AuthDecision::Challenge(_) => None,
            AuthDecision::Deny(_) => Some(LoginResult::Denied),
            AuthDecision::Blocked => Some(LoginResult::Blocked),
            AuthDecision::Busy | AuthDecision::Unavailable(_) => Some(LoginResult::Unavailable),
        }
    }
}

named_enum! {
    /// The cause of the end of a session.
    pub enum SessionEnd {
        /// Its connection ended, and its Session Expiry Interval was 0.
        Disconnected = "disconnected",
        /// Its Session Expiry Interval ran out.
        Expired = "expired",
        /// The client connected anew and did not resume it.
        CleanStart = "clean_start",
        /// An operator ended it.
        Operator = "operator",
    }
}

/// Counts of clients' events.
#[derive(Clone, Debug, Default)]
pub struct ClientCounts {
    connects: [u64; CONNECT_RESULTS.len() + 1],
    disconnects: [u64; DisconnectKind::ALL.len()],
    logins: [u64; LoginResult::ALL.len()],
    sessions_ended: [u64; SessionEnd::ALL.len()],
    /// Sessions that began.
    pub sessions_created: u64,
    /// Sessions to which their clients returned.
    pub sessions_resumed: u64,
}

impl ClientCounts {
    /// Counts an event, if it is the end of a CONNECT or of a connection.
    pub(crate) fn count(&mut self, occurrence: &Occurrence) {
        match occurrence {
            Occurrence::Connected { .. } => self.connected(ReasonCode::SUCCESS),
            Occurrence::Refused { reason, .. } => self.connected(*reason),
            Occurrence::Disconnected(cause) => self.disconnects[cause.kind() as usize] += 1,
            _ => {}
        }
    }

    fn connected(&mut self, reason: ReasonCode) {
        let place = CONNECT_RESULTS.iter().position(|(code, _)| *code == reason);
        self.connects[place.unwrap_or(CONNECT_RESULTS.len())] += 1;
    }

    /// Counts the decision about the credentials of a CONNECT.
    pub(crate) fn login(&mut self, decision: &AuthDecision) {
        if let Some(result) = LoginResult::of(decision) {
            self.logins[result as usize] += 1;
        }
    }

    /// Counts the end of a session.
    pub(crate) fn session_ended(&mut self, cause: SessionEnd) {
        self.sessions_ended[cause as usize] += 1;
    }

    /// Iterates over the results of CONNECT: label and count.
    pub fn connects(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = CONNECT_RESULTS.iter().map(|(_, name)| *name).chain([OTHER_RESULT]);
        names.zip(self.connects)
    }

    /// Iterates over the causes of disconnects: label and count.
    pub fn disconnects(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DisconnectKind::ALL.map(DisconnectKind::name).into_iter().zip(self.disconnects)
    }

    /// Returns the number of logins with this result.
    pub fn logins(&self, result: LoginResult) -> u64 {
        self.logins[result as usize]
    }

    /// Returns the number of sessions that ended for this cause.
    pub fn sessions_ended(&self, cause: SessionEnd) -> u64 {
        self.sessions_ended[cause as usize]
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &ClientCounts) {
        fn add(counts: &mut [u64], more: &[u64]) {
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        // Without `..`: a new count that is not added does not compile.
        let ClientCounts {
            connects,
            disconnects,
            logins,
            sessions_ended,
            sessions_created,
            sessions_resumed,
        } = other;
        add(&mut self.connects, connects);
        add(&mut self.disconnects, disconnects);
        add(&mut self.logins, logins);
        add(&mut self.sessions_ended, sessions_ended);
        self.sessions_created += sessions_created;
        self.sessions_resumed += sessions_resumed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::client_events::DisconnectCause;

    #[test]
    fn each_connect_and_each_disconnect_counts_under_one_label() {
        let mut counts = ClientCounts::default();
        let refused = |reason| Occurrence::Refused { reason, what: "".into(), user_name: None };
        counts.count(&refused(ReasonCode::BANNED));
        counts.count(&refused(ReasonCode::USE_ANOTHER_SERVER));
        counts.count(&Occurrence::Disconnected(DisconnectCause::TakenOver));
        counts.count(&Occurrence::SessionExpired { unfinished: 3 });
        let mut sum = counts.clone();
        sum.merge(&counts);
        let seen =
            |all: Vec<(&'static str, u64)>| all.into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>();
        assert_eq!(seen(sum.connects().collect()), [("banned", 2), (OTHER_RESULT, 2)]);
        assert_eq!(seen(sum.disconnects().collect()), [("taken_over", 2)]);
    }
}
