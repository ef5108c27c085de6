//! The plan of a subscriber: which acknowledgements it withholds. Pure.

use super::args::Withhold;
use super::verify::ArrivalVerdict;
use std::time::Duration;

/// A plan and its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub plan: Withhold,
    pub nth: u64,
    pub late: Duration,
}

/// The decision about one acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckChoice {
    Now,
    After(Duration),
    Withheld,
}

impl Policy {
    /// Returns the decision for a message that came before the subscriber was away. After its
    /// return a subscriber acknowledges everything.
    pub(super) fn answer(&self, sequence: u64, verdict: ArrivalVerdict) -> AckChoice {
        let chosen = sequence % self.nth == self.nth - 1;
        let first = verdict == ArrivalVerdict::First;
        match self.plan {
            Withhold::Never => AckChoice::Withheld,
            Withhold::EveryNth if chosen && first => AckChoice::Withheld,
            Withhold::Crash if chosen => AckChoice::Withheld,
            Withhold::Late => AckChoice::After(self.late),
            Withhold::EveryNth | Withhold::Crash => AckChoice::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(plan: Withhold, verdict: ArrivalVerdict) -> Vec<AckChoice> {
        let policy = Policy { plan, nth: 3, late: Duration::from_secs(2) };
        (0..4).map(|sequence| policy.answer(sequence, verdict)).collect()
    }

    #[test]
    fn each_plan_withholds_what_it_says() {
        use AckChoice::{After, Now, Withheld};
        let late = After(Duration::from_secs(2));
        assert_eq!(answers(Withhold::Never, ArrivalVerdict::Redelivered), [Withheld; 4]);
        assert_eq!(answers(Withhold::Late, ArrivalVerdict::First), [late; 4]);
        assert_eq!(answers(Withhold::EveryNth, ArrivalVerdict::First), [Now, Now, Withheld, Now]);
        assert_eq!(answers(Withhold::EveryNth, ArrivalVerdict::Redelivered), [Now; 4]);
        assert_eq!(answers(Withhold::Crash, ArrivalVerdict::Redelivered), [Now, Now, Withheld, Now]);
    }
}
