//! Files of frames: what is read back after crashes, damages and full disks.

use super::recovery::{Applied, Scan, scan};
use super::*;
use crate::mqtt::message::Message;
use crate::persistence::records::Record;
use crate::store::coalesce::CommitGroup;
use crate::store::frame::{self, Head};
use crate::store::tests::{body, message};
use crate::store::wall::FileTime;
use crate::time::Instant;
use std::collections::BTreeMap;

mod leftovers;

const ID: u64 = 7;
const SIZE: u64 = 2048;
const NONE: [u64; 0] = [];

/// The files of a log by name, as they are at one moment.
type Files = BTreeMap<String, Vec<u8>>;

/// A data directory with a log.
struct Place {
    data: tempfile::TempDir,
    log: Log,
}

impl Place {
    fn new() -> Place {
        let data = tempfile::tempdir().unwrap();
        let log = scan(data.path(), Applied::default(), None, |_| Ok(())).unwrap().open(SIZE, ID).unwrap();
        Place { data, log }
    }

    /// A log with frames of this many bytes of payload each.
    fn with(lengths: impl IntoIterator<Item = usize>) -> Place {
        let mut place = Place::new();
        lengths.into_iter().for_each(|length| place.append(length));
        place
    }

    fn append(&mut self, length: usize) {
        append(&mut self.log, length, Room::Ordinary).unwrap();
        self.log.sync().unwrap();
    }

    fn files(&self) -> Files {
        let entries = fs::read_dir(log_in(self.data.path())).unwrap().map(Result::unwrap);
        let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
        let logs = named.filter(|(name, _)| name.ends_with(".log"));
        logs.map(|(name, path)| (name, fs::read(path).unwrap())).collect()
    }

    fn applied(&self) -> Applied {
        Applied { id: Some(ID), position: self.log.position(), digest: self.log.digest() }
    }
}

fn name_of(first: u64) -> String {
    format!("{first:020}.log")
}

/// A data directory with these files of a log.
fn placed(files: &Files) -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    put(data.path(), files);
    data
}

fn put(data: &Path, files: &Files) {
    let directory = log_in(data);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).unwrap();
    }
}

fn encoded(log: &Log, payload: &[u8]) -> (Vec<u8>, Digest) {
    let mut group = CommitGroup::default();
    group.fold(body(log.position() + 1, message("t", Instant::NEVER, payload)));
    let head = Head {
        cell: 0,
        epoch: 0,
        log: log.id(),
        position: log.position() + 1,
        synced: log.synced(),
        predecessor: log.digest(),
        ..Head::default()
    };
    let mut bytes = Vec::new();
    let digest = frame::encode(&mut bytes, &head, &group, FileTime::default());
    (bytes, digest)
}

fn append(log: &mut Log, length: usize, room: Room) -> Result<(), StoreError> {
    let (bytes, digest) = encoded(log, &vec![(log.position() + 1) as u8; length]);
    log.append(&bytes, digest, room)
}

fn nothing_applied() -> Applied {
    Applied { id: Some(ID), ..Applied::default() }
}

/// Returns the positions that a start finds behind the database, each with its own content.
fn scanned(data: &Path, applied: Applied) -> Result<(Vec<u64>, Scan), String> {
    let mut found = Vec::new();
    let each = |frame: frame::Frame| {
        let position = frame.head.position;
        let Record::Body { number, message } = &frame.operations[0].record else { panic!("{frame:?}") };
        assert_eq!(number.0, position);
        assert!(is_of(message, position), "frame {position} has another content");
        found.push(position);
        Ok(())
    };
    let scanned = scan(data, applied, None, each).map_err(|error| error.to_string())?;
    Ok((found, scanned))
}

fn is_of(message: &Message, position: u64) -> bool {
    message.payload().iter().all(|byte| *byte == position as u8)
}

fn found(data: &Path, applied: Applied) -> Result<Vec<u64>, String> {
    scanned(data, applied).map(|(found, _)| found)
}

fn refusal(data: &Path, applied: Applied) -> String {
    found(data, applied).expect_err("it is refused")
}

/// Opens the log, appends a frame, and returns what the next start finds.
fn goes_on(data: &Path, applied: Applied) -> Vec<u64> {
    let (_, scan) = scanned(data, applied).unwrap();
    let mut log = scan.open(SIZE, ID).unwrap();
    append(&mut log, 100, Room::Ordinary).unwrap();
    log.sync().unwrap();
    found(data, applied).unwrap()
}

