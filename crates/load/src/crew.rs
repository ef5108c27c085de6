//! The threads of a run: they start together, stop together, and report to one board.
//!
//! Each thread has its own clients, deliveries and histograms, and takes no lock for a message.
//! Four times a second it adds what it has seen to the board.

use super::csv::CsvFile;
use super::record::{Latencies, RunSlot, seconds};
use crate::clock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Barrier, watch};

/// Maximum number of slots: an hour of quarter seconds. The CSV file has no maximum.
const SLOTS: usize = 14_400;
const SHORTEST_SLOT_NS: u64 = 100_000_000;

/// The state of a run that ends it in all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CrewState {
    Going,
    Interrupted,
    Failed(String),
}

/// What all threads of a run share.
#[derive(Debug)]
pub(super) struct Crew {
    threads: u32,
    gate: Barrier,
    state: watch::Sender<CrewState>,
    start: OnceLock<u64>,
    /// The wall-clock time of [`clock::nanos`] 0, in seconds since 1970.
    unix_base_s: f64,
    connected: AtomicUsize,
    board: Mutex<Board>,
}

/// The place of one thread in its crew.
#[derive(Clone, Debug)]
pub(super) struct CrewMember {
    crew: Arc<Crew>,
    index: u32,
}

/// The deliveries of a thread since the start of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadTotals {
    pub delivered: u64,
    pub overdue: u64,
}

#[derive(Debug)]
struct Board {
    start: u64,
    totals: Vec<ThreadTotals>,
    slot: Latencies,
    slot_start: u64,
    slots: Vec<RunSlot>,
    csv: Option<CsvFile>,
}

impl Crew {
    /// Returns the crew of a run with this number of threads.
    pub(super) fn new(threads: u32, csv: Option<CsvFile>) -> Arc<Crew> {
        let now = clock::nanos();
        Arc::new(Crew {
            threads,
            gate: Barrier::new(threads as usize),
            state: watch::Sender::new(CrewState::Going),
            start: OnceLock::new(),
            unix_base_s: clock::unix_millis() as f64 / 1e3 - seconds(now),
            connected: AtomicUsize::new(0),
            board: Mutex::new(Board {
                start: now,
                totals: vec![ThreadTotals::default(); threads as usize],
                slot: Latencies::default(),
                slot_start: now,
                slots: Vec::new(),
                csv,
            }),
        })
    }

    /// Returns the place of thread `index`. Thread 0 leads: it shows progress and measures the
    /// broker.
    pub(super) fn member(self: &Arc<Crew>, index: u32) -> CrewMember {
        CrewMember { crew: Arc::clone(self), index }
    }

    /// Ends the run after a failure. The first cause is kept.
    pub(super) fn fail(&self, cause: String) {
        self.state.send_if_modified(|state| {
            let first = !matches!(state, CrewState::Failed(_));
            if first {
                *state = CrewState::Failed(cause);
            }
            first
        });
    }

