//! A store and its copy: restarts, gaps, folders that cannot be used, and what is deleted.

use super::names::Contents;
use super::*;
use crate::config::DurabilityLevel;
use crate::mqtt::charge::Budget;
use crate::persistence::records::{BodyNumber, DelayedNumber, EntryNumber, Record, Recovered};
use crate::store::logged::{LoggedStore, StoreOptions};
use crate::store::replay::{Until, replay};
use crate::store::sqlite::directory::database_in;
use crate::store::statistics::StoreStatistics;
use crate::store::tests::{body, commit, entry, message, rows, session};
use crate::store::{Moment, Store};
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(60);
/// Files of the log of 1 MiB.
const OPTIONS: StoreOptions =
    StoreOptions { durability: DurabilityLevel::Commit, size_limit: Some(64 * MIB) };

/// Waits for a condition.
pub(in crate::store) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = clock::now();
    while !is_so() {
        assert!(clock::now().since(began) < DEADLINE, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A store with its copy.
pub(in crate::store) struct Shipped {
    pub store: LoggedStore,
    pub statistics: Arc<StoreStatistics>,
    pub recovered: Recovered,
}

impl Shipped {
    pub(in crate::store) fn start(data: &Path, to: &Path) -> Shipped {
        Shipped::start_with(data, OPTIONS, Some(to))
    }

    fn start_with(data: &Path, options: StoreOptions, to: Option<&Path>) -> Shipped {
        let mut store = LoggedStore::open(data, options).unwrap();
        if let Some(to) = to {
            store.ship(ShipOptions { to: to.to_owned(), interval: Duration::from_millis(1) }).unwrap();
        }
        let recovered = store.recover(Moment::now(), Duration::ZERO).unwrap();
        let statistics = Arc::default();
        store.attach(&Arc::new(Budget::new(u64::MAX)), &statistics);
        Shipped { store, statistics, recovered }
    }

    pub(in crate::store) fn commit(&mut self, records: Vec<Record>) {
        commit(&mut self.store, records);
        self.store.tidy().unwrap();
    }

    /// Puts a message, and acknowledges the one before, if it is not a tenth one.
    pub(in crate::store) fn message(&mut self, n: u64, bytes: usize) {
        let message = message("t", Instant::NEVER, &vec![n as u8; bytes]);
        let mut records = vec![body(n, message), Record::Entry(Box::new(entry(n, 1, n)))];
        if n > 11 && !(n - 1).is_multiple_of(10) {
            let before = n - 1;
            records.push(Record::EntryAcknowledged(EntryNumber(before)));
            records.push(Record::BodyReleased(BodyNumber(before)));
        }
        self.commit(records);
    }

    pub(in crate::store) fn position(&self) -> u64 {
        self.statistics.position.load(Ordering::Relaxed)
    }

    pub(in crate::store) fn figures(&self) -> ShipFigures {
        self.statistics.copy(clock::now()).unwrap_or_default()
    }

    /// Waits until the folder has everything, with a whole base.
    pub(in crate::store) fn until_shipped(&self, to: &Path) {
        let position = self.position();
        until("everything is shipped", || {
            let has_base = generations(to).iter().any(|path| !contents(path).bases.is_empty());
            self.figures().position >= position && has_base && !self.figures().is_behind
        });
    }

    /// Returns the rows of the database once it has everything.
    pub(in crate::store) fn rows(&self) -> Vec<String> {
        let mut reader = self.store.reader().unwrap();
        reader.delayed((Instant::ZERO, DelayedNumber(0)), Instant::ZERO, 0).unwrap();
        rows(self.store.directory().unwrap())
    }
}

/// Starts a store with one session.
pub(in crate::store) fn started(data: &Path, to: &Path) -> Shipped {
    let mut shipped = Shipped::start(data, to);
    shipped.commit(vec![Record::Session(Box::new(session(1, "c")))]);
    shipped
}

/// Returns the folders of all logs.
pub(in crate::store) fn generations(to: &Path) -> Vec<PathBuf> {
    let mut names = names_in(to).unwrap_or_default();
    names.sort();
    names.iter().map(|name| to.join(name)).collect()
}

pub(in crate::store) fn contents(generation: &Path) -> Contents {
    Contents::of(names_in(generation).unwrap().iter().map(String::as_str))
}

/// Replays a copy, and returns the rows.
fn replayed(folder: &Path, position: Option<u64>) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("new");
    let reached = replay(folder, &into, position.map(Until::Position)).unwrap();
    assert!(position.is_none_or(|position| position == reached.position));
    rows(&into)
}

fn places() -> (TempDir, TempDir) {
    (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap())
}

#[test]
fn a_restart_goes_on_where_the_folder_ends() {
    let (data, to) = places();
    let mut first = started(data.path(), to.path());
    (11..20).for_each(|n| first.message(n, 100));
    first.until_shipped(to.path());
    drop(first);
    let names = |to: &Path| generations(to).iter().map(|path| contents(path)).collect::<Vec<_>>();
    let before = names(to.path());
    let mut second = Shipped::start(data.path(), to.path());
    (20..40).for_each(|n| second.message(n, 100));
    second.until_shipped(to.path());
    assert_eq!(names(to.path()), before, "no new base and no new file");
    assert_eq!(replayed(to.path(), None), second.rows());
}

#[test]
fn a_part_of_a_frame_is_cut_off_at_a_restart() {
    let (data, to) = places();
    let mut first = started(data.path(), to.path());
    first.message(11, 100);
    first.until_shipped(to.path());
    drop(first);
    let generation = &generations(to.path())[0];
    let path = generation.join(names::frames(*contents(generation).files.last().unwrap()));
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let mut second = Shipped::start(data.path(), to.path());
    second.message(12, 100);
    second.until_shipped(to.path());
    assert_eq!(contents(generation).bases.len(), 1, "the log has what was cut off");
    assert_eq!(replayed(to.path(), None), second.rows());
}

#[test]
fn frames_that_the_log_does_not_have_any_more_lead_to_a_new_base() {
    let (data, to) = places();
    let first = started(data.path(), to.path());
    first.until_shipped(to.path());
    let end = first.position();
    drop(first);
    let mut without = Shipped::start_with(data.path(), OPTIONS, None);
    (11..15).for_each(|n| without.message(n, MIB as usize));
    without.rows();
    // Frees what the database has.
    (15..18).for_each(|n| without.message(n, MIB as usize));
    drop(without);
    let mut second = Shipped::start(data.path(), to.path());
    second.message(20, 100);
    until("a second base", || contents(&generations(to.path())[0]).bases.len() == 2);
    second.until_shipped(to.path());
    assert_eq!(replayed(to.path(), None), second.rows());
    replayed(to.path(), Some(end));
    let refuses_the_gap = || {
        let place = tempfile::tempdir().unwrap();
        let gap = Some(Until::Position(end + 3));
        let error = replay(to.path(), &place.path().join("new"), gap).unwrap_err().to_string();
        assert!(error.contains(" is missing: the next one that it has is "), "{error}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    };
    refuses_the_gap();
    // The base alone shows it, too.
    drop(second);
    let generation = &generations(to.path())[0];
    let behind = contents(generation).files.into_iter().filter(|first| *first > end + 3);
    behind.for_each(|first| fs::remove_file(generation.join(names::frames(first))).unwrap());
    refuses_the_gap();
}

#[test]
fn a_data_directory_that_went_back_ships_into_a_folder_of_its_own() {
    let (data, to) = places();
    let first = started(data.path(), to.path());
    first.until_shipped(to.path());
    drop(first);
    let older = tempfile::tempdir().unwrap();
    fs::create_dir(older.path().join("log")).unwrap();
    // A reader that is late leaves a write-ahead log.
    for name in ["homing.db", "homing.lock", "homing.db-wal"] {
        if data.path().join(name).exists() {
            fs::copy(data.path().join(name), older.path().join(name)).unwrap();
        }
    }
    for file in fs::read_dir(data.path().join("log")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), older.path().join("log").join(file.file_name())).unwrap();
    }
    let mut on = Shipped::start(data.path(), to.path());
    (11..20).for_each(|n| on.message(n, 100));
    on.until_shipped(to.path());
    let rows_of_first = on.rows();
    drop(on);
    for _ in 0..2 {
        let mut back = Shipped::start(older.path(), to.path());
        let number = 30 + back.recovered.sessions[0].entries.len() as u64;
        back.message(number, 100);
        until("a second generation", || generations(to.path()).len() == 2);
        let position = back.position();
        until("it is shipped", || {
            back.figures().position == position && !contents(&generations(to.path())[1]).bases.is_empty()
        });
        assert_eq!(replayed(&generations(to.path())[1], None), back.rows());
    }
    assert_eq!(replayed(&generations(to.path())[0], None), rows_of_first);
    let place = tempfile::tempdir().unwrap();
    let error = replay(to.path(), &place.path().join("new"), None).unwrap_err().to_string();
    assert!(error.contains("copies of several logs, so name one: "), "{error}");
}

#[test]
fn two_bases_stay_and_each_position_behind_the_older_one_restores() {
    let (data, to) = places();
    let mut shipped = started(data.path(), to.path());
    // A base is due each 4 MiB in tests.
    for n in 11..31 {
        shipped.message(n, MIB as usize);
        shipped.until_shipped(to.path());
    }
    let generation = generations(to.path()).remove(0);
    until("older bases are deleted, and then their frames", || {
        let found = contents(&generation);
        let oldest = found.bases.first().copied().unwrap_or(0);
        let has_frames_before = found.files.iter().nth(1).is_some_and(|second| *second <= oldest + 1);
        found.bases.len() == 2 && found.parts.is_empty() && oldest > 4 && !has_frames_before
    });
    assert_eq!(replayed(to.path(), None), shipped.rows());
    // The next base may be on its way, and then the oldest one goes.
    until("the older base restores", || {
        let place = tempfile::tempdir().unwrap();
        let oldest = contents(&generation).bases.first().copied().map(Until::Position);
        replay(to.path(), &place.path().join("new"), oldest).is_ok()
    });
    until("the copy in the data directory is deleted", || !data.path().join("ship.db").exists());
}

#[test]
fn a_folder_that_is_not_there_delays_nothing_and_the_log_stays_bounded() {
    let (data, place) = places();
    let to = place.path().join("later");
    // Room for about a MiB, and for eight files that wait for the database.
    let options = StoreOptions { size_limit: Some(29 * MIB), ..OPTIONS };
    let mut shipped = Shipped::start_with(data.path(), options, Some(&to));
    shipped.commit(vec![Record::Session(Box::new(session(1, "c")))]);
    for n in 11..30 {
        shipped.message(n, 900_000);
        shipped.rows();
        assert!(shipped.store.bytes() < 29 * MIB, "{}", shipped.store.bytes());
    }
    assert!(shipped.figures().given_up > 0 && shipped.figures().is_late());
    fs::create_dir(&to).unwrap();
    shipped.message(200, 100);
    shipped.until_shipped(&to);
    let figures = shipped.figures();
    assert!(!figures.is_late() && figures.lag_bytes == 0, "{figures:?}");
    assert_eq!(replayed(&to, None), shipped.rows());
}

#[test]
fn a_folder_that_hangs_holds_up_no_stop() {
    let (data, to) = places();
    drop(Shipped::start_with(data.path(), OPTIONS, None));
    let connection = rusqlite::Connection::open(database_in(data.path())).unwrap();
    let sql = "SELECT value FROM meta WHERE name = 'log'";
    let log: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    drop(connection);
    let generation = to.path().join(names::generation(log as u64, 1));
    fs::create_dir(&generation).unwrap();
    // Whoever opens a FIFO for writing waits for a reader.
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, generation.join("lock"), fifo, 0o600.into(), 0).unwrap();
    let mut shipped = started(data.path(), to.path());
    (11..20).for_each(|n| shipped.message(n, 100));
    let began = clock::now();
    drop(shipped);
    assert!(clock::now().since(began) < DEADLINE / 2);
}

