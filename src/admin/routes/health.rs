//! /healthz and /readyz, for probes.

use crate::admin::state::AdminState;
use actix_web::web::Data;
use actix_web::{HttpResponse, http::StatusCode};
use serde_json::json;

/// Answers 200 as long as the process answers.
pub(crate) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("ok\n")
}

/// Answers 200 if clients can connect and the store takes messages, else 503 with the reasons.
pub(crate) async fn readyz(state: Data<AdminState>) -> HttpResponse {
    let Some(observer) = state.observer() else {
        return answer(StatusCode::SERVICE_UNAVAILABLE, "starting", false);
    };
    if observer.statistics().is_stopping() {
        return answer(StatusCode::SERVICE_UNAVAILABLE, "stopping", false);
    }
    if observer.shared().store_full.load(std::sync::atomic::Ordering::Relaxed) {
        return answer(StatusCode::SERVICE_UNAVAILABLE, "ready", true);
    }
    answer(StatusCode::OK, "ready", false)
}

fn answer(status: StatusCode, phase: &str, store_full: bool) -> HttpResponse {
    let body = json!({
        "status": if status.is_success() { "ok" } else { "unavailable" },
        "checks": { "phase": phase, "store": if store_full { "full" } else { "ok" } },
    });
    HttpResponse::build(status).content_type("application/json").body(format!("{body}\n"))
}
