//! /api/v1/audit: the last actions of operators.

use super::json_answer::JsonAnswer;
use crate::admin::audit::{AuditEntry, KEPT};
use crate::admin::request::limit_of;
use crate::admin::state::State;
use actix_web::web::{Json, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditParameters {
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 1000, default = 100, example = 10)]
    limit: Option<usize>,
    /// True for the requests that published messages, which are left out otherwise.
    #[serde(default)]
    #[schema(default = false, example = true)]
    published: bool,
}

/// The last actions.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Audit {
    #[schema(max_items = 1000)]
    pub(crate) actions: Vec<AuditEntry>,
}

/// Returns the last actions, the newest first.
pub(crate) async fn audit(asked: Query<AuditParameters>, state: State) -> JsonAnswer<Audit> {
    let limit = limit_of(asked.limit, 100, KEPT)?;
    let audit = &state.audit;
    let actions = if asked.published { audit.last_published(limit) } else { audit.last(limit) };
    Ok(Json(Audit { actions }))
}
