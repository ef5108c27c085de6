//! Any moment of a copy restores, bad copies are refused, and a follower is promoted.

use super::*;
use crate::store::frame::{Digest, Frame};
use crate::store::log::recovery::Applied;
use crate::store::logged::{LoggedStore, StoreOptions};
use crate::store::ship::tests::{Shipped, contents, generations, started, until};
use crate::store::tests::rows;
use crate::store::{Moment, Store};
use rusqlite::Connection;
use tempfile::TempDir;

const OPTIONS: StoreOptions = StoreOptions { durability: DurabilityLevel::Commit, size_limit: None };

/// A copy of a store with some messages, and the store.
struct Copied {
    _data: TempDir,
    to: TempDir,
    shipped: Shipped,
}

impl Copied {
    fn new() -> Copied {
        let (data, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut shipped = started(data.path(), to.path());
        (11..30).for_each(|n| shipped.message(n, 50));
        shipped.until_shipped(to.path());
        Copied { _data: data, to, shipped }
    }

    fn generation(&self) -> PathBuf {
        generations(self.to.path()).remove(0)
    }

    fn base(&self) -> u64 {
        *contents(&self.generation()).bases.last().unwrap()
    }

    fn frames(&self) -> PathBuf {
        let first = *contents(&self.generation()).files.last().unwrap();
        self.generation().join(names::frames(first))
    }

    /// Replays a copy of the copy that was changed. Returns the error; nothing is left.
    fn refused(&self, change: impl FnOnce(&Path)) -> String {
        let place = tempfile::tempdir().unwrap();
        let generation = place.path().join(self.generation().file_name().unwrap());
        fs::create_dir(&generation).unwrap();
        for name in names_in(&self.generation()).unwrap() {
            fs::copy(self.generation().join(&name), generation.join(&name)).unwrap();
        }
        change(&generation);
        self.refused_with(&generation, None)
    }

    fn refused_with(&self, folder: &Path, end: Option<Until>) -> String {
        let place = tempfile::tempdir().unwrap();
        let error = replay(folder, &place.path().join("new"), end).unwrap_err().to_string();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }
}

/// Flips one bit of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// Writes the digest of a base that was changed.
fn sign(generation: &Path, base: u64) {
    let bytes = fs::read(generation.join(names::base(base))).unwrap();
    let digest = aws_lc_rs::digest::digest(&SHA256, &bytes);
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(generation.join(names::sum(base)), digest).unwrap();
}

fn only_frames(generation: &Path) -> PathBuf {
    generation.join(names::frames(*contents(generation).files.last().unwrap()))
}

#[test]
fn any_position_and_any_time_restore_to_the_rows_of_then() {
    let (data, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut shipped = started(data.path(), to.path());
    shipped.until_shipped(to.path());
    let mut moments = Vec::new();
    for n in 11..40 {
        shipped.message(n, 50);
        if n.is_multiple_of(7) {
            moments.push((shipped.position(), shipped.rows()));
        }
    }
    shipped.until_shipped(to.path());
    moments.push((shipped.position(), shipped.rows()));
    for (position, expected) in moments {
        let place = tempfile::tempdir().unwrap();
        let (by_position, by_time) = (place.path().join("p"), place.path().join("t"));
        let reached = replay(to.path(), &by_position, Some(Until::Position(position))).unwrap();
        assert_eq!(reached.position, position);
        assert_eq!(rows(&by_position), expected, "position {position}");
        // Several frames may have the same time.
        let again = replay(to.path(), &by_time, Some(Until::Time(reached.unix_millis))).unwrap();
        assert!(again.position >= position && again.unix_millis == reached.unix_millis);
        let mut store = LoggedStore::open(&by_position, OPTIONS).unwrap();
        assert!(store.recover(Moment::now(), Duration::ZERO).unwrap().next_number > 11);
    }
}

#[test]
fn a_restored_store_begins_a_log_of_its_own() {
    let copied = Copied::new();
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("new");
    // An empty directory is free.
    fs::create_dir(&into).unwrap();
    replay(copied.to.path(), &into, None).unwrap();
    let mut restored = Shipped::start(&into, copied.to.path());
    restored.message(100, 50);
    until("a generation of its own", || generations(copied.to.path()).len() == 2);
    drop(restored);
    drop(copied.shipped);
}

#[test]
fn a_bad_copy_is_refused_with_file_and_position_and_nothing_is_left() {
    let (copied, other) = (Copied::new(), Copied::new());
    let base = copied.base();
    let frames = fs::read(copied.frames()).unwrap();
    let length = crate::store::frame::length(&frames).unwrap().next_multiple_of(8);
    let first = *contents(&copied.generation()).files.last().unwrap();
    let second = first + 1;

    let flipped = copied.refused(|folder| flip(&only_frames(folder), length + 60));
    assert!(flipped.contains(&format!("byte {length}, position {second}: its digest")), "{flipped}");
    let flipped = copied.refused(|folder| flip(&folder.join(names::base(base)), 5_000));
    assert!(flipped.contains(&format!("{}: position {base}: its SHA-256", names::base(base))), "{flipped}");
    let gap = copied.refused(|folder| {
        fs::write(only_frames(folder), &frames[..length]).unwrap();
        fs::write(folder.join(names::frames(second + 5)), b"").unwrap();
    });
    assert!(gap.contains(&format!("position {second} is missing: the next one that it has is")), "{gap}");
    let mixed = copied.refused(|folder| {
        fs::copy(other.frames(), only_frames(folder)).unwrap();
    });
    assert!(mixed.contains("the frame is of another log"), "{mixed}");
    let newer = copied.refused(|folder| {
        let mut bytes = frames.clone();
        bytes[4] = 9;
        let end = crate::store::frame::length(&frames).unwrap() - 16;
        let digest = Digest::of(&bytes[..end]);
        bytes[end..end + 16].copy_from_slice(&digest.bytes());
        fs::write(only_frames(folder), bytes).unwrap();
    });
    assert!(newer.contains(&format!("byte 0, position {first}: it is of version 9")), "{newer}");
    let newer = copied.refused(|folder| {
        let path = folder.join(names::base(base));
        Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
        sign(folder, base);
    });
    assert!(newer.contains(&names::base(base)) && newer.contains("version 99"), "{newer}");
    let without = copied.refused(|folder| fs::remove_file(folder.join(names::sum(base))).unwrap());
    assert!(without.contains("no whole base yet"), "{without}");

    let empty = tempfile::tempdir().unwrap();
    let refused = copied.refused_with(empty.path(), None);
    assert!(refused.contains("there is no copy of a store in it"), "{refused}");
    let refused = copied.refused_with(&copied.frames(), None);
    assert!(refused.contains("Not a directory"), "{refused}");
    let last = copied.shipped.position();
    for end in [Until::Position(last + 1), Until::Time(1), Until::Time(u64::MAX)] {
        let refused = copied.refused_with(copied.to.path(), Some(end));
        let range = format!("outside of what it has: position {base} (");
        assert!(refused.contains(&range) && refused.contains(&format!("to position {last} (")), "{refused}");
    }
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let copied = Copied::new();
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), "").unwrap();
    let refused = |into: &Path| replay(copied.to.path(), into, None).unwrap_err().to_string();
    assert!(refused(place.path()).contains("is not empty"));
    assert!(refused(&place.path().join("file")).contains("Not a directory"));
    assert!(refused(&place.path().join("no/parent")).contains("No such file"));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

/// Reads a copy to its end. Returns the positions, and the error.
fn read(generation: &Path, applied: Applied) -> (Vec<u64>, Option<String>) {
    go_on(&mut Source::behind(generation.to_owned(), applied.id.unwrap(), applied))
}

/// Reads what a copy has more by now.
fn go_on(source: &mut Source) -> (Vec<u64>, Option<String>) {
    let mut positions = Vec::new();
    loop {
        match source.next() {
            Ok(Some(Frame { head, .. })) => positions.push(head.position),
            Ok(None) => return (positions, None),
            Err(error) => return (positions, Some(error.to_string())),
        }
    }
}

#[test]
fn a_cut_is_no_error_and_each_flipped_bit_is_found_or_takes_only_the_last_frame() {
    let copied = Copied::new();
    let (applied, _) = mark_of(&copied.generation().join(names::base(copied.base()))).unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(copied.frames().file_name().unwrap());
    let bytes = fs::read(copied.frames()).unwrap();
    fs::write(&path, &bytes).unwrap();
    let (all, none) = read(place.path(), applied);
    assert!(all.len() > 5 && none.is_none(), "{none:?}");
    let (mut starts, mut at) = (Vec::new(), 0);
    while let Some(length) = crate::store::frame::length(&bytes[at..]) {
        starts.push(at);
        at += length.next_multiple_of(8);
    }
    let last = *starts.last().unwrap();
    for end in last..bytes.len() {
        fs::write(&path, &bytes[..end]).unwrap();
        let (found, error) = read(place.path(), applied);
        // The last bytes may only fill up to a multiple of 8.
        let whole = last + crate::store::frame::length(&bytes[last..]).unwrap();
        let expected = if end < whole { &all[..all.len() - 1] } else { &all[..] };
        assert_eq!((&found[..], error), (expected, None), "cut at {end}");
    }
    for at in (0..bytes.len()).step_by(29) {
        let mut broken = bytes.clone();
        broken[at] ^= 1 << (at % 8);
        fs::write(&path, &broken).unwrap();
        let (found, error) = read(place.path(), applied);
        assert!(all.starts_with(&found), "byte {at}");
        assert!(error.is_some() || found.len() + 1 >= all.len() || broken_is_padding(&bytes, &starts, at));
    }
}

#[test]
fn a_look_at_a_file_that_has_grown_reads_only_what_is_new() {
    let copied = Copied::new();
    let (applied, _) = mark_of(&copied.generation().join(names::base(copied.base()))).unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(copied.frames().file_name().unwrap());
    let mut bytes = fs::read(copied.frames()).unwrap();
    let (all, _) = read(&copied.generation(), applied);
    let mut source = Source::behind(place.path().to_owned(), applied.id.unwrap(), applied);
    let cut = bytes.len() - 20;
    fs::write(&path, &bytes[..cut]).unwrap();
    assert_eq!(go_on(&mut source), (all[..all.len() - 1].to_vec(), None));
    // Whoever read the first frame again would refuse it.
    bytes[8..200].fill(0);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(go_on(&mut source), (all[all.len() - 1..].to_vec(), None));
    assert_eq!(go_on(&mut source), (vec![], None));
    fs::remove_file(&path).unwrap();
    assert_eq!(go_on(&mut source), (vec![], None), "a file that is not needed any more");
}

/// Returns true if no frame has this byte.
fn broken_is_padding(bytes: &[u8], starts: &[usize], at: usize) -> bool {
    let within = |start: &usize| {
        (*start..start + crate::store::frame::length(&bytes[*start..]).unwrap()).contains(&at)
    };
    !starts.iter().any(within)
}

#[test]
fn a_follower_goes_on_until_it_is_promoted_and_no_broker_starts_before() {
    let mut copied = Copied::new();
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("standby");
    let (folder, dir) = (copied.to.path().to_owned(), into.clone());
    let follower = thread::spawn(move || follow(&folder, &dir, Duration::from_millis(1), |_| {}));
    until("it follows", || following_in(&into).exists());
    for n in 40..50 {
        copied.shipped.message(n, 50);
    }
    let position = copied.shipped.position();
    copied.shipped.until_shipped(copied.to.path());
    until("it has the last position", || {
        mark_of(&database_in(&into)).is_ok_and(|(applied, _)| applied.position == position)
    });
    let refused = LoggedStore::open(&into, OPTIONS).err().unwrap().to_string();
    assert!(refused.contains(&format!("homing store promote {}", into.display())), "{refused}");
    let (reached, trouble) = promote(&into).unwrap();
    assert!(reached.position == position && trouble.is_none(), "{trouble:?}");
    assert_eq!(follower.join().unwrap().unwrap().position, position);
    assert_eq!(rows(&into), copied.shipped.rows());
    LoggedStore::open(&into, OPTIONS).unwrap();
    let again = promote(&into).unwrap_err().to_string();
    assert!(again.contains("it follows no copy"), "{again}");
}

#[test]
fn a_follower_that_was_killed_goes_on_and_is_promoted_without_its_folder_too() {
    let mut copied = Copied::new();
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("standby");
    let folder = copied.to.path().to_owned();
    begin_following(&copied.generation().canonicalize().unwrap(), &into).unwrap();
    copied.shipped.message(40, 50);
    copied.shipped.until_shipped(&folder);
    let other = Copied::new();
    let refused = follow(other.to.path(), &into, Duration::ZERO, |_| {}).unwrap_err().to_string();
    assert!(refused.contains("it follows the copy in "), "{refused}");
    let file = copied.generation().join(names::frames(copied.shipped.position() + 5));
    fs::write(&file, "").unwrap();
    let mut lines = Vec::new();
    let end = follow(&folder, &into, Duration::ZERO, |line| lines.push(line.to_owned()));
    let end = end.unwrap_err().to_string();
    assert!(
        end.contains(" is missing: the next one that it has is ") && lines.last() == Some(&end),
        "{lines:?}"
    );
    fs::remove_file(&file).unwrap();
    write(&request_in(&into), "").unwrap();
    let reached = follow(&folder, &into, Duration::ZERO, |_| {}).unwrap();
    assert_eq!(reached.position, copied.shipped.position());
    let away = folder.with_extension("away");
    fs::rename(&folder, &away).unwrap();
    let (promoted, trouble) = promote(&into).unwrap();
    fs::rename(&away, &folder).unwrap();
    assert!(promoted == reached && trouble.is_some());
}

#[test]
fn a_node_of_a_cluster_is_not_promoted() {
    let copied = Copied::new();
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("data");
    replay(&copied.generation(), &into, None).unwrap();
    fs::write(following_in(&into), format!("{}\n", copied.generation().display())).unwrap();
    let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
    let mut database = Sqlite::open(&into, options).unwrap();
    database.set_log_id(77).unwrap();
    database.join_cluster(5).unwrap();
    drop(database);
    let refusal = promote(&into).unwrap_err().to_string();
    assert!(refusal.contains("belongs to a cluster"), "{refusal}");
    assert_eq!(mark_of(&database_in(&into)).unwrap().0.id, Some(77));
}
