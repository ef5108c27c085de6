//! The rules for clients: their logins, their terms and their topics. The shard asks these types
//! and carries the decisions out. They know sessions and connections only by their identifiers.
//!
//! | file | concern |
//! |---|---|
//! | [`listener_terms`] | the terms of the listener at which a client connects |
//! | [`arrival`] | the facts about a connection before its first packet |
//! | [`authentication`] | requests to the authenticator, and its decisions |
//! | `pending_exchange` | an exchange of AUTH packets before CONNACK |
//! | `verdict` | the result of a login |
//! | `flapping` | bans of clients that connect too often |
//! | [`debts`] | what clients that left owe to their rates |
//! | [`acl_files`] | the rules of all ACL files, and the source of a client's rules |
//! | [`access_rules`] | the topics that a client may write and read |

pub mod access_rules;
pub mod acl_files;
pub mod arrival;
pub mod authentication;
pub mod debts;
pub(crate) mod flapping;
pub mod listener_terms;
pub(crate) mod pending_exchange;
pub(crate) mod verdict;
