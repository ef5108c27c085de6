//! Transactions: publications whose effects in several shards are committed together or not at all.
//!
//! The shard that routes the publication begins the transaction and lists its participants, one for
//! each peer that it forwards the message to. A participant records what the message leads to in
//! its shard under the same number. A participant that forwards the message again, for a shared
//! group, adds a participant to the same transaction. The store commits the parts as one when all
//! of them have come.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::PacketId;
use crate::persistence::records::{SessionKey, TransactionNumber};
use crate::routing::subscription_tree::ShardId;
use crate::shard::durability::gates::{Durability, early};
use crate::shard::exchange::outbound::Readiness;
use crate::shard::publication::Publication;

impl Durability {
    /// Adds one more participant if the publication has to be committed at once. Returns the
    /// transaction. A publication that is a peer's part here already stays in the same transaction.
    pub(crate) fn next_participant(&self, publication: &mut Publication<'_>) -> Option<TransactionNumber> {
        let write_buffer = self.write_buffer().filter(|_| publication.atomic)?;
        let number = *publication.transaction.get_or_insert_with(|| write_buffer.begin_transaction());
        write_buffer.add_participant(number);
        Some(number)
    }

    /// Ends the transaction of a publication that was routed, if it has one. `outcome` is the
    /// outcome in this shard. `incoming` is the publisher's identifier, if that is recorded; it
    /// gets the outcome in all shards.
    pub(crate) fn end_transaction(
        &self,
        publication: &Publication<'_>,
        outcome: Outcome,
        incoming: Option<(SessionKey, PacketId)>,
    ) {
        if let (Some(number), Some(write_buffer)) = (publication.transaction, self.write_buffer()) {
            write_buffer.end_transaction(number, publication.recorded_outcome(outcome), incoming);
        }
    }

    /// Begins what a publication of a peer leads to here: a part of `transaction`, if it is in one.
    pub(crate) fn begin_participation(
        &self,
        publication: &mut Publication<'_>,
        transaction: Option<TransactionNumber>,
    ) {
        publication.atomic = transaction.is_some();
        publication.transaction = transaction;
        if let (Some(number), Some(write_buffer)) = (transaction, self.write_buffer()) {
            write_buffer.begin_participation(number);
        }
    }

    /// Ends what a publication of a peer leads to here. Returns how far the ticket of the peer's
    /// batch `number` has to wait. `has_dead_letters` is true if dead letters are to be committed
    /// with the present batch.
    pub(crate) fn end_participation(
        &mut self,
        publication: &mut Publication<'_>,
        outcome: Outcome,
        from: ShardId,
        number: u64,
        has_dead_letters: bool,
    ) -> Readiness {
        let Some(write_buffer) = self.write_buffer() else { return Readiness::Now };
        if publication.atomic {
            // With the part, if nobody here has it.
            publication.body = None;
        }
        write_buffer.end_participation(publication.recorded_outcome(outcome));
        if publication.atomic {
            return Readiness::Committed(write_buffer.lsn());
        }
        if has_dead_letters {
            write_buffer.begin();
            return Readiness::Committed(write_buffer.lsn());
        }
        match &publication.body {
            Some(body) => self.gate_ticket(from, number, body, early(publication.parts.qos)),
            None => Readiness::Now,
        }
    }
}
