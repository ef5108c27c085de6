//! A peer batch from another shard is taken apart here, and answered.

use crate::mqtt::charge::Charge;
use crate::mqtt::outcome::Outcome;
use crate::persistence::records::Lsn;
use crate::routing::subscription_tree::ShardId;
use crate::session::inbound::AckToken;
use crate::shard::Shard;
use crate::shard::connection::Pause;
use crate::shard::exchange::outbound::{Gate, Item, Needs, PeerBatch, Readiness};
use crate::shard::fan_out::{MatchedReceivers, PublicationOrigin};
use crate::shard::route::Publication;
use crate::shard::share::SharedDelivery;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;

/// A peer batch that is taken up.
#[derive(Debug)]
pub(in crate::shard) struct Underway {
    from: ShardId,
    number: u64,
    items: std::vec::IntoIter<Item>,
    /// What was not a publication.
    others: Vec<Item>,
    /// Publications so far.
    publications: u32,
    not_taken: Vec<(u32, Outcome)>,
    held: Vec<(u32, u32)>,
    needs: Needs,
    /// Whether it took more than a turn: its ticket is promised.
    put_off: bool,
    /// Of `items`. What is moved from there to `others` is bounded by it too.
    _charge: Charge,
}

impl Underway {
    pub fn new(peer_batch: PeerBatch) -> Underway {
        Underway {
            from: peer_batch.from,
            number: peer_batch.number,
            items: peer_batch.items.into_iter(),
            others: Vec::new(),
            publications: 0,
            not_taken: Vec::new(),
            held: Vec::new(),
            needs: Needs::default(),
            put_off: false,
            _charge: peer_batch.charge,
        }
    }

    /// One more publication of it is delivered, and held so often.
    fn publish(&mut self, outcome: Outcome, held: u32, readiness: Readiness) {
        self.needs.add(readiness);
        if held > 0 {
            self.held.push((self.publications, held));
        }
        if outcome != Outcome::Taken {
            self.not_taken.push((self.publications, outcome));
        }
        self.publications += 1;
    }
}

impl Shard {
    /// Takes in what a peer sent: first the publications, and their ticket, so that it precedes
    /// every late answer to one of them; then the rest in its order, which theirs does not depend
    /// on. Batches of one peer come in their order.
    ///
    /// One that takes more than this turn goes on in later ones, and those after it wait for it.
    pub fn take_peer_batch(&mut self, now: Instant, peer_batch: PeerBatch) {
        if self.fans.any() {
            return self.fans.peer_batches.push_back(peer_batch);
        }
        self.take_up_peer_batch(now, Box::new(Underway::new(peer_batch)));
    }

    /// Goes on with a peer batch as far as this turn goes.
    pub(in crate::shard) fn take_up_peer_batch(&mut self, now: Instant, mut underway: Box<Underway>) {
        let (from, number) = (underway.from, underway.number);
        while let Some(item) = underway.items.next() {
            let index = underway.publications;
            let gate = Gate::Peer { shard: from, number, index };
            match item {
                Item::Publish { message, publisher, transaction } => {
                    let mut publication = Publication::of(&message, publisher);
                    publication.gate = Some(gate);
                    let mut matches = self.router.take_matches();
                    let matched = self.match_at_once(message.topic(), &mut matches);
                    self.begin_participation(&mut publication, transaction);
                    if matched != MatchedReceivers::All {
                        if let Some(write_buffer) = self.write_buffer() {
                            write_buffer.suspend_participation();
                        }
                        self.fan_out(&mut publication, matched, matches, PublicationOrigin::PeerBatch);
                        return self.put_off(underway);
                    }
                    let outcome = self.deliver_matches(now, &mut publication, &mut matches);
                    self.router.give_back_matches(matches);
                    let readiness = self.end_participation(&mut publication, outcome, from, number);
                    underway.publish(outcome, publication.held, readiness);
                }
                Item::Share(share) => {
                    let mut publication = Publication::of(&share.message, None);
                    self.begin_participation(&mut publication, share.transaction);
                    let (outcome, held) = match self.take_share(now, &share, &mut publication, gate) {
                        SharedDelivery::Settled(outcome) => (outcome, 0),
                        // The next member's shard will say, or the member that holds it.
                        SharedDelivery::Underway { .. } | SharedDelivery::Held => (Outcome::Unmatched, 1),
                    };
                    let readiness = self.end_participation(&mut publication, outcome, from, number);
                    underway.publish(outcome, held, readiness);
                }
                other => {
                    underway.others.push(other);
                    continue;
                }
            }
            self.turn.charge(1);
            if self.turn.is_over() && underway.items.len() > 0 {
                return self.put_off(underway);
            }
        }
        let Underway { publications, not_taken, held, others, needs, put_off, .. } = *underway;
        let committed = self.write_buffer().map_or(Lsn(0), |write_buffer| write_buffer.last_committed());
        if publications > 0
            && let Some(peer) = self.exchange.peer(from)
        {
            let ticket = Item::Ticket { number, not_taken, held };
            if put_off {
                peer.answer_promised(number, ticket, needs, committed);
            } else {
                peer.answer(ticket, needs);
            }
        }
        for item in others {
            self.take_item(now, from, item);
        }
    }

