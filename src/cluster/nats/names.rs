//! The names of what a cluster has in the engine. They are those of NATS's own key-value buckets
//! and object stores, so that the command `nats` shows them to an operator.

use super::settings::OpenError;

/// The names for one cell of a cluster.
pub(super) struct Names {
    /// True for the cell with which a cluster begins.
    pub(super) is_first: bool,
    /// The stream of the log.
    pub(super) log: String,
    /// The one subject of the log.
    pub(super) frames: String,
    /// The subject on which nodes announce positions.
    pub(super) tip: String,
    /// The stream of the rows.
    pub(super) rows: String,
    /// The beginning of the subjects of rows. The key follows.
    pub(super) row: String,
    /// The stream of the snapshots.
    pub(super) snapshots: String,
    /// The bucket of the snapshots.
    pub(super) bucket: String,
    /// The beginning of the names of the cell's snapshots, and of their chunks. The position
    /// follows.
    pub(super) cell: String,
}

impl Names {
    /// Returns the names.
    ///
    /// # Errors
    /// The cluster's name cannot be part of a name.
    pub(super) fn new(cluster: &str, cell: u16) -> Result<Names, OpenError> {
        let is_known = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        if cluster.is_empty() || cluster.len() > 32 || !cluster.bytes().all(is_known) {
            return Err(OpenError::Name(cluster.to_owned()));
        }
        let bucket = format!("HOMING_{cluster}");
        Ok(Names {
            is_first: cell == 0,
            log: format!("HOMING_{cluster}_C{cell}"),
            frames: format!("homing.{cluster}.c{cell}.log"),
            tip: format!("homing.{cluster}.c{cell}.tip"),
            rows: format!("KV_{bucket}"),
            row: format!("$KV.{bucket}."),
            snapshots: format!("OBJ_{bucket}"),
            bucket,
            cell: format!("C{cell}/"),
        })
    }

    /// Returns the subject of the chunks of one attempt to store a snapshot.
    pub(super) fn chunks(&self, attempt: &str) -> String {
        format!("$O.{}.C.{attempt}", self.bucket)
    }

    /// Returns the subject of the description of an object. `encoded` is its name in Base64.
    pub(super) fn description(&self, encoded: &str) -> String {
        format!("$O.{}.M.{encoded}", self.bucket)
    }
}
