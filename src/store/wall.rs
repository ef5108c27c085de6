//! The times in a store, and the time that passed while no broker had the store open.
//!
//! # Two clocks
//!
//! | clock | it counts | it does not know |
//! |---|---|---|
//! | since the boot | the time that passed, with suspends; nobody sets it | other boots |
//! | the wall clock | time across boots and machines | the truth: people set it |
//!
//! The process runs on the first clock ([`crate::clock::now`]). So every deadline of a running
//! broker holds, even if somebody sets the wall clock. A suspend counts as time that passed.
//!
//! # The time of the file
//!
//! A store has a time of its own, in milliseconds. The file time starts with the wall clock of the
//! first opening, so that a person can read it, and continues through every later run. A process
//! maps its own time to the file time once, when it opens the store ([`FileTime`]). All times in
//! the file are file times, so setting a clock shifts none of them against the others.
//!
//! # How long the broker was down
//!
//! A heartbeat writes one moment by all clocks: the file time, the wall clock, and the time since
//! the boot with the identifier of the boot. The next opening reads the clocks again and decides
//! ([`resume`]), in this order:
//!
//! - In the same boot, the time since the boot is exactly the time that passed. The wall clock
//!   is ignored.
//! - If the wall clock is credible, the difference of its two readings has passed. A reading before
//!   `SET_SINCE` is not credible, because nobody set that clock. A step backwards is not credible
//!   either, nor a step forward by more than `CREDIBLE` (a clock of 2099).
//! - Otherwise nobody knows, and no time counts as passed. Sessions and messages then live longer
//!   instead of ending early. The broker logs this.
//!
//! Both readings of the wall clock are real ones, taken at the heartbeat and at the opening. Each
//! heartbeat replaces its predecessor. So a clock that was once ten days behind, or in 2099, and
//! was set since, leaves no trace.
//!
//! # Limits of both clocks
//!
//! - A machine boots with its clock ten days behind, and the clock is set while the broker runs.
//!   Either the broker was down for ten days, or the clock was wrong before. The broker cannot
//!   distinguish the two, so it uses the clock's value at the opening of the store. Start the
//!   broker after the clock is set (`time-sync.target`).
//! - A virtual machine is paused and gets no notice. Its clock since the boot is paused, too.

use super::{Boot, Moment};
use crate::time::Instant;
use std::time::Duration;

/// "Never" in the file: the largest number that SQLite has.
pub(super) const NEVER: u64 = i64::MAX as u64;

/// Earliest credible wall clock, in milliseconds since 1970: 2023-01-01. The program is younger, so
/// an earlier clock was never set.
pub(crate) const SET_SINCE: u64 = 1_672_531_200_000;

/// "Never" for a session: the largest number of six bytes, a moment in the year 6429.
pub(super) const FAR: u64 = (1 << 47) - 1;

/// The longest time between two readings of the wall clock that counts as passed: 400 days.
///
/// If a broker was down for longer, no time counts as passed and nothing is lost. If the broker
/// believed a clock of 2099, every session would end.
pub(super) const CREDIBLE: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// The mapping between the times of this process and the file times. The mapping is fixed while the
/// store is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTime {
    /// One moment: `at` in this process is `millis` in the file.
    at: Instant,
    millis: u64,
}

impl FileTime {
    /// Returns the file time of an instant, in milliseconds: `NEVER` for [`Instant::NEVER`], and
    /// 0 for [`Instant::ZERO`], which stands for all times before this process.
    pub fn to_file(self, at: Instant) -> u64 {
        if at.is_never() {
            return NEVER;
        }
        if at == Instant::ZERO { 0 } else { self.reads(at) }
    }

    /// Returns the file time at an instant, in milliseconds, below `NEVER`.
    pub(super) fn reads(self, at: Instant) -> u64 {
        let (at, mapped) = (at.as_millis(), self.at.as_millis());
        let millis = if at >= mapped {
            self.millis.saturating_add(at - mapped)
        } else {
            self.millis.saturating_sub(mapped - at)
        };
        millis.min(NEVER - 1)
    }

    /// Returns the instant of a file time in milliseconds. Times before the start of this process
    /// give [`Instant::ZERO`], and `NEVER` gives [`Instant::NEVER`].
    pub fn instant(self, millis: u64) -> Instant {
        if millis >= NEVER {
            return Instant::NEVER;
        }
        let ahead = Duration::from_millis(millis.saturating_sub(self.millis));
        let behind = Duration::from_millis(self.millis.saturating_sub(millis));
        self.at + ahead - behind
    }
}