    /// The rest of the peer batch is taken up in a later turn. No answer passes its ticket.
    fn put_off(&mut self, mut underway: Box<Underway>) {
        if !std::mem::replace(&mut underway.put_off, true)
            && let Some(peer) = self.exchange.peer(underway.from)
        {
            peer.promise(underway.number);
        }
        self.fans.underway = Some(underway);
    }

    /// The publication of the peer batch that took more than a turn is delivered.
    pub(in crate::shard) fn item_delivered(&mut self, publication: &mut Publication<'_>, outcome: Outcome) {
        let Some(mut underway) = self.fans.underway.take() else { return };
        let readiness = self.end_participation(publication, outcome, underway.from, underway.number);
        underway.publish(outcome, publication.held, readiness);
        self.fans.underway = Some(underway);
    }

    /// Everything in a peer batch that is not a publication.
    fn take_item(&mut self, now: Instant, from: ShardId, item: Item) {
        match item {
            Item::Ticket { number, not_taken, held } => {
                self.take_ticket(now, from, number, &not_taken, &held);
            }
            Item::Late { number, index, outcome } => {
                let peer = self.exchange.peer(from);
                if let Some((gate, outcome)) = peer.and_then(|p| p.late(number, index, outcome)) {
                    self.answer_gate(now, gate, outcome);
                }
            }
            Item::Interest { filter, interest } => self.router.set_peer_interest(&filter, from, interest),
            Item::Join { group, filter, member } => {
                self.router.join(&group, &filter, member);
            }
            Item::Leave { group, filter, address } => {
                self.drop_member(&group, &filter, address);
            }
            Item::Presence { address, presence } => {
                self.router.set_presence(address, presence);
            }
            Item::PeerBarrier { token } => {
                if let Some(peer) = self.exchange.peer(from) {
                    peer.tell(Item::Passed { token });
                }
            }
            Item::Passed { token } => self.passed(now, token),
            // `take_peer_batch` keeps these to itself.
            Item::Publish { .. } | Item::Share(_) => {}
        }
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
        let Some(peer) = self.exchange.peer(from) else { return };
        let waiters = peer.settle(number);
        for waiter in waiters {
            let index = waiter.index;
            let found = not_taken.binary_search_by_key(&index, |(index, _)| *index);
            let outcome = found.map_or(Outcome::Taken, |at| not_taken[at].1);
            let answers = held.binary_search_by_key(&index, |(index, _)| *index).map_or(0, |at| held[at].1);
            if answers == 0 {
                self.answer_gate(now, waiter.gate, outcome);
            } else if let Some(peer) = self.exchange.peer(from) {
                peer.hold(number, &waiter, answers, outcome);
            }
        }
        for id in self.exchange.freed_by(from) {
            self.unpause(now, id, Pause::Peer);
        }
        self.go_on_with_delayed();
    }

    /// A gate of a publisher's acknowledgement answered: what is due goes out.
    pub(in crate::shard) fn gate_answered(
        &mut self,
        now: Instant,
        session: SessionId,
        token: AckToken,
        outcome: Outcome,
    ) {
        let Shard { connections, sessions, settings, scratch, .. } = self;
        let Some(session_entry) = sessions.get_mut(session) else { return };
        session_entry.session.receiver.answer(token, outcome);
        let Some(id) = session_entry.connection else {
            // Nobody to tell: what is settled is settled in silence.
            while session_entry.session.receiver.next_due().is_some() {}
            return;
        };
        let Some(connection) = connections.get_mut(id) else { return };
        connection.wire.outbox.lend(&mut scratch.pool);
        let answered = session_entry.session.answer_due(&mut connection.wire);
        let room =
            session_entry.session.receiver.unanswered() < usize::from(settings.session.receive_maximum);
        self.touch(id);
        if let Err(violation) = answered {
            self.fail(now, id, violation);
        } else if room {
            self.unpause(now, id, Pause::Unanswered);
        }
    }

    /// Ends one cause not to read; with the last, reading goes on.
    pub(in crate::shard) fn unpause(&mut self, now: Instant, id: ConnectionId, cause: Pause) {
        if self.connections.get_mut(id).is_some_and(|c| c.unpause(cause, now)) {
            self.resumed(id);
        }
    }
}
