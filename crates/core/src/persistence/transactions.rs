//! The transactions of one open batch: own transactions, and parts of other shards' transactions.
//!
//! A part collects the bodies and entries that this shard adds to a peer's transaction. Only the
//! last part can be open, and only an open part takes records.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::PacketId;
use crate::persistence::records::{Participant, Record, SessionKey, Transaction, TransactionNumber};

/// The transactions of one open batch.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    begun: Vec<Transaction>,
    parts: Vec<Participant>,
    /// True if new bodies and entries go to the last part.
    is_open: bool,
}

impl Transactions {
    /// True if the batch has neither a transaction nor a part.
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.parts.is_empty()
    }

    /// True if new bodies and entries go to a part.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the open part.
    pub(super) fn open(&mut self) -> Option<&mut Participant> {
        self.parts.last_mut().filter(|_| self.is_open)
    }

    /// Returns the number of the open part, counted from 1; 0 if none is open.
    pub(super) fn open_number(&self) -> u32 {
        if self.is_open { self.parts.len() as u32 } else { 0 }
    }

    /// Begins a transaction of this shard.
    pub(super) fn begin(&mut self, number: TransactionNumber) {
        let outcome = Outcome::Unmatched;
        self.begun.push(Transaction { number, participants: 0, outcome, incoming: None });
    }

    /// Adds a participant to the open part's transaction, or to one that began in this batch.
    pub(super) fn add_participant(&mut self, of: TransactionNumber) {
        if let Some(part) = self.open().filter(|part| part.of == of) {
            part.more += 1;
        } else if let Some(found) = self.find(of) {
            found.participants += 1;
        }
    }

    /// Sets this shard's outcome of a transaction that began in this batch.
    pub(super) fn end(
        &mut self,
        of: TransactionNumber,
        outcome: Outcome,
        incoming: Option<(SessionKey, PacketId)>,
    ) {
        if let Some(found) = self.find(of) {
            (found.outcome, found.incoming) = (outcome, incoming);
        }
    }

    /// Opens a new part of a peer's transaction.
    pub(super) fn begin_participation(&mut self, of: TransactionNumber) {
        let (records, outcome) = (Vec::new(), Outcome::Unmatched);
        self.parts.push(Participant { of, records, more: 0, outcome });
        self.is_open = true;
    }

    /// Suspends the open part.
    pub(super) fn suspend(&mut self) {
        self.is_open = false;
    }

    /// Opens the last part again.
    pub(super) fn resume(&mut self) {
        self.is_open = !self.parts.is_empty();
    }

    /// Closes the open part with this outcome. Does nothing without an open part.
    pub(super) fn end_participation(&mut self, outcome: Outcome) {
        if let Some(part) = self.open() {
            part.outcome = outcome;
            part.records.retain(|record| !matches!(record, Record::Nothing));
        }
        self.is_open = false;
    }

    /// Takes everything out, when the batch is sealed. No part is open then.
    pub(super) fn take(&mut self) -> (Vec<Transaction>, Vec<Participant>) {
        self.is_open = false;
        (std::mem::take(&mut self.begun), std::mem::take(&mut self.parts))
    }

    fn find(&mut self, of: TransactionNumber) -> Option<&mut Transaction> {
        self.begun.iter_mut().rev().find(|transaction| transaction.number == of)
    }
}
