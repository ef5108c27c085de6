//! The work that one question of an operator may do in one turn.

/// Steps of one question: 0.1 to 0.8 ms at 20 to 200 ns each. A question that needs more returns
/// the place at which the next one goes on. So no question holds a turn up, whatever the clients
/// have made the broker hold.
pub const STEPS: u32 = 4_096;

/// Bytes of texts that are compared or copied for one step.
const BYTES: usize = 128;

/// The steps of one question: how many it has, and how many are spent.
#[derive(Debug)]
pub struct QuestionBudget {
    most: u32,
    spent: u32,
}

impl Default for QuestionBudget {
    fn default() -> QuestionBudget {
        QuestionBudget::of(STEPS)
    }
}

impl QuestionBudget {
    /// Returns a budget of this many steps.
    pub const fn of(most: u32) -> QuestionBudget {
        QuestionBudget { most, spent: 0 }
    }

    /// Spends steps. The caller may do so before or after the work.
    pub fn spend(&mut self, steps: usize) {
        self.spent = self.spent.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    /// Spends the steps of texts with this many bytes: none for short ones.
    pub fn spend_bytes(&mut self, bytes: usize) {
        self.spend(bytes / BYTES);
    }

    /// Returns true if the question ends here.
    pub fn is_spent(&self) -> bool {
        self.spent >= self.most
    }

    /// Returns the steps that are left.
    pub fn left(&self) -> u32 {
        self.most.saturating_sub(self.spent)
    }

    /// Returns the steps that are spent. The last thing that was looked at may exceed the budget.
    pub fn spent(&self) -> u32 {
        self.spent
    }
}