fn range(first: u64, last: u64) -> Vec<u64> {
    (first..=last).collect()
}

#[test]
fn frames_come_back_over_several_files_from_any_position_on() {
    let mut place = Place::with([]);
    let mut at = vec![place.applied()];
    for n in 0..40 {
        place.append(10 * n);
        at.push(place.applied());
    }
    assert!(place.files().len() > 4);
    for applied in at {
        assert_eq!(found(place.data.path(), applied).unwrap(), range(applied.position + 1, 40));
    }
    let Place { data, log } = place;
    drop(log);
    assert_eq!(goes_on(data.path(), nothing_applied()), range(1, 41));
}

#[test]
fn files_that_the_database_does_not_need_are_used_again_and_their_old_frames_stay_unread() {
    let mut place = Place::new();
    for n in 1..300_u64 {
        let before = place.applied();
        place.append((n * 37 % 500) as usize);
        place.log.free_up_to(before.position).unwrap();
        assert_eq!(found(place.data.path(), before).unwrap(), [n]);
        assert!(place.files().len() <= 3 && place.log.bytes() <= 4 * SIZE);
    }
    let (applied, data) = (place.applied(), place.data);
    drop(place.log);
    assert_eq!(goes_on(data.path(), applied), [300]);
}

#[test]
fn the_last_frame_may_be_cut_at_every_byte_and_the_log_goes_on() {
    let fresh = Place::with([100; 5]);
    let mut reused = Place::new();
    for _ in 0..60 {
        reused.append(100);
        reused.log.free_up_to(reused.log.position()).unwrap();
    }
    for mut place in [fresh, reused] {
        let (before, applied) = (place.files(), place.applied());
        place.append(250);
        let (after, last) = (place.files(), place.log.position());
        let name = after.keys().last().unwrap().clone();
        let Some(old) = before.get(&name) else { panic!("the frame is in a file of its own") };
        let changed = || (0..old.len()).filter(|at| old[*at] != after[&name][*at]);
        let (first, end) = (changed().next().unwrap(), changed().next_back().unwrap() + 1);
        let data = placed(&after);
        for cut in first..end {
            let mut torn = after.clone();
            torn.get_mut(&name).unwrap()[cut..].copy_from_slice(&old[cut..]);
            put(data.path(), &torn);
            assert_eq!(found(data.path(), applied).unwrap(), NONE, "{cut}");
            if cut.is_multiple_of(16) {
                assert_eq!(goes_on(data.path(), applied), [last], "{cut}");
            }
        }
    }
}

#[test]
fn each_byte_that_flips_is_found_or_has_no_effect() {
    let place = Place::with([100; 20]);
    let files = place.files();
    assert_eq!(files.len(), 3, "{:?}", files.keys());
    let fifth = {
        let mut fifth = nothing_applied();
        let each = |frame: frame::Frame| {
            if frame.head.position == 5 {
                (fifth.position, fifth.digest) = (5, frame.digest);
            }
            Ok(())
        };
        scan(place.data.path(), nothing_applied(), None, each).unwrap();
        fifth
    };
    let data = placed(&files);
    let (mut refused, mut cut, mut harmless) = (0, 0, 0);
    for (name, bytes) in &files {
        for (at, applied) in (0..bytes.len()).flat_map(|at| [(at, nothing_applied()), (at, fifth)]) {
            let mut broken = bytes.clone();
            broken[at] ^= 1 << (at % 8);
            let path = log_in(data.path()).join(name);
            fs::write(&path, &broken).unwrap();
            match found(data.path(), applied) {
                Err(why) => {
                    refused += 1;
                    let is_named = why.contains(name.as_str()) && why.contains("byte ");
                    let is_known = is_named && why.contains("homing store cut --at ");
                    assert!(is_known || why.contains("the log of another database"), "{name} {at}: {why}");
                }
                Ok(all) if all == range(applied.position + 1, 20) => harmless += 1,
                Ok(all) => {
                    assert_eq!(all, range(applied.position + 1, 19), "{name} {at}");
                    cut += 1;
                }
            }
            fs::write(&path, bytes).unwrap();
        }
    }
    // Only the last frame may be taken for one that a crash has cut: 100 bytes of payload and 150
    // beside it.
    assert!(cut > 2 * 200 && cut < 2 * 300, "{refused} refused, {cut} cut, {harmless} harmless");
    assert!(refused > 6_000, "{refused} refused, {cut} cut, {harmless} harmless");
}

