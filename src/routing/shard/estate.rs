//! Shared messages that nobody has room for now, and what sessions that ended have left in the store alone.
//!
//! | where a message comes from | where it waits |
//! |---|---|
//! | the head of a queue, in memory, of a session that ended | in memory, or in the store where it is stored |
//! | the tail of that queue, in the store alone | in the store |
//! | a peer, whose session ended, and all members refused it here | as above |
//!
//! Another member gets it as soon as one of this shard has room in messages and in bytes. Room of members in other shards is
//! not known here. Where this shard has members too, the others are asked with one message at each regular work, and with
//! whole pages while they take them. Who refuses keeps the message in its own shard, where its members' room is known.
//!
//! Dead letters may be due for what is in the store alone, so all of it is read back: one session's after the other's, a page
//! at a time, however many end at once. Until then it stays in the store: after a crash, or a stop, it is taken up again, and
//! what was not shared is counted.
//!
//! Bounds: what waits in memory was in a queue before, within its bounds, and counts against `limits.memory` as it did there:
//! publishes are refused while that is used up. What waits in the store takes some 110 B of memory each.

use super::commit::PageRequest;
use super::exchange::Gate;
use super::share::Shared;
use super::slots::Id;
use super::subscribe::Then;
use super::{Resident, SessionId, Shard};
use crate::journal::ledger::{Body, Owed, Parked};
use crate::journal::record::{ReadEntry, SessionKey};
use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use crate::mqtt::packet::QoS;
use crate::mqtt::session::loss::{LossCause, Lost};
use crate::mqtt::session::queue::{Unread, page_of};
use crate::mqtt::session::receiver::Outcome;
use crate::mqtt::session::sender::SendPolicy;
use crate::mqtt::session::subscription::SubscriptionIds;
use crate::mqtt::session::terms::SessionTerms;
use crate::time::Instant;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// In place of a session that ended before the broker started.
const BEFORE_THE_START: SessionId = Id::new(u32::MAX, u32::MAX);

/// In place of a session, of messages that all members of their group refused.
const REFUSED_BY_ALL: SessionId = Id::new(u32::MAX, u32::MAX - 1);

/// Messages in memory that are offered in one turn at most.
const OFFERED_AT_ONCE: usize = 256;

/// Estates at most of which a session is asked, each time it has acknowledged something, whether it is what they wait for.
const ASKED_FOR: usize = 8;

/// Estates that are looked at in one turn at most.
const LOOKED_AT: usize = 64;

/// What one session left, or what a group could not take.
#[derive(Debug)]
pub(super) struct Estate {
    /// Which session it was; nothing has its slot and generation any more.
    session: SessionId,
    /// Not known of those that ended before the start, and of several.
    client_id: Option<Box<str>>,
    terms: Arc<SessionTerms>,
    /// In memory, older than what is `left`.
    kept: VecDeque<Waiting>,
    left: VecDeque<Parked>,
    /// What the first of them waits for.
    blocked: Option<Blocked>,
    peers: Peers,
    /// Of the rows and the client id, as long as they were at most.
    charge: Charge,
}

impl Estate {
    /// After the rows have grown. They keep their room until the estate is settled.
    fn account(&mut self) {
        let id = self.client_id.as_ref().map_or(0, |id| id.len());
        let rows = self.left.capacity() * size_of::<Parked>() + self.kept.capacity() * size_of::<Waiting>();
        self.charge.set(size_of::<Estate>() + id + rows);
    }
}

/// A shared message that waits in memory.
#[derive(Debug)]
struct Waiting {
    message: Message,
    /// The full filter, `$share/...`.
    share: Arc<Box<str>>,
}

/// Room in a group for a message of this size.
#[derive(Debug)]
struct Blocked {
    share: Arc<Box<str>>,
    size: usize,
    /// When there is nothing to wait for any more.
    expires: Instant,
}

/// Whether members in other shards are offered anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peers {
    /// They took the last.
    Freely,
    /// One message, to see.
    Once,
    /// They refused the last: not before the next regular work.
    No,
}

/// In the order in which their sessions ended, as long as there is room.
#[derive(Debug, Default)]
pub(super) struct Estates {
    waiting: VecDeque<Estate>,
    /// Whether a page of the first was asked for.
    asked: bool,
    /// Of its messages.
    reserved: Charge,
    /// Whether peers have yet to tell, at the start, which of their sessions are in which group.
    fenced: bool,
    /// Messages of the first that other shards have yet to answer for.
    underway: u32,
    /// Whether one of them was refused.
    refused: bool,
    /// Something may have room that had none.
    nudged: bool,
    /// Under which entries are stored that belong to no session.
    key: Option<SessionKey>,
}

