//! The ages of the oldest queued messages that only the store knows: after a restart, and where a
//! queue was read back.

use crate::broker::observer::Observer;
use crate::clock;
use crate::operators::query::SessionSummary;
use crate::operators::stored::StoreLookup;
use crate::operators::wanted::Wanted;
use std::collections::HashMap;
use std::time::Duration;

/// Time for the look. A listing without these ages is worth more than one that comes late.
const TIME: Duration = Duration::from_millis(250);

/// Adds the ages that are missing to the rows of a listing, as far as the store answers in time.
pub(super) async fn add_oldest_queued(observer: &Observer, rows: &mut [&mut SessionSummary]) {
    let places: Vec<_> = rows.iter().filter_map(|row| row.oldest_stored).collect();
    let Some(store) = observer.store().filter(|_| !places.is_empty()) else { return };
    let lookup = StoreLookup { rows: places.len(), places, wanted: Wanted::default() };
    let look = tokio::time::timeout(TIME, store.look(lookup, clock::now() + TIME)).await;
    let Ok(Ok(looked)) = look else { return };
    let ages: HashMap<_, _> = looked.rows.into_iter().map(|(number, row)| (number, row.age)).collect();
    for row in rows {
        let age = row.oldest_stored.and_then(|(number, _)| ages.get(&number));
        row.oldest_queued = row.oldest_queued.or(age.copied());
    }
}
