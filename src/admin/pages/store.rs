//! The store on the overview: its log, what the database lacks of it, and the copy.

use super::views::{bytes, count, seconds};
use crate::admin::recent::RecentView;
use crate::admin::store_state::{SLOW_SYNC, StoreState, Used};
use crate::broker::observer::Observer;
use crate::clock;
use crate::store::ship::ShipFigures;
use serde_json::{Map, Value};
use std::path::Path;
use std::time::Duration;

/// The list of the problems on the same page, each with what to do.
const WHAT_TO_DO: RowLink = ("#problems", "What to do");

/// The path and the words of a link.
type RowLink = (&'static str, &'static str);

/// A figure of the store.
pub(super) struct StoreRow {
    pub(super) name: &'static str,
    /// The name in live updates.
    pub(super) key: &'static str,
    pub(super) value: String,
    /// What is wrong, in words; empty for nothing.
    pub(super) trouble: String,
    /// The page or the part of this page that shows more.
    pub(super) link: Option<RowLink>,
}

/// The figures of the store.
pub(super) struct StoreSection {
    pub(super) rows: Vec<StoreRow>,
}

impl StoreSection {
    /// Returns the figures now; `None` without a store.
    pub(super) fn of(observer: &Observer, recent: &RecentView) -> Option<StoreSection> {
        let state = StoreState::of(observer, clock::now())?;
        let copy = observer.statistics().store()?.copy_folder().zip(state.copy);
        let mut rows = vec![size(state), log(state), unapplied(state), syncs(recent.sync_p99)];
        rows.push(good("writes to the database", "store_applies", within(recent.apply_p99)));
        rows.push(match copy {
            Some((folder, figures)) => copied(folder, &figures),
            None => StoreRow {
                link: Some(("/settings?key=store.ship_to", "store.ship_to")),
                ..good("copy", "store_copy", "none".to_owned())
            },
        });
        if state.damaged > 0 {
            let (value, trouble) = (format!("read {} times", count(state.damaged)), "the disk is damaged");
            rows.push(bad("damaged messages", "store_damaged", value, trouble.to_owned()));
        }
        Some(StoreSection { rows })
    }

    /// Adds the texts to the values of a live update.
    pub(super) fn add_values(&self, values: &mut Map<String, Value>) {
        values.extend(self.rows.iter().map(|row| (row.key.to_owned(), row.value.as_str().into())));
    }
}

fn good(name: &'static str, key: &'static str, value: String) -> StoreRow {
    StoreRow { name, key, value, trouble: String::new(), link: None }
}

/// Returns a row with a trouble that is one of the present problems.
fn bad(name: &'static str, key: &'static str, value: String, trouble: String) -> StoreRow {
    StoreRow { trouble, link: Some(WHAT_TO_DO), ..good(name, key, value) }
}

fn size(state: StoreState) -> StoreRow {
    let limit = state.size_limit.map(|limit| format!(" of {} (store.size_limit)", bytes(limit)));
    let value =
        format!("{}{}, room for {}", bytes(state.bytes), limit.unwrap_or_default(), bytes(state.room));
    match state.is_full {
        false => good("size", "store_size", value),
        true => bad("size", "store_size", value, "full: new work is refused".to_owned()),
    }
}

fn log(state: StoreState) -> StoreRow {
    let value = format!("position {}, {}", count(state.position), of(state.log));
    match state.is_late() {
        false => good("log", "store_log", value),
        true => {
            let age = seconds(state.oldest_uncommitted);
            bad("log", "store_log", value, format!("a change has waited for its commit for {age}"))
        }
    }
}

fn unapplied(state: StoreState) -> StoreRow {
    let (name, key) = ("not in the database", "store_unapplied");
    let oldest = match state.oldest_unapplied {
        Duration::ZERO => String::new(),
        oldest => format!(", the oldest for {}", seconds(oldest)),
    };
    let value = format!("{}{oldest}", of(state.unapplied));
    match state.is_behind() {
        false => good(name, key, value),
        true => bad(name, key, value, "the database does not follow the log".to_owned()),
    }
}

