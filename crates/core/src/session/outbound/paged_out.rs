//! The paged-out entries of a queue: stored deliveries whose messages are not in memory.
//!
//! A page is the first few of them. The shard requests one page at a time, and the store reads it.

use crate::mqtt::audit::AuditTag;
use crate::mqtt::charge::Charge;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{BodyNumber, EntryNumber, RecoveredEntry};
use crate::persistence::rows::{Entry, PagedOut};
use crate::session::drops::{DropReason, Dropped, Drops};
use crate::session::objectives::DeliveryMark;
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::portion::{Selection, take_portion};
use std::collections::VecDeque;

/// Entries in one page at most.
const PAGE: usize = 64;

/// Bytes after which no more entries are added to a page.
pub(super) const PAGE_BYTES: usize = 256 * 1024;

/// Returns the first page of paged-out entries and the bytes of its messages.
pub fn page_of(entries: &VecDeque<PagedOut>) -> (Vec<(EntryNumber, BodyNumber)>, usize) {
    let mut bytes = 0;
    let page = entries.iter().take(PAGE).take_while(|e| {
        let has_room = bytes < PAGE_BYTES;
        bytes += if has_room { e.size() } else { 0 };
        has_room
    });
    let named = page.filter_map(|e| Some((e.number(), e.body()?))).collect();
    (named, bytes)
}

/// Marks in the order of their entries.
type Marks = VecDeque<(EntryNumber, DeliveryMark, AuditTag)>;

/// The paged-out entries of one queue, in order.
#[derive(Debug)]
pub(super) struct PagedOutEntries {
    entries: VecDeque<PagedOut>,
    /// The marks of entries that a delivery objective counts or a trace follows, in their order.
    /// `None` if there was none.
    marks: Option<Box<Marks>>,
    /// True while the first page is being read.
    is_reading: bool,
    /// True if the shard knows that the queue waits for its turn to read a page.
    waits_for_turn: bool,
    /// True if some entry came by a shared subscription since there was none.
    shared: bool,
    /// Bytes of the Subscription Identifiers of all entries. Each entry that leaves takes an equal
    /// share: an exact figure would cost space in each entry, and entries of one session are much
    /// alike.
    ids: usize,
    /// The charge of the messages that are being read.
    reserved: Charge,
}

impl PagedOutEntries {
    /// No entries.
    pub(super) const NEW: PagedOutEntries = PagedOutEntries {
        entries: VecDeque::new(),
        marks: None,
        is_reading: false,
        waits_for_turn: false,
        shared: false,
        ids: 0,
        reserved: Charge::NONE,
    };

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes that the row of entries takes.
    pub(super) fn row_bytes(&self) -> usize {
        let marks = self.marks.as_ref().map_or(0, |marks| marks.capacity());
        self.entries.capacity() * size_of::<PagedOut>()
            + marks * size_of::<(EntryNumber, DeliveryMark, AuditTag)>()
    }

    /// Returns the mark of an entry that has just left the front, and the number by which traces
    /// follow its message. Forgets the marks of entries before it, which left by another way: their
    /// deliveries count as late.
    pub(super) fn take_mark(&mut self, number: EntryNumber) -> (DeliveryMark, AuditTag) {
        let nothing = (DeliveryMark::NONE, AuditTag::NONE);
        let Some(marks) = &mut self.marks else { return nothing };
        while marks.pop_front_if(|(earlier, ..)| *earlier < number).is_some() {}
        let found = marks.pop_front_if(|(of, ..)| *of == number);
        if marks.is_empty() {
            self.marks = None;
        }
        found.map_or(nothing, |(_, mark, audit)| (mark, audit))
    }

    /// Pages out the entry of a delivery. The caller accounts for the row.
    pub(super) fn page_out(&mut self, entry: Entry, delivery: &Delivery) {
        let (mark, audit) = (delivery.mark, delivery.message.audit());
        // A mark that nothing counts is not worth 24 bytes for each entry of a long queue.
        if mark.is_counted() || audit.is_some() {
            self.marks.get_or_insert_default().push_back((entry.number(), mark, audit));
        }
        self.shared = delivery.share.is_some() || self.shared && !self.is_empty();
        self.ids += delivery.ids.size();
        self.entries.extend(entry.page_out());
    }

    /// Appends a paged-out entry at the start of the broker. Returns the bytes that it has in the
    /// queue.
    pub(super) fn restore(&mut self, entry: PagedOut, recovered: &RecoveredEntry) -> usize {
        let (ids, message) = (SubscriptionIds::size_of(recovered.ids), entry.size());
        self.shared |= recovered.shared;
        self.ids += ids;
        self.entries.push_back(entry);
        message + ids
    }

