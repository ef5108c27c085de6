//! The times at which a shard gave its numbers, so that the age of a stored delivery is known
//! without a field in each. 4 KiB.
//!
//! Housekeeping notes the next number once a second. A number is older than each note with a higher
//! number. Old notes are thinned out, so that a note is some 5 % from the next one at any age.

use crate::persistence::records::EntryNumber;
use crate::time::Instant;

/// Notes at most.
const NOTES: usize = 256;

/// A moment, and the number that was next then.
#[derive(Clone, Copy, Debug)]
struct NumberNote {
    at: Instant,
    next: u64,
}

/// The notes, the oldest first. Their numbers rise.
#[derive(Debug, Default)]
pub(crate) struct NumberTimes(Vec<NumberNote>);

impl NumberTimes {
    /// Notes the number that is next now. Costs a pass over the notes, some 2 us.
    pub(crate) fn note(&mut self, now: Instant, next: u64) {
        if self.0.last().is_some_and(|last| last.next == next) {
            return;
        }
        self.0.push(NumberNote { at: now, next });
        if self.0.len() > NOTES {
            self.thin_out(now);
        }
    }

    /// Removes the note whose neighbours are the closest, in relation to their age.
    fn thin_out(&mut self, now: Instant) {
        let relative_gap = |three: &[NumberNote]| match three {
            [before, _, behind] => {
                let gap = behind.at.millis_since(before.at);
                gap.saturating_mul(1 << 20) / now.millis_since(before.at).max(1)
            }
            _ => u64::MAX,
        };
        let closest = self.0.windows(3).enumerate().min_by_key(|(_, three)| relative_gap(three));
        if let Some((at, _)) = closest {
            self.0.remove(at + 1);
        }
    }

    /// Returns the time at which a number was given, late by a second or by 5 % of its age at most;
    /// [`Instant::ZERO`] if it was before the start.
    pub(crate) fn given(&self, number: EntryNumber) -> Instant {
        match self.0.partition_point(|note| note.next <= number.0) {
            0 => Instant::ZERO,
            // Without a note behind it, the number is not a second old.
            behind => self.0.get(behind).or(self.0.last()).map_or(Instant::ZERO, |note| note.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(secs: u64) -> Instant {
        Instant::from_millis(secs * 1_000)
    }

    #[test]
    fn a_number_has_the_time_of_the_first_note_behind_it() {
        let mut times = NumberTimes::default();
        assert_eq!(times.given(EntryNumber(7)), Instant::ZERO);
        for (secs, next) in [(1, 10), (2, 10), (3, 30), (4, 31)] {
            times.note(at(secs), next);
        }
        let given = [9, 10, 29, 30, 31].map(|number| times.given(EntryNumber(number)));
        assert_eq!(given, [Instant::ZERO, at(3), at(3), at(4), at(4)]);
    }

    #[test]
    fn a_year_of_notes_has_a_bound_and_each_age_is_right_to_a_tenth() {
        let mut times = NumberTimes::default();
        let (step, end) = (1_009, 365 * 86_400);
        for secs in (0..end).step_by(step) {
            times.note(at(secs), secs);
        }
        assert!(times.0.len() <= NOTES && size_of::<NumberNote>() * NOTES <= 4 << 10);
        for age in [step as u64 * 2, 86_400, 30 * 86_400, 360 * 86_400] {
            let given = times.given(EntryNumber(end - age));
            let error = (at(end).since(given)).abs_diff(Duration::from_secs(age));
            assert!(error.as_secs() <= age / 10 + step as u64, "{age}: {error:?}");
        }
    }
}
