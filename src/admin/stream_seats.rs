//! The seats of live streams: a number for all, and half of them for one credential.

use super::access::Caller;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Live streams at once.
const STREAMS: usize = 32;

/// Live streams of one credential at once. Others always find a seat.
const OF_ONE: usize = STREAMS / 2;

/// The callers with an open stream, once for each stream.
#[derive(Debug, Default)]
pub(super) struct StreamSeats(Arc<Mutex<Vec<Caller>>>);

/// The seat of one stream. The seat is free again when the value is dropped.
#[derive(Debug)]
pub(super) struct StreamSeat {
    caller: Caller,
    all: Arc<Mutex<Vec<Caller>>>,
}

impl StreamSeats {
    /// Returns the seat of one more stream of this caller; `None` if too many are open.
    pub(super) fn take(&self, caller: Caller) -> Option<StreamSeat> {
        let mut callers = locked(&self.0);
        let own = callers.iter().filter(|other| other.is_same(&caller)).count();
        if callers.len() >= STREAMS || own >= OF_ONE {
            return None;
        }
        callers.push(caller.clone());
        Some(StreamSeat { caller, all: Arc::clone(&self.0) })
    }
}

impl Drop for StreamSeat {
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
    fn one_credential_leaves_half_of_the_places_to_others() {
        let seats = StreamSeats::default();
        let mut viewer: Vec<_> = (0..STREAMS).filter_map(|_| seats.take(caller("viewer"))).collect();
        assert_eq!(viewer.len(), OF_ONE);
        let operator: Vec<_> = (0..STREAMS).filter_map(|_| seats.take(caller("operator"))).collect();
        assert_eq!(operator.len(), STREAMS - OF_ONE);
        assert!(seats.take(caller("third")).is_none(), "all seats are taken");
        viewer.pop();
        assert!(seats.take(caller("third")).is_some());
    }
}
