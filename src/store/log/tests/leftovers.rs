//! A next file that was not deleted when it had no room: what frames behind it in the file before
//! must not be lost for.

use super::*;

/// A log whose active file has the frames behind a next file that was given up.
struct Leftover {
    files: Files,
    /// The place of the database after each position, from 0 on.
    applied: Vec<Applied>,
    /// The position that the name of the leftover has.
    named: u64,
    last: u64,
}

/// Returns the contents that a next file may have when it is given up, with what they are.
fn given_up(place: &Place) -> Vec<(&'static str, Vec<u8>)> {
    let zeros = vec![0; SIZE as usize];
    let next = place.log.position() + 1;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("next");
    fs::write(&path, &zeros).unwrap();
    Segment::begin(path.clone(), SIZE, ID, next, place.log.digest()).unwrap();
    let header = fs::read(path).unwrap();
    let old = place.files().into_values().next().unwrap();
    let mut half = old.clone();
    half[..40].copy_from_slice(&header[..40]);
    let over_old = [&header[..HEADER as usize], &old[HEADER as usize..]].concat();
    vec![
        ("an empty file", Vec::new()),
        ("a part of a file", zeros[..100].to_vec()),
        ("a file of zeros", zeros.clone()),
        ("an old file with its old header", old),
        ("half of a header in an old file", half),
        ("a header", header),
        ("a header before old frames", over_old),
    ]
}

/// Logs of which a next file was given up after `before` frames, with `behind` frames after that.
fn leftovers(before: usize, behind: usize) -> Vec<(&'static str, Leftover)> {
    let mut place = Place::new();
    let mut applied = vec![Applied { id: Some(ID), ..place.applied() }];
    for _ in 0..before {
        place.append(100);
        applied.push(place.applied());
    }
    let (contents, named) = (given_up(&place), place.log.position() + 1);
    for _ in 0..behind {
        place.append(20);
        applied.push(place.applied());
    }
    let (files, last) = (place.files(), place.log.position());
    assert!(!files.contains_key(&name_of(named)), "the frame behind is in the file before");
    let with = |content: Vec<u8>| {
        let mut files = files.clone();
        files.insert(name_of(named), content);
        Leftover { files, applied: applied.clone(), named, last }
    };
    contents.into_iter().map(|(what, content)| (what, with(content))).collect()
}

/// Checks that a start finds every frame behind the database, whatever that has, goes on behind the
/// last one, and deletes the leftover, unless a later file proves that nothing before that counts.
fn is_no_hindrance(what: &str, Leftover { files, applied, named, last }: &Leftover) {
    for applied in applied {
        let (data, at) = (placed(files), applied.position);
        assert_eq!(found(data.path(), *applied).unwrap(), range(at + 1, *last), "{what}, applied {at}");
        assert_eq!(goes_on(data.path(), *applied), range(at + 1, last + 1), "{what}, applied {at}");
        let is_passed = files.keys().any(|name| *name > name_of(*named) && *name <= name_of(at + 1));
        let is_there = log_in(data.path()).join(name_of(*named)).exists();
        assert_eq!(is_there, is_passed, "{what}, applied {at}");
        assert_eq!(goes_on(data.path(), *applied), range(at + 1, last + 2), "{what}, applied {at}");
    }
}

#[test]
fn a_next_file_that_was_given_up_takes_no_frames_away() {
    // The active file is the first one, or has others before it.
    for (what, leftover) in leftovers(3, 4).into_iter().chain(leftovers(18, 4)) {
        is_no_hindrance(what, &leftover);
    }
}

#[test]
fn a_next_file_that_was_given_up_is_no_hindrance_before_a_later_file() {
    for (what, leftover) in leftovers(3, 20) {
        assert!(leftover.files.len() > 2);
        is_no_hindrance(what, &leftover);
    }
}

#[test]
fn torn_bytes_are_wiped_also_before_a_next_file_that_was_given_up() {
    let mut place = Place::with([100; 3]);
    let (contents, applied) = (given_up(&place), place.applied());
    let at = place.log.active.at() as usize;
    // Three frames that no sync followed; the first of them did not reach the disk. The next start
    // writes the same one again, so that the others would follow it.
    (4..=6).for_each(|_| append(&mut place.log, 100, Room::Ordinary).unwrap());
    let mut files = place.files();
    files.get_mut(&name_of(1)).unwrap()[at + 30] ^= 1;
    for (what, content) in contents {
        files.insert(name_of(4), content);
        for applied in [nothing_applied(), applied] {
            let data = placed(&files);
            assert_eq!(found(data.path(), applied).unwrap(), range(applied.position + 1, 3), "{what}");
            assert_eq!(goes_on(data.path(), applied), range(applied.position + 1, 4), "{what}");
            assert_eq!(goes_on(data.path(), applied), range(applied.position + 1, 5), "{what}");
        }
    }
}

/// The next file is empty as after a crash, so its predecessor is read for frames behind it.
#[test]
fn a_damage_in_what_the_database_has_takes_nothing_away_before_a_file_without_frames() {
    let mut place = Place::with([]);
    while place.log.active.fits(encoded(&place.log, &[0; 400]).0.len()) {
        place.append(100);
    }
    let applied = place.applied();
    let last_begins = place.log.active.at() as usize - encoded(&place.log, &[0; 100]).0.len();
    let before = place.files();
    place.append(400);
    let mut files = place.files();
    files.get_mut(&name_of(applied.position + 1)).unwrap()[HEADER as usize..].fill(0);
    // With and without the end of the file before.
    let without_end = before[&name_of(1)].clone();
    for first in [files[&name_of(1)].clone(), without_end] {
        for at in [HEADER as usize + 20, last_begins + 20] {
            let mut files = files.clone();
            let mut damaged = first.clone();
            damaged[at] ^= 1;
            files.insert(name_of(1), damaged);
            let data = placed(&files);
            assert_eq!(found(data.path(), applied).unwrap(), NONE, "{at}");
            assert_eq!(goes_on(data.path(), applied), [applied.position + 1], "{at}");
        }
    }
}

#[test]
fn the_first_frame_of_a_log_may_be_larger_than_a_file() {
    for with_reserve_only in [false, true] {
        let mut place = Place::new();
        let position = place.log.position();
        if with_reserve_only {
            // Without room the empty file stays as it was.
            let before = place.files();
            place.log.refuse_new_files(true);
            let refused = append(&mut place.log, 10_000, Room::WithReserve).unwrap_err();
            assert!(matches!(refused, StoreError::Full(_)), "{refused}");
            assert_eq!(place.files(), before);
            append(&mut place.log, 100, Room::Ordinary).unwrap();
            place.log.sync().unwrap();
            assert_eq!(found(place.data.path(), nothing_applied()).unwrap(), [1]);
            continue;
        }
        place.append(10_000);
        place.log.free_up_to(position).unwrap();
        for length in [100, 1_900, 100, 1_900] {
            place.append(length);
            place.log.free_up_to(position).unwrap();
        }
        assert_eq!(found(place.data.path(), nothing_applied()).unwrap(), range(1, 5));
        place.log.free_up_to(5).unwrap();
        let files: u64 = place.files().values().map(|file| file.len() as u64).sum();
        assert_eq!(place.log.bytes(), files + SIZE, "the reserve is the rest");
        let applied = place.applied();
        let data = place.data;
        drop(place.log);
        assert_eq!(goes_on(data.path(), applied), [6]);
    }
}
