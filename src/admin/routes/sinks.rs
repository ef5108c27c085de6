//! /api/v1/sinks: the HTTP services that get messages.

use super::json_answer::JsonAnswer;
use crate::admin::queries::far_sides::sinks;
use crate::admin::rows::sink::SinkRow;
use crate::admin::state::State;
use actix_web::web::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The sinks.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Sinks {
    pub(crate) sinks: Vec<SinkRow>,
}

/// Returns the sinks, by name.
pub(crate) async fn list(state: State) -> JsonAnswer<Sinks> {
    Ok(Json(Sinks { sinks: sinks(state.running()?).await }))
}