impl Estates {
    /// Deliveries that are not settled.
    pub fn unsettled(&self) -> usize {
        let waiting = self.waiting.iter().map(|estate| estate.kept.len() + estate.left.len());
        waiting.sum::<usize>() + self.underway as usize
    }

    /// Whether nothing waits: all that most calls have to ask.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn is_nudged(&self) -> bool {
        self.nudged && !self.asked && !self.fenced && self.underway == 0
    }

    /// Something has changed that an estate may wait for: it is looked at when the turn ends.
    fn nudge(&mut self) {
        self.nudged = !self.waiting.is_empty();
    }

    /// Some group has lost a member: the last of this shard, maybe, that would tell of its room, or the last of all.
    pub fn member_left(&mut self) {
        self.ask_peers();
        self.nudge();
    }

    fn ask_peers(&mut self) {
        for estate in self.waiting.iter_mut().take(LOOKED_AT).filter(|e| e.peers == Peers::No) {
            estate.peers = Peers::Once;
        }
    }

    /// The last estate, if it takes more of this kind; else a new one.
    fn last_of(&mut self, session: SessionId, terms: &Arc<SessionTerms>, peers: Peers) -> &mut Estate {
        if self.waiting.back().is_none_or(|last| last.session != session) {
            let (terms, kept, left) = (Arc::clone(terms), VecDeque::new(), VecDeque::new());
            let charge = Charge::NONE;
            let estate = Estate { session, client_id: None, terms, kept, left, blocked: None, peers, charge };
            self.waiting.push_back(estate);
        }
        let last = self.waiting.len() - 1;
        &mut self.waiting[last]
    }
}

impl Shard {
    /// A session has ended. `parked`: shared messages of its queue's head for which nobody has room now, older than what is
    /// `unread`. Answers how many of what it left unread are lost with it: none, if others may have some of them.
    pub(super) fn leave_unread(
        &mut self,
        now: Instant,
        session: SessionId,
        client_id: &str,
        terms: &Arc<SessionTerms>,
        parked: VecDeque<Parked>,
        unread: Unread,
    ) -> usize {
        let lost = unread.entries.len();
        let read = lost > 0 && (unread.shared || terms.keep_what_waits());
        if read || !parked.is_empty() {
            let estate = self.estates.last_of(session, terms, Peers::Freely);
            estate.client_id.get_or_insert_with(|| client_id.into());
            estate.left.extend(parked);
            estate.account();
            if read {
                estate.left.extend(unread.entries);
                estate.account();
                self.settle_estates(now);
                return if unread.shared { 0 } else { lost };
            }
            self.settle_estates(now);
        }
        for _ in 0..lost {
            self.lose_with_session(client_id, terms, Lost::new(LossCause::SessionEnded, None), true);
        }
        lost
    }

    /// At the start: what sessions had left that ended before. It is read when the members of every group are known.
    pub(super) fn leave_heirless(&mut self, now: Instant, left: VecDeque<Parked>) {
        if left.is_empty() {
            return;
        }
        let nobody = Arc::clone(self.rules.nobody());
        let estate = self.estates.last_of(BEFORE_THE_START, &nobody, Peers::Freely);
        estate.left.extend(left);
        estate.account();
        self.estates.fenced = self.shards > 1;
        if self.estates.fenced {
            self.raise_fence(Then::ReadEstates);
        }
        self.settle_estates(now);
    }

    /// Every peer has told.
    pub(super) fn members_are_known(&mut self, now: Instant) {
        self.estates.fenced = false;
        self.settle_estates(now);
    }

    /// A message is owed to a group of which no member takes it now: it waits for one that does. `stored`: it was in the store,
    /// and stays there, recorded in the batch or part in which it left its session. `body`: what other entries of it here
    /// refer to. Returns false if it is to be lost: no queue can ever take it.
    pub(super) fn keep_owed(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        stored: bool,
        body: &mut Option<Rc<Body>>,
    ) -> bool {
        let (size, qos) = (message.size(), message.header().qos);
        if qos == QoS::AtMostOnce || size > self.largest_queue_bytes() {
            return false;
        }
        let ledger = self.ledger().filter(|_| stored).cloned();
        let nobody = Arc::clone(self.rules.nobody());
        let key = ledger.as_ref().map(|l| *self.estates.key.get_or_insert_with(|| l.session_key()));
        // Who refused last is of this shard, and tells when it has room. Where nobody here is in the group any more, it goes on.
        let tells = self.room_in_group(now, share, size).is_some_and(|room| room.members_here);
        let estate = self.estates.last_of(REFUSED_BY_ALL, &nobody, Peers::No);
        if estate.kept.is_empty() && estate.left.is_empty() {
            let expires = message.header().expires;
            estate.blocked = Some(Blocked { share: Arc::clone(share), size, expires });
        }
        if let Some((ledger, key)) = ledger.zip(key) {
            let body = body.get_or_insert_with(|| ledger.body(message));
            let (retain, ids) = (message.header().retain, &SubscriptionIds::None);
            let entry = ledger.entry(key, body, Owed { qos, retain, ids, share: Some(share), flight: None });
            estate.left.extend(entry.park());
        } else {
            estate.kept.push_back(Waiting { message: message.clone(), share: Arc::clone(share) });
        }
        estate.account();
        if !tells {
            self.estates.nudge();
        }
        true
    }

