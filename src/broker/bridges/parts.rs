//! What the broker gives its bridges.

use super::reports::QueueCapacity;
use crate::broker::connect_limits::LiveLimits;
use crate::broker::message::Adopt;
use crate::broker::observer::Observer;
use crate::broker::settings::packet_size;
use crate::config::Config;
use actix::Recipient;
use std::sync::Arc;

/// The limits of this broker that bridges tell others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::broker) struct OwnLimits {
    pub(super) receive_maximum: u16,
    pub(super) packet_size: u32,
    pub(super) in_flight: u16,
    pub(super) takes_retained: bool,
}

impl OwnLimits {
    pub(super) fn of(config: &Config) -> OwnLimits {
        let limits = &config.limits;
        OwnLimits {
            receive_maximum: limits.receive_maximum,
            packet_size: packet_size(limits.packet_size),
            in_flight: limits.in_flight,
            takes_retained: limits.retained_messages > 0,
        }
    }
}

/// The parts of the broker that bridges need.
#[derive(Clone)]
pub(in crate::broker) struct BridgeParts {
    /// The shards, by number.
    pub(in crate::broker) shards: Vec<Recipient<Adopt>>,
    pub(in crate::broker) observer: Observer,
    /// The bounds of new connections.
    pub(in crate::broker) limits: Arc<LiveLimits>,
}

impl BridgeParts {
    /// Returns the bounds of the queue of a bridge that has none of its own. Every session of a bridge outlives its
    /// connections, so the store has it if there is one.
    pub(super) fn queue_capacity(&self, config: &Config) -> QueueCapacity {
        let (messages, bytes) = match self.observer.store() {
            Some(_) => (config.store.queue_messages, config.store.queue_bytes),
            None => (config.limits.queue_messages, config.limits.queue_bytes),
        };
        QueueCapacity { messages: messages as usize, bytes: bytes.as_usize() }
    }
}