#[test]
fn a_damage_in_what_the_database_has_takes_nothing_away() {
    let mut place = Place::with([100; 3]);
    let third = place.applied();
    (4..=6).for_each(|_| place.append(100));
    let mut files = place.files();
    let bytes = files.get_mut(&name_of(1)).unwrap();
    bytes[HEADER as usize + 20] ^= 1;
    let data = placed(&files);
    assert_eq!(found(data.path(), third).unwrap(), [4, 5, 6]);
    assert!(refusal(data.path(), nothing_applied()).contains("cut --at 0"));
    assert_eq!(goes_on(data.path(), third), [4, 5, 6, 7]);
}

#[test]
fn a_missing_file_is_named_with_what_goes_on_without_it() {
    let place = Place::with([100; 30]);
    let files = place.files();
    let names: Vec<_> = files.keys().cloned().collect();
    assert!(names.len() >= 4);
    for name in &names {
        let mut less = files.clone();
        less.remove(name);
        let data = placed(&less);
        let why = refusal(data.path(), nothing_applied());
        assert!(why.contains("is missing") || why.contains("the next file begins with"), "{name}: {why}");
        let end = name.strip_suffix(".log").unwrap().parse::<u64>().unwrap() - 1;
        assert!(why.contains(&format!("homing store cut --at {end}")), "{name}: {why}");
        let directory = log_in(data.path());
        assert!(why.starts_with(&*directory.to_string_lossy()), "{why}");
    }
    let why = refusal(placed(&Files::new()).path(), place.applied());
    assert!(why.contains("it has no file") && why.contains("homing store cut --at 30"), "{why}");
}

#[test]
fn a_file_that_became_shorter_is_found() {
    let place = Place::with([100; 4]);
    for length in [HEADER as usize + 1, 300, 600, SIZE as usize - 8] {
        let mut files = place.files();
        files.get_mut(&name_of(1)).unwrap().truncate(length);
        let why = refusal(placed(&files).path(), nothing_applied());
        assert!(why.contains(&format!("byte {length}: the file ends here")), "{why}");
    }
}

#[test]
fn a_file_of_another_log_or_of_another_past_is_refused() {
    let [mut one, mut other] = [Place::with([100; 3]), Place::with([100; 3])];
    // The same identifier, as in two copies of one directory that both went on.
    (4..=16).for_each(|_| one.append(100));
    (4..=16).for_each(|_| other.append(101));
    let (mut mixed, others) = (one.files(), other.files());
    let common: Vec<_> = mixed.keys().filter(|name| others.contains_key(*name)).cloned().collect();
    for name in &common[1..] {
        mixed.insert(name.clone(), others[name].clone());
    }
    assert!(common.len() > 1, "{common:?}");
    let why = refusal(placed(&mixed).path(), nothing_applied());
    assert!(why.contains("does not follow the one before"), "{why}");
    let elsewhere = Applied { id: Some(ID + 1), ..Applied::default() };
    let why = refusal(one.data.path(), elsewhere);
    assert!(why.contains("is the log of another database"), "{why}");
    let why = refusal(one.data.path(), other.applied());
    assert!(why.contains("another database"), "{why}");
    let other_past = Applied { position: 5, digest: Digest::of(b"another"), ..nothing_applied() };
    assert!(refusal(one.data.path(), other_past).contains("another database"));
    let other_past = Applied { position: 0, digest: Digest::of(b"another"), ..nothing_applied() };
    assert!(refusal(one.data.path(), other_past).contains("another database"));
}

#[test]
fn a_database_that_is_ahead_has_everything_and_the_log_begins_anew() {
    let place = Place::with([100; 12]);
    let ahead = Applied { position: 45, digest: Digest::of(b"45"), ..nothing_applied() };
    let data = placed(&place.files());
    assert_eq!(found(data.path(), ahead).unwrap(), NONE);
    assert_eq!(goes_on(data.path(), ahead), [46]);
    let names: Vec<_> =
        fs::read_dir(log_in(data.path())).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // The last frames were not on the disk, and the database has them.
    let mut files = place.files();
    let last = files.keys().last().unwrap().clone();
    let bytes = files.get_mut(&last).unwrap();
    bytes[HEADER as usize..].fill(0);
    assert_eq!(goes_on(placed(&files).path(), place.applied()), [13]);
}

