//! The work that one question of an operator may do in one turn, and the length of its answer.

use crate::shard::view::ShardView;
use crate::time::Instant;

/// Steps of one question: 0.1 to 0.8 ms at 20 to 200 ns each. A question that needs more returns
/// the place at which the next one goes on. So no question holds a turn up, whatever the clients
/// have made the broker hold.
pub const STEPS: u32 = 4_096;

/// Sessions, messages or filters in one answer at most.
pub const ROWS: usize = 256;

/// Bytes of client identifiers, topics and filters after which an answer ends. Each may have 64
/// KiB.
pub const BYTES: usize = 256 << 10;

/// Bytes of texts that are compared or copied for one step.
const BYTES_OF_STEP: usize = 128;

/// The steps of one question: how many it has, and how many are spent.
#[derive(Debug)]
pub struct QuestionBudget {
    most: u32,
    spent: u32,
}

impl Default for QuestionBudget {
    fn default() -> QuestionBudget {
        QuestionBudget::of(STEPS)
    }
}

impl QuestionBudget {
    /// Returns a budget of this many steps.
    pub const fn of(most: u32) -> QuestionBudget {
        QuestionBudget { most, spent: 0 }
    }

    /// Spends steps. The caller may do so before or after the work.
    pub fn spend(&mut self, steps: usize) {
        self.spent = self.spent.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    /// Spends the steps of texts with this many bytes: none for short ones.
    pub fn spend_bytes(&mut self, bytes: usize) {
        self.spend(bytes / BYTES_OF_STEP);
    }

    /// Returns true if the question ends here.
    pub fn is_spent(&self) -> bool {
        self.spent >= self.most
    }

    /// Returns the steps that are left.
    pub fn left(&self) -> u32 {
        self.most.saturating_sub(self.spent)
    }

    /// Returns the steps that are spent. The last thing that was looked at may exceed the budget.
    pub fn spent(&self) -> u32 {
        self.spent
    }
}

/// One question to a shard, with its budget of steps.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub now: Instant,
    pub shard: ShardView<'a>,
    pub budget: &'a mut QuestionBudget,
}

/// A part of the rows that a question asks for.
#[derive(Clone, Debug)]
pub struct Part<T, P> {
    /// The rows.
    pub rows: Vec<T>,
    /// The place with which the next question goes on; `None` at the end.
    pub next: Option<P>,
}

impl<T, P> Part<T, P> {
    /// Returns no rows. The first question begins at `next`.
    pub fn empty(next: Option<P>) -> Part<T, P> {
        Part { rows: Vec::new(), next }
    }
}

/// The rows of an answer so far, with their bounds.
#[derive(Debug)]
pub(super) struct Rows<T> {
    rows: Vec<T>,
    most: usize,
    /// Bytes of the texts of the rows.
    bytes: usize,
}

impl<T> Rows<T> {
    /// Returns an empty answer with room for `most` rows: for one at least, and for [`ROWS`] at
    /// most.
    pub(super) fn new(most: usize) -> Rows<T> {
        Rows { rows: Vec::new(), most: most.clamp(1, ROWS), bytes: 0 }
    }

    /// Adds a row whose texts have this many bytes.
    pub(super) fn push(&mut self, row: T, bytes: usize) {
        self.rows.push(row);
        self.bytes += bytes;
    }

    /// Returns the rows as the part of an answer that goes on at `next`.
    pub(super) fn part<P>(self, next: Option<P>) -> Part<T, P> {
        Part { rows: self.rows, next }
    }

    /// Returns the number of rows that have room, beside the bytes of their texts.
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.rows.len())
    }

    /// Returns true if the answer ends here: it has no room, or the budget is spent.
    pub(super) fn is_full(&self, budget: &QuestionBudget) -> bool {
        self.room() == 0 || self.bytes >= BYTES || budget.is_spent()
    }
}
