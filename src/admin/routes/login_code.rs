//! /api/v1/login/code: a one-time code for a login of the pages.

use crate::admin::access::Scope;
use crate::admin::failed::Failed;
use crate::admin::request::caller;
use crate::admin::state::AdminState;
use crate::clock;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use tracing::info;

/// Returns a code that begins one login within a minute, with the scope of the caller, and the
/// addresses of the pages.
pub(crate) async fn code(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    let caller = caller(&request, Scope::Viewer)?;
    info!(target: "homing::audit", event = "audit.login_code", who = %caller.name, scope = %caller.scope, "a one-time code for a login");
    let code = state.logins().code_for(clock::now(), caller).ok_or(Failed::Busy)?;
    let urls: Vec<_> = state.addresses().iter().map(|address| format!("http://{address}/")).collect();
    Ok(HttpResponse::Ok().json(json!({ "code": code, "expires_in": 60, "urls": urls })))
}
