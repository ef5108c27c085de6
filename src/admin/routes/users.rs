//! /api/v1/users: the users of clients in `auth.password_file`, and in the files of single
//! listeners.

use super::config::Disconnected;
use super::json_answer::JsonAnswer;
use crate::admin::access::Scope;
use crate::admin::client_files::{FileAction, content, edit};
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::problem_kind::ProblemKind;
use crate::admin::request::{limit_of, read_body};
use crate::admin::state::State;
use crate::auth::passwd::edit::PasswordLines;
use crate::auth::passwd::{HashChoice, hash_as, is_user_name};
use crate::auth::password::PasswordFile;
use crate::auth::password::hash::HashKind;
use crate::broker::file_edits::{ClientFile, ClientFileKind, NotEdited};
use crate::broker::reload::ReloadMode;
use actix_web::web::{self, Bytes, Json, Path, Query};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// Users of one page at most.
const PAGE: usize = 1_000;

/// The name of the file in errors about its content, where the path does not matter.
const FILE: &str = "auth.password_file";

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserParameters {
    /// Number of users at most.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    cursor: Option<String>,
    /// The name of a listener with a `password_file` of its own. Without it, `auth.password_file`
    /// is meant.
    listener: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserFileParameters {
    /// The name of a listener with a `password_file` of its own. Without it, `auth.password_file`
    /// is meant.
    listener: Option<String>,
}

/// The users in the file, by name.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Users {
    /// The path of the file.
    pub(crate) file: String,
    /// False if somebody changed the file, and it was not read again since.
    pub(crate) in_force: bool,
    /// The number of all users.
    pub(crate) count: usize,
    pub(crate) users: Vec<UserRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A user.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = User)]
pub(crate) struct UserRow {
    pub(crate) name: String,
    /// The kind of the hash: `argon2id`, `pbkdf2`, `scram` or `sha512`.
    #[schema(value_type = String, example = "argon2id")]
    pub(crate) hash: Cow<'static, str>,
}

/// The password of a user.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "password": "sesame" }))]
pub(crate) struct UserOrder {
    #[schema(min_length = 1)]
    password: String,
    /// `argon2id` for people, `scram` for random secrets and for SCRAM-SHA-256, or `pbkdf2` for
    /// mosquitto.
    #[serde(default)]
    hash: HashChoice,
}

/// A user that was changed.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct UserChanged {
    /// True if the user is new.
    pub(crate) added: bool,
    pub(crate) disconnected: Disconnected,
}

pub(crate) async fn list(asked: Query<UserParameters>, state: State) -> JsonAnswer<Users> {
    let UserParameters { limit, cursor, listener } = asked.into_inner();
    let limit = limit_of(limit, 100, PAGE)?;
    let (path, in_force, mut users) = all(&state, listener).await?;
    let count = users.len();
    users.retain(|user| cursor.as_ref().is_none_or(|cursor| user.name > *cursor));
    let more = users.len() > limit;
    users.truncate(limit);
    let next = users.last().filter(|_| more).map(|user| user.name.clone());
    Ok(Json(Users { file: path.display().to_string(), in_force, count, users, next }))
}

/// Returns one user.
pub(crate) async fn one(
    name: Path<String>,
    asked: Query<UserFileParameters>,
    state: State,
) -> JsonAnswer<UserRow> {
    let (_, _, users) = all(&state, asked.into_inner().listener).await?;
    users.into_iter().find(|user| user.name == **name).map(Json).ok_or_else(no_such_user)
}

fn no_such_user() -> Failed {
    Failed::Conflict(ProblemKind::NoSuchEntry, "there is no such user in the file".to_owned())
}

/// Returns the path of the file, if it is in force, and its users by name. A long file is read on
/// another thread.
async fn all(state: &State, listener: Option<String>) -> Result<(PathBuf, bool, Vec<UserRow>), Failed> {
    let turn = state.files.turn().await.ok_or(Failed::Busy)?;
    let read = content(state, ClientFile { kind: ClientFileKind::Passwords, listener }).await?;
    let parse = move || {
        // One at a time, also if callers go, because the file may have a million users.
        let _turn = turn;
        let file = PasswordFile::parse(&read.path, &read.content).map_err(|error| error.lines())?;
        let row =
            |(name, kind): (&str, HashKind)| UserRow { name: name.to_owned(), hash: kind.name().into() };
        let mut users: Vec<UserRow> = file.entries().map(row).collect();
        users.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok((read.path, read.is_in_force, users))
    };
    web::block(parse).await.map_err(|_| Failed::Busy)?.map_err(Failed::Mistakes)
}

/// Adds a user, or changes its password.
pub(crate) async fn set(
    name: Path<String>,
    body: Bytes,
    request: OperatorRequest<UserFileParameters>,
) -> JsonAnswer<UserChanged> {
    let OperatorRequest { operator, asked: UserFileParameters { listener } } = request;
    let UserOrder { password, hash: choice } = read_body(&body, r#"{"password": "sesame"}"#)?;
    let (password, name) = (Zeroizing::new(password), checked(name)?);
    // A hash takes 20 ms and 19 MiB: one at a time, on a thread for such work.
    let turn = operator.state.passwords.turn().await.ok_or(Failed::Busy)?;
    let hash = move || {
        // The work goes on if the caller goes.
        let _turn = turn;
        hash_as(choice, None, &password)
    };
    let hashed = web::block(hash).await.map_err(|_| Failed::Busy)?;
    let hash = hashed.map_err(|error| Failed::Parameter(error.to_string()))?;
    let (added, user) = (Arc::new(AtomicBool::new(false)), name.clone());
    let seen = Arc::clone(&added);
    let change = move |content: &[u8]| {
        let mut lines = PasswordLines::parse(FilePath::new(FILE), content)?;
        seen.store(lines.set(&user, &hash), Ordering::Relaxed);
        Ok(text_of(&lines))
    };
    let edited = edit(&operator, action("set_user", name, listener), Box::new(change)).await?;
    let disconnected = Disconnected::of(&edited.disconnected);
    Ok(Json(UserChanged { added: added.load(Ordering::Relaxed), disconnected }))
}

/// Removes a user.
pub(crate) async fn remove(
    name: Path<String>,
    request: OperatorRequest<UserFileParameters>,
) -> JsonAnswer<UserChanged> {
    let OperatorRequest { operator, asked: UserFileParameters { listener } } = request;
    let name = name.into_inner();
    let user = name.clone();
    let change = move |content: &[u8]| {
        let mut lines = PasswordLines::parse(FilePath::new(FILE), content)?;
        if lines.remove(&user) { Ok(text_of(&lines)) } else { Err(NotEdited::NoEntry) }
    };
    let edited = edit(&operator, action("remove_user", name, listener), Box::new(change)).await?;
    Ok(Json(UserChanged { added: false, disconnected: Disconnected::of(&edited.disconnected) }))
}

/// Returns a name that means the same user when the file is read again.
fn checked(name: Path<String>) -> Result<String, Failed> {
    let name = name.into_inner();
    if is_user_name(&name) {
        return Ok(name);
    }
    Err(Failed::Parameter(format!(
        "the user name {name:?} is not possible: it must not be empty, begin with #, begin or end with a blank, or have a colon or a control character"
    )))
}

fn action(action: &'static str, target: String, listener: Option<String>) -> FileAction {
    let file = ClientFile { kind: ClientFileKind::Passwords, listener };
    let (mode, needed) = (ReloadMode::Apply, Scope::Admin);
    FileAction { file, mode, needed, action, target, parameter: None }
}

fn text_of(lines: &PasswordLines) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(lines.to_text().as_bytes().to_vec())
}
