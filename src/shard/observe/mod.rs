//! The reports of a shard about itself and its clients. Nothing here changes a delivery.
//!
//! | file | concern |
//! |---|---|
//! | `client_events` | the events of clients: connected, disconnected, stalled and the like |
//! | `notes` | notes an event where it happens |
//! | `last_disconnect` | the topics of last-disconnect records |
//! | [`trace`] | what an operator follows, and the steps of messages and of clients' packets |
//! | `tracer` | adds the steps of traces where they happen |
//! | [`recent_drops`] | the last dropped messages |
//! | `client_counts` | counts connects, disconnects, logins and sessions |
//! | `session_totals` | sums over all sessions, by a walk in stretches |
//! | `stalled` | the sessions with an overdue acknowledgement |
//! | `gauges` | the gauges that housekeeping renews |
//! | `snapshot` | the figures that metrics and `$SYS` show |
//! | `usage` | counts the resources that a shard holds |

pub mod client_counts;
pub mod client_events;
pub(crate) mod gauges;
pub mod last_disconnect;
mod notes;
pub mod recent_drops;
pub mod session_totals;
pub mod snapshot;
pub(crate) mod stalled;
pub mod trace;
pub(crate) mod tracer;
pub mod usage;
