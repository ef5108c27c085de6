//! /api/v1/me: the caller, so that a tool can check its token.

use super::json_answer::JsonAnswer;
use crate::admin::request::Asker;
use actix_web::web::Json;
use serde_json::json;

/// Returns the name and the scope of the caller.
pub(crate) async fn me(caller: Asker) -> JsonAnswer {
    Ok(Json(json!({ "name": caller.name, "scope": caller.scope.name() })))
}
