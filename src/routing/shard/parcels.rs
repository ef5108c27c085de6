//! A parcel from another shard is taken apart here, and answered.

use super::commit::early;
use super::connection::Pause;
use super::exchange::{Gate, Item, Needs, Parcel, Peer, Readiness};
use super::route::Publication;
use super::share::Shared;
use super::{ConnectionId, SessionId, Shard};
use crate::journal::record::MoveNumber;
use crate::mqtt::session::receiver::{AckToken, Outcome};
use crate::routing::subscription_tree::{ShardId, ShardSet};
use crate::time::Instant;

impl Shard {
    /// Takes in what a peer sent: first the publications, and their ticket, so that it precedes every late answer to one
    /// of them; then the rest in its order, which theirs does not depend on. Parcels of one peer come in their order.
    pub fn take_parcel(&mut self, now: Instant, parcel: Parcel) {
        let from = parcel.from;
        let mut publications = 0;
        let mut not_taken = Vec::new();
        let mut held = Vec::new();
        let mut others = Vec::new();
        let mut needs = Needs::default();
        for item in parcel.items {
            let gate = Gate::Peer { shard: from, number: parcel.number, index: publications };
            let outcome = match item {
                Item::Publish { message, publisher, part_of } => {
                    let mut publication = Publication::of(&message, publisher);
                    publication.gate = Some(gate);
                    self.begin_part(&mut publication, part_of);
                    let outcome = self.deliver_here(now, &mut publication);
                    needs.add(self.end_part(&mut publication, outcome, from, parcel.number));
                    if publication.held > 0 {
                        held.push((publications, publication.held));
                    }
                    outcome
                }
                Item::Share(share) => {
                    let mut publication = Publication::of(&share.message, None);
                    self.begin_part(&mut publication, share.part_of);
                    let outcome = match self.take_share(now, &share, &mut publication, gate) {
                        Shared::Settled(outcome) => outcome,
                        // The next member's shard will say, or the member that holds it.
                        Shared::Underway { .. } | Shared::Held => {
                            held.push((publications, 1));
                            Outcome::Unmatched
                        }
                    };
                    needs.add(self.end_part(&mut publication, outcome, from, parcel.number));
                    outcome
                }
                other => {
                    others.push(other);
                    continue;
                }
            };
            if outcome != Outcome::Taken {
                not_taken.push((publications, outcome));
            }
            publications += 1;
        }
        if publications > 0
            && let Some(peer) = self.peers.get_mut(usize::from(from.0))
        {
            peer.answer(Item::Ticket { number: parcel.number, not_taken, held }, needs);
        }
        for item in others {
            self.take_item(now, from, item);
        }
    }

    fn begin_part(&mut self, publication: &mut Publication<'_>, part_of: Option<MoveNumber>) {
        publication.whole = part_of.is_some();
        publication.moving = part_of;
        if let (Some(number), Some(ledger)) = (part_of, self.ledger()) {
            ledger.begin_part(number);
        }
    }

    /// Answers how far the ticket has to wait for what the publication led to.
    fn end_part(
        &mut self,
        publication: &mut Publication<'_>,
        outcome: Outcome,
        from: ShardId,
        number: u64,
    ) -> Readiness {
        let Some(ledger) = self.ledger() else { return Readiness::Now };
        if publication.whole {
            // With the part, if nobody here has it.
            publication.body = None;
        }
        ledger.end_part(publication.taken_over(outcome));
        if publication.whole {
            return Readiness::Committed(ledger.lsn());
        }
        if self.owes_letters() {
            return self.ledger().map_or(Readiness::Now, |ledger| Readiness::Committed(ledger.lsn()));
        }
        match &publication.body {
            Some(body) => self.gate_ticket(from, number, body, early(publication.parts.qos)),
            None => Readiness::Now,
        }
    }

