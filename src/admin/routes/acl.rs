//! /api/v1/acl: the text of `acl.file`.

use super::config::read_dry_run;
use super::json_answer::JsonAnswer;
use crate::admin::access::Scope;
use crate::admin::client_files::{FileAction, content, edit};
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::problem_kind::ProblemKind;
use crate::admin::request::read_body;
use crate::admin::state::State;
use crate::auth::password::file::Fingerprint;
use crate::broker::file_edits::{ClientFile, ClientFileKind, NotEdited};
use crate::broker::reload::ReloadMode;
use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::http::header::{ETAG, IF_MATCH};
use actix_web::web::{Bytes, Json, Query};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// Bytes of a version that its text has: enough that no two versions have the same.
const VERSION: usize = 16;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AclParameters {
    /// `true` to check the text and change nothing.
    #[schema(value_type = Option<bool>, example = true)]
    dry_run: Option<String>,
    /// The `version` of the text that was changed. 412 if the file has another one. The header
    /// `If-Match` does the same.
    version: Option<String>,
    /// The name of a listener with an `acl_file` of its own. Without it, `acl.file` is meant.
    listener: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AclFileParameters {
    /// The name of a listener with an `acl_file` of its own. Without it, `acl.file` is meant.
    listener: Option<String>,
}

/// The text of the file.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Acl)]
pub(crate) struct AclAnswer {
    /// The path of the file.
    pub(crate) file: String,
    pub(crate) text: String,
    /// The digest of the text, also as `ETag`.
    pub(crate) version: String,
    /// False if somebody changed the file, and it was not read again since.
    pub(crate) in_force: bool,
}

/// The new text of the file.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "text": "user ann\ntopic homes/ann/#\n" }))]
pub(crate) struct AclOrder {
    text: String,
}

/// The result of a change.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct AclEdited {
    pub(crate) dry_run: bool,
    /// False if the text is as before.
    pub(crate) changed: bool,
    /// The version of the new text.
    pub(crate) version: String,
}

/// Returns the text of the file.
pub(crate) async fn show(asked: Query<AclFileParameters>, state: State) -> Result<HttpResponse, Failed> {
    let AclFileParameters { listener } = asked.into_inner();
    let read = content(&state, ClientFile { kind: ClientFileKind::Acl, listener }).await?;
    let text = String::from_utf8(read.content.to_vec());
    let unusable = |_| Failed::Conflict(ProblemKind::FileUnusable, "the file is not UTF-8 text".to_owned());
    let (text, version) = (text.map_err(unusable)?, version_of(&read.version));
    let etag = format!("\"{version}\"");
    let (file, in_force) = (read.path.display().to_string(), read.is_in_force);
    Ok(HttpResponse::Ok().insert_header((ETAG, etag)).json(AclAnswer { file, text, version, in_force }))
}

/// Replaces the text of the file, or checks it.
pub(crate) async fn set(
    request: HttpRequest,
    body: Bytes,
    OperatorRequest { operator, asked }: OperatorRequest<AclParameters>,
) -> JsonAnswer<AclEdited> {
    let AclParameters { dry_run, version, listener } = asked;
    let mode = read_dry_run(dry_run.as_deref())?;
    let AclOrder { text } = read_body(&body, r#"{"text": "topic read a\n"}"#)?;
    let of_header = || {
        let header = request.headers().get(IF_MATCH)?.to_str().ok()?;
        (header != "*").then(|| header.trim_matches('"').to_owned())
    };
    let wanted = version.or_else(of_header);
    let bytes = text.len();
    let change = move |content: &[u8]| match wanted {
        Some(wanted) if wanted != version_of(&Fingerprint::of_bytes(content)) => Err(NotEdited::OtherVersion),
        _ => Ok(Zeroizing::new(text.into_bytes())),
    };
    let (action, target) = ("set_acl", "acl.file".to_owned());
    let parameter = Some(("bytes", bytes.to_string()));
    let file = ClientFile { kind: ClientFileKind::Acl, listener };
    let what = FileAction { file, mode, needed: Scope::Admin, action, target, parameter };
    let edited = edit(&operator, what, Box::new(change)).await?;
    let version = version_of(&edited.version);
    Ok(Json(AclEdited { dry_run: mode == ReloadMode::Check, changed: edited.is_changed, version }))
}

fn version_of(fingerprint: &Fingerprint) -> String {
    fingerprint.as_bytes().iter().take(VERSION).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