#[test]
fn a_folder_in_the_data_directory_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let mut store = LoggedStore::open(data.path(), OPTIONS).unwrap();
    let to = data.path().join("copy");
    fs::create_dir(&to).unwrap();
    let refused = store.ship(ShipOptions { to, interval: Duration::from_secs(1) });
    assert!(refused.is_err_and(|error| error.to_string().contains("store.ship_to")));
}

#[test]
fn the_bounds_of_the_log_are_reported_with_and_without_a_copy() {
    let (data, to) = places();
    let bounds = |statistics: &StoreStatistics| {
        let StoreStatistics { size_limit, unapplied_limit, log_limit, .. } = statistics;
        [size_limit, unapplied_limit, log_limit].map(|bound| bound.load(Ordering::Relaxed))
    };
    let mut alone = Shipped::start_with(data.path(), OPTIONS, None);
    assert_eq!(bounds(&alone.statistics), [64 * MIB, 8 * MIB, 12 * MIB]);
    alone.store.limit_size(None).unwrap();
    assert_eq!(bounds(&alone.statistics), [0, 8 * MIB, 12 * MIB]);
    assert_eq!(alone.statistics.copy_folder(), None);
    drop(alone);
    let shipped = started(data.path(), to.path());
    let [size_limit, unapplied_limit, log_limit] = bounds(&shipped.statistics);
    assert_eq!((size_limit, unapplied_limit), (64 * MIB, 8 * MIB));
    assert!(log_limit > 12 * MIB, "{log_limit}: the log may keep more for the copy");
    assert_eq!(shipped.statistics.copy_folder(), Some(to.path()));
}

