//! Questions to the shards, for the answers to programs and for the pages.

pub(super) mod ask;
pub(super) mod by_filter;
pub(super) mod delayed;
pub(super) mod far_sides;
pub(super) mod letters;
mod oldest_queued;
mod one_page;
pub(super) mod retained;
pub(super) mod sessions;
pub(super) mod slow;
pub(super) mod sorted;
pub(super) mod sorted_pass;
pub(super) mod stuck;
pub(super) mod target;
pub(super) mod unfinished;
mod verdicts;
pub(super) mod waiting_receiver;
pub(super) mod waits;
pub(super) mod whereabouts;
