//! The log of a cell as the store of its owner sees it: the driver has it, and channels lead there.

use super::messages::DriverInput;
use crate::clock;
use crate::store::replicated::{CellLog, NextGroup};
use crate::store::sqlite::Mark;
use crate::store::wall::FileTime;
use crate::store::{Moment, StoreError};
use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// What the driver tells the store without a message.
#[derive(Debug, Default)]
pub(super) struct OwnerState {
    /// The end of the lease, in milliseconds of the process's clock.
    lease_until: AtomicU64,
    is_full: AtomicBool,
    /// The size at which the log is full, in bytes; 0 if it is not known.
    capacity: AtomicU64,
}

impl OwnerState {
    pub(super) fn set_lease(&self, until: Instant) {
        self.lease_until.store(until.as_millis(), Ordering::Relaxed);
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// See the module.
pub(super) struct OwnerLog {
    driver: Sender<DriverInput>,
    stored: Receiver<Mark>,
    state: Arc<OwnerState>,
}

impl OwnerLog {
    pub(super) fn new(
        driver: Sender<DriverInput>,
        stored: Receiver<Mark>,
        state: Arc<OwnerState>,
    ) -> OwnerLog {
        OwnerLog { driver, stored, state }
    }
}

impl CellLog for OwnerLog {
    fn begin(&mut self, group: NextGroup) {
        // A driver that has ended stores nothing, and `outcome` says so.
        let _ = self.driver.send(DriverInput::Group(group));
    }

    fn outcome(&mut self, patience: Duration) -> Result<Option<Mark>, StoreError> {
        match self.stored.recv_timeout(patience) {
            Ok(mark) => Ok(Some(mark)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(StoreError::Failed("this node does not own the cell any more".into()))
            }
        }
    }

    fn moment(&self) -> Moment {
        Moment::now()
    }

    fn has_lease(&self) -> bool {
        clock::now().as_millis() < self.state.lease_until.load(Ordering::Relaxed)
    }

    fn has_room(&self) -> bool {
        !self.state.is_full()
    }

    fn capacity(&self) -> u64 {
        match self.state.capacity.load(Ordering::Relaxed) {
            0 => u64::MAX,
            bytes => bytes,
        }
    }

    fn time_runs(&mut self, time: FileTime) {
        let _ = self.driver.send(DriverInput::TimeRuns(time));
    }
}
