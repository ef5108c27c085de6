//! What a database of a cluster has besides: the last Claim up to its position, and the identifier
//! of its directory. Both stand in the table of figures.

use super::digest::META;
use super::row;
use crate::ownership::Claim;
use rusqlite::{Connection, params};
use std::time::Duration;

/// The last Claim up to a position of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerMark {
    /// The Claim.
    pub claim: Claim,
    /// True if its owner has appended its Release.
    pub is_released: bool,
}

const NAMES: [&str; 6] =
    ["owner_epoch", "owner_node", "owner_directory", "owner_boot", "owner_lease_ms", "owner_left"];

/// The identifier of the directory in its cluster.
const DIRECTORY: &str = "cluster_directory";

/// Writes the last Claim.
pub(super) fn write_owner(connection: &Connection, owner: &OwnerMark) -> rusqlite::Result<()> {
    let OwnerMark { claim: Claim { node, directory, boot, epoch, lease }, is_released } = *owner;
    let lease = lease.as_millis() as u64;
    let values = [epoch, node.into(), directory, boot, lease, is_released.into()];
    NAMES.iter().zip(values).try_for_each(|(name, value)| write_figure(connection, name, value))
}

/// Returns the last Claim; `None` in a database that never followed a cluster.
pub(super) fn read_owner(connection: &Connection) -> rusqlite::Result<Option<OwnerMark>> {
    let mut values = [0; 6];
    for (name, value) in NAMES.iter().zip(&mut values) {
        *value = read_figure(connection, name)?;
    }
    let [epoch, node, directory, boot, lease, left] = values;
    let claim = Claim { node: node as u16, directory, boot, epoch, lease: Duration::from_millis(lease) };
    Ok((epoch != 0).then_some(OwnerMark { claim, is_released: left != 0 }))
}

/// Returns the identifier of the directory in its cluster; 0 without one.
pub(super) fn read_directory(connection: &Connection) -> rusqlite::Result<u64> {
    read_figure(connection, DIRECTORY)
}

/// Sets the identifier of the directory in its cluster; 0 for none.
pub(super) fn write_directory(connection: &Connection, id: u64) -> rusqlite::Result<()> {
    write_figure(connection, DIRECTORY, id)
}

/// Forgets all that a cluster wrote: the database is that of a broker by itself.
pub(super) fn forget(connection: &Connection) -> rusqlite::Result<()> {
    let mut delete = connection.prepare("DELETE FROM meta WHERE name = ?")?;
    NAMES.iter().chain([&DIRECTORY]).try_for_each(|name| delete.execute([name]).map(drop))
}

fn write_figure(connection: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    META.put(&mut connection.prepare(&META.replace())?, params![name, value as i64]).map(drop)
}

fn read_figure(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let sql = "SELECT ifnull((SELECT value FROM meta WHERE name = ?), 0)";
    connection.query_row(sql, [name], |found| row::number(found, 0))
}
