//! The bounded records of events, drops and refusals: written by a shard, reported by the driver,
//! read by operators.
//!
//! | file | concern |
//! |---|---|
//! | [`client_events`] | the events of clients: connected, disconnected, stalled and the like |
//! | [`client_counts`] | counts connects, disconnects, logins and sessions |
//! | [`recent_drops`] | the last dropped messages |
//! | `drop_reports` | the drops by client, for the events about them |
//! | [`refusals`] | the refused PUBLISH packets, wills and filters |
//! | [`last_disconnect`] | the topics of last-disconnect records |
//! | `number_times` | the times at which stored deliveries got their numbers |
//! | [`trace`] | the clients and topics that operators follow |

pub mod client_counts;
pub mod client_events;
pub(crate) mod drop_reports;
pub mod last_disconnect;
pub(crate) mod number_times;
pub mod recent_drops;
pub mod refusals;
pub mod trace;
