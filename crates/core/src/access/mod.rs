//! Access control as pure values: who a client is, and which topics it may write and read.
//!
//! - [`identity`]: the authenticated user of a session, and the proof of its name.
//! - [`grant`]: the terms on which an authenticated client may stay.
//! - [`rule`]: one line of an ACL: a topic filter, or a pattern with `%u` and `%c`.
//! - [`rule_set`]: many filters, and the search for a filter that matches a topic.
//! - [`cover`]: relations between two topic filters: one contains the other, or they overlap.
//! - [`permit`]: all rules of one user, and their decisions.
//! - [`denial`]: the rule for which an access is denied, for operators.
//! - [`written_topics`]: the topics that a client publishes to again and again.
//! - [`ordered`]: ordered rules: the first matching rule decides.
//! - `rule_text`: the rules of one session as text, for the store.
//! - [`acl`]: the permits of all users.
//! - [`bans`]: clients that may not enter.
//! - [`glob`]: globs over names that clients choose.
//! - [`strikes`]: keys that do something too often within a window of time.
//! - [`meter`]: rates of messages and bytes.
//! - [`network`]: networks of clients, as an operator writes them.
//!
//! The rules have the meaning of mosquitto's ACL file.

pub mod acl;
pub mod bans;
pub mod cover;
pub mod denial;
pub mod glob;
pub mod grant;
pub mod identity;
pub mod meter;
pub mod network;
pub mod ordered;
pub mod permit;
pub mod rule;
pub mod rule_set;
mod rule_text;
pub mod strikes;
pub mod written_topics;
