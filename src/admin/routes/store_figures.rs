//! The part of the overview about the store.

use crate::admin::store_state::StoreState;
use crate::broker::observer::Observer;
use crate::store::ship::ShipFigures;
use crate::time::Instant;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use utoipa::ToSchema;

/// The state of the store: its log, and the database that follows the log.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = StoreState)]
pub(crate) struct StoreFigures {
    /// Bytes on the disk, of the log and of the database.
    pub(crate) bytes: u64,
    /// The most bytes: `store.size_limit`. Null for no limit but the disk.
    #[schema(required)]
    pub(crate) size_limit: Option<u64>,
    /// Bytes that may be added before new messages are refused.
    pub(crate) room: u64,
    /// True while the store has no room.
    pub(crate) full: bool,
    /// The position of the last frame of the log: the number of frames since the store was made.
    pub(crate) position: u64,
    /// Bytes of the log's files.
    pub(crate) log_bytes: u64,
    /// The most bytes of the log's files, those included that are kept for the copy.
    pub(crate) log_limit: u64,
    /// Bytes of the log that the database does not have yet.
    pub(crate) unapplied_bytes: u64,
    /// The most bytes that the database may lack. At this limit, commits wait.
    pub(crate) unapplied_limit: u64,
    /// Seconds for which the oldest change has waited for the database.
    #[schema(minimum = 0)]
    pub(crate) oldest_unapplied: f64,
    /// Seconds for which the oldest change has waited for its commit.
    #[schema(minimum = 0)]
    pub(crate) oldest_uncommitted: f64,
    /// Seconds within which 99 % of the commits since the start were done.
    #[schema(minimum = 0)]
    pub(crate) commit_p99: f64,
    /// As `commit_p99`, for syncs of the log. Null if there was none.
    #[schema(required, minimum = 0)]
    pub(crate) sync_p99: Option<f64>,
    /// As `commit_p99`, for writes of the log's changes to the database. Null if there was none.
    #[schema(required, minimum = 0)]
    pub(crate) apply_p99: Option<f64>,
    /// Number of times that a stored message was read and was damaged, since the start.
    pub(crate) damaged: u64,
    /// Null without a copy.
    #[schema(required)]
    pub(crate) copy: Option<CopyFigures>,
}

/// The copy of the store at `store.ship_to`.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = StoreCopy)]
pub(crate) struct CopyFigures {
    /// The folder.
    pub(crate) folder: String,
    /// The position up to which the folder has everything.
    pub(crate) position: u64,
    /// Seconds since the folder had everything; 0 if it has.
    #[schema(minimum = 0)]
    pub(crate) lag: f64,
    /// Bytes of the log that the folder does not have.
    pub(crate) lag_bytes: u64,
    /// Number of times that the copy was too far behind and began again with a whole database.
    pub(crate) given_up: u64,
    /// True from then until the folder has everything again.
    pub(crate) begins_again: bool,
}

impl StoreFigures {
    /// Returns the figures now; `None` without a store.
    pub(super) fn of(observer: &Observer, now: Instant) -> Option<StoreFigures> {
        let state = StoreState::of(observer, now)?;
        let folder = observer.statistics().store()?.copy_folder();
        Some(StoreFigures {
            bytes: state.bytes,
            size_limit: state.size_limit,
            room: state.room,
            full: state.is_full,
            position: state.position,
            log_bytes: state.log.bytes,
            log_limit: state.log.limit,
            unapplied_bytes: state.unapplied.bytes,
            unapplied_limit: state.unapplied.limit,
            oldest_unapplied: state.oldest_unapplied.as_secs_f64(),
            oldest_uncommitted: state.oldest_uncommitted.as_secs_f64(),
            commit_p99: state.commit_p99.as_secs_f64(),
            sync_p99: state.sync_p99.as_ref().map(Duration::as_secs_f64),
            apply_p99: state.apply_p99.as_ref().map(Duration::as_secs_f64),
            damaged: state.damaged,
            copy: state.copy.zip(folder).map(|(copy, folder)| CopyFigures::of(copy, folder)),
        })
    }
}

impl CopyFigures {
    fn of(copy: ShipFigures, folder: &Path) -> CopyFigures {
        CopyFigures {
            folder: folder.display().to_string(),
            position: copy.position,
            lag: copy.lag.as_secs_f64(),
            lag_bytes: copy.lag_bytes,
            given_up: copy.given_up,
            begins_again: copy.is_behind,
        }
    }
}
