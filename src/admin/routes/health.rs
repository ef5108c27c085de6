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

/// Answers 200 if clients can connect, every thread that they need works, and the store commits
/// messages, else 503 with the reasons.
pub(crate) async fn readyz(state: Data<AdminState>) -> HttpResponse {
    let readiness = BrokerReadiness::of(state.observer(), clock::now());
    let (status, word) = match readiness.is_ready() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let checks: serde_json::Map<_, _> =
        readiness.checks().into_iter().map(|(name, result)| (name.to_owned(), result.into())).collect();
    let body = json!({ "status": word, "checks": checks, "reasons": readiness.reasons() });
    HttpResponse::build(status).content_type("application/json").body(format!("{body}\n"))
}
