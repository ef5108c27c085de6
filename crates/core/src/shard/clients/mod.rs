//! Connections and sessions: from the first packet to the end of a session, and every deadline of
//! both.

pub(crate) mod auth_exchange;
pub(crate) mod bans;
pub(crate) mod client;
pub(crate) mod connect;
mod connect_checks;
pub mod connection;
pub mod connection_view;
pub(crate) mod connections;
pub mod deadlines;
pub(crate) mod ended_session;
mod establish;
mod flush;
pub(crate) mod follow_up;
pub(crate) mod leave;
pub mod metered_traffic;
pub mod partial;
pub mod pause;
pub(crate) mod rates;
pub(crate) mod read_ahead;
pub mod receive;
pub(crate) mod session_deadlines;
pub mod session_entry;
pub(crate) mod sessions;
pub(crate) mod will_publication;
