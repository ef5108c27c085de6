//! A PUBLISH of a client, or a message of an operator, while it is routed: what its acknowledgement
//! waits for.

use crate::durability::gates::{Early, early};
use crate::durability::publication::{Publication, Routed};
use crate::mqtt::packet::{PacketId, QoS};
use crate::peers::peer_batch::ReportTo;
use crate::persistence::records::SessionKey;
use crate::shard::Shard;
use crate::shard::clients::pause::Pause;
use crate::shard::core::Core;
use crate::slots::ConnectionId;
use crate::time::Instant;

/// A PUBLISH of a client, or a message of an operator, that is being routed.
#[derive(Debug)]
pub(crate) struct Published {
    /// The connection of the client; `None` for an operator.
    pub connection: Option<ConnectionId>,
    /// The pending acknowledgement; `None` at QoS 0.
    pub gate: Option<ReportTo>,
    /// The Packet Identifier that is recorded with the publication. Only a QoS 2 PUBLISH of a
    /// stored session has one.
    pub incoming: Option<(SessionKey, PacketId)>,
    /// True if the acknowledgement waits for a commit even if no receiver is stored.
    pub waits: bool,
    pub qos: QoS,
    /// True if the publication led to dead letters in an earlier turn.
    pub dead_letters: bool,
}

impl Published {
    /// Adds `gates` to the gates that the acknowledgement waits for.
    pub(crate) fn expect(&self, gates: u32, core: &mut Core) {
        match self.gate {
            Some(ReportTo::Here { session, token }) => {
                if let Some(session_entry) = core.sessions.get_mut(session) {
                    session_entry.session.receiver.expect(token, gates);
                }
            }
            Some(ReportTo::Operator(number)) => core.unanswered.expect(number, gates),
            // Neither of them is a publisher.
            Some(ReportTo::OrphanedQueue | ReportTo::Peer { .. }) | None => {}
        }
    }

    /// Ends a PUBLISH that took more than one turn. `routed` is the result of all turns, whose
    /// gates the acknowledgement waits for already.
    pub(crate) fn end(
        &self,
        now: Instant,
        publication: &mut Publication<'_>,
        routed: Routed,
        shard: &mut Shard,
    ) {
        if publication.outgoing.body.is_some() || self.dead_letters || self.waits {
            // The records may all be in earlier batches, and the open batch may be empty. An empty
            // batch is never sealed, so a gate for its commit would never open.
            shard.core.durability.begin();
        }
        let more = self.end_transaction(publication, &routed, &mut shard.core);
        self.expect(more, &mut shard.core);
        if let Some(connection) = self.connection.filter(|_| !routed.full.is_empty()) {
            shard.core.wait_for_peers(now, connection, routed.full);
        }
        if let Some(gate) = self.gate {
            shard.answer_gate(now, gate, routed.outcome);
        }
        if let Some(connection) = self.connection {
            shard.core.unpause(now, connection, Pause::Work);
        }
    }

    /// Ends the transaction of a routed PUBLISH. Returns the number of gates that this adds to the
    /// acknowledgement: 1 if a commit must come first, else 0.
    pub(super) fn end_transaction(
        &self,
        publication: &mut Publication<'_>,
        routed: &Routed,
        core: &mut Core,
    ) -> u32 {
        if let Some(transaction) = publication.transaction {
            let outcome = publication.recorded_outcome(routed.outcome);
            core.durability.end_transaction(transaction, outcome, self.incoming);
        }
        // Every receiver refused the message, and no gate is left that could change this. So no
        // delivery of the message is stored. An acknowledgement with an error ends the use of the
        // Packet Identifier, so the identifier is not stored either. Its record is removed from the
        // same batch.
        let refused = routed.gates == 0 && routed.outcome.reason().is_error();
        // A refused message may have become a dead letter, which is committed with this batch.
        let dead_letters = self.incoming.is_none() && (self.dead_letters || core.begin_for_dead_letters());
        // A retained message does not depend on the receivers: it stays, even if every receiver
        // refused the message, and a QoS 1 acknowledgement waits for its commit.
        let retained = self.waits && self.incoming.is_none();
        if !dead_letters && !retained && (refused || !(self.waits || publication.outgoing.body.is_some())) {
            return 0;
        }
        let may_open_early = !self.waits && !dead_letters && early(self.qos) == Early::Yes;
        let body = publication.outgoing.body.as_ref();
        core.durability.gate_publisher(self.gate, body.filter(|_| may_open_early))
    }
}
