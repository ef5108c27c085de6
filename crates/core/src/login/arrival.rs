//! The facts about a connection before its first packet.

use crate::access::bans::Ban;
use crate::login::listener_terms::ListenerTerms;
use crate::session::authentication::Reach;
use std::net::IpAddr;
use std::sync::Arc;

/// The facts about a connection before its first packet. Moves with the socket, if the session
/// lives in another shard.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// The listener that accepted the connection.
    pub listener: Arc<ListenerTerms>,
    /// The reach of the connection, for the rule about anonymous clients.
    pub reach: Reach,
    /// The user name in the client's verified certificate; `None` without one.
    pub certificate_user: Option<Box<str>>,
    /// The ban of the address or of the certificate, if one holds.
    pub ban: Option<Ban>,
    /// The host of the client, as [`host`](crate::access::strikes::host) has it; `None` without an
    /// address. Only kept where the listener has rates.
    pub host: Option<IpAddr>,
}

impl Arrival {
    /// Returns the arrival of a connection that cannot come from another machine, at a
    /// listener without settings of its own.
    pub fn local() -> Arrival {
        Arrival { reach: Reach::Local, ..Arrival::default() }
    }
}
