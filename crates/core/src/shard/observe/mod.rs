//! The reports of a shard about itself and its clients. Nothing here changes a delivery.
//!
//! | file | concern |
//! |---|---|
//! | `client_events` | the events of clients: connected, disconnected, stalled and the like |
//! | `notes` | notes an event where it happens |
//! | `last_disconnect` | the topics of last-disconnect records |
//! | [`trace`] | the clients and topics that operators follow |
//! | `tracer` | records drops, and the steps of traces |
//! | [`recent_drops`] | the last dropped messages |
//! | [`refusals`] | the refused PUBLISH packets, wills and filters |
//! | `client_counts` | counts connects, disconnects, logins and sessions |
//! | `number_times` | the times at which stored deliveries got their numbers |
//! | `session_totals` | sums over all sessions, by a walk in stretches |
//! | `stalled` | the sessions with an overdue acknowledgement |
//! | `gauges` | all figures about clients; housekeeping renews some of them |
//! | `snapshot` | the figures that metrics and `$SYS` show |
//! | `usage` | counts the resources that a shard holds |
//!
//! # What happens, and who records it
//!
//! - A [`client_events::Occurrence`] happens to a client. Its consumers are the counts, the log,
//!   the event topics, the timeline, the last-disconnect records and the traces.
//! - A `Dropped` is a message that its receiver will not get. Its consumers are the counts,
//!   objectives, [`recent_drops`], the events of the client, the dead letters and the traces.
//! - A [`refusals::Refusal`] is a request of a client that the shard refused. Its consumers are the
//!   counts, the last refusals and, once in ten seconds for each client, an occurrence.
//! - A `TraceStep` happens to a traced message or packet. Its consumers are the traces.
//!
//! The types are four because their costs and bounds differ. An occurrence is always made and
//! never lost, because metrics and retained records need it. A drop is counted when it happens, and
//! formats nothing. A step is made only while a trace is on, and may be lost.

pub mod client_counts;
pub mod client_events;
pub(crate) mod gauges;
pub mod last_disconnect;
pub(in crate::shard) mod notes;
pub(crate) mod number_times;
pub mod recent_drops;
pub mod refusals;
pub mod session_totals;
pub mod snapshot;
pub(crate) mod stalled;
pub mod trace;
pub(crate) mod tracer;
pub mod usage;
