//! /api/v1/audit: the last actions of operators.

use crate::admin::access::Scope;
use crate::admin::audit::KEPT;
use crate::admin::failed::Failed;
use crate::admin::request::{caller, limit_of, read_query};
use crate::admin::state::AdminState;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditParameters {
    limit: Option<usize>,
}

/// Returns the last actions, the newest first.
pub(crate) async fn audit(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Admin)?;
    let AuditParameters { limit } = read_query(&request)?;
    let limit = limit_of(limit, 100, KEPT)?;
    Ok(HttpResponse::Ok().json(json!({ "actions": state.audit().last(limit) })))
}
