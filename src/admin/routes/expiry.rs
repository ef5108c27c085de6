//! /api/v1/expiry: the deadlines by the bucket in which they are due.

use crate::admin::access::Scope;
use crate::admin::failed::Failed;
use crate::admin::request::caller;
use crate::admin::state::AdminState;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

/// Returns the buckets of the next round of the ring with their deadlines, by kind. The sum of
/// `keys`, `overdue` and `later` is exact. Costs the expiry actor 5 ms for each million deadlines,
/// in stretches of 0.3 ms, at most twice a second.
pub(crate) async fn expiry(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let observer = state.running()?;
    Ok(HttpResponse::Ok().json(state.wheel().now(observer).await?.json()))
}
