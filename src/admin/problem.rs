//! Error answers as RFC 9457 has them: `application/problem+json`.

use super::problem_kind::ProblemKind;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// The content type of RFC 9457.
const PROBLEM_JSON: &str = "application/problem+json";

/// An error, as RFC 9457 has it.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemAnswer {
    /// Names the kind of the error: `/api/problems/` and a word that never changes.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) title: Cow<'static, str>,
    #[schema(minimum = 400, maximum = 599)]
    pub(crate) status: u16,
    /// The fault, and the correct form.
    pub(crate) detail: String,
    /// All mistakes of a refused configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mistakes: Option<Vec<String>>,
    /// On a node that stands by: the node that serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// On a node that stands by: the URL of the interface of that node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admin: Option<String>,
}

/// Returns an error answer. `detail` says the fault and the correct form.
pub(super) fn problem_answer(kind: ProblemKind, detail: &str) -> HttpResponse {
    respond(&problem_of(kind, kind.facts().status, detail))
}

/// Returns an error with the fields that every one has.
pub(super) fn problem_of(kind: ProblemKind, status: StatusCode, detail: &str) -> ProblemAnswer {
    ProblemAnswer {
        kind: format!("/api/problems/{}", kind.facts().slug),
        title: status.canonical_reason().unwrap_or_default().into(),
        status: status.as_u16(),
        detail: detail.to_owned(),
        mistakes: None,
        owner: None,
        admin: None,
    }
}

/// Returns an error answer with this body, and the status that the body names.
pub(super) fn respond(problem: &ProblemAnswer) -> HttpResponse {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status).insert_header((CONTENT_TYPE, PROBLEM_JSON)).json(problem)
}
