//! /api/v1/config: the values in force; /api/v1/config/reload: reads the configuration and its
//! files again.

use super::json_answer::JsonAnswer;
use crate::admin::commands::{self, ReloadEnd, UNDER_WAY};
use crate::admin::failed::Failed;
use crate::admin::problem::{problem_body, respond};
use crate::admin::problem_kind::ProblemKind;
use crate::admin::request::{Asker, note_of};
use crate::admin::state::State;
use crate::broker::file_news::FileNews;
use crate::broker::reload::{ReloadMode, Reloaded};
use crate::broker::revocations::RevokedBy;
use crate::config::{KeyChange, KeyInForce, ListenerChange, Shadowed};
use actix_web::HttpResponse;
use actix_web::web::{Json, Query};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use utoipa::ToSchema;

/// The parameters of a reload.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadParameters {
    /// `true` to check everything and change nothing.
    #[schema(value_type = Option<bool>, example = true)]
    dry_run: Option<String>,
    note: Option<String>,
}

/// The parameters of the values in force.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigParameters {
    /// `true` for the keys alone that have not their default.
    #[schema(example = true)]
    changed: Option<bool>,
}

/// Returns the keys of the configuration with the values in force. No value is a secret.
pub(crate) async fn values(asked: Query<ConfigParameters>, state: State) -> JsonAnswer {
    let rows = state.running()?.configuration().await.map_err(|_| Failed::Busy)?;
    let is_wanted = |row: &&KeyInForce| asked.changed != Some(true) || row.is_changed();
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
    Ok(Json(json!({ "keys": keys })))
}

/// Reads everything again. Answers 200 with the changes, or 422 with all mistakes; then nothing
/// changed. Answers 202 if the reload takes longer than a request may.
pub(crate) async fn reload(
    caller: Asker,
    asked: Query<ReloadParameters>,
    state: State,
) -> Result<HttpResponse, Failed> {
    let ReloadParameters { dry_run, note } = asked.into_inner();
    let note = note_of(note)?;
    let mode = match dry_run.as_deref() {
        Some("true") => ReloadMode::Check,
        None | Some("false") => ReloadMode::Apply,
        Some(other) => {
            let what = format!("dry_run is {other:?}, and must be true or false");
            return Err(Failed::Parameter(what));
        }
    };
    Ok(match commands::reload(&state, &caller, mode, &note).await? {
        ReloadEnd::Done(reloaded) => HttpResponse::Ok().json(described(&reloaded)),
        ReloadEnd::Refused(mistakes) => refused(&mistakes),
        ReloadEnd::UnderWay => HttpResponse::Accepted().json(json!({ "detail": UNDER_WAY })),
    })
}

fn described(reloaded: &Reloaded) -> Value {
    let change = |change: &KeyChange| {
        let KeyChange { key, from, to, effect, source } = change;
        json!({ "key": key, "from": from, "to": to, "effect": effect.name(), "source": source })
    };
    let listener = |change: &ListenerChange| {
        json!({
            "listener": change.listener,
            "change": change.what.name(),
            "keys": change.what.keys(),
            "effect": change.effect.name(),
        })
    };
    let shadow = |shadowed: &Shadowed| json!({ "key": shadowed.key, "by": shadowed.by });
    let file = |file: &FileNews| {
        json!({
            "kind": file.kind.name(),
            "key": file.key,
            "listener": file.listener,
            "path": file.path.as_deref().map(Path::to_string_lossy),
            "changed": file.is_changed,
            "detail": file.detail,
        })
    };
    json!({
        "dry_run": reloaded.mode == ReloadMode::Check,
        "changes": reloaded.changes.iter().map(change).collect::<Vec<_>>(),
        "listeners": reloaded.listeners.iter().map(listener).collect::<Vec<_>>(),
        "shadowed": reloaded.shadowed.iter().map(shadow).collect::<Vec<_>>(),
        "files": reloaded.files.iter().map(file).collect::<Vec<_>>(),
        "disconnected": {
            "total": reloaded.disconnected.total(),
            "passwords": reloaded.disconnected.clients(RevokedBy::Passwords),
            "tls": reloaded.disconnected.clients(RevokedBy::Tls),
            "bans": reloaded.disconnected.clients(RevokedBy::Bans),
            "complete": !reloaded.disconnected.is_under_way,
        },
    })
}

/// Returns a problem (RFC 9457) with a list of mistakes.
fn refused(mistakes: &[String]) -> HttpResponse {
    let (kind, detail) = (ProblemKind::ConfigInvalid, format!("nothing is changed: {}", mistakes.join("; ")));
    let mut body = problem_body(kind, kind.facts().status, &detail);
    body["mistakes"] = mistakes.into();
    respond(&body)
}
