//! /metrics, for Prometheus.

use super::caller;
use crate::admin::access::Scope;
use crate::admin::metrics::{render, text::CONTENT_TYPE};
use crate::admin::problem::problem;
use crate::admin::state::AdminState;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, ResponseError};

/// Answers with all metrics. A client on this machine needs no token, others need that of a viewer.
pub(crate) async fn metrics(request: HttpRequest, state: Data<AdminState>) -> HttpResponse {
    if !is_local(&request)
        && let Err(failed) = caller(&request, Scope::Viewer)
    {
        return failed.error_response();
    }
    match state.observer() {
        Some(observer) => {
            HttpResponse::Ok().content_type(CONTENT_TYPE).body(render(observer, state.requests()))
        }
        None => problem(StatusCode::SERVICE_UNAVAILABLE, "starting", "the broker starts; ask again later"),
    }
}

/// Returns true if the client is on this machine. A proxy on this machine speaks for others, so a
/// request that a proxy passed on never is.
fn is_local(request: &HttpRequest) -> bool {
    let passed_on = ["forwarded", "x-forwarded-for"].iter().any(|name| request.headers().contains_key(*name));
    let local = request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    local && !passed_on
}
