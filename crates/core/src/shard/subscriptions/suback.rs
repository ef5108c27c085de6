//! Sends SUBACK and UNSUBACK. The retained messages follow ([`super::retained_delivery`]).

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::ReasonCode;
use crate::peers::answer::{Answer, RetainedDelivery, RetainedRequests};
use crate::routing::retained::Cursor;
use crate::session::Violation;
use crate::shard::Shard;
use crate::shard::turn::work::Job;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// The client's Maximum Packet Size has no room for the answer.
// 5.0 [MQTT-3.8.4-1], [MQTT-3.10.4-4]: each SUBSCRIBE and UNSUBSCRIBE is answered, and
// [MQTT-3.1.2-24]: with no packet that the client cannot take.
const TOO_LARGE: Violation = Violation {
    reason: ReasonCode::PACKET_TOO_LARGE,
    what: "the client's Maximum Packet Size is too small for a SUBACK or UNSUBACK",
};

impl Answer {
    /// Writes SUBACK or UNSUBACK, then queues the retained messages. Returns the job that is left.
    /// If the connection is gone, nothing is written or queued. The session keeps the subscription.
    /// A client that cannot take the answer would wait for it for ever, so its connection ends.
    pub(crate) fn send(
        self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        shard: &mut Shard,
    ) -> Option<Job> {
        let Answer { packet_id, kind, reasons, retained, .. } = self;
        let is_gated = !retained.requests.is_empty() && shard.core.sessions.is_stored(session);
        if shard.core.sessions.is_stored(session) && !is_gated {
            shard.core.gate_until_commit(id);
        }
        let connection = shard.core.connections.get_mut(id).filter(|c| c.session == Some(session))?;
        if is_gated {
            connection.wire.outbox.gate();
        }
        let fits = shard.core.write(id, |wire, counters| {
            let fits = wire.put(&kind.packet(packet_id, reasons)).is_ok();
            counters.packets_sent.add(kind.packet_type(), u64::from(fits));
            fits
        });
        if fits == Some(false) {
            if is_gated && let Some(connection) = shard.core.connections.get_mut(id) {
                // DISCONNECT promises nothing, so it waits for no commit.
                connection.wire.outbox.cancel_gate();
            }
            shard.fail(now, id, TOO_LARGE);
            return None;
        }
        let _charge = Charge::new(retained.memory());
        let RetainedRequests { requests, reading, .. } = retained;
        let reading = reading.filter(|_| !requests.is_empty())?;
        let retaining = RetainedDelivery {
            connection: id,
            session,
            requests,
            next: 0,
            cursor: Cursor::default(),
            reading,
            is_gated,
            _charge,
        };
        let job = Box::new(retaining);
        if shard.core.turn.is_over() { Some(Job::Retained(job)) } else { job.go_on(now, shard) }
    }
}
