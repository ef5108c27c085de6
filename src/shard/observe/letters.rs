//! Questions of operators about stored dead letters.

use crate::mqtt::topic;
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::shard::core::Core;
use crate::shard::observe::message_summary::ROWS;
use std::sync::Arc;

/// Letters that one question looks at most: 0.3 ms at 70 ns each.
const LOOKED_AT: usize = 4_096;

/// The dead letters that an operator wants to see. The default admits all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LetterFilter {
    /// The name of the cause.
    pub cause: Option<Box<str>>,
    /// The receiver: a Client Identifier, or `$share/<group>`.
    pub receiver: Option<Box<str>>,
    /// A Topic Filter for the topic of the message.
    pub topic: Option<Box<str>>,
}

impl LetterFilter {
    /// Returns true if a letter is wanted.
    fn admits(&self, letter: &StoredLetter) -> bool {
        let LetterFilter { cause, receiver, topic } = self;
        cause.as_ref().is_none_or(|cause| *cause == letter.cause)
            && receiver.as_ref().is_none_or(|receiver| *receiver == letter.receiver)
            && topic.as_ref().is_none_or(|filter| topic::matches(filter, letter.message.topic()))
    }
}

/// A part of the dead letters of one shard, the newest first.
#[derive(Clone, Debug, Default)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<Arc<StoredLetter>>,
    /// The place before which the next question looks; `None` at the end.
    pub next: Option<LetterPlace>,
}

impl LetterPage {
    /// Returns the letters before a place that the filter admits, at most `most` and [`ROWS`].
    pub(super) fn before(
        place: Option<LetterPlace>,
        most: usize,
        filter: &LetterFilter,
        core: &Core,
    ) -> LetterPage {
        let mut page = LetterPage::default();
        for (looked_at, letter) in core.letters.newest_before(place).enumerate() {
            if filter.admits(letter) {
                page.letters.push(Arc::clone(letter));
            }
            if page.letters.len() >= most.clamp(1, ROWS) || looked_at + 1 >= LOOKED_AT {
                page.next = Some(letter.place);
                break;
            }
        }
        page
    }
}
