//! /api/v1/expiry: the deadlines by the bucket in which they are due.

use super::json_answer::JsonAnswer;
use crate::admin::state::State;
use crate::admin::wheel::Deadlines;
use actix_web::web::Json;

/// Returns the buckets of the next round of the ring with their deadlines, by kind. The sum of
/// `keys`, `overdue` and `later` is exact. Costs the expiry actor 5 ms for each million deadlines,
/// in stretches of 0.3 ms, at most twice a second.
pub(crate) async fn expiry(state: State) -> JsonAnswer<Deadlines> {
    Ok(Json(state.wheel.now(state.running()?).await?.deadlines()))
}
