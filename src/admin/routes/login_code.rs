//! /api/v1/login/code: a one-time code for a login of the pages.

use super::json_answer::JsonAnswer;
use crate::admin::failed::Failed;
use crate::admin::request::Asker;
use crate::admin::state::State;
use crate::clock;
use actix_web::web::Json;
use serde_json::json;
use tracing::info;

/// Returns a code that begins one login within a minute, with the scope of the caller, and the
/// addresses of the pages.
pub(crate) async fn code(caller: Asker, state: State) -> JsonAnswer {
    let caller = caller.into_inner();
    info!(target: "homing::audit", event = "audit.login_code", who = %caller.name, scope = %caller.scope, "a one-time code for a login");
    let code = state.logins().code_for(clock::now(), caller).ok_or(Failed::Busy)?;
    let urls: Vec<_> = state.addresses().iter().map(|address| format!("http://{address}/")).collect();
    Ok(Json(json!({ "code": code, "expires_in": 60, "urls": urls })))
}
