//! The reports of a shard about itself and its clients. Nothing here changes a delivery.
//!
//! | file | concern |
//! |---|---|
//! | `notes` | notes an event where it happens |
//! | `tracer` | records drops, and the steps of traces |
//! | `session_totals` | sums over all sessions, by a walk in stretches |
//! | `stalled` | the sessions with an overdue acknowledgement |
//! | `gauges` | all figures about clients; housekeeping renews some of them |
//! | `snapshot` | the figures that metrics and `$SYS` show |
//! | `usage` | counts the resources that a shard holds |
//!
//! # What happens, and who records it
//!
//! - An `Occurrence` happens to a client. Its consumers are the counts, the log, the event topics,
//!   the timeline, the last-disconnect records and the traces.
//! - A `Dropped` is a message that its receiver will not get. Its consumers are the counts,
//!   objectives, `recent_drops`, the events of the client, the dead letters and the traces.
//! - A `Refusal` is a request of a client that the shard refused. Its consumers are the counts, the
//!   last refusals and, once in ten seconds for each client, an occurrence.
//! - A `TraceStep` happens to a traced message or packet. Its consumers are the traces.
//!
//! The types are four because their costs and bounds differ. An occurrence is always made and
//! never lost, because metrics and retained records need it. A drop is counted when it happens, and
//! formats nothing. A step is made only while a trace is on, and may be lost.

pub(crate) mod gauges;
pub(in crate::shard) mod notes;
pub mod session_totals;
pub mod snapshot;
pub(crate) mod stalled;
pub(crate) mod tracer;
pub mod usage;
