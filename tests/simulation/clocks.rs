//! The clocks that the broker's machine has. The wall clock is set at will, forward and back by seconds, days and decades;
//! the machine may boot between two processes of the broker; some machines do not say which boot it is.
//!
//! How long the broker was down can be told within one boot, whatever the wall clock says, and across boots where the
//! wall clock ran on. Where nobody can tell it, things may live on by as much, and nothing ends early.

use crate::rng::Rng;
use homing::store::{Boot, Moment};
use homing::time::Instant;

/// In November 2023, when all begins, unless the clock is wrong.
const UNIX_MS: i64 = 1_700_000_000_000;
const IN_2099: i64 = 4_080_000_000_000;
const DAY: i64 = 86_400_000;
/// Before this, in January 2023, a clock was never set.
const SET_SINCE: i64 = 1_672_531_200_000;
const CREDIBLE: i64 = 400 * DAY;

pub struct Clocks {
    rng: Rng,
    /// What the wall clock says at time 0, as it goes now.
    wall: i64,
    says_boot: bool,
    boot: u64,
    /// Time 0 on its clock.
    booted: u64,
    /// Since the last reading.
    has_booted: bool,
    /// The last reading: when, and what the wall clock said.
    last: (u64, i64),
}

impl Clocks {
    /// Apart from all other chance: other plans are what they were.
    pub fn new(seed: u64) -> Clocks {
        let mut rng = Rng::new(seed ^ 0xC10C_C10C_C10C);
        let wall = rng.pick(&[UNIX_MS, UNIX_MS, UNIX_MS - 10 * DAY, 0, IN_2099]);
        let says_boot = rng.percent(80);
        Clocks { rng, wall, says_boot, boot: 1, booted: 40_000, has_booted: false, last: (0, wall) }
    }

    fn wall(&self, now: u64) -> i64 {
        self.wall.saturating_add(now as i64).max(0)
    }

    /// Now it says this.
    fn set(&mut self, now: u64, wall: i64) {
        self.wall = wall.max(0) - now as i64;
    }

    fn step(&mut self, now: u64) {
        let sign = self.rng.pick(&[-1, 1]);
        let by = self.rng.pick(&[1_000, 60_000, 3_600_000, 10 * DAY, 399 * DAY, 30 * 365 * DAY]);
        let wall = match self.rng.below(10) {
            0 => 5_000,
            1 => IN_2099,
            2 => UNIX_MS + now as i64,
            _ => self.wall(now) + sign * by,
        };
        self.set(now, wall);
    }

    /// What the broker reads. It may have been set just now.
    pub fn beat(&mut self, now: u64, monotonic: Instant) -> Moment {
        if self.rng.percent(50) {
            self.step(now);
        }
        (self.last, self.has_booted) = ((now, self.wall(now)), false);
        self.read(now, monotonic)
    }

    pub fn read(&self, now: u64, monotonic: Instant) -> Moment {
        let boot = Boot { id: self.boot, millis: now + self.booted };
        Moment { monotonic, unix_millis: self.wall(now) as u64, boot: self.says_boot.then_some(boot) }
    }

    /// The broker is down until `until`. How much of the time since its last reading nobody can tell then.
    pub fn down(&mut self, until: u64) -> u64 {
        let boots = self.rng.percent(40);
        self.has_booted |= boots;
        if boots {
            self.boot += 1;
            self.booted = self.rng.below(100_000);
        }
        let (since, before) = self.last;
        if self.says_boot && !self.has_booted {
            if self.rng.percent(60) {
                self.step(until);
            }
            return 0;
        }
        // What it was set to in vain while the broker was down is gone.
        self.set(until, before + (until - since) as i64);
        if self.rng.percent(50) {
            let wrong =
                [5_000, before - 1, before - 10 * DAY, before + CREDIBLE + DAY, before + 40 * 365 * DAY];
            let wall = self.rng.pick(&wrong);
            self.set(until, wall);
        }
        let now = self.wall(until);
        let tells = before >= SET_SINCE && now >= before && now - before <= CREDIBLE;
        if tells { 0 } else { until - since }
    }
}
