//! /api/v1/deliveries/slow: the deliveries that took more than a second, by receiver and topic.

use super::json_answer::JsonAnswer;
use crate::admin::queries::slow::slow_deliveries;
use crate::admin::request::limit_of;
use crate::admin::state::State;
use crate::clock;
use crate::session::slow_deliveries::{KEPT, SlowDelivery};
use actix_web::web::{Json, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlowParameters {
    topic: Option<String>,
    /// Only deliveries to this client id.
    #[schema(example = "pump")]
    receiver: Option<String>,
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 1000, default = 100, example = 10)]
    limit: Option<usize>,
}

/// The slow deliveries, by receiver and topic.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = SlowDeliveries)]
pub(crate) struct SlowAnswer {
    #[schema(max_items = 1000)]
    pub(crate) deliveries: Vec<SlowRow>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = SlowDelivery)]
pub(crate) struct SlowRow {
    /// The client id, or its first 128 characters with a mark and the length of the whole:
    /// `... (1024 bytes)`.
    pub(crate) receiver: String,
    /// The topic name, or its first 128 characters with a mark and the length of the whole.
    pub(crate) topic: String,
    /// Seconds that the slowest delivery took since the row began. A row that is an hour old begins
    /// anew with its next slow delivery.
    pub(crate) longest: f64,
    /// Number of slow deliveries since the row began.
    #[schema(minimum = 1)]
    pub(crate) deliveries: u64,
    /// Seconds since the last one.
    pub(crate) ago: u64,
}

/// Lists the rows with a slow delivery in the last hour, the slowest first.
pub(crate) async fn list(asked: Query<SlowParameters>, state: State) -> JsonAnswer<SlowAnswer> {
    let SlowParameters { topic, receiver, limit } = asked.into_inner();
    let limit = limit_of(limit, 100, KEPT)?;
    let rows = slow_deliveries(&state, topic.as_deref(), receiver.as_deref(), limit).await?;
    let row = |row: &SlowDelivery| SlowRow {
        receiver: row.receiver.to_string(),
        topic: row.topic.to_string(),
        longest: row.longest.as_secs_f64(),
        deliveries: row.deliveries,
        ago: clock::now().since(row.last).as_secs(),
    };
    Ok(Json(SlowAnswer { deliveries: rows.iter().map(row).collect() }))
}