#[test]
fn many_bytes_end_a_wait_and_fewer_do_not() {
    let shipping = Arc::new(Shipping::new(PathBuf::new(), 0));
    let of_thread = Arc::clone(&shipping);
    let began = clock::now();
    let thread = std::thread::spawn(move || of_thread.wait(DEADLINE, MANY));
    shipping.synced(1, MANY - 1);
    assert!(!thread.is_finished());
    shipping.synced(2, MANY);
    thread.join().unwrap();
    // They were there before the wait.
    shipping.wait(DEADLINE, MANY);
    assert!(clock::now().since(began) < DEADLINE);
}

#[test]
fn the_log_keeps_what_is_not_shipped_until_it_is_given_up() {
    let shipping = Shipping::new(PathBuf::from("/backup"), 5);
    assert_eq!(shipping.may_free(9), 0, "the thread does not know yet where it goes on");
    shipping.synced(20, 1_000);
    shipping.shipped(12, 600);
    assert_eq!((shipping.may_free(9), shipping.may_free(15)), (9, 12));
    let figures = shipping.figures(clock::now() + LATE * 2);
    assert_eq!((figures.position, figures.lag_bytes, figures.is_late()), (12, 400, true));
    assert!(shipping.give_up("it is far behind") && !shipping.give_up("once"));
    assert_eq!(shipping.may_free(15), 15);
    shipping.shipped(13, 50);
    assert!(shipping.figures(clock::now()).is_behind, "what is under way changes nothing");
    shipping.keep_everything();
    shipping.shipped(20, 350);
    shipping.is_complete(clock::now(), 1_000);
    let figures = shipping.figures(clock::now() + LATE * 2);
    assert_eq!((figures.lag, figures.lag_bytes, figures.given_up), (Duration::ZERO, 0, 1));
}
