//! /api/v1/log/level: the level of the log.

use super::json_answer::JsonAnswer;
use crate::admin::access::Scope;
use crate::admin::audit::arguments;
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::request::{DurationText, read_body};
use crate::log::level::{self, LevelError};
use crate::time::duration;
use actix_web::HttpResponse;
use actix_web::web::{Bytes, Json};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tracing::warn;
use utoipa::ToSchema;

/// The longest time for which a level may be set.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The level to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "level": "debug", "for": "10m" }))]
pub(crate) struct LogLevelOrder {
    /// A level, or directives such as `info,homing::broker=debug`.
    level: String,
    /// The time for which it holds, up to `24h`. Without it, the level holds until a reload.
    #[serde(default, rename = "for")]
    #[schema(value_type = Option<DurationText>)]
    lasts: Option<String>,
}

/// The level that holds.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct LogLevel {
    /// Null if this process has no log.
    #[schema(required)]
    pub(crate) level: Option<String>,
}

/// Returns the level that holds.
pub(crate) async fn level() -> JsonAnswer<LogLevel> {
    Ok(Json(LogLevel { level: level::current() }))
}

/// Sets the level, for a time or until the next reload.
pub(crate) async fn set(body: Bytes, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    let OperatorRequest { operator, .. } = request;
    operator.permit(Scope::Admin)?;
    let LogLevelOrder { level, lasts } = read_body(&body, r#"{"level": "debug", "for": "10m"}"#)?;
    let lasts = lasts.map(|text| time(&text)).transpose()?;
    let change = level::set(&level).map_err(|error| match error {
        LevelError::Invalid(_) => Failed::Parameter(error.to_string()),
        LevelError::NoLog => Failed::Busy,
    })?;
    let for_text = lasts.map(|lasts| ("for", duration::format(lasts)));
    let arguments = arguments(&[Some(("level", level.clone())), for_text, operator.note_parameter()]);
    operator.audit(("log_level", "log"), arguments, "done".to_owned());
    if let Some(lasts) = lasts {
        actix_web::rt::spawn(async move {
            tokio::time::sleep(lasts).await;
            if let Some(level) = level::end(change) {
                warn!(
                    event = "log.level_restored",
                    level, "the log level is that of the configuration again"
                );
            }
        });
    }
    Ok(HttpResponse::NoContent().finish())
}

/// Returns a time that a level may hold.
fn time(text: &str) -> Result<Duration, Failed> {
    let is_allowed = |lasts: &Duration| *lasts > Duration::ZERO && *lasts <= LONGEST;
    let refused = || Failed::Parameter("for must be a time of at most 24h, such as \"10m\"".to_owned());
    duration::parse(text).ok().filter(is_allowed).ok_or_else(refused)
}
