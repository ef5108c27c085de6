//! The terms on which an authenticated client may stay.

use super::identity::Identity;
use super::permit::Permit;
use crate::time::Instant;
use std::sync::Arc;

/// A successful authentication: the user, and the terms of a token or a service.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The user.
    pub identity: Arc<Identity>,
    /// The rules of this one session. These rules replace the ACL file. `None` if the ACL file
    /// counts.
    pub rules: Option<SessionRules>,
    /// The time at which the connection ends; [`Instant::NEVER`] if the time has no bound.
    pub ends: Instant,
}

/// The rules of one session, not of a user.
#[derive(Clone, Debug)]
pub enum SessionRules {
    /// The client may write and read every topic, also those with names of other clients.
    Superuser,
    /// The rules decide what the client may write and read.
    Permit(Permit),
}

impl From<Arc<Identity>> for Grant {
    /// Returns the grant of a user whose rules are in the ACL file, without an end.
    fn from(identity: Arc<Identity>) -> Grant {
        Grant { identity, rules: None, ends: Instant::NEVER }
    }
}
