//! /api/v1/config: the values in force; /api/v1/config/reload: reads the configuration and its
//! files again.

use super::json_answer::JsonAnswer;
use crate::admin::commands::{self, ReloadEnd, UNDER_WAY};
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::state::State;
use crate::broker::file_news::{FileKind, FileNews};
use crate::broker::reload::{ReloadMode, Reloaded};
use crate::broker::revocations::{Revoked, RevokedBy};
use crate::config::{KeyChange, KeyInForce, ListenerChange, ReloadEffect, Shadowed};
use actix_web::HttpResponse;
use actix_web::web::{Json, Query};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::PathBuf;
use utoipa::ToSchema;

/// The parameters of a reload.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadParameters {
    /// `true` to check everything and change nothing.
    #[schema(value_type = Option<bool>, example = true)]
    dry_run: Option<String>,
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
pub(crate) async fn values(asked: Query<ConfigParameters>, state: State) -> JsonAnswer<ConfigAnswer> {
    let mut keys = commands::configuration(&state).await?;
    keys.retain(|key| asked.changed != Some(true) || key.is_changed());
    Ok(Json(ConfigAnswer { keys }))
}

/// Reads everything again. Answers 200 with the changes, or 422 with all mistakes; then nothing
/// changed. Answers 202 if the reload takes longer than a request may.
pub(crate) async fn reload(request: OperatorRequest<ReloadParameters>) -> Result<HttpResponse, Failed> {
    let mode = read_dry_run(request.asked.dry_run.as_deref())?;
    Ok(match commands::reload(&request.operator, mode).await? {
        ReloadEnd::Done(reloaded) => HttpResponse::Ok().json(ReloadAnswer::of(reloaded)),
        ReloadEnd::Refused(mistakes) => return Err(Failed::Mistakes(mistakes)),
        ReloadEnd::UnderWay => HttpResponse::Accepted().json(UnderWay { detail: UNDER_WAY.into() }),
    })
}

/// Reads the parameter `dry_run`. Errors: the word is neither of the two.
pub(super) fn read_dry_run(word: Option<&str>) -> Result<ReloadMode, Failed> {
    match word {
        Some("true") => Ok(ReloadMode::Check),
        None | Some("false") => Ok(ReloadMode::Apply),
        Some(other) => Err(Failed::Parameter(format!("dry_run is {other:?}, and must be true or false"))),
    }
}

/// The keys of the configuration.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Config)]
pub(crate) struct ConfigAnswer {
    pub(crate) keys: Vec<KeyInForce>,
}

/// The answer to a reload that goes on.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct UnderWay {
    pub(crate) detail: Cow<'static, str>,
}

/// The changes of a reload.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Reloaded)]
pub(crate) struct ReloadAnswer {
    pub(crate) dry_run: bool,
    pub(crate) changes: Vec<KeyChange>,
    /// The listeners that differ. A listener with the effect `restart` does not change before the
    /// restart.
    pub(crate) listeners: Vec<ChangedListener>,
    /// Values of the file that a variable or a flag overrides.
    pub(crate) shadowed: Vec<Shadowed>,
    /// The files that the configuration names and that were read again; none for a dry run.
    pub(crate) files: Vec<ReadFile>,
    pub(crate) disconnected: Disconnected,
}

/// A listener that differs.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct ChangedListener {
    /// The name, or the address of a listener without one.
    pub(crate) listener: String,
    /// `added`, `removed` or `changed`.
    pub(crate) change: Cow<'static, str>,
    /// The keys that differ.
    pub(crate) keys: Vec<Cow<'static, str>>,
    pub(crate) effect: ReloadEffect,
}

/// A file that was read again.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct ReadFile {
    pub(crate) kind: FileKind,
    /// The key that names the file.
    pub(crate) key: Cow<'static, str>,
    /// The listener whose file it is; null for a file of the whole broker.
    #[schema(required)]
    pub(crate) listener: Option<String>,
    /// Null if the key has several files; then the detail names those that changed.
    #[schema(required)]
    pub(crate) path: Option<String>,
    /// False if the content is as before.
    pub(crate) changed: bool,
    /// The content in numbers, or the changes.
    pub(crate) detail: String,
}

/// The clients that the files disconnected.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Disconnected {
    pub(crate) total: u64,
    /// Users that left their password file, or have another password there.
    pub(crate) passwords: u64,
    /// Certificates that are not valid any more.
    pub(crate) tls: u64,
    /// Banned clients, users, addresses and certificates.
    pub(crate) bans: u64,
    /// False if not all clients were looked at within two seconds. The log says when they were
    /// (config.clients_checked).
    pub(crate) complete: bool,
}

impl ReloadAnswer {
    fn of(reloaded: Reloaded) -> ReloadAnswer {
        let Reloaded { mode, changes, listeners, shadowed, files, disconnected } = reloaded;
        let listener = |ListenerChange { listener, what, effect }| ChangedListener {
            listener,
            change: what.name().into(),
            keys: what.keys().iter().map(|key| Cow::Borrowed(*key)).collect(),
            effect,
        };
        let file = |FileNews { kind, key, listener, path, is_changed, detail }| ReadFile {
            kind,
            key: key.into(),
            listener,
            path: path.map(|path: PathBuf| path.to_string_lossy().into_owned()),
            changed: is_changed,
            detail,
        };
        ReloadAnswer {
            dry_run: mode == ReloadMode::Check,
            changes,
            listeners: listeners.into_iter().map(listener).collect(),
            shadowed,
            files: files.into_iter().map(file).collect(),
            disconnected: Disconnected::of(&disconnected),
        }
    }
}

impl Disconnected {
    pub(super) fn of(revoked: &Revoked) -> Disconnected {
        Disconnected {
            total: revoked.total(),
            passwords: revoked.clients(RevokedBy::Passwords),
            tls: revoked.clients(RevokedBy::Tls),
            bans: revoked.clients(RevokedBy::Bans),
            complete: !revoked.is_under_way,
        }
    }
}
