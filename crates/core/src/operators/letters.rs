//! Questions of operators about stored dead letters.

use crate::mqtt::topic;
use crate::operators::budget::{Part, Question, QuestionBudget, Rows};
use crate::persistence::letter::{LetterPlace, StoredLetter};
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
    /// Only letters that were dropped at this time or later, in milliseconds since 1970.
    pub from_ms: u64,
    /// Only letters that were dropped at this time or earlier; `None` for any.
    pub until_ms: Option<u64>,
}

impl LetterFilter {
    /// Returns true if a letter is wanted.
    fn admits(&self, letter: &StoredLetter, budget: &mut QuestionBudget) -> bool {
        let LetterFilter { cause, receiver, topic, from_ms, until_ms } = self;
        let dropped_ms = letter.place.dropped_ms;
        budget.spend(1);
        budget.spend_bytes(topic.as_ref().map_or(0, |_| letter.message.topic().len()));
        dropped_ms >= *from_ms
            && until_ms.is_none_or(|until| dropped_ms <= until)
            && cause.as_ref().is_none_or(|cause| *cause == letter.cause)
            && receiver.as_ref().is_none_or(|receiver| *receiver == letter.receiver)
            && topic.as_ref().is_none_or(|filter| topic::matches(filter, letter.message.topic()))
    }
}

/// Returns the letters before a place, the newest first, that the filter admits, at most `most` and
/// [`ROWS`](crate::operators::budget::ROWS), and fewer if their texts are long or the budget is
/// spent.
pub(super) fn letters(
    question: &mut Question<'_>,
    before: Option<LetterPlace>,
    most: usize,
    filter: &LetterFilter,
) -> Part<Arc<StoredLetter>, LetterPlace> {
    let (mut letters, mut next) = (Rows::new(most), None);
    for letter in question.shard.letters().newest_before(before) {
        if filter.admits(letter, question.budget) {
            letters.push(Arc::clone(letter), letter.message.topic().len() + letter.receiver.len());
        }
        if letters.is_full(question.budget) {
            next = Some(letter.place);
            break;
        }
    }
    letters.part(next)
}
