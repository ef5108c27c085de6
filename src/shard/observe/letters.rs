//! Questions of operators about stored dead letters.

use crate::mqtt::topic;
use crate::persistence::letter::{LetterPlace, StoredLetter};
use crate::shard::core::Core;
use crate::shard::observe::budget::QuestionBudget;
use crate::shard::observe::message_summary::{BYTES, ROWS};
use std::sync::Arc;

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
    fn admits(&self, letter: &StoredLetter, budget: &mut QuestionBudget) -> bool {
        let LetterFilter { cause, receiver, topic } = self;
        budget.spend(1);
        budget.spend_bytes(topic.as_ref().map_or(0, |_| letter.message.topic().len()));
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
    /// Returns the letters before a place that the filter admits, at most `most` and [`ROWS`], and
    /// fewer if their texts are long or the budget is spent.
    pub(super) fn before(
        place: Option<LetterPlace>,
        most: usize,
        filter: &LetterFilter,
        budget: &mut QuestionBudget,
        core: &Core,
    ) -> LetterPage {
        let (mut page, mut bytes) = (LetterPage::default(), 0);
        for letter in core.dead_letters.stored.newest_before(place) {
            if filter.admits(letter, budget) {
                bytes += letter.message.topic().len() + letter.receiver.len();
                page.letters.push(Arc::clone(letter));
            }
            if page.letters.len() >= most.clamp(1, ROWS) || bytes >= BYTES || budget.is_spent() {
                page.next = Some(letter.place);
                break;
            }
        }
        page
    }
}