    /// Of the regular work: members in other shards are asked again.
    pub(super) fn ask_for_estates(&mut self, now: Instant) {
        self.estates.ask_peers();
        self.settle_estates(now);
    }

    /// A session of this shard may have room: is it what one of the first estates waits for?
    pub(super) fn has_room_for_estates(&mut self, now: Instant, id: SessionId) {
        let Some(resident) = self.sessions.get(id) else { return };
        let policy = &self.settings.session.send;
        let mut blocked = self.estates.waiting.iter().take(ASKED_FOR).filter_map(|e| e.blocked.as_ref());
        let may = blocked.any(|Blocked { share, size, .. }| {
            resident.session.subscriptions.contains(share) && resident.has_room_for_owed(now, *size, policy)
        });
        self.estates.nudged |= may;
    }

    /// Gives away what there is room for, as far as that goes at once.
    pub(super) fn settle_estates(&mut self, now: Instant) {
        self.estates.nudged = false;
        for at in 0..LOOKED_AT.min(self.estates.waiting.len()) {
            if at > 0 && self.turn.is_over() {
                // The others in another turn.
                return self.estates.nudge();
            }
            let Estates { waiting, asked, fenced, underway, .. } = &mut self.estates;
            if *asked || *fenced || self.stopping || *underway > 0 {
                return;
            }
            let Some(mut estate) = waiting.pop_front() else { return };
            if let Some(Blocked { share, size, expires }) = &estate.blocked
                && *expires > now
                && !self.may_offer(now, share, *size, estate.peers)
            {
                self.estates.waiting.push_back(estate);
                continue;
            }
            estate.blocked = None;
            self.offer_kept(now, &mut estate);
            if self.estates.underway > 0 {
                // Even empty: the answers are for the first.
                return self.estates.waiting.push_front(estate);
            }
            if estate.kept.is_empty() && estate.left.is_empty() {
                continue;
            }
            if estate.blocked.is_some() {
                self.estates.waiting.push_back(estate);
                continue;
            }
            if !estate.kept.is_empty() {
                // The rest in another turn.
                self.estates.waiting.push_front(estate);
                return self.estates.nudge();
            }
            let (wanted, bytes) = page_of(&estate.left);
            let request = PageRequest { session: estate.session, wanted };
            self.estates.reserved.set(bytes);
            self.estates.waiting.push_front(estate);
            self.estates.asked = true;
            return self.read_back(request);
        }
    }

    /// Whether a shared message has nobody now who may take it.
    pub(super) fn must_wait(&mut self, now: Instant, message: &Message, share: &str) -> bool {
        let size = message.size();
        size <= self.largest_queue_bytes()
            && !message.is_expired(now)
            && !self.may_offer(now, share, size, Peers::Freely)
    }

    /// Whether somebody may take a shared message of this size: a member here has room, or those of peers are to be asked. Of a
    /// group that is gone there is nothing to wait for.
    pub(super) fn may_offer(&mut self, now: Instant, share: &str, size: usize, peers: Peers) -> bool {
        match self.room_in_group(now, share, size) {
            // Without a member here, whose room would be known, it is better off with a shard that has one.
            Some(Room { here, members_here, elsewhere }) => {
                here || elsewhere && (peers != Peers::No || !members_here)
            }
            None => true,
        }
    }

    /// Offers what an estate has in memory, a bounded number, until there is no room.
    fn offer_kept(&mut self, now: Instant, estate: &mut Estate) {
        for at in 0..OFFERED_AT_ONCE {
            if at > 0 && self.turn.is_over() {
                return;
            }
            let Some(Waiting { message, share }) = estate.kept.front() else { return };
            if !self.is_to_be_offered(now, message, share, &mut estate.blocked, estate.peers) {
                return;
            }
            let Some(Waiting { message, share }) = estate.kept.pop_front() else { return };
            self.turn.charge(1);
            self.offer_owed(now, message, &share, false, &mut estate.peers);
        }
    }

