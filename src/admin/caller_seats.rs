//! The seats of what callers have under way: a number for all, and half of them for one credential.
//! So one caller leaves seats to the others.

use super::access::Caller;
use super::failed::Failed;
use super::problem_kind::ProblemKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The callers with something of one kind under way, once for each.
#[derive(Debug)]
pub(super) struct CallerSeats {
    /// The kind, in the plural.
    what: &'static str,
    most: usize,
    callers: Arc<Mutex<Vec<Caller>>>,
}

/// The seat of one caller. The seat is free again when the value is dropped.
#[derive(Debug)]
pub(super) struct CallerSeat {
    caller: Caller,
    all: Arc<Mutex<Vec<Caller>>>,
}

impl CallerSeats {
    /// Creates `most` seats for things of a kind.
    pub(super) fn new(what: &'static str, most: usize) -> CallerSeats {
        CallerSeats { what, most, callers: Arc::default() }
    }

    /// Returns one more seat of this caller.
    ///
    /// # Errors
    /// Too many are under way, of this caller or of all.
    pub(super) fn take(&self, caller: Caller) -> Result<CallerSeat, Failed> {
        let CallerSeats { what, most, .. } = *self;
        let mut callers = locked(&self.callers);
        let (own, most_of_one) = (callers.iter().filter(|other| other.is_same(&caller)).count(), most / 2);
        if own >= most_of_one {
            let detail = format!(
                "this token or user has {own} {what} under way, as many as one may have; wait until one of them ends"
            );
            return Err(Failed::Conflict(ProblemKind::ShareUsed, detail));
        }
        if callers.len() >= most {
            let detail = format!("{most} {what} are under way, as many as there may be; ask again later");
            return Err(Failed::Conflict(ProblemKind::Busy, detail));
        }
        callers.push(caller.clone());
        Ok(CallerSeat { caller, all: Arc::clone(&self.callers) })
    }
}

impl Drop for CallerSeat {
    fn drop(&mut self) {
        let mut callers = locked(&self.all);
        if let Some(at) = callers.iter().position(|other| other.is_same(&self.caller)) {
            callers.swap_remove(at);
        }
    }
}

fn locked(callers: &Mutex<Vec<Caller>>) -> MutexGuard<'_, Vec<Caller>> {
    callers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::access::{Origin, Scope};

    fn caller(name: &str) -> Caller {
        Caller { name: name.to_owned(), scope: Scope::Viewer, credential: None, origin: Origin::default() }
    }

    #[test]
    fn one_credential_leaves_half_of_the_seats_to_others_and_the_answer_names_the_share() {
        let seats = CallerSeats::new("live streams", 8);
        let take = |name| seats.take(caller(name)).map_err(|failed| (failed.kind(), failed.to_string()));
        let mut viewer: Vec<_> = (0..4).map(|_| take("viewer").expect("a seat")).collect();
        let (kind, detail) = take("viewer").expect_err("its share");
        assert_eq!(kind, ProblemKind::ShareUsed);
        assert!(detail.contains("has 4 live streams under way"), "{detail}");
        let _operator: Vec<_> = (0..4).map(|_| take("operator").expect("a seat")).collect();
        let (kind, detail) = take("third").expect_err("all seats are taken");
        assert_eq!(kind, ProblemKind::Busy);
        assert!(detail.starts_with("8 live streams are under way"), "{detail}");
        viewer.pop();
        assert!(take("third").is_ok());
    }
}
