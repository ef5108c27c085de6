//! /api/v1/bans: the clients that may not enter, in `bans.file`.

use super::config::Disconnected;
use super::json_answer::JsonAnswer;
use crate::admin::access::Scope;
use crate::admin::client_files::{FileAction, content, edit};
use crate::admin::credentials::end_text;
use crate::admin::credentials::token_command::lifetime;
use crate::admin::failed::Failed;
use crate::admin::operator::{Operator, OperatorRequest};
use crate::admin::request::{DurationText, cursor_to, limit_of, place_of, read_body};
use crate::admin::state::State;
use crate::auth::ban_file::BanLine;
use crate::broker::file_edits::{ClientFile, ClientFileKind, NotEdited};
use crate::broker::reload::ReloadMode;
use crate::clock::unix_millis;
use crate::named_enum::named_enum;
use actix_web::web::{Bytes, Json, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// Bans of one page at most.
const PAGE: usize = 1_000;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BanParameters {
    /// Number of bans at most.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnbanParameters {
    /// The kind of the ban.
    #[schema(value_type = BanKind)]
    kind: String,
    /// The client id or glob, the user name, the network, or the serial number, as the listing has
    /// it.
    #[schema(example = "test-*")]
    value: String,
}

/// The bans, in the order of the file.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct BanAnswer {
    /// The path of the file.
    pub(crate) file: String,
    /// False if somebody changed the file, and it was not read again since.
    pub(crate) in_force: bool,
    pub(crate) bans: Vec<BanRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A ban.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Ban)]
pub(crate) struct BanRow {
    /// `client`, `user`, `address` or `serial`.
    pub(crate) kind: String,
    pub(crate) value: String,
    /// Null for no end.
    #[schema(required)]
    pub(crate) until_unix_ms: Option<u64>,
}

named_enum! {
    /// The kind of a ban.
    pub(super) enum BanKind {
        Client = "client",
        User = "user",
        Address = "address",
        Serial = "serial",
    }
}

/// A new ban.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "kind": "client", "value": "test-*", "for": "1h" }))]
pub(crate) struct BanOrder {
    kind: BanKind,
    /// A client id or a glob of client ids, a user name, an address or a network, or the serial
    /// number of a certificate.
    #[schema(min_length = 1)]
    value: String,
    /// The time for which it holds. Without it, the ban has no end.
    #[serde(default, rename = "for")]
    #[schema(value_type = Option<DurationText>)]
    lasts: Option<String>,
}

/// The result of a change of the bans.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct BansEdited {
    pub(crate) disconnected: Disconnected,
}

pub(crate) async fn list(asked: Query<BanParameters>, state: State) -> JsonAnswer<BanAnswer> {
    let BanParameters { limit, cursor } = asked.into_inner();
    let (limit, from) = (limit_of(limit, 100, PAGE)?, place_of::<usize>(cursor.as_deref())?);
    let read = content(&state, ClientFile::of_broker(ClientFileKind::Bans)).await?;
    let text = String::from_utf8_lossy(&read.content);
    let mut lines =
        text.lines().enumerate().skip(from).filter_map(|(at, line)| Some((at, BanLine::of(line)?)));
    let row = |BanLine { kind, value, until_ms }: BanLine<'_>| BanRow {
        kind: kind.to_owned(),
        value: value.to_owned(),
        until_unix_ms: until_ms,
    };
    let bans: Vec<BanRow> = lines.by_ref().take(limit).map(|(_, line)| row(line)).collect();
    let next = lines.next().map(|(at, _)| cursor_to(at));
    Ok(Json(BanAnswer { file: read.path.display().to_string(), in_force: read.is_in_force, bans, next }))
}

/// Bans, and disconnects whom the ban concerns. A ban of the same kind and value is replaced.
pub(crate) async fn add(body: Bytes, request: OperatorRequest) -> JsonAnswer<BansEdited> {
    let BanOrder { kind, value, lasts } = read_body(&body, r#"{"kind": "client", "value": "test-*"}"#)?;
    let lasts = lasts.as_deref().map(lifetime).transpose();
    let lasts = lasts.map_err(|what| Failed::Parameter(format!("for: {what}")))?;
    let until = lasts.map(|time| end_text(unix_millis() + 1_000 * time.as_secs()));
    let kind = kind.name();
    let mut line = format!("{kind} {value}");
    if let Some(until) = &until {
        line = format!("{line} until {until}");
    }
    // A value must not be read as something else, such as two lines.
    let is_same = |read: BanLine<'_>| {
        read.kind == kind && read.value == value && read.until_ms.is_some() == until.is_some()
    };
    if value.chars().any(char::is_control) || !BanLine::of(&line).is_some_and(is_same) {
        return Err(Failed::Parameter(format!("value is {value:?}, which no line of the file can have")));
    }
    change(&request.operator, ("ban", line.clone()), (kind.to_owned(), value), Some(line)).await
}

pub(crate) async fn remove(request: OperatorRequest<UnbanParameters>) -> JsonAnswer<BansEdited> {
    let UnbanParameters { kind, value } = request.asked;
    change(&request.operator, ("unban", format!("{kind} {value}")), (kind, value), None).await
}

/// Replaces the lines of a kind and a value by `line`, or removes them.
async fn change(
    operator: &Operator,
    (action, target): (&'static str, String),
    (kind, value): (String, String),
    line: Option<String>,
) -> JsonAnswer<BansEdited> {
    let change = move |content: &[u8]| {
        let text = String::from_utf8_lossy(content);
        let is_it =
            |line: &&str| BanLine::of(line).is_some_and(|ban| (ban.kind, ban.value) == (&*kind, &*value));
        if line.is_none() && !text.lines().any(|line| is_it(&line)) {
            return Err(NotEdited::NoEntry);
        }
        let kept = text.lines().filter(|line| !is_it(line)).map(str::to_owned);
        let new: String = kept.chain(line).map(|line| format!("{line}\n")).collect();
        Ok(Zeroizing::new(new.into_bytes()))
    };
    let file = ClientFile::of_broker(ClientFileKind::Bans);
    let (mode, needed) = (ReloadMode::Apply, Scope::Operator);
    let what = FileAction { file, mode, needed, action, target, parameter: None };
    let edited = edit(operator, what, Box::new(change)).await?;
    Ok(Json(BansEdited { disconnected: Disconnected::of(&edited.disconnected) }))
}
