//! The rows of the nodes as a command sees them, which has not watched them before.
//!
//! The age of a row is by the clock of the engine alone. The clocks of the machines may be days apart:
//! that of the node that wrote the row, and that of the machine where the command runs.

use super::engine::{Engine, EngineError, Row};
use super::report::SKEW;
use super::row::{EVERY, NODE, SILENT, SeenRow, node_key, read_node};
use crate::clock;
use crate::time::Instant;
use std::time::Duration;

/// Time in which a node writes its row, also if one write fails.
const WATCH: Duration = EVERY.saturating_mul(3);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// The rows of an engine at one moment.
pub(super) struct ObservedRows {
    pub rows: Vec<(String, Row)>,
    /// Those of the nodes.
    pub nodes: Vec<SeenRow>,
    /// The moment.
    pub now: Instant,
}

impl ObservedRows {
    /// Returns the value of a row.
    pub(super) fn value(&self, key: &str) -> Option<&[u8]> {
        self.rows.iter().find(|(found, _)| found == key).map(|(_, row)| &*row.value)
    }
}

/// Reads all rows. A row from the future was stored by an earlier leader of the rows, whose clock is
/// another one: then the rows are watched for [`WATCH`], and a node counts as silent whose row does not
/// change.
///
/// # Errors
/// The engine does not answer.
pub(super) fn observe(engine: &dyn Engine) -> Result<ObservedRows, EngineError> {
    let mut rows = engine.rows()?;
    let mut engine_ms = time_of(engine, &rows);
    let mut unchanged = from_the_future(&rows, engine_ms);
    let until = clock::now() + WATCH;
    while !unchanged.is_empty() && clock::now() < until {
        std::thread::sleep(LOOK);
        rows = engine.rows()?;
        unchanged.retain(|(key, revision)| {
            rows.iter().any(|(found, row)| found == key && row.revision == *revision)
        });
        engine_ms = time_of(engine, &rows);
    }
    let now = clock::now();
    let node = |(key, row): &(String, Row)| {
        let found = read_node(&row.value).filter(|found| *key == node_key(&found.node))?;
        let seen = SeenRow::new(found, row, now, engine_ms);
        let is_silent = unchanged.iter().any(|(silent, _)| silent == key);
        Some(if is_silent { seen.at_least(SILENT) } else { seen })
    };
    let nodes = rows.iter().filter_map(node).collect();
    Ok(ObservedRows { rows, nodes, now })
}

/// Returns the time by the clock of the engine. One that does not say it has stored its last row now.
fn time_of(engine: &dyn Engine, rows: &[(String, Row)]) -> u64 {
    let last = || rows.iter().filter_map(|(_, row)| row.stored_ms).max().unwrap_or(0);
    engine.clock_ms().ok().flatten().unwrap_or_else(last)
}

/// Returns the keys and revisions of the rows of nodes that were stored later than now.
fn from_the_future(rows: &[(String, Row)], engine_ms: u64) -> Vec<(String, u64)> {
    let is_later = |row: &Row| row.stored_ms.is_some_and(|stored| stored > engine_ms.saturating_add(SKEW));
    let later = rows.iter().filter(|(key, row)| key.starts_with(NODE) && is_later(row));
    later.map(|(key, row)| (key.clone(), row.revision)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::memory_engine::MemoryCluster;
    use crate::cluster::row::NodeRow;
    use std::sync::atomic::{AtomicBool, Ordering};

    const WEEK_MS: i64 = 7 * 24 * 3_600 * 1_000;

    /// Writes the row of a node whose clock is a week behind that of this machine.
    fn write(engine: &dyn Engine, node: &str) {
        let unix_ms = clock::unix_millis().saturating_add_signed(-WEEK_MS);
        let row =
            NodeRow { node: node.to_owned(), role: "following".to_owned(), unix_ms, ..NodeRow::default() };
        let bytes = serde_json::to_vec(&row).expect("JSON");
        engine.put_row(&node_key(node), bytes.into()).expect("written");
    }

    fn silent(engine: &dyn Engine) -> Vec<String> {
        let ObservedRows { nodes, now, .. } = observe(engine).expect("an answer");
        nodes.iter().filter(|seen| seen.is_silent(now)).map(|seen| seen.row.node.clone()).collect()
    }

    #[test]
    fn a_node_is_silent_by_the_clock_of_the_engine_whatever_the_clocks_of_the_machines_say() {
        for ahead_ms in [-WEEK_MS, 0, WEEK_MS] {
            let cluster = MemoryCluster::initialized();
            let engine = cluster.node(0);
            cluster.set_clock(ahead_ms);
            write(&engine, "a");
            cluster.set_clock(ahead_ms + 20_000);
            write(&engine, "b");
            assert_eq!(silent(&engine), ["a"], "{ahead_ms}");
        }
    }

    #[test]
    fn a_row_that_a_leader_with_another_clock_stored_counts_while_it_changes() {
        let cluster = MemoryCluster::initialized();
        let engine = cluster.node(0);
        cluster.set_clock(WEEK_MS);
        write(&engine, "a");
        write(&engine, "b");
        cluster.set_clock(0);
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let node = cluster.node(0);
            let has_ended = &has_ended;
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    write(&node, "b");
                    // As a node does, which writes again and again.
                    std::thread::park_timeout(Duration::from_millis(100));
                }
            });
            let found = silent(&engine);
            has_ended.store(true, Ordering::Relaxed);
            assert_eq!(found, ["a"]);
        });
    }
}