fn syncs(p99: Option<Duration>) -> StoreRow {
    let row = good("syncs of the log", "store_syncs", within(p99));
    match p99.is_some_and(|p99| p99 > SLOW_SYNC) {
        false => row,
        true => {
            let trouble = "the disk is slow".to_owned();
            StoreRow { trouble, link: Some(("/checks", "What to do")), ..row }
        }
    }
}

fn copied(folder: &Path, copy: &ShipFigures) -> StoreRow {
    let again = match copy.given_up {
        0 => String::new(),
        1 => ", began again once".to_owned(),
        times => format!(", began again {} times", count(times)),
    };
    let lag = match (copy.lag_bytes, copy.lag) {
        (0, Duration::ZERO) => "has everything".to_owned(),
        (lacking, lag) => format!("{} and {} behind", seconds(lag), bytes(lacking)),
    };
    let value = format!("{}: position {}, {lag}{again}", folder.display(), count(copy.position));
    match copy.is_late() {
        false => good("copy", "store_copy", value),
        true if copy.is_behind => {
            bad("copy", "store_copy", value, "begins again with a whole database".to_owned())
        }
        true => bad("copy", "store_copy", value, "too far behind".to_owned()),
    }
}

fn of(used: Used) -> String {
    format!("{} of {} at most", bytes(used.bytes), bytes(used.limit))
}

/// Returns the time that 99 % of the events of the last minute took.
fn within(p99: Option<Duration>) -> String {
    p99.map_or_else(
        || "none in the last minute".to_owned(),
        |p99| format!("99 % of the last minute below {}", seconds(p99)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sound() -> StoreState {
        StoreState {
            bytes: 12 * MIB,
            size_limit: Some(64 * MIB),
            room: 40 * MIB,
            position: 12_345,
            log: Used { bytes: 3 * MIB, limit: 12 * MIB },
            unapplied: Used { bytes: 2_048, limit: 8 * MIB },
            oldest_unapplied: Duration::from_millis(300),
            ..StoreState::default()
        }
    }

    fn all(state: StoreState, sync_p99: Option<Duration>, copy: &ShipFigures) -> [StoreRow; 5] {
        [size(state), log(state), unapplied(state), syncs(sync_p99), copied(Path::new("/backup"), copy)]
    }

    #[test]
    fn a_sound_store_has_figures_and_no_trouble() {
        let copy = ShipFigures { position: 12_345, ..ShipFigures::default() };
        let rows = all(sound(), Some(Duration::from_millis(4)), &copy);
        let texts = [
            "12.0 MiB of 64.0 MiB (store.size_limit), room for 40.0 MiB",
            "position 12,345, 3.0 MiB of 12.0 MiB at most",
            "2.0 KiB of 8.0 MiB at most, the oldest for 300 ms",
            "99 % of the last minute below 4 ms",
            "/backup: position 12,345, has everything",
        ];
        assert_eq!(rows.each_ref().map(|row| &*row.value), texts);
        assert!(rows.iter().all(|row| row.trouble.is_empty() && row.link.is_none()));
    }

    #[test]
    fn each_trouble_of_the_store_is_in_words_and_leads_to_what_to_do() {
        let state = StoreState {
            is_full: true,
            oldest_uncommitted: Duration::from_secs(12),
            oldest_unapplied: Duration::from_secs(40),
            ..sound()
        };
        let (lag, lag_bytes) = (Duration::from_secs(61), 3 * MIB);
        let copy = ShipFigures { lag, lag_bytes, given_up: 2, is_behind: true, ..ShipFigures::default() };
        let rows = all(state, Some(SLOW_SYNC * 2), &copy);
        let troubles = [
            "full: new work is refused",
            "a change has waited for its commit for 12.0 s",
            "the database does not follow the log",
            "the disk is slow",
            "begins again with a whole database",
        ];
        assert_eq!(rows.each_ref().map(|row| &*row.trouble), troubles);
        assert!(rows.iter().all(|row| row.link.is_some_and(|(_, words)| words == "What to do")));
        assert_eq!(rows[4].value, "/backup: position 0, 1 min 1 s and 3.0 MiB behind, began again 2 times");
        let late = copied(Path::new("/backup"), &ShipFigures { lag, ..ShipFigures::default() });
        assert_eq!(late.trouble, "too far behind");
    }
}
