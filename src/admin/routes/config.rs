//! /api/v1/config: the values in force; /api/v1/config/reload: reads the configuration and its
//! files again.

use crate::admin::access::Scope;
use crate::admin::commands;
use crate::admin::failed::Failed;
use crate::admin::problem::{problem_body, respond};
use crate::admin::request::{caller, read_query};
use crate::admin::state::AdminState;
use crate::broker::reload::{ReloadMode, Reloaded};
use crate::config::{KeyChange, KeyInForce, Shadowed};
use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};

/// The parameters of a reload.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReloadParameters {
    /// `true` to check everything and change nothing.
    dry_run: Option<String>,
}

/// The parameters of the values in force.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigParameters {
    /// `true` for the keys alone that have not their built-in default.
    changed: Option<bool>,
}

/// Returns the keys of the configuration with the values in force. No value is a secret.
pub(crate) async fn values(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let ConfigParameters { changed } = read_query(&request)?;
    let rows = state.running()?.configuration().await.map_err(|_| Failed::Busy)?;
    let is_wanted = |row: &&KeyInForce| changed != Some(true) || row.is_changed();
    let row = |KeyInForce { key, value, default, source, effect, pending }: &KeyInForce| {
        json!({
            "key": key,
            "value": value,
            "default": default,
            "source": source,
            "effect": effect.name(),
            "pending": pending,
        })
    };
    let keys: Vec<Value> = rows.iter().filter(is_wanted).map(row).collect();
    Ok(HttpResponse::Ok().json(json!({ "keys": keys })))
}

/// Reads everything again. Answers 200 with the changes, or 422 with all mistakes; then nothing
/// changed.
pub(crate) async fn reload(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    let caller = caller(&request, Scope::Admin)?;
    let ReloadParameters { dry_run } = read_query(&request)?;
    let mode = match dry_run.as_deref() {
        Some("true") => ReloadMode::Check,
        None | Some("false") => ReloadMode::Apply,
        Some(other) => {
            let what = format!("dry_run is {other:?}, and must be true or false");
            return Err(Failed::Parameter(what));
        }
    };
    Ok(match commands::reload(&state, &caller, mode).await? {
        Ok(reloaded) => HttpResponse::Ok().json(described(&reloaded)),
        Err(mistakes) => refused(&mistakes),
    })
}

fn described(reloaded: &Reloaded) -> Value {
    let change = |change: &KeyChange| {
        let KeyChange { key, from, to, effect, source } = change;
        json!({ "key": key, "from": from, "to": to, "effect": effect.name(), "source": source })
    };
    let shadow = |shadowed: &Shadowed| json!({ "key": shadowed.key, "by": shadowed.by });
    json!({
        "dry_run": reloaded.mode == ReloadMode::Check,
        "changes": reloaded.changes.iter().map(change).collect::<Vec<_>>(),
        "shadowed": reloaded.shadowed.iter().map(shadow).collect::<Vec<_>>(),
        "files": reloaded.files,
    })
}

/// Returns a problem (RFC 9457) with a list of mistakes.
fn refused(mistakes: &[String]) -> HttpResponse {
    let (status, detail) =
        (StatusCode::UNPROCESSABLE_ENTITY, format!("nothing is changed: {}", mistakes.join("; ")));
    let mut body = problem_body(status, "config-invalid", &detail);
    body["mistakes"] = mistakes.into();
    respond(status, &body)
}