    /// Returns the slots of the run, and the error of the CSV file.
    pub(super) fn finish(&self) -> (Vec<RunSlot>, Option<String>) {
        let mut board = self.board();
        (std::mem::take(&mut board.slots), board.csv.take().and_then(CsvFile::finish))
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // The board has only numbers, so a thread that panicked leaves nothing half-done.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CrewMember {
    /// Returns the crew.
    pub(super) fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Returns the number of threads.
    pub(super) fn threads(&self) -> u32 {
        self.crew.threads
    }

    /// Returns true for the thread that shows progress and measures the broker.
    pub(super) fn leads(&self) -> bool {
        self.index == 0
    }

    /// Waits until all threads are here, or the run failed.
    pub(super) async fn together(&self) {
        let mut state = self.crew.state.subscribe();
        tokio::select! {
            _ = self.crew.gate.wait() => {}
            _ = state.wait_for(|state| matches!(state, CrewState::Failed(_))) => {}
        }
    }

    /// Waits until ctrl-c or a failure.
    pub(super) async fn abandoned(&self) {
        let mut state = self.crew.state.subscribe();
        // The crew has the sender, so this cannot fail.
        drop(state.wait_for(|state| *state != CrewState::Going).await);
    }

    /// Ends the run after ctrl-c.
    pub(super) fn interrupt(&self) {
        self.crew.state.send_if_modified(|state| {
            let going = *state == CrewState::Going;
            if going {
                *state = CrewState::Interrupted;
            }
            going
        });
    }

    /// Returns true after ctrl-c.
    pub(super) fn interrupted(&self) -> bool {
        *self.crew.state.borrow() == CrewState::Interrupted
    }

    /// Returns the first failure, if there is one.
    pub(super) fn failure(&self) -> Option<String> {
        match &*self.crew.state.borrow() {
            CrewState::Failed(cause) => Some(cause.clone()),
            CrewState::Going | CrewState::Interrupted => None,
        }
    }

    /// Starts the measurement, and returns the time of its start: that of the first thread which
    /// calls this.
    pub(super) fn start(&self) -> u64 {
        *self.crew.start.get_or_init(|| {
            let now = clock::nanos();
            let mut board = self.crew.board();
            (board.start, board.slot_start) = (now, now);
            board.slot.reset();
            now
        })
    }

    /// Returns a time of [`clock::nanos`] as seconds since 1970.
    pub(super) fn unix_s(&self, nanos: u64) -> f64 {
        self.crew.unix_base_s + seconds(nanos)
    }

    /// Counts a client that has connected.
    pub(super) fn connected(&self) {
        self.crew.connected.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of clients of all threads that have connected so far.
    pub(super) fn all_connected(&self) -> usize {
        self.crew.connected.load(Ordering::Relaxed)
    }

    /// Adds the latencies of a thread since its last report to the board, and empties them.
    pub(super) fn report(&self, latencies: &mut Latencies, totals: ThreadTotals) {
        let mut board = self.crew.board();
        board.slot.add_all(latencies);
        if let Some(mine) = board.totals.get_mut(self.index as usize) {
            *mine = totals;
        }
        latencies.reset();
    }

    /// Closes the current slot and returns it. Only the leading thread calls this.
    pub(super) fn close_slot(&self, now: u64) -> RunSlot {
        let mut board = self.crew.board();
        let over = seconds(now.saturating_sub(board.slot_start));
        let quantiles = board.slot.quantiles();
        let slot = RunSlot {
            at_s: seconds(now.saturating_sub(board.start)),
            per_s: if over > 0.0 { board.slot.count() as f64 / over } else { 0.0 },
            p50_ms: quantiles.map(|quantiles| quantiles.p50),
            p99_ms: quantiles.map(|quantiles| quantiles.p99),
            delivered: board.totals.iter().map(|totals| totals.delivered).sum(),
            overdue: board.totals.iter().map(|totals| totals.overdue).sum(),
        };
        board.slot.reset();
        board.slot_start = now;
        if board.slots.len() < SLOTS {
            board.slots.push(slot);
        }
        let unix_s = self.unix_s(now);
        if let Some(csv) = &mut board.csv {
            csv.line(unix_s, &slot);
        }
        slot
    }

    /// Closes the last slot. Leaves it out if it is too short for a rate.
    pub(super) fn close_last_slot(&self, now: u64) {
        let short = {
            let board = self.crew.board();
            !board.slots.is_empty() && now.saturating_sub(board.slot_start) < SHORTEST_SLOT_NS
        };
        if !short {
            self.close_slot(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_slot_has_what_all_threads_reported_since_the_one_before() {
        let crew = Crew::new(2, None);
        let members = [crew.member(0), crew.member(1)];
        let start = members[0].start();
        assert_eq!(members[1].start(), start);
        for (member, latency) in members.iter().zip([1, 9]) {
            let mut latencies = Latencies::default();
            latencies.add(latency * MS);
            member.report(&mut latencies, ThreadTotals { delivered: 10 * latency, overdue: 1 });
            assert_eq!(latencies.count(), 0);
        }
        let slot = members[0].close_slot(start + 500 * MS);
        assert_eq!((slot.per_s, slot.delivered, slot.overdue, slot.at_s), (4.0, 100, 2, 0.5));
        assert!(slot.p50_ms < Some(1.01) && slot.p99_ms > Some(8.9), "{slot:?}");
        let empty = members[0].close_slot(start + 1000 * MS);
        assert_eq!((empty.per_s, empty.p50_ms, empty.at_s, empty.delivered), (0.0, None, 1.0, 100));
        assert_eq!(crew.finish().0.len(), 2);
    }

    #[test]
    fn a_failure_releases_those_who_wait_and_the_first_cause_stays() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let crew = Crew::new(2, None);
        let member = crew.member(1);
        member.interrupt();
        assert!(member.interrupted());
        crew.fail("first".to_owned());
        crew.fail("second".to_owned());
        runtime.block_on(async {
            member.together().await;
            member.abandoned().await;
        });
        assert_eq!((member.failure().as_deref(), member.interrupted()), (Some("first"), false));
    }
}
