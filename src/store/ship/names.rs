//! The names in a folder of copies, and what follows from them: the base and the file to begin
//! with, and what is not needed any more. Knows no file.
//!
//! A folder has a folder for each log that was shipped into it, its *generation*:
//!
//! | name | what |
//! |---|---|
//! | `base-POSITION.db` | a whole database with everything up to this position |
//! | `base-POSITION.sha256` | its SHA-256, as `sha256sum` writes it; a base without it is not whole yet |
//! | `frames-POSITION.log` | frames from this position on, each from a multiple of 8 on |
//! | `base-POSITION.part` | a base that is being copied |
//! | `lock` | locked by the broker that ships into the folder |

use std::collections::BTreeSet;

/// Number of bases that stay.
const BASES: usize = 2;

/// Returns the name of a generation. A log that went back to an earlier state, such as one from a
/// copy of the data directory, gets another number.
pub(in crate::store) fn generation(log: u64, number: u32) -> String {
    match number {
        1 => format!("{log:016x}"),
        _ => format!("{log:016x}-{number}"),
    }
}

/// Returns the identifier of the log and the number of a generation.
pub(in crate::store) fn parse_generation(name: &str) -> Option<(u64, u32)> {
    let (log, number) = name.split_once('-').unwrap_or((name, "1"));
    let parsed = (u64::from_str_radix(log, 16).ok()?, number.parse().ok()?);
    Some(parsed).filter(|(log, number)| generation(*log, *number) == name)
}

/// Returns the name of a base.
pub(in crate::store) fn base(position: u64) -> String {
    format!("base-{position:020}.db")
}

/// Returns the name of the file with the digest of a base.
pub(in crate::store) fn sum(position: u64) -> String {
    format!("base-{position:020}.sha256")
}

/// Returns the name of a base that is being copied.
pub(super) fn part(position: u64) -> String {
    format!("base-{position:020}.part")
}

/// Returns the name of the file of frames that begins with this position.
pub(in crate::store) fn frames(first: u64) -> String {
    format!("frames-{first:020}.log")
}

/// What a generation has, by the names of its files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Contents {
    /// The positions of the whole bases.
    pub bases: BTreeSet<u64>,
    /// The first positions of the files of frames.
    pub files: BTreeSet<u64>,
    /// The positions of the bases that are not whole.
    pub parts: BTreeSet<u64>,
}

impl Contents {
    /// Sorts names. Names that are not ours are left out.
    pub(in crate::store) fn of<'n>(names: impl Iterator<Item = &'n str>) -> Contents {
        let (mut contents, mut sums) = (Contents::default(), BTreeSet::new());
        for name in names {
            let digits = name.split(['-', '.']).nth(1);
            let Some(position) = digits.and_then(|digits| digits.parse::<u64>().ok()) else { continue };
            let is = |form: fn(u64) -> String| form(position) == name;
            if is(base) {
                contents.bases.insert(position);
            } else if is(sum) {
                sums.insert(position);
            } else if is(frames) {
                contents.files.insert(position);
            } else if is(part) {
                contents.parts.insert(position);
            }
        }
        contents.parts.extend(contents.bases.difference(&sums));
        contents.bases.retain(|position| sums.contains(position));
        contents
    }

    /// Returns the newest base, with `until` the newest one that is not behind it.
    pub(in crate::store) fn base_for(&self, until: Option<u64>) -> Option<u64> {
        self.bases.range(..=until.unwrap_or(u64::MAX)).next_back().copied()
    }

    /// Returns the name of the file with this position; `None` if there is none.
    pub(in crate::store) fn file_with(&self, position: u64) -> Option<u64> {
        self.files.range(..=position).next_back().copied()
    }

    /// Returns the first whole base behind this position. The frames between were there before it,
    /// or they were never shipped.
    pub(in crate::store) fn base_behind(&self, position: u64) -> Option<u64> {
        self.bases.range(position + 1..).next().copied()
    }

    /// Returns the first file behind this position.
    pub(in crate::store) fn file_behind(&self, position: u64) -> Option<u64> {
        self.files.range(position + 1..).next().copied()
    }

    /// Returns the names of the files that are not needed any more, the oldest last: so a folder
    /// that is left in between has no gap.
    pub(super) fn needless(&self) -> Vec<String> {
        let Some(oldest) = self.bases.iter().nth_back(BASES - 1).copied() else { return Vec::new() };
        let bases = self.bases.range(..oldest).flat_map(|position| [sum(*position), base(*position)]);
        let last = self.file_with(oldest + 1).unwrap_or(0);
        bases.chain(self.files.range(..last).map(|first| frames(*first))).collect()
    }
}

/// Returns a digest as the program `sha256sum` writes it.
pub(in crate::store) fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(names: &[String]) -> Contents {
        Contents::of(names.iter().map(String::as_str))
    }

    #[test]
    fn names_read_back_and_others_are_left_out() {
        for number in [1, 2, 77] {
            assert_eq!(parse_generation(&generation(0xABC, number)), Some((0xABC, number)));
        }
        for other in ["", "abc", "0000000000000abc-1", "0000000000000abc-x", "0000000000000ABC", "lost+found"]
        {
            assert_eq!(parse_generation(other), None, "{other}");
        }
        let mut names = vec![base(5), sum(5), base(9), part(12), frames(4), frames(8)];
        names.extend(["lock", "base-5.db", "frames-.log", "base-00000000000000000001.txt"].map(String::from));
        let found = contents(&names);
        assert_eq!(Vec::from_iter(&found.bases), [&5]);
        assert_eq!(Vec::from_iter(&found.parts), [&9, &12], "9 has no digest");
        assert_eq!(Vec::from_iter(&found.files), [&4, &8]);
    }

    #[test]
    fn two_bases_stay_with_all_frames_behind_the_older_one() {
        let mut names = Vec::new();
        for position in [10, 20, 30] {
            names.extend([base(position), sum(position)]);
        }
        names.extend([1, 9, 15, 21, 28].map(frames));
        let found = contents(&names);
        // Position 21 is the first one that the base of 20 needs.
        assert_eq!(found.needless(), [sum(10), base(10), frames(1), frames(9), frames(15)]);
        names.retain(|name| *name != frames(21));
        assert_eq!(contents(&names).needless(), [sum(10), base(10), frames(1), frames(9)]);
        assert_eq!(contents(&names[2..]).needless(), [frames(1), frames(9)]);
        assert_eq!(contents(&names[4..]).needless(), Vec::<String>::new(), "one base");
    }

    #[test]
    fn a_restore_begins_with_the_newest_base_before_its_position() {
        let found = contents(&[base(10), sum(10), base(20), sum(20), frames(8), frames(16), frames(30)]);
        assert_eq!(
            [None, Some(9), Some(10), Some(19), Some(20), Some(99)].map(|until| found.base_for(until)),
            [Some(20), None, Some(10), Some(10), Some(20), Some(20)]
        );
        assert_eq!(
            [7, 8, 15, 16, 99].map(|position| found.file_with(position)),
            [None, Some(8), Some(8), Some(16), Some(30)]
        );
        assert_eq!((found.file_behind(16), found.file_behind(30)), (Some(30), None));
        assert_eq!([9, 16, 30].map(|position| found.base_behind(position)), [Some(10), Some(20), None]);
    }
}