    /// Returns the oldest entry.
    pub(super) fn first(&self) -> Option<&PagedOut> {
        self.entries.front()
    }

    /// Removes the oldest entry. Returns the entry, and the bytes that it had in the queue.
    pub(super) fn pop(&mut self) -> Option<(PagedOut, usize)> {
        let oldest = self.entries.pop_front()?;
        let bytes = self.forget(&oldest);
        Some((oldest, bytes))
    }

    /// Removes the oldest entry if it has this number, as [`Self::pop`].
    pub(super) fn pop_if(&mut self, number: EntryNumber) -> Option<(PagedOut, usize)> {
        let oldest = self.entries.pop_front_if(|e| e.number() == number)?;
        let bytes = self.forget(&oldest);
        Some((oldest, bytes))
    }

    /// Iterates over the entries from this one on, in their order, which is that of their numbers.
    pub(super) fn view_from(&self, number: EntryNumber) -> impl Iterator<Item = &PagedOut> {
        self.entries.range(self.entries.partition_point(|entry| entry.number() < number)..)
    }

    /// Removes an entry. Returns the place that it had, and its bytes in the queue. Returns `None`
    /// if there is no such entry.
    pub(super) fn remove(&mut self, number: EntryNumber) -> Option<(usize, usize)> {
        let at = self.entries.iter().position(|entry| entry.number() == number)?;
        let entry = self.entries.remove(at)?;
        Some((at, self.forget(&entry)))
    }

    /// Adjusts the figures for an entry that was removed. Returns the bytes that it had in the
    /// queue.
    fn forget(&mut self, entry: &PagedOut) -> usize {
        let ids = self.ids / (self.entries.len() + 1);
        self.ids -= ids;
        entry.size() + ids
    }

    /// Removes all entries, when nothing else is left of the queue.
    pub(super) fn take(&mut self) -> VecDeque<PagedOut> {
        self.ids = 0;
        std::mem::take(&mut self.entries)
    }

    /// Drops entries from the place `from` on, because they have expired. Returns their number, and
    /// the bytes that they had in the queue.
    pub(super) fn drop_selected(
        &mut self,
        from: usize,
        selections: &[Selection],
        drops: &mut Drops,
    ) -> (usize, usize) {
        let (mut left, mut next) = (self.entries.len(), selections.iter());
        let select = |_: &PagedOut| next.next().copied().unwrap_or(Selection::Keep);
        let expired = take_portion(&mut self.entries, from, selections.len(), select);
        drops.spend_bytes(expired.moved * size_of::<PagedOut>());
        let (dropped, mut bytes) = (expired.taken.len(), 0);
        for entry in expired.taken {
            // The same share as in `forget`.
            let ids = self.ids / left.max(1);
            self.ids -= ids;
            left -= 1;
            bytes += entry.size() + ids;
            drops.lose(Dropped::paged_out(DropReason::Expired, entry));
        }
        (dropped, bytes)
    }

    /// True if some entry came by a shared subscription.
    pub(super) fn has_shared(&self) -> bool {
        self.shared && !self.is_empty()
    }

    /// Records that the queue waits for its turn to read a page. Returns true if it did not wait
    /// before.
    pub(super) fn wait_for_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.waits_for_turn, true)
    }

    /// Records that the queue's turn has come.
    pub(super) fn turn_came(&mut self) {
        self.waits_for_turn = false;
    }

    /// True if there is a page to read and none is being read.
    pub(super) fn has_next_page(&self) -> bool {
        !self.is_reading && !self.is_empty()
    }

    /// Begins to read the first page. Returns its entries.
    pub(super) fn begin_page(&mut self) -> Vec<(EntryNumber, BodyNumber)> {
        self.is_reading = true;
        let (page, bytes) = page_of(&self.entries);
        // Charged from now on, because many pages are requested before the first one arrives.
        self.reserved.set(bytes + self.ids / self.entries.len().max(1) * page.len());
        page
    }

    /// Records that the page was read.
    pub(super) fn end_page(&mut self) {
        self.is_reading = false;
        self.reserved.set(0);
    }

    /// Frees the row of a drained queue. A short row stays.
    pub(super) fn give_back_row(&mut self) {
        if self.entries.capacity() > 256 && self.entries.len() * 4 <= self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}
