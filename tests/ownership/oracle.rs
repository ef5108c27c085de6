//! What must hold, whatever happens: the log as it was committed, and who may promise.

use super::engine::Engine;
use homing::store::frame::Digest;
use homing::store::frame::cluster::{FrameKind, check_sign};
use homing_core::ownership::Position;

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
    /// The time of the last frame, by the file and in truth.
    time: (u64, u64),
    last: Digest,
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

    /// A frame of a process was committed: one owner writes each epoch, and each frame continues the
    /// one before. For a Claim, returns how much time has passed since the frame before it: by the
    /// file, and in truth.
    pub fn committed(
        &mut self,
        cell: usize,
        (position, writer): (Position, u64),
        engine: &Engine,
    ) -> Option<(u64, u64)> {
        let ((_, head, digest), kind) = check_sign(engine.frame(cell, position)).expect("a frame");
        let history = &mut self.cells[cell];
        assert_eq!(usize::from(head.cell), cell, "a frame of another cell");
        assert_eq!(head.position, position.0, "a frame at another position");
        assert_eq!(head.predecessor, history.last, "{position:?} has another predecessor");
        history.last = digest;
        let (file_ms, at) = (head.moment.file_millis, engine.now);
        let before = std::mem::replace(&mut history.time, (file_ms, at));
        if let FrameKind::Claim(claim) = kind {
            assert_eq!(claim.epoch, history.epoch + 1, "an epoch that is not the next");
            (history.epoch, history.writer, history.is_released) = (claim.epoch, writer, false);
            history.claims += 1;
        }
        assert_eq!((head.epoch, writer), (history.epoch, history.writer), "two owners in one epoch");
        assert!(!history.is_released, "a frame behind a Release");
        if kind == FrameKind::Release {
            history.is_released = true;
            history.released_at = Some(engine.now);
        }
        matches!(kind, FrameKind::Claim(_)).then_some((file_ms.wrapping_sub(before.0), at - before.1))
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
