//! What most handlers return.

use crate::admin::failed::Failed;
use actix_web::web::Json;
use serde_json::Value;

/// The answer of most handlers: JSON, or the reason why there is none.
pub(super) type JsonAnswer = Result<Json<Value>, Failed>;