    /// Everything in a parcel that is not a publication.
    fn take_item(&mut self, now: Instant, from: ShardId, item: Item) {
        match item {
            Item::Ticket { number, not_taken, held } => {
                self.take_ticket(now, from, number, &not_taken, &held);
            }
            Item::Late { number, index, outcome } => {
                let peer = self.peers.get_mut(usize::from(from.0));
                if let Some((gate, outcome)) = peer.and_then(|p| p.late(number, index, outcome)) {
                    self.answer_gate(now, gate, outcome);
                }
            }
            Item::Interest { filter, interest } => self.tree.set_peer_interest(&filter, from, interest),
            Item::Join { group, filter, member } => {
                self.join_group(&group, &filter, member);
            }
            Item::Leave { group, filter, address } => {
                self.drop_member(&group, &filter, address);
            }
            Item::Presence { address, presence } => {
                self.tree.set_presence(address, presence);
            }
            Item::Fence { token } => {
                if let Some(peer) = self.peers.get_mut(usize::from(from.0)) {
                    peer.tell(Item::Passed { token });
                }
            }
            Item::Passed { token } => self.passed(now, token),
            // `take_parcel` keeps these to itself.
            Item::Publish { .. } | Item::Share(_) => {}
        }
    }

    /// Delivers to this shard's own subscribers alone: its publisher's shard has seen to the others.
    fn deliver_here(&mut self, now: Instant, publication: &mut Publication<'_>) -> Outcome {
        let mut matches = std::mem::take(&mut self.matches);
        self.tree.matches(publication.parts.topic, &mut matches);
        let outcome = self.deliver_matches(now, publication, &mut matches);
        self.matches = matches;
        outcome
    }

    /// A ticket: who waits is told, and publishers that waited for room are read again.
    fn take_ticket(
        &mut self,
        now: Instant,
        from: ShardId,
        number: u64,
        not_taken: &[(u32, Outcome)],
        held: &[(u32, u32)],
    ) {
        let Some(peer) = self.peers.get_mut(usize::from(from.0)) else { return };
        let waiters = peer.settle(number);
        for waiter in waiters {
            let index = waiter.index;
            let found = not_taken.binary_search_by_key(&index, |(index, _)| *index);
            let outcome = found.map_or(Outcome::Taken, |at| not_taken[at].1);
            let answers = held.binary_search_by_key(&index, |(index, _)| *index).map_or(0, |at| held[at].1);
            if answers == 0 {
                self.answer_gate(now, waiter.gate, outcome);
            } else if let Some(peer) = self.peers.get_mut(usize::from(from.0)) {
                peer.hold(number, &waiter, answers, outcome);
            }
        }
        if self.peers.get(usize::from(from.0)).is_some_and(Peer::has_room) {
            self.resume_waiting_for(now, from);
        }
        if self.peers.iter().all(Peer::has_room) {
            self.go_on_with_delayed();
        }
    }

    /// A peer has room: publishers that waited for it alone are read again. Who is held up by one peer does not wait for others.
    fn resume_waiting_for(&mut self, now: Instant, peer: ShardId) {
        let freed = |(_, full): &mut (ConnectionId, ShardSet)| full.remove(peer) && full.is_empty();
        let resumed: Vec<_> = self.waiting_for_peer.extract_if(.., freed).collect();
        for (id, _) in resumed {
            self.unpause(now, id, Pause::Peer);
        }
    }

    /// A gate of a publisher's acknowledgement answered: what is due goes out.
    pub(super) fn gate_answered(
        &mut self,
        now: Instant,
        session: SessionId,
        token: AckToken,
        outcome: Outcome,
    ) {
        let Shard { connections, sessions, settings, pool, .. } = self;
        let Some(resident) = sessions.get_mut(session) else { return };
        resident.session.receiver.answer(token, outcome);
        let Some(id) = resident.connection else {
            // Nobody to tell: what is settled is settled in silence.
            while resident.session.receiver.next_due().is_some() {}
            return;
        };
        let Some(connection) = connections.get_mut(id) else { return };
        connection.wire.outbox.lend(pool);
        let answered = resident.session.answer_due(&mut connection.wire);
        let room = resident.session.receiver.unanswered() < usize::from(settings.session.receive_maximum);
        self.touch(id);
        if let Err(violation) = answered {
            self.fail(now, id, violation);
        } else if room {
            self.unpause(now, id, Pause::Unanswered);
        }
    }

    /// Ends one cause not to read; with the last, reading goes on.
    pub(super) fn unpause(&mut self, now: Instant, id: ConnectionId, cause: Pause) {
        if self.connections.get_mut(id).is_some_and(|c| c.unpause(cause, now)) {
            self.resumed(id);
        }
    }
}
