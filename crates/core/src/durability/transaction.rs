//! Transactions: publications whose effects in several shards are committed together or not at all.
//!
//! The shard that routes the publication begins the transaction, and adds one participant for each
//! peer that gets the message. A participant records the deliveries in its shard under the number
//! of the transaction. If a participant forwards the message again, for a shared group, it adds a
//! participant to the same transaction. The store commits all parts as one when the last of them
//! has come.
//!
//! Each publication that a peer sends is delivered between [`Durability::begin_peer_delivery`] and
//! [`Durability::end_peer_delivery`]. The second one decides when the peer's ticket may leave. Most
//! publications are not atomic: for them there is no transaction in between.

use crate::durability::gates::{Durability, early};
use crate::durability::publication::Publication;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::PacketId;
use crate::peers::outbound::Readiness;
use crate::persistence::records::{SessionKey, TransactionNumber};
use crate::routing::subscription_tree::ShardId;

impl Durability {
    /// Adds a participant to the transaction of an atomic publication, and returns the transaction.
    /// Begins a missing transaction. Returns `None` if the publication is not atomic or there is no
    /// store. If this shard is itself a participant, the new one joins the same transaction.
    pub(crate) fn next_participant(&self, publication: &mut Publication<'_>) -> Option<TransactionNumber> {
        let write_buffer = self.write_buffer().filter(|_| publication.atomic)?;
        let number = *publication.transaction.get_or_insert_with(|| write_buffer.begin_transaction());
        write_buffer.add_participant(number);
        Some(number)
    }

    /// Ends the transaction of a publication that was routed. `outcome` is the outcome in this
    /// shard. `incoming` is the publisher's Packet Identifier, if that is recorded. The outcome in
    /// all shards is recorded with this identifier.
    pub(crate) fn end_transaction(
        &self,
        transaction: TransactionNumber,
        outcome: Outcome,
        incoming: Option<(SessionKey, PacketId)>,
    ) {
        if let Some(write_buffer) = self.write_buffer() {
            write_buffer.end_transaction(transaction, outcome, incoming);
        }
    }

    /// Begins the delivery of a peer's publication. If `transaction` is set, the records of the
    /// delivery become a part of that transaction.
    pub(crate) fn begin_peer_delivery(
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

    /// Ends the delivery of a peer's publication. Returns when the ticket of the peer batch
    /// `number` may leave: now, after a commit, or when each receiver here is done with the
    /// message.
    /// `has_dead_letters` is true if dead letters are committed with the open batch.
    pub(crate) fn end_peer_delivery(
        &mut self,
        publication: &mut Publication<'_>,
        outcome: Outcome,
        from: ShardId,
        number: u64,
        has_dead_letters: bool,
    ) -> Readiness {
        // Without a store, a ticket waits for nothing.
        let Some(write_buffer) = self.write_buffer() else { return Readiness::Now };
        if publication.atomic {
            // The body is dropped before the part ends. If no receiver here refers to it, its
            // record is then taken out of the part.
            publication.outgoing.body = None;
        }
        write_buffer.end_participation(publication.recorded_outcome(outcome));
        if publication.atomic || has_dead_letters {
            return Readiness::Committed(write_buffer.lsn());
        }
        match &publication.outgoing.body {
            Some(body) => self.gate_ticket(from, number, body, early(publication.outgoing.parts.qos)),
            None => Readiness::Now,
        }
    }
}
