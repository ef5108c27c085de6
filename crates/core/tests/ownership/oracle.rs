//! What must hold, whatever happens: the log as it was committed, and who may promise.

use super::engine::Engine;
use super::frame::{Frame, digest};
use homing_core::persistence::ownership::{AppendKind, Position};

#[derive(Default)]
pub struct Oracle {
    cells: Vec<CellHistory>,
    /// The times from a crash of an owner to the next one that serves.
    pub fail_overs: Vec<u64>,
    /// The times from a Release to the next owner that serves, without its recovery.
    pub drains: Vec<u64>,
    pub promises: u64,
}

#[derive(Default)]
struct CellHistory {
    epoch: u64,
    writer: u64,
    is_released: bool,
    last: u64,
    crashed_at: Option<u64>,
    released_at: Option<u64>,
    pub claims: u64,
}

impl Oracle {
    pub fn new(cells: usize) -> Oracle {
        Oracle { cells: (0..cells).map(|_| CellHistory::default()).collect(), ..Oracle::default() }
    }

    pub fn claims(&self) -> u64 {
        self.cells.iter().map(|cell| cell.claims).sum()
    }

    /// A frame was committed: one owner writes each epoch, and each frame continues the one before.
    pub fn committed(&mut self, cell: usize, position: Position, engine: &Engine) {
        let bytes = engine.frame(cell, position);
        let frame = Frame::read(bytes);
        let history = &mut self.cells[cell];
        assert_eq!(frame.cell, cell as u64, "a frame of another cell");
        assert_eq!(frame.predecessor, history.last, "{position:?} has another predecessor");
        history.last = digest(bytes);
        if let AppendKind::Claim(claim) = frame.kind {
            assert_eq!(claim.epoch, history.epoch + 1, "an epoch that is not the next");
            (history.epoch, history.writer, history.is_released) = (claim.epoch, frame.writer, false);
            history.claims += 1;
        }
        assert_eq!((frame.epoch, frame.writer), (history.epoch, history.writer), "two owners in one epoch");
        assert!(!history.is_released, "a frame behind a Release");
        if frame.kind == AppendKind::Release {
            history.is_released = true;
            history.released_at = Some(engine.now);
        }
    }

    /// An owner of `epoch` has a lease: the log knows no later owner, and no Release of this one.
    pub fn check_lease(&self, cell: usize, epoch: u64) {
        assert_eq!(self.cells[cell].epoch, epoch, "a lease of an owner that is none any more");
        assert!(!self.cells[cell].is_released, "a lease behind the Release");
    }

    /// A promise left by the lease of an owner of `epoch` alone.
    pub fn promised(&mut self, cell: usize, epoch: u64) {
        self.check_lease(cell, epoch);
        self.promises += 1;
    }

    pub fn crashed(&mut self, cell: usize, at: u64) {
        self.cells[cell].crashed_at = Some(at);
    }

    /// An owner serves. `recovery` is the time that it had to take.
    pub fn serves(&mut self, cell: usize, at: u64, recovery: u64) {
        let history = &mut self.cells[cell];
        self.fail_overs.extend(history.crashed_at.take().map(|from| at - from));
        self.drains.extend(history.released_at.take().map(|from| (at - from).saturating_sub(recovery)));
    }

    /// Returns true if another owner has written a frame since this epoch.
    pub fn is_over(&self, cell: usize, epoch: u64) -> bool {
        self.cells[cell].epoch > epoch
    }
}
