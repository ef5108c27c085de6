//! The return type of most handlers.

use crate::admin::failed::Failed;
use actix_web::HttpResponse;
use actix_web::web::Json;

/// The answer of most handlers: JSON, or an error.
pub(super) type JsonAnswer<T> = Result<Json<T>, Failed>;

/// Returns the answer of an action that has nothing to say: 204, or the reason why it failed.
pub(super) fn done(result: Result<(), Failed>) -> Result<HttpResponse, Failed> {
    result.map(|()| HttpResponse::NoContent().finish())
}
