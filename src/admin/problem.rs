//! Error answers as RFC 9457 has them: `application/problem+json`.

use super::problem_kind::ProblemKind;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde_json::{Value, json};

/// The content type of RFC 9457.
const PROBLEM_JSON: &str = "application/problem+json";

/// Returns an error answer. `detail` says what is wrong and what would be right.
pub(super) fn problem_answer(kind: ProblemKind, detail: &str) -> HttpResponse {
    respond(&problem_body(kind, kind.facts().status, detail))
}

/// Returns the fields that every error answer has.
pub(super) fn problem_body(kind: ProblemKind, status: StatusCode, detail: &str) -> Value {
    let title = status.canonical_reason().unwrap_or_default();
    json!({
        "type": format!("/api/problems/{}", kind.facts().slug),
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    })
}

/// Returns an error answer with this body, and the status that the body names.
pub(super) fn respond(body: &Value) -> HttpResponse {
    let status = body["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status).content_type(PROBLEM_JSON).body(body.to_string())
}