#[test]
fn a_crash_while_the_log_begins_anew_leaves_a_log_that_begins_anew() {
    let place = Place::with([100; 12]);
    let ahead = Applied { position: 45, digest: Digest::of(b"45"), ..nothing_applied() };
    for begun in [vec![], vec![0; SIZE as usize], vec![b'x'; SIZE as usize]] {
        let mut files = place.files();
        files.insert(name_of(46), begun);
        assert_eq!(goes_on(placed(&files).path(), ahead), [46]);
    }
}

#[test]
fn the_log_of_another_database_is_left_alone_beside_a_backup() {
    let place = Place::with([100; 2]);
    let backup = Applied { id: None, position: 1, digest: Digest::of(b"1") };
    let why = refusal(place.data.path(), backup);
    assert!(why.contains("move it away if the database is a backup"), "{why}");
    // Also if its first frame is broken.
    let mut files = place.files();
    files.get_mut(&name_of(1)).unwrap()[HEADER as usize + 50] ^= 1;
    assert!(refusal(placed(&files).path(), backup).contains("move it away"));
    // A first start that a crash ended has left nothing but a header.
    let empty = Place::new();
    let data = placed(&empty.files());
    let (found, scan) = scanned(data.path(), backup).unwrap();
    assert_eq!(found, NONE);
    let mut log = scan.open(SIZE, ID).unwrap();
    append(&mut log, 10, Room::Ordinary).unwrap();
    let since = Applied { id: Some(ID), ..backup };
    assert_eq!(self::found(data.path(), since).unwrap(), [2]);
}

