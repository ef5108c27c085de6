//! /healthz and /readyz, for probes.

use crate::admin::readiness::BrokerReadiness;
use crate::admin::state::AdminState;
use crate::clock;
use actix_web::web::Data;
use actix_web::{HttpResponse, http::StatusCode};
use serde_json::json;

/// Answers 200 as long as the process answers.
pub(crate) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("ok\n")
}

/// Answers 200 if clients can connect and the store commits messages, else 503 with the reasons.
pub(crate) async fn readyz(state: Data<AdminState>) -> HttpResponse {
    let readiness = BrokerReadiness::of(state.observer(), clock::now());
    let (phase, store) = readiness.checks();
    let (status, word) = match readiness.is_ready() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let body = json!({ "status": word, "checks": { "phase": phase, "store": store } });
    HttpResponse::build(status).content_type("application/json").body(format!("{body}\n"))
}
