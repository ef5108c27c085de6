//! A parcel from another shard is taken apart here, and answered.

use super::commit::early;
use super::connection::Pause;
use super::exchange::{Gate, Item, Needs, Parcel, Peer, Readiness};
use super::fan::{Matched, Origin};
use super::route::Publication;
use super::share::Shared;
use super::{ConnectionId, SessionId, Shard};
use crate::journal::record::{Lsn, MoveNumber};
use crate::mqtt::session::receiver::{AckToken, Outcome};
use crate::routing::subscription_tree::{ShardId, ShardSet};
use crate::time::Instant;

/// A parcel that is taken up.
#[derive(Debug)]
pub(super) struct Underway {
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
}

impl Underway {
    pub fn new(parcel: Parcel) -> Underway {
        Underway {
            from: parcel.from,
            number: parcel.number,
            items: parcel.items.into_iter(),
            others: Vec::new(),
            publications: 0,
            not_taken: Vec::new(),
            held: Vec::new(),
            needs: Needs::default(),
            put_off: false,
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
    /// Takes in what a peer sent: first the publications, and their ticket, so that it precedes every late answer to one
    /// of them; then the rest in its order, which theirs does not depend on. Parcels of one peer come in their order.
    ///
    /// One that takes more than this turn goes on in later ones, and those after it wait for it.
    pub fn take_parcel(&mut self, now: Instant, parcel: Parcel) {
        if self.fans.any() {
            return self.fans.parcels.push_back(parcel);
        }
        self.take_up_parcel(now, Box::new(Underway::new(parcel)));
    }

    /// Goes on with a parcel as far as this turn goes.
    pub(super) fn take_up_parcel(&mut self, now: Instant, mut underway: Box<Underway>) {
        let (from, number) = (underway.from, underway.number);
        while let Some(item) = underway.items.next() {
            let index = underway.publications;
            let gate = Gate::Peer { shard: from, number, index };
            match item {
                Item::Publish { message, publisher, part_of } => {
                    let mut publication = Publication::of(&message, publisher);
                    publication.gate = Some(gate);
                    let mut matches = std::mem::take(&mut self.matches);
                    let matched = self.match_at_once(message.topic(), &mut matches);
                    self.begin_part(&mut publication, part_of);
                    if matched != Matched::All {
                        if let Some(ledger) = self.ledger() {
                            ledger.suspend_part();
                        }
                        self.fan_out(&mut publication, matched, matches, Origin::Parcel);
                        return self.put_off(underway);
                    }
                    let outcome = self.deliver_matches(now, &mut publication, &mut matches);
                    self.matches = matches;
                    let readiness = self.end_part(&mut publication, outcome, from, number);
                    underway.publish(outcome, publication.held, readiness);
                }
                Item::Share(share) => {
                    let mut publication = Publication::of(&share.message, None);
                    self.begin_part(&mut publication, share.part_of);
                    let (outcome, held) = match self.take_share(now, &share, &mut publication, gate) {
                        Shared::Settled(outcome) => (outcome, 0),
                        // The next member's shard will say, or the member that holds it.
                        Shared::Underway { .. } | Shared::Held => (Outcome::Unmatched, 1),
                    };
                    let readiness = self.end_part(&mut publication, outcome, from, number);
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
        let committed = self.ledger().map_or(Lsn(0), |ledger| ledger.last_committed());
        if publications > 0
            && let Some(peer) = self.peers.get_mut(usize::from(from.0))
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

    /// The rest of the parcel is taken up in a later turn. No answer passes its ticket.
    fn put_off(&mut self, mut underway: Box<Underway>) {
        if !std::mem::replace(&mut underway.put_off, true)
            && let Some(peer) = self.peers.get_mut(usize::from(underway.from.0))
        {
            peer.promise(underway.number);
        }
        self.fans.underway = Some(underway);
    }

    /// The publication of the parcel that took more than a turn is delivered.
    pub(super) fn item_delivered(&mut self, publication: &mut Publication<'_>, outcome: Outcome) {
        let Some(mut underway) = self.fans.underway.take() else { return };
        let readiness = self.end_part(publication, outcome, underway.from, underway.number);
        underway.publish(outcome, publication.held, readiness);
        self.fans.underway = Some(underway);
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
        self.go_on_with_delayed();
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