/// One moment by all clocks, as a heartbeat writes it to the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// The file time in milliseconds.
    pub file_millis: u64,
    /// The wall clock, in milliseconds since 1970.
    pub unix_millis: u64,
    /// The boot and the time since then; `None` if the system has no boot identifier.
    pub boot: Option<Boot>,
}

impl Heartbeat {
    /// Returns the heartbeat for the moment `now`.
    pub fn at(now: Moment, time: FileTime) -> Heartbeat {
        Heartbeat { file_millis: time.reads(now.monotonic), unix_millis: now.unix_millis, boot: now.boot }
    }

    /// Returns this file time without clocks: nobody knows how much time passes after it.
    pub fn without_clocks(self) -> Heartbeat {
        Heartbeat { unix_millis: 0, boot: None, ..self }
    }

    /// Returns false for a heartbeat [`without_clocks`](Heartbeat::without_clocks).
    pub fn has_clocks(self) -> bool {
        self.unix_millis != 0 || self.boot.is_some()
    }

    /// Returns the moment of a later file time by the same clocks. File time runs as they do, so this
    /// needs no look at them.
    pub fn moved_to(self, file_millis: u64) -> Heartbeat {
        let ahead = file_millis.saturating_sub(self.file_millis);
        let later = |boot: Boot| Boot { millis: boot.millis.saturating_add(ahead), ..boot };
        Heartbeat {
            file_millis,
            unix_millis: self.unix_millis.saturating_add(ahead),
            boot: self.boot.map(later),
        }
    }
}

/// The result of opening a store: the mapping of times, and the time that the broker was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The mapping for this process.
    pub time: FileTime,
    /// The time since the last heartbeat; zero if nobody knows.
    pub down: Duration,
    /// The reason why nobody knows the time; `None` if `down` is known.
    pub unknown: Option<&'static str>,
}

/// Maps the time of this process to the file time.
///
/// `last` is the last heartbeat in the file; `None` in a new store. `now` is read when the store is
/// opened.
pub fn resume(last: Option<Heartbeat>, now: Moment) -> Resumed {
    let Some(last) = last else {
        // At least the first credible moment, so that there is room for times before this process.
        let time = FileTime { at: now.monotonic, millis: now.unix_millis.clamp(SET_SINCE, NEVER / 2) };
        return Resumed { time, down: Duration::ZERO, unknown: None };
    };
    let (down, unknown) = match passed(last, now) {
        Ok(passed) => (passed, None),
        Err(why) => (Duration::ZERO, Some(why)),
    };
    let millis = last.file_millis.saturating_add(down.as_millis() as u64).min(NEVER / 2);
    Resumed { time: FileTime { at: now.monotonic, millis }, down, unknown }
}

/// Returns the time since a heartbeat, or the reason why nobody knows.
fn passed(last: Heartbeat, now: Moment) -> Result<Duration, &'static str> {
    if let (Some(then), Some(now)) = (last.boot, now.boot)
        && then.id == now.id
        && then.millis <= now.millis
    {
        return Ok(Duration::from_millis(now.millis - then.millis));
    }
    if last.unix_millis < SET_SINCE {
        return Err("the wall clock was not set when the broker ran last");
    }
    if now.unix_millis < SET_SINCE {
        return Err("the wall clock is not set");
    }
    match now.unix_millis.checked_sub(last.unix_millis).map(Duration::from_millis) {
        None => Err("the wall clock is behind the last time that the broker noted"),
        Some(passed) if passed > CREDIBLE => {
            Err("the wall clock is more than 400 days ahead of the last time that the broker noted")
        }
        Some(passed) => Ok(passed),
    }
}