    fn is_to_be_offered(
        &mut self,
        now: Instant,
        message: &Message,
        share: &Arc<Box<str>>,
        blocked: &mut Option<Blocked>,
        peers: Peers,
    ) -> bool {
        let (size, expires) = (message.size(), message.header().expires);
        if expires <= now || self.may_offer(now, share, size, peers) {
            return true;
        }
        *blocked = Some(Blocked { share: Arc::clone(share), size, expires });
        false
    }

    fn offer_owed(
        &mut self,
        now: Instant,
        message: Message,
        share: &Arc<Box<str>>,
        stored: bool,
        peers: &mut Peers,
    ) {
        // QoS 0 is answered by nobody.
        let gate = (message.header().qos != QoS::AtMostOnce).then_some(Gate::Estate);
        if let Shared::Underway { .. } = self.share_again(now, message, share, stored, gate)
            && gate.is_some()
        {
            self.estates.underway += 1;
            if *peers == Peers::Once {
                *peers = Peers::No;
            }
        }
    }

    /// Another shard says what became of a message of the first estate.
    pub(super) fn estate_answered(&mut self, now: Instant, outcome: Outcome) {
        let Estates { waiting, underway, refused, .. } = &mut self.estates;
        *underway = underway.saturating_sub(1);
        *refused |= outcome != Outcome::Taken;
        if *underway > 0 {
            return;
        }
        let peers = if std::mem::take(refused) { Peers::No } else { Peers::Freely };
        if let Some(first) = waiting.front_mut() {
            first.peers = peers;
        }
        self.settle_estates(now);
    }

    /// A page came for no session that there is. One that was asked for before its session ended may be of an estate, too.
    pub(super) fn take_page_of_estate(&mut self, now: Instant, request: &PageRequest, read: Vec<ReadEntry>) {
        if self.stopping {
            return;
        }
        let wanted = request.wanted.first().map(|(number, _)| *number);
        let is_its = |e: &mut Estate| {
            e.session == request.session && e.kept.is_empty() && e.left.front().map(Parked::number) == wanted
        };
        let Some(mut estate) = self.estates.waiting.pop_front_if(is_its) else { return };
        self.estates.asked = false;
        self.estates.reserved.set(0);
        if let Some(ledger) = self.ledger() {
            // Nothing leaves before it is recorded whose it was.
            ledger.begin();
        }
        let mut read = read.into_iter().peekable();
        for (number, _) in &request.wanted {
            let found = read.next_if(|r| r.number == *number);
            if let Some(ReadEntry { message, share: Some(share), .. }) = &found
                && !self.is_to_be_offered(now, message, share, &mut estate.blocked, estate.peers)
            {
                break;
            }
            // It ends with this turn, in the batch that says who has it now.
            let Some(_ends) = estate.left.pop_front_if(|e| e.number() == *number) else { continue };
            let lost = match found {
                Some(ReadEntry { message, share: Some(share), .. }) => {
                    self.offer_owed(now, message, &share, true, &mut estate.peers);
                    continue;
                }
                Some(ReadEntry { message, .. }) => Lost::unsent(LossCause::SessionEnded, message),
                None => Lost::new(LossCause::Unreadable, None),
            };
            match &estate.client_id {
                Some(client_id) => self.lose_with_session(client_id, &estate.terms, lost, true),
                None => self.lose_of_nobody(lost.cause),
            }
        }
        if estate.blocked.is_some() && self.estates.underway == 0 {
            self.estates.waiting.push_back(estate);
        } else if !estate.left.is_empty() || self.estates.underway > 0 {
            // Even empty: the answers are for the first.
            self.estates.waiting.push_front(estate);
        }
        self.settle_estates(now);
    }
}

impl Shard {
    /// Bytes of the largest message that some queue of this shard may take.
    pub(super) fn largest_queue_bytes(&self) -> usize {
        let policy = &self.settings.session.send;
        if self.stored.is_some() {
            policy.queue.bytes.max(policy.stored_queue.bytes)
        } else {
            policy.queue.bytes
        }
    }
}

impl Resident {
    /// Whether its queue takes a message of this size that an ended session leaves, behind nobody that waits outside it.
    pub(super) fn has_room_for_owed(&self, now: Instant, size: usize, policy: &SendPolicy) -> bool {
        let limits = self.session.queue_limits(policy);
        !self.holds() && self.session.sender.may_have_room(now, size, limits)
    }
}

/// Who of a group may take a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// A member of this shard has room.
    pub here: bool,
    /// Members of this shard were among those that were looked at.
    pub members_here: bool,
    /// There are members in other shards, of whom that is not known.
    pub elsewhere: bool,
}
