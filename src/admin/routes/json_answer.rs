//! What most handlers return.

use crate::admin::failed::Failed;
use actix_web::HttpResponse;
use actix_web::web::Json;
use serde_json::Value;

/// The answer of most handlers: JSON, or the reason why there is none.
pub(super) type JsonAnswer = Result<Json<Value>, Failed>;

/// Returns the answer of an action that has nothing to say: 204, or the reason why it failed.
pub(super) fn done(result: Result<(), Failed>) -> Result<HttpResponse, Failed> {
    result.map(|()| HttpResponse::NoContent().finish())
}
