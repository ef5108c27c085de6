//! The clocks that the broker's machine has. The wall clock is set at will, forward and back by
//! seconds, days and decades; the machine may boot between two processes of the broker; some
//! machines do not say which boot it is. A virtual machine may stand still while the broker is
//! down, and its clock since the boot with it. A machine may be suspended, with all that runs on
//! it, and that clock goes on.
//!
//! How long the broker was down can be told within one boot, whatever the wall clock says, and
//! across boots where the wall clock ran on. Where nobody can tell it, things may live on by as
//! much, and nothing ends early.

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

/// Such that the clocks of other seeds are set as they were before there was this.
const STOPS: u64 = 0x510B_0000_0000;

pub struct Clocks {
    rng: Rng,
    /// Whether the machine stands still or is suspended, drawn apart from how its clocks are set.
    stops: Rng,
    /// What the wall clock says at time 0, as it goes now.
    wall: i64,
    says_boot: bool,
    boot: u64,
    /// Time 0 on its clock. Negative where the machine stood still for longer than it ran before.
    booted: i64,
    /// Since the last reading.
    has_booted: bool,
    /// For how long the machine has stood still since the last reading.
    stood_still: u64,
    /// The last reading: when, and what the wall clock said.
    last: (u64, i64),
}

impl Clocks {
    /// Apart from all other chance: other plans are what they were.
    pub fn new(seed: u64) -> Clocks {
        let mut rng = Rng::new(seed ^ 0xC10C_C10C_C10C);
        let wall = rng.pick(&[UNIX_MS, UNIX_MS, UNIX_MS - 10 * DAY, 0, IN_2099]);
        let says_boot = rng.percent(80);
        let stops = Rng::new(seed ^ STOPS);
        Clocks {
            rng,
            stops,
            wall,
            says_boot,
            boot: 1,
            booted: 40_000,
            has_booted: false,
            stood_still: 0,
            last: (0, wall),
        }
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
        (self.last, self.has_booted, self.stood_still) = ((now, self.wall(now)), false, 0);
        self.read(now, monotonic)
    }

    pub fn read(&self, now: u64, monotonic: Instant) -> Moment {
        let boot = Boot { id: self.boot, millis: (now as i64 + self.booted).max(0) as u64 };
        Moment { monotonic, unix_millis: self.wall(now) as u64, boot: self.says_boot.then_some(boot) }
    }

    /// For how long the machine is suspended once all is quiet, if it is.
    pub fn suspend(&mut self) -> Option<u64> {
        let slept = self.stops.pick(&[2_000, 20_000, 600_000, 86_400_000]);
        self.stops.percent(40).then_some(slept)
    }

    /// The broker is down until `until`. How much of the time since its last reading nobody can
    /// tell then.
    pub fn down(&mut self, until: u64) -> u64 {
        let boots = self.rng.percent(40);
        self.has_booted |= boots;
        if boots {
            self.boot += 1;
            self.booted = self.rng.below(100_000) as i64;
        }
        let (since, before) = self.last;
        if self.says_boot && !self.has_booted {
            if self.rng.percent(60) {
                self.step(until);
            }
            // Never so long that its clock goes back behind the last reading, however often the
            // broker is down until the next.
            let most = until.saturating_sub(since + self.stood_still);
            let stood_still = if self.stops.percent(30) { self.stops.below(most + 1) } else { 0 };
            self.stood_still += stood_still;
            self.booted -= stood_still as i64;
            return stood_still;
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
