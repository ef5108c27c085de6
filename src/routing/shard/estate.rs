//! What sessions that ended have left in the store alone: the tail of a long queue.
//!
//! Shared messages among it go to other members of their groups, and dead letters may be due, so it is read back: one
//! session's after the other's, a page at a time, however many end at once. Until then it stays in the store, its session or not:
//! after a crash, or a stop, it is taken up again, and what was not shared is counted.

use super::commit::PageRequest;
use super::share::Shared;
use super::slots::Id;
use super::subscribe::Then;
use super::{SessionId, Shard};
use crate::journal::ledger::Parked;
use crate::journal::record::ReadEntry;
use crate::mqtt::session::loss::{LossCause, Lost};
use crate::mqtt::session::queue::{Unread, page_of};
use crate::mqtt::session::terms::SessionTerms;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// In place of a session that ended before the broker started.
const BEFORE_THE_START: SessionId = Id::new(u32::MAX, u32::MAX);

/// What one session left.
#[derive(Debug)]
pub(super) struct Estate {
    /// Which session it was; nothing has its slot and generation any more.
    session: SessionId,
    /// Not known of those that ended before the start.
    client_id: Option<Box<str>>,
    terms: Arc<SessionTerms>,
    left: VecDeque<Parked>,
}

/// In the order in which their sessions ended.
#[derive(Debug, Default)]
pub(super) struct Estates {
    waiting: VecDeque<Estate>,
    /// Whether a page of the first was asked for.
    asked: bool,
    /// Whether peers have yet to tell, at the start, which of their sessions are in which group.
    fenced: bool,
}

impl Estates {
    /// Deliveries that are not settled.
    pub fn unsettled(&self) -> usize {
        self.waiting.iter().map(|estate| estate.left.len()).sum()
    }
}

impl Shard {
    /// A session has ended. Answers how many of what it left unread are lost with it: none, if others may have some of them.
    pub(super) fn leave_unread(
        &mut self,
        session: SessionId,
        client_id: &str,
        terms: &Arc<SessionTerms>,
        unread: Unread,
    ) -> usize {
        let lost = unread.entries.len();
        if lost == 0 {
            return 0;
        }
        if unread.shared || terms.keep_what_waits() {
            let lost = if unread.shared { 0 } else { lost };
            let (client_id, terms, left) = (Some(client_id.into()), Arc::clone(terms), unread.entries);
            self.estates.waiting.push_back(Estate { session, client_id, terms, left });
            self.read_estate();
            return lost;
        }
        for _ in 0..lost {
            self.lose_with_session(client_id, terms, Lost::new(LossCause::SessionEnded, None), true);
        }
        lost
    }

    /// At the start: what sessions had left that ended before. It is read when the members of every group are known.
    pub(super) fn leave_heirless(&mut self, left: VecDeque<Parked>) {
        if left.is_empty() {
            return;
        }
        let (session, terms) = (BEFORE_THE_START, Arc::clone(self.rules.nobody()));
        self.estates.waiting.push_back(Estate { session, client_id: None, terms, left });
        self.estates.fenced = self.shards > 1;
        if self.estates.fenced {
            self.raise_fence(Then::ReadEstates);
        }
        self.read_estate();
    }

    /// Every peer has told.
    pub(super) fn members_are_known(&mut self) {
        self.estates.fenced = false;
        self.read_estate();
    }

    /// Asks for the next page, if there is anything left and none was asked for. Of the regular work too: after a page of which
    /// something went elsewhere, or for which nobody had room.
    pub(super) fn read_estate(&mut self) {
        let Estates { waiting, asked, fenced } = &self.estates;
        let may = !asked && !fenced && !self.stopping;
        let Some(first) = waiting.front().filter(|_| may) else { return };
        let request = PageRequest { session: first.session, wanted: page_of(&first.left) };
        self.estates.asked = true;
        self.read_back(request);
    }

    /// A page came for no session that there is. One that was asked for before its session ended may be of an estate, too.
    ///
    /// What nobody has room for now stays where it is, and other estates come first. Whether a member of another shard has room is
    /// not known here: such a page is the last until the next regular work, so that no member is given more than it takes.
    pub(super) fn take_page_of_estate(&mut self, now: Instant, request: &PageRequest, read: Vec<ReadEntry>) {
        if self.stopping {
            return;
        }
        let wanted = request.wanted.first().map(|(number, _)| *number);
        let is_its =
            |e: &mut Estate| e.session == request.session && e.left.front().map(Parked::number) == wanted;
        let Some(mut estate) = self.estates.waiting.pop_front_if(is_its) else { return };
        self.estates.asked = false;
        if let Some(ledger) = self.ledger() {
            // Nothing leaves before it is recorded whose it was.
            ledger.begin();
        }
        let (mut read, mut waits) = (read.into_iter().peekable(), false);
        for (number, _) in &request.wanted {
            let found = read.next_if(|r| r.number == *number);
            if let Some(ReadEntry { share: Some(share), .. }) = &found
                && !self.has_room_in_group(share)
            {
                waits = true;
                break;
            }
            // It ends with this turn, in the batch that says who has it now.
            let Some(_ends) = estate.left.pop_front_if(|e| e.number() == *number) else { continue };
            let lost = match found {
                Some(ReadEntry { message, share: Some(share), .. }) => {
                    waits |= matches!(self.share_again(now, message, &share, true), Shared::Underway { .. });
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
        if !estate.left.is_empty() {
            self.estates.waiting.push_back(estate);
        }
        if !waits {
            self.read_estate();
        }
    }
}
