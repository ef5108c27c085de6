//! What the operator's event topics are told: a client that is overdue, was sent something again,
//! used up its attempts or was cut. Taken while connection and session are together; nothing is
//! taken where nobody asked for it.
//!
//! Not here: rates, JSON, topics, the time of day. The driver has those (`crate::broker::events`).

use crate::mqtt::packet::{ProtocolVersion, QoS};
use crate::mqtt::topic::escape_level;
use crate::session::outbound::queue::Delivery;
use crate::session::outbound::stall::Stall;
use crate::shard::Shard;
use crate::shard::effects::Why;
use crate::shard::slots::ConnectionId;
use crate::time::Instant;
use std::borrow::Cow;
use std::time::Duration;

/// Bytes of a client id at most: longer ones would not leave room in a topic once they are escaped.
const LONGEST_CLIENT_ID: usize = 1024;

/// Characters of a Topic Name that are told.
const TOPIC: usize = 256;

/// A client id as one level of a topic of the broker's own; `None` where it is too long.
pub fn client_level(client_id: &str) -> Option<Cow<'_, str>> {
    (client_id.len() <= LONGEST_CLIENT_ID).then(|| escape_level(client_id))
}

/// One event about one client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientEvent {
    pub connection: ConnectionId,
    pub client_id: Box<str>,
    pub version: ProtocolVersion,
    pub occurrence: Occurrence,
    /// The packet that it is about: the oldest of them.
    pub packet: Option<OverdueEvent>,
    /// How long after its deadline this was found; `None` where there was none.
    pub late: Option<Duration>,
    /// Messages that its session has not finished, and those that wait behind them.
    pub in_flight: usize,
    pub queued: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Occurrence {
    /// An acknowledgement is overdue.
    Stalled,
    /// Packets went out again: on a live connection (3.x), or at the client's return.
    Redelivered { publishes: u64, releases: u64, when: RedeliveryEvent },
    /// A packet was sent again as often as allowed.
    Exhausted(OverdueAction),
    /// The broker ended the connection because the client was late, silent or full.
    Disconnected(Why),
}

impl Occurrence {
    /// Whether the socket was asked who holds the packet, just before.
    pub fn is_diagnosed(&self) -> bool {
        match self {
            Occurrence::Stalled | Occurrence::Exhausted(_) => true,
            Occurrence::Redelivered { when, .. } => *when == RedeliveryEvent::Live,
            Occurrence::Disconnected(why) => matches!(why, Why::Exhausted(_) | Why::AckTimeout(_)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedeliveryEvent {
    Live,
    AtReturn,
}

/// What is done about a packet whose attempts are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverdueAction {
    /// The connection is closed, and it is redelivered at the return.
    Disconnect,
    /// It goes on at the longest spacing.
    Keep,
}

/// A packet without its acknowledgement, and its message.
#[derive(Clone, Debug, PartialEq)]
pub struct OverdueEvent {
    pub stall: Stall,
    /// `None` where it is not in flight any more: its PUBREC has come, or it is given up.
    pub message: Option<Addressed>,
    /// The PUBREC has come: the message is the client's, and its PUBREL is what waits.
    pub released: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Addressed {
    /// Its front, where it is longer than 256 characters.
    pub topic: Box<str>,
    pub qos: QoS,
}

pub(in crate::shard) fn addressed(delivery: &Delivery) -> Addressed {
    let topic = delivery.message.topic().chars().take(TOPIC).collect();
    Addressed { topic, qos: delivery.qos }
}

impl Shard {
    /// Notes an event, if the operator wants them.
    pub(in crate::shard) fn report(
        &mut self,
        id: ConnectionId,
        occurrence: Occurrence,
        stall: Option<Stall>,
    ) {
        if self.settings.reports {
            self.report_late(id, occurrence, stall, stall.map(|stall| stall.late));
        }
    }

    fn report_late(
        &mut self,
        id: ConnectionId,
        occurrence: Occurrence,
        stall: Option<Stall>,
        late: Option<Duration>,
    ) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(session_entry) = connection.session.and_then(|s| self.sessions.get(s)) else { return };
        let sender = &session_entry.session.sender;
        let packet = stall.map(|stall| {
            let message = sender.unacknowledged(stall.number).map(addressed);
            // A PUBREL is never given up.
            let released = message.is_none() && sender.is_unfinished(stall.number);
            OverdueEvent { stall, message, released }
        });
        self.effects.reports.push(ClientEvent {
            connection: id,
            client_id: session_entry.session.client_id.clone(),
            version: connection.version(),
            occurrence,
            packet,
            late,
            in_flight: sender.in_flight(),
            queued: sender.queued(),
        });
    }

    /// The broker is about to end a connection; `why` decides whether that is an event.
    pub(in crate::shard) fn report_disconnect(&mut self, now: Instant, id: ConnectionId, why: &Why) {
        if !self.settings.reports {
            return;
        }
        let late = self.lateness(now, id, why);
        let stall = match why {
            Why::Exhausted(stall) | Why::AckTimeout(stall) => Some(*stall),
            Why::KeepAlive { .. } | Why::WriteTimeout { .. } | Why::PacketTimeout { .. } | Why::QueueFull => {
                self.oldest(now, id)
            }
            Why::Client(_) | Why::Network(_) | Why::Violation(..) => return,
            Why::TakenOver | Why::NoConnect | Why::Shutdown => return,
        };
        if matches!(why, Why::Exhausted(_)) {
            self.report(id, Occurrence::Exhausted(OverdueAction::Disconnect), stall);
        }
        self.report_late(id, Occurrence::Disconnected(why.clone()), stall, late);
    }

    /// What was in flight before this connection went out again, as far as its window allows at
    /// once.
    pub(in crate::shard) fn report_return(
        &mut self,
        now: Instant,
        id: ConnectionId,
        publishes: u64,
        releases: u64,
    ) {
        if self.settings.reports {
            let (oldest, when) = (self.oldest(now, id), RedeliveryEvent::AtReturn);
            self.report_late(id, Occurrence::Redelivered { publishes, releases, when }, oldest, None);
        }
    }

    fn oldest(&self, now: Instant, id: ConnectionId) -> Option<Stall> {
        let session = self.connections.get(id)?.session?;
        self.sessions.get(session)?.session.sender.oldest_unacknowledged(now)
    }
}
