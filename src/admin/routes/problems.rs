//! /api/problems/{slug}: the meaning of an error, whose `type` is this path (RFC 9457).

use crate::admin::problem::problem_answer;
use crate::admin::problem_kind::ProblemKind;
use actix_web::HttpResponse;
use actix_web::web::Path;

/// Explains a kind of error, as text.
pub(crate) async fn one(path: Path<String>) -> HttpResponse {
    let Some(kind) = ProblemKind::of_slug(&path) else {
        return problem_answer(ProblemKind::NotFound, "there is no such kind of error");
    };
    let facts = kind.facts();
    let body = format!("{} ({})\n\n{}\n", facts.slug, facts.status, facts.meaning);
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body(body)
}
