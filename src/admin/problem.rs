//! Error answers as RFC 9457 has them: `application/problem+json`.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde_json::{Value, json};

/// The content type of RFC 9457.
const PROBLEM_JSON: &str = "application/problem+json";

/// Returns an error answer. `slug` names the kind of the error and never changes; `detail` says
/// what is wrong and what would be right.
pub(super) fn problem(status: StatusCode, slug: &str, detail: &str) -> HttpResponse {
    respond(status, &problem_body(status, slug, detail))
}

/// Returns the fields that every error answer has.
pub(super) fn problem_body(status: StatusCode, slug: &str, detail: &str) -> Value {
    let title = status.canonical_reason().unwrap_or_default();
    json!({
        "type": format!("/api/problems/{slug}"),
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    })
}

/// Returns an error answer with this body.
pub(super) fn respond(status: StatusCode, body: &Value) -> HttpResponse {
    HttpResponse::build(status).content_type(PROBLEM_JSON).body(body.to_string())
}
