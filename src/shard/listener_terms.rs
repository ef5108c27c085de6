//! The operator's settings for the clients of one listener.

use crate::session::authentication::AuthPolicy;
use crate::session::client_id_rule::ClientIdRule;
use crate::session::policy::ConnectPolicy;

/// The operator's settings for the clients of one listener.
#[derive(Clone, Debug)]
pub struct ListenerTerms {
    /// The rules about the clients that may enter.
    pub auth: AuthPolicy,
    /// The bounds on what a CONNECT requests, and on the packets of the client.
    pub connect: ConnectPolicy,
    /// The form of the client identifiers; `None` for any.
    pub client_id: Option<ClientIdRule>,
}
