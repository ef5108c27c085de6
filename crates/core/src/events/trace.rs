//! The messages and packets that operators' traces follow. `tracer` adds the steps ([`TraceStep`]).
//!
//! The operator names clients and Topic Filters. A PUBLISH of a client that matches gets a number,
//! its [`AuditTag`], which travels with the shared message: into queues, in-flight windows and
//! other shards. A connection of a named client notes every packet. Steps are effects of a turn:
//! the driver sends them to the collector, which finds their trace.
//!
//! A trace changes nothing: no packet, no order, no record. While nothing is traced, a PUBLISH
//! costs one branch, an acknowledgement and a write one each.
//!
//! [`AuditTag`]: crate::mqtt::audit::AuditTag
//! [`TraceStep`]: crate::session::trace_steps::TraceStep

use crate::mqtt::topic;

/// Bytes of a Client Identifier that a trace can follow at most. A longer one is cut in a step.
pub const LONGEST_CLIENT_ID: usize = 1_024;

/// The payloads of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracedPayloads {
    /// No step has a payload.
    #[default]
    Hidden,
    /// The step of a received message has the first 256 bytes.
    Shown,
}

/// The clients and topics that traces follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceWatch {
    /// Client Identifiers.
    pub clients: Vec<Box<str>>,
    /// Topic Filters of messages that clients publish.
    pub filters: Vec<Box<str>>,
    /// The payloads in the steps.
    pub payloads: TracedPayloads,
}

impl TraceWatch {
    /// True if a trace follows the client.
    pub fn has_client(&self, client_id: &str) -> bool {
        self.clients.iter().any(|watched| **watched == *client_id)
    }

    /// True if a trace follows messages of the topic.
    pub fn has_topic(&self, topic: &str) -> bool {
        self.filters.iter().any(|filter| topic::matches(filter, topic))
    }
}
