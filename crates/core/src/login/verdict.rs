//! The result of a CONNECT's authentication.

use crate::access::grant::{Grant, SessionRules};
use crate::access::identity::Identity;
use crate::login::pending_exchange::EnhancedProof;
use crate::time::Instant;
use std::sync::Arc;

/// The state of a client's authentication.
pub(crate) enum LoginVerdict {
    /// The client is let in.
    Accepted(AcceptedLogin),
    /// The client has to answer a challenge.
    Challenged,
    /// The authenticator has been asked.
    Pending,
    /// The turn has no steps for the rest of the checks.
    Later,
}

/// The terms on which a client is let in.
pub(crate) struct AcceptedLogin {
    /// `None` for an anonymous client.
    pub user: Option<Arc<Identity>>,
    /// The rules of this session alone; `None` if the ACL file counts.
    pub rules: Option<SessionRules>,
    /// The time at which the connection ends.
    pub ends: Instant,
    /// The result of an exchange of AUTH packets; `None` without one.
    pub proof: Option<EnhancedProof>,
}

impl AcceptedLogin {
    /// The terms of a client without a name.
    pub(crate) const ANONYMOUS: AcceptedLogin =
        AcceptedLogin { user: None, rules: None, ends: Instant::NEVER, proof: None };
}

impl From<Grant> for AcceptedLogin {
    fn from(grant: Grant) -> AcceptedLogin {
        let Grant { identity, rules, ends } = grant;
        AcceptedLogin { user: Some(identity), rules, ends, proof: None }
    }
}
