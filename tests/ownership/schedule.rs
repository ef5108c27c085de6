//! Things that happen at a time, in the order of their times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub struct Schedule<T> {
    heap: BinaryHeap<Entry<T>>,
    count: u64,
}

struct Entry<T> {
    at: u64,
    number: u64,
    what: T,
}

impl<T> Schedule<T> {
    pub fn new() -> Schedule<T> {
        Schedule { heap: BinaryHeap::new(), count: 0 }
    }

    pub fn add(&mut self, at: u64, what: T) {
        self.count += 1;
        self.heap.push(Entry { at, number: self.count, what });
    }

    /// Returns the time of the next one.
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

impl<T> Ord for Entry<T> {
    /// The earliest is the greatest; of several at one time, the first that was added.
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Entry<T> {}
