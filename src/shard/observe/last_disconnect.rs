//! Why a client was last disconnected: kept for each client id, readable like a retained message,
//! bounded in number.
//!
//! Not kept: a client's own plain DISCONNECT, which needs no explanation and is by far the most
//! frequent, and the broker's own stop. A record costs one retained message and is made when a
//! connection ends, never before.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::keyed::Keyed;
use crate::mqtt::packet::{ProtocolVersion, ReasonCode};
use crate::session::outbound::stall::Stall;
use crate::shard::Shard;
use crate::shard::admission::Change;
use crate::shard::effects::Why;
use crate::shard::observe::client_events::client_level;
use crate::shard::slots::ConnectionId;
use crate::time::Instant;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The topics of the records there are, each once: a client that ends again keeps its place. Some
/// may not be retained, since there was no room.
#[derive(Debug, Default)]
pub(in crate::shard) struct LastDisconnects {
    /// The oldest first.
    order: VecDeque<Arc<str>>,
    known: HashSet<Arc<str>, Keyed>,
    charge: Charge,
}

/// Bytes of a topic beside its text: its places in row and set, which are half full at the worst.
const TOPIC: usize = 96;

impl LastDisconnects {
    /// Notes a topic; the one that goes in its place, where there are more than `most` with it.
    fn keep(&mut self, topic: &str, most: usize) -> Option<Arc<str>> {
        if !self.known.contains(topic) {
            let topic: Arc<str> = topic.into();
            self.known.insert(Arc::clone(&topic));
            self.charge.add(topic.len() + TOPIC);
            self.order.push_back(topic);
        }
        if self.order.len() <= most {
            return None;
        }
        let oldest = self.order.pop_front()?;
        self.known.remove(&oldest);
        self.charge.sub(oldest.len() + TOPIC);
        Some(oldest)
    }
}

impl Recount for LastDisconnects {
    fn recount(&self) -> Recounted {
        let held = self.order.iter().map(|topic| topic.len() + TOPIC).sum();
        Recounted { held, charged: self.charge.bytes() }
    }
}

/// One client's last disconnect. The broker writes it as JSON ([`crate::shard::ShardSettings::describe_disconnect`]).
#[derive(Clone, Debug)]
pub struct LastDisconnect {
    /// Why the connection ended.
    pub why: Why,
    /// The MQTT version of the connection.
    pub version: ProtocolVersion,
    /// The time of the disconnect, since the start of the broker.
    pub now: Instant,
    /// The time since the client's last packet.
    pub silent: Duration,
    /// How long after its deadline the connection was ended; `None` if there was no deadline.
    pub late: Option<Duration>,
    /// The oldest packet without its acknowledgement, if there is one.
    pub oldest_unacknowledged: Option<Stall>,
    /// Messages of the session that were sent and not acknowledged to the end.
    pub in_flight: usize,
    /// Messages of the session that wait behind them.
    pub queued: usize,
}

/// One record, taken before connection and session are parted, published after.
#[derive(Debug)]
pub(in crate::shard) struct DisconnectRecord {
    topic: Box<str>,
    text: String,
}

impl Shard {
    /// What there is to say of a connection that ends now, if it is kept.
    pub(in crate::shard) fn last_disconnect(
        &self,
        now: Instant,
        id: ConnectionId,
        why: &Why,
    ) -> Option<DisconnectRecord> {
        let plain = *why == Why::Client(ReasonCode::NORMAL_DISCONNECTION) || *why == Why::Shutdown;
        if plain || self.settings.last_disconnects == 0 || self.admits(Change::Record).is_err() {
            return None;
        }
        let connection = self.connections.get(id)?;
        let session = &self.sessions.get(connection.session?)?.session;
        let level = client_level(&session.client_id)?;
        let topic = format!("$SYS/broker/clients/{level}/last-disconnect").into();
        let disconnect = LastDisconnect {
            why: why.clone(),
            version: connection.version(),
            now,
            silent: now.since(connection.keep_alive.last_heard()),
            late: self.lateness(now, id, why),
            oldest_unacknowledged: session.sender.oldest_unacknowledged(now),
            in_flight: session.sender.in_flight(),
            queued: session.sender.queued(),
        };
        let text = (self.settings.describe_disconnect)(&disconnect);
        Some(DisconnectRecord { topic, text })
    }

    /// How long after its deadline a connection is ended, where there was one.
    pub(in crate::shard) fn lateness(&self, now: Instant, id: ConnectionId, why: &Why) -> Option<Duration> {
        let connection = self.connections.get(id)?;
        match why {
            Why::KeepAlive { .. } => Some(now.since(connection.read_deadline(self.awake_since))),
            Why::WriteTimeout { .. } => {
                Some(now.since(connection.write_deadline(self.settings.write_timeout, self.awake_since)))
            }
            Why::Exhausted(stall) | Why::AckTimeout(stall) => Some(stall.late),
            _ => None,
        }
    }

    /// Keeps a record, in place of the oldest where there are as many as may be.
    pub(in crate::shard) fn keep_last_disconnect(&mut self, now: Instant, record: Option<DisconnectRecord>) {
        let Some(DisconnectRecord { topic, text }) = record else { return };
        self.publish_own(now, &topic, text.as_bytes());
        let oldest = self.shared.totals.last_disconnects().keep(&topic, self.settings.last_disconnects);
        if let Some(oldest) = oldest {
            self.shared.retained().remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While there is no room for retained messages, the same client was noted with each
    /// disconnect, and its oldest note took the record away that there was in the end.
    #[test]
    fn a_client_is_noted_once_however_often_it_is_cut() {
        let mut records = LastDisconnects::default();
        for topic in ["a", "b", "b", "b", "a"] {
            assert_eq!(records.keep(topic, 2), None);
        }
        assert_eq!(records.keep("c", 2).as_deref(), Some("a"));
        assert_eq!(records.keep("b", 2), None);
        assert_eq!(records.keep("a", 2).as_deref(), Some("b"));
        assert_eq!((records.order.len(), records.known.len()), (2, 2));
    }
}
