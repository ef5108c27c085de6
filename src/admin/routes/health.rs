//! /healthz and /readyz, for probes.

use crate::admin::readiness::{BrokerReadiness, ReadinessChecks};
use crate::admin::state::AdminState;
use crate::clock;
use crate::named_enum::named_enum;
use actix_web::web::Data;
use actix_web::{HttpResponse, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

named_enum! {
    /// The readiness in one word.
    pub(super) enum ReadinessStatus {
        Ok = "ok",
        Unavailable = "unavailable",
    }
}

/// The readiness of the broker.
#[derive(Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(super) struct ReadinessAnswer {
    status: ReadinessStatus,
    checks: ReadinessChecks,
    /// Each reason why the broker is not ready, with the name of a thread that hangs.
    reasons: Vec<String>,
}

/// Answers 200 as long as the process answers.
pub(crate) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("ok\n")
}

/// Answers 200 if clients can connect, every thread that they need works, and the store commits
/// messages, else 503 with the reasons. A standby of a cluster answers 503.
pub(crate) async fn readyz(state: Data<AdminState>) -> HttpResponse {
    let readiness = BrokerReadiness::of(&state, clock::now());
    let (code, status) = match readiness.is_ready() {
        true => (StatusCode::OK, ReadinessStatus::Ok),
        false => (StatusCode::SERVICE_UNAVAILABLE, ReadinessStatus::Unavailable),
    };
    let body = ReadinessAnswer { status, checks: readiness.checks(), reasons: readiness.reasons() };
    let body = serde_json::to_string(&body).expect("the fields of a struct have names");
    HttpResponse::build(code).content_type("application/json").body(body + "\n")
}
