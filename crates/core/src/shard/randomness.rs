//! The random numbers of a shard. The numbers come from outside, because a pure module has no
//! source.

use crate::session::outbound::retry::splitmix64;
use std::fmt;

/// Random numbers for two purposes.
///
/// Numbers that only spread load, such as jitter, follow from a seed. One such number is enough to
/// compute the others. Numbers that nobody may guess come from the source, one call for each.
pub struct Randomness {
    /// The state of the generator of numbers that spread load.
    seed: u64,
    secrets: Box<dyn FnMut() -> Option<u128> + Send>,
}

impl Randomness {
    /// Returns random numbers. `secrets` returns 128 bits that nobody can guess, or `None` if the
    /// system has none.
    pub fn new(seed: u64, secrets: impl FnMut() -> Option<u128> + Send + 'static) -> Randomness {
        Randomness { seed, secrets: Box::new(secrets) }
    }

    /// Returns numbers that all follow from the seed, for tests and for the simulation.
    pub fn reproducible(seed: u64) -> Randomness {
        let mut state = !seed;
        let secrets =
            move || Some(u128::from(splitmix64(&mut state)) << 64 | u128::from(splitmix64(&mut state)));
        Randomness::new(seed, secrets)
    }

    /// Returns the next number that spreads load.
    pub(crate) fn spread(&mut self) -> u64 {
        splitmix64(&mut self.seed)
    }

    /// Returns the next number that nobody can guess, or `None` if the system has none.
    pub(crate) fn secret(&mut self) -> Option<u128> {
        (self.secrets)()
    }
}

impl fmt::Debug for Randomness {
    /// Writes no number, because secret numbers must stay secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Randomness")
    }
}