/// The states of the files when a crash comes while the log goes on in its next file.
fn crashes_in_go_on() -> (Vec<(&'static str, Files)>, Applied) {
    let mut place = Place::new();
    // Several files, so that one of them is used again.
    (0..15).for_each(|_| place.append(100));
    let first_files = place.files();
    while place.log.active.fits(encoded(&place.log, &[0; 400]).0.len()) {
        place.append(100);
    }
    let (before, applied) = (place.files(), place.applied());
    let next = name_of(applied.position + 1);
    place.append(400);
    let after = place.files();
    let (active, begun) = (before.keys().last().unwrap().clone(), after[&next].clone());
    let with = |bytes: Vec<u8>| {
        let mut files = before.clone();
        files.insert(next.clone(), bytes);
        files
    };
    let zeros = vec![0; SIZE as usize];
    let begin_of = |from: &[u8], length: usize| [&from[..length], &zeros[length..]].concat();
    let mut ended = with(begin_of(&begun, HEADER as usize));
    ended.insert(active.clone(), after[&active].clone());
    let old = first_files.values().next().unwrap().clone();
    let mut renamed = with(old.clone());
    renamed.remove(first_files.keys().next().unwrap());
    let mut half = old.clone();
    half[..40].copy_from_slice(&begun[..40]);
    let states = vec![
        ("before", before.clone()),
        ("an empty file", with(Vec::new())),
        ("a part of a file", with(zeros[..100].to_vec())),
        ("a file of zeros", with(zeros.clone())),
        ("half of a header", with(begin_of(&begun, 30))),
        ("half of a header in an old file", with(half)),
        ("an old file with its old header", renamed),
        ("a header", with(begin_of(&begun, HEADER as usize))),
        ("a header before old frames", with([&begun[..HEADER as usize], &old[HEADER as usize..]].concat())),
        ("an end", ended),
    ];
    (states, applied)
}

#[test]
fn a_crash_at_each_step_to_the_next_file_loses_nothing_and_the_log_goes_on() {
    let (states, applied) = crashes_in_go_on();
    let last = applied.position;
    for (what, files) in &states {
        for applied in [nothing_applied(), applied] {
            if applied.position == 0 && !files.contains_key(&name_of(1)) {
                continue;
            }
            let data = placed(files);
            assert_eq!(found(data.path(), applied).unwrap(), range(applied.position + 1, last), "{what}");
            assert_eq!(goes_on(data.path(), applied), range(applied.position + 1, last + 1), "{what}");
            assert_eq!(goes_on(data.path(), applied), range(applied.position + 1, last + 2), "{what}");
        }
    }
}

/// A rename that a power loss undoes after the file has its new header.
#[test]
fn a_file_that_is_back_under_its_old_name_is_not_needed_and_no_hindrance() {
    let mut place = Place::with([100; 15]);
    let applied = place.applied();
    place.append(1200);
    let mut files = place.files();
    let (first, next) = (files.keys().next().unwrap().clone(), files.keys().last().unwrap().clone());
    let renewed = files.remove(&next).unwrap();
    files.insert(first, renewed);
    // The old file that was active has no end yet.
    let active = files.get_mut(files.keys().last().unwrap().clone().as_str()).unwrap();
    let end = active.windows(8).rposition(|bytes| bytes == b"HOMINEND").unwrap();
    active[end..end + 32].fill(0);
    let data = placed(&files);
    assert_eq!(found(data.path(), applied).unwrap(), NONE);
    assert_eq!(goes_on(data.path(), applied), [16]);
}

#[test]
fn a_header_that_breaks_before_frames_is_found_whether_or_not_the_file_before_is_needed() {
    let place = Place::with([100; 20]);
    let mut files = place.files();
    let last = files.keys().last().unwrap().clone();
    let first: u64 = last.strip_suffix(".log").unwrap().parse().unwrap();
    files.get_mut(&last).unwrap()[20] ^= 1;
    let data = placed(&files);
    assert!(refusal(data.path(), nothing_applied()).contains(&last));
    let mut before = nothing_applied();
    let each = |frame: frame::Frame| {
        if frame.head.position == first - 1 {
            (before.position, before.digest) = (first - 1, frame.digest);
        }
        Ok(())
    };
    scan(place.data.path(), nothing_applied(), None, each).unwrap();
    let why = refusal(data.path(), before);
    assert!(why.contains(&last) && why.contains(&format!("cut --at {}", first - 1)), "{why}");
}

#[test]
fn a_crash_while_torn_bytes_are_wiped_leaves_bytes_that_are_wiped() {
    let mut place = Place::with([100; 2]);
    let two = place.applied();
    let begin = place.files()[&name_of(1)].iter().rposition(|byte| *byte != 0).unwrap().next_multiple_of(8);
    // Three frames that no sync followed; the first of them did not reach the disk.
    (3..=5).for_each(|_| append(&mut place.log, 100, Room::Ordinary).unwrap());
    let mut files = place.files();
    let bytes = files.get_mut(&name_of(1)).unwrap();
    for wiped in [begin + 8, begin + 100, begin + 250, begin + 400] {
        bytes[begin..wiped].fill(0);
        let data = placed(&Files::from([(name_of(1), bytes.clone())]));
        assert_eq!(found(data.path(), two).unwrap(), NONE);
        assert_eq!(goes_on(data.path(), two), [3], "{wiped}");
        assert_eq!(goes_on(data.path(), two), [3, 4], "{wiped}");
    }
}

#[test]
fn frames_that_were_not_synced_may_be_torn_in_the_middle_and_synced_ones_may_not() {
    let mut place = Place::with([100; 3]);
    let starts: Vec<_> = (4..=6)
        .map(|_| {
            let at = place.log.active.at() as usize;
            append(&mut place.log, 100, Room::Ordinary).unwrap();
            at
        })
        .collect();
    let broken = |at: usize| {
        let mut files = place.files();
        files.get_mut(&name_of(1)).unwrap()[at + 30] ^= 1;
        placed(&files)
    };
    for (nth, at) in starts.iter().enumerate() {
        let data = broken(*at);
        assert_eq!(found(data.path(), nothing_applied()).unwrap(), range(1, 3 + nth as u64));
        assert_eq!(goes_on(data.path(), nothing_applied()), range(1, 4 + nth as u64));
    }
    let data = broken(HEADER as usize);
    let why = refusal(data.path(), nothing_applied());
    let path = log_in(data.path()).join(name_of(1));
    let expected =
        format!("{}: byte {HEADER}: a frame is broken, and a sound one is behind it", path.display());
    assert!(why.starts_with(&expected) && why.contains("homing store cut --at 0"), "{why}");
}

/// Frames that a dead process left to the system count as synced by the next one, so it syncs them.
#[test]
fn what_was_not_synced_counts_as_synced_after_the_next_start() {
    let mut place = Place::with([100; 1]);
    append(&mut place.log, 100, Room::Ordinary).unwrap();
    assert_eq!((place.log.position(), place.log.synced()), (2, 1));
    let data = placed(&place.files());
    let (_, scan) = scanned(data.path(), nothing_applied()).unwrap();
    assert_eq!(scan.open(SIZE, ID).unwrap().synced(), 2);
}

#[test]
fn a_payload_that_looks_like_frames_or_an_end_is_none() {
    let mut forger = Place::with([100; 3]);
    forger.log.id = ID + 1;
    let mut place = Place::with([100; 2]);
    let two = place.applied();
    // A frame of position 4 that says that everything before it is synced, and the end of the file.
    let (forged, _) = encoded(&forger.log, b"forged");
    let end = segment::end_before(ID + 1, 4);
    let (bytes, digest) = encoded(&place.log, &[&[0; 3][..], &forged, &end].concat());
    let at = place.log.active.at() as usize;
    place.log.append(&bytes, digest, Room::Ordinary).unwrap();
    let whole = place.files();
    for shift in 0..8 {
        let mut files = whole.clone();
        let file = files.get_mut(&name_of(1)).unwrap();
        // The frame is torn, and the payload is at any offset.
        file[at + 24] ^= 1;
        file[at + 32..].rotate_right(shift);
        assert_eq!(found(placed(&files).path(), two).unwrap(), NONE, "{shift}");
    }
}

#[test]
fn a_frame_that_is_larger_than_a_file_gets_a_file_of_its_own() {
    let mut place = Place::with([100; 3]);
    for length in [10_000, 100, 20_000, 30_000, 100] {
        place.append(length);
    }
    assert_eq!(found(place.data.path(), nothing_applied()).unwrap(), range(1, 8));
    let data = placed(&place.files());
    assert_eq!(goes_on(data.path(), nothing_applied()), range(1, 9));
    place.log.free_up_to(8).unwrap();
    assert!(place.log.bytes() <= 3 * SIZE, "{}", place.log.bytes());
    assert!(place.files().values().all(|file| file.len() as u64 == SIZE));
}

#[test]
fn on_a_full_disk_the_reserve_is_for_what_makes_room() {
    let mut place = Place::with([100; 3]);
    let reserve = reserve_in(&log_in(place.data.path()));
    assert_eq!(reserve.metadata().unwrap().len(), SIZE);
    let before = place.files();
    place.log.refuse_new_files(true);
    let position = place.log.position();
    for _ in 0..2 {
        let refused = append(&mut place.log, 1700, Room::Ordinary).unwrap_err();
        assert!(matches!(refused, StoreError::Full(_)), "{refused}");
        assert_eq!((place.log.position(), place.files()), (position, before.clone()));
        assert!(reserve.exists());
    }
    // What fits goes on in the same file.
    append(&mut place.log, 100, Room::Ordinary).unwrap();
    place.log.sync().unwrap();
    assert_eq!(found(place.data.path(), nothing_applied()).unwrap(), range(1, 4));
    append(&mut place.log, 1700, Room::WithReserve).unwrap();
    assert!(!reserve.exists());
    assert_eq!(found(place.data.path(), nothing_applied()).unwrap(), range(1, 5));
    // A reserve that was used is not there a second time.
    let refused = append(&mut place.log, 1700, Room::WithReserve).unwrap_err();
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(!place.log.restore_reserve().unwrap());
    place.log.refuse_new_files(false);
    assert!(place.log.restore_reserve().unwrap() && reserve.exists());
    append(&mut place.log, 1700, Room::Ordinary).unwrap();
}

#[test]
fn files_are_small_on_small_disks() {
    assert_eq!(segment_size(u64::MAX), 8 << 20);
    assert_eq!(segment_size(1 << 28), 4 << 20);
    assert_eq!(segment_size((1 << 28) + 64), 5 << 20);
    assert_eq!(segment_size(0), 1 << 20);
}

#[test]
fn other_files_in_the_directory_are_left_alone() {
    let place = Place::with([100; 2]);
    let directory = log_in(place.data.path());
    for name in ["1.log", "+0000000000000000002.log", "notes.txt", "00000000000000000001.log.cut"] {
        fs::write(directory.join(name), "mine").unwrap();
    }
    let data = place.data;
    drop(place.log);
    assert_eq!(goes_on(data.path(), nothing_applied()), [1, 2, 3]);
    assert!(directory.join("1.log").exists() && directory.join("notes.txt").exists());
}

#[test]
fn a_file_that_was_made_in_vain_and_cannot_be_deleted_is_a_failure() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join(name_of(4));
    discard(&path).expect("it was not made");
    fs::write(&path, "").unwrap();
    discard(&path).expect("deleted");
    assert!(!path.exists());
    // A directory is no file to delete.
    fs::create_dir(&path).unwrap();
    let failure = discard(&path).expect_err("it stays");
    assert!(matches!(&failure, StoreError::Failed(why) if why.contains(&name_of(4))), "{failure}");
}
