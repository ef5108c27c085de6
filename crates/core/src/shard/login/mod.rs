//! Logins: the facts about a connection before its first packet, and the decision about its
//! CONNECT.

pub mod arrival;
pub(crate) mod auth_exchange;
pub mod authentication;
pub(crate) mod bans;
pub(crate) mod flapping;
pub mod listener_terms;
pub(crate) mod pending_exchange;
pub(crate) mod verdict;
