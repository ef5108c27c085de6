//! The reports of a shard about itself and its clients. Nothing here changes a delivery.
//!
//! | file | concern |
//! |---|---|
//! | `client_events` | the events of clients: connected, disconnected, stalled and the like |
//! | `notes` | notes an event where it happens |
//! | `last_disconnect` | the topics of last-disconnect records |
//! | [`query`] | answers the questions of operators about sessions |
//! | [`unfinished`] | the unfinished messages of one session, page by page |
//! | [`wait_reason`] | why a message waits, and when the wait ends |
//! | `longest_wait` | the clients that have waited longest for an acknowledgement |
//! | `usage` | counts the resources that a shard holds |

pub mod client_events;
pub mod last_disconnect;
pub mod longest_wait;
mod notes;
pub mod query;
pub mod unfinished;
pub mod usage;
pub mod wait_reason;