/// Returns the milliseconds by which the wall clock was set between two moments of one process.
///
/// Returns 0 for steps up to 2 s. Time daemons make such steps when they slew the clock, and the
/// two readings of one moment may be apart.
pub(super) fn clock_step(before: Moment, after: Moment) -> i64 {
    const SLEW_MS: i64 = 2_000;
    let signed = |millis: u64| i64::try_from(millis).unwrap_or(i64::MAX);
    let passed = after.monotonic.since(before.monotonic).as_millis() as i64;
    let shown = signed(after.unix_millis) - signed(before.unix_millis);
    let step = shown.saturating_sub(passed);
    if step.abs() > SLEW_MS { step } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1_000;
    /// In May 2026.
    const TODAY: u64 = 1_778_000_000_000;
    const IN_2099: u64 = 4_080_000_000_000;

    fn moment(monotonic: u64, unix_millis: u64, boot: Option<(u64, u64)>) -> Moment {
        let boot = boot.map(|(id, millis)| Boot { id, millis });
        Moment { monotonic: Instant::from_millis(monotonic), unix_millis, boot }
    }

    /// Returns the known time from a last heartbeat with readings `last` to an opening with
    /// readings `now`.
    fn down(last: (u64, Option<(u64, u64)>), now: (u64, Option<(u64, u64)>)) -> Result<u64, &'static str> {
        let first = moment(0, last.0, last.1);
        let time = resume(None, first).time;
        let resumed = resume(Some(Heartbeat::at(first, time)), moment(7, now.0, now.1));
        let passed = resumed.down.as_millis() as u64;
        let then = time.reads(first.monotonic);
        assert_eq!(resumed.time.to_file(Instant::from_millis(7)), then + passed, "the line goes on");
        resumed.unknown.map_or(Ok(passed), Err)
    }

    #[test]
    fn times_go_out_and_come_back_in_another_process() {
        let writes = resume(None, moment(50_000, TODAY, None)).time;
        let last = Heartbeat::at(moment(51_000, TODAY + 1_000, None), writes);
        let reads = resume(Some(last), moment(10, TODAY + 3_000, None)).time;
        assert_eq!(writes.to_file(Instant::from_millis(60_000)), TODAY + 10_000);
        assert_eq!(reads.instant(TODAY + 10_000), Instant::from_millis(7_010));
        assert_eq!(reads.instant(writes.to_file(Instant::from_millis(40_000))), Instant::ZERO);
        assert_eq!(reads.instant(writes.to_file(Instant::NEVER)), Instant::NEVER);
    }

    #[test]
    fn times_saturate_and_do_not_wrap() {
        for wall in [0, TODAY, u64::MAX] {
            let time = resume(None, moment(5_000, wall, None)).time;
            assert!(!time.instant(time.to_file(Instant::from_millis(u64::MAX - 1))).is_never());
            assert_eq!(time.to_file(Instant::ZERO), 0);
            let again =
                resume(Some(Heartbeat::at(moment(u64::MAX - 1, wall, None), time)), moment(1, 0, None));
            assert!(again.time.to_file(Instant::from_millis(2)) < NEVER);
        }
    }

    #[test]
    fn within_one_boot_the_wall_clock_is_not_asked() {
        for wall in [0, TODAY - 10 * DAY, TODAY, TODAY + 10 * DAY, IN_2099] {
            for before in [0, TODAY, IN_2099] {
                let known = down((before, Some((1, 5_000))), (wall, Some((1, 65_000))));
                assert_eq!(known, Ok(60_000), "{before} to {wall}");
            }
        }
    }

    #[test]
    fn across_boots_a_believable_wall_clock_tells() {
        for boots in [(None, None), (Some((1, 5_000)), None), (Some((1, 5_000)), Some((2, 90_000)))] {
            assert_eq!(down((TODAY, boots.0), (TODAY + 3 * DAY, boots.1)), Ok(3 * DAY));
        }
        // A snapshot of the machine, or another name space of times: the identifier alone proves
        // nothing.
        assert_eq!(down((TODAY, Some((1, 5_000))), (TODAY + DAY, Some((1, 4_000)))), Ok(DAY));
    }

    #[test]
    fn a_wall_clock_that_cannot_be_right_counts_as_no_time() {
        let across = |before, after| down((before, Some((1, 5_000))), (after, Some((2, 5_000)))).is_err();
        for (before, after) in
            [(0, TODAY), (TODAY, 0), (TODAY, IN_2099), (IN_2099, TODAY), (TODAY, TODAY - 1), (0, 0)]
        {
            assert!(across(before, after), "{before} to {after}");
        }
    }

    #[test]
    fn a_clock_that_was_set_is_told_from_one_that_runs() {
        let step = |wall: u64| clock_step(moment(1_000, TODAY, None), moment(11_000, wall, None));
        assert_eq!((step(TODAY + 10_000), step(TODAY + 11_500)), (0, 0));
        assert_eq!(step(TODAY + 10_000 + DAY), DAY as i64);
        assert_eq!(step(TODAY + 10_000 - DAY), -(DAY as i64));
    }
}
