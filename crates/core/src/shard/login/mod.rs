//! Logins: the facts about a connection before its first packet, the bans, and the decision whether
//! a client may enter. `clients/connect.rs` carries the decision out.

pub mod arrival;
pub(crate) mod auth_exchange;
pub mod authentication;
pub(crate) mod bans;
pub(crate) mod flapping;
pub mod listener_terms;
pub(crate) mod pending_exchange;
pub(crate) mod verdict;
