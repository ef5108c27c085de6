//! The lines of the log on their way to the export by OTLP.
//!
//! A thread that logs copies its line into a queue, as for standard error, and never waits. The
//! queue has a bound in lines and in bytes; beyond it the oldest lines go, and are counted. Lines
//! of the thread that exports are left out, so that a failed export never makes the next one.

use serde_json::Value;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::Level;

/// Lines that wait at most: a minute and more at the default rate.
const LINES: usize = 8_192;

/// Bytes of the lines that wait at most.
const BYTES: usize = 4 << 20;

/// True while the lines are exported.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

static PENDING: Mutex<Backlog<TappedLine>> = Mutex::new(Backlog::new(LINES, BYTES));

thread_local! {
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct TappedLine {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Its level.
    pub level: Level,
    /// The module that logs.
    pub target: &'static str,
    /// The code of the event.
    pub event: String,
    /// The message.
    pub message: String,
    /// The other fields, in their order.
    pub fields: Vec<(&'static str, Value)>,
}

/// A record that takes room in a queue.
pub trait HasSize {
    /// Returns the bytes that the record takes, about.
    fn size(&self) -> usize;
}

impl HasSize for TappedLine {
    fn size(&self) -> usize {
        let text = |value: &Value| value.as_str().map_or(0, str::len);
        let fields = self.fields.iter().map(|(_, value)| size_of_val(value) + 16 + text(value));
        size_of::<TappedLine>() + self.event.len() + self.message.len() + fields.sum::<usize>()
    }
}

/// Records that wait to be exported, the oldest first. The oldest go where the bounds are reached.
#[derive(Debug)]
pub struct Backlog<T> {
    records: VecDeque<T>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
    lost: u64,
}

impl<T: HasSize> Backlog<T> {
    /// Returns an empty queue for this number of records and bytes.
    pub const fn new(most: usize, most_bytes: usize) -> Backlog<T> {
        Backlog { records: VecDeque::new(), bytes: 0, most, most_bytes, lost: 0 }
    }

    /// Adds a record.
    pub fn push(&mut self, record: T) {
        self.bytes += record.size();
        self.records.push_back(record);
        self.trim();
    }

    /// Takes the oldest records out, up to a number.
    pub fn take(&mut self, most: usize) -> Vec<T> {
        let taken: Vec<T> = self.records.drain(..most.min(self.records.len())).collect();
        self.bytes -= taken.iter().map(HasSize::size).sum::<usize>();
        taken
    }

    /// Puts records back that were taken out, and are older than all others.
    pub fn put_back(&mut self, records: Vec<T>) {
        for record in records.into_iter().rev() {
            self.bytes += record.size();
            self.records.push_front(record);
        }
        self.trim();
    }

    /// Forgets all records. They do not count as lost.
    pub fn clear(&mut self) {
        self.records = VecDeque::new();
        self.bytes = 0;
    }

    /// Returns the number of records that had to go since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn trim(&mut self) {
        while (self.records.len() > self.most || self.bytes > self.most_bytes)
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.size();
            self.lost += 1;
        }
    }
}

/// Begins to keep the lines, or forgets them.
pub fn keep(lines: KeepLines) {
    let is_open = lines == KeepLines::Yes;
    IS_OPEN.store(is_open, Ordering::Relaxed);
    if !is_open {
        pending().clear();
    }
}

/// True while somebody exports the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepLines {
    /// The lines are exported.
    Yes,
    /// They are not.
    No,
}

/// Leaves the lines of this thread out from now on.
pub fn leave_this_thread_out() {
    IS_LEFT_OUT.set(true);
}

/// Returns the queue. Nobody holds it for longer than a copy takes.
pub fn pending() -> MutexGuard<'static, Backlog<TappedLine>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a line of this thread is exported.
pub(super) fn takes_lines() -> bool {
    IS_OPEN.load(Ordering::Relaxed) && !IS_LEFT_OUT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HasSize for u64 {
        fn size(&self) -> usize {
            10
        }
    }

    #[test]
    fn the_oldest_go_beyond_the_bounds_of_number_and_bytes_and_are_counted() {
        let mut by_number = Backlog::new(3, 1_000);
        let mut by_bytes = Backlog::new(1_000, 35);
        for backlog in [&mut by_number, &mut by_bytes] {
            (1..=5_u64).for_each(|n| backlog.push(n));
            assert_eq!((backlog.take_lost(), backlog.take_lost()), (2, 0));
            assert_eq!(backlog.take(2), [3, 4]);
            backlog.push(6);
            backlog.put_back(vec![3, 4]);
            assert_eq!(backlog.take_lost(), 1, "of 3, 4, 5 and 6");
            assert_eq!((backlog.take(9), backlog.bytes), (vec![4, 5, 6], 0));
        }
    }
}
