//! /api/v1/tokens: the tokens of this interface, in `admin.credentials`.

use super::json_answer::{JsonAnswer, done};
use crate::admin::access::Scope;
use crate::admin::audit::Parameter;
use crate::admin::credentials::CredentialEntry;
use crate::admin::credentials::edit::CredentialError;
use crate::admin::credentials::token_command::{NewToken, lifetime as lifetime_of, remove_token};
use crate::admin::failed::Failed;
use crate::admin::operator::{Operator, OperatorRequest};
use crate::admin::problem_kind::ProblemKind;
use crate::admin::request::{DurationText, read_body};
use crate::admin::state::State;
use crate::time::duration;
use actix_web::HttpResponse;
use actix_web::web::{Bytes, Json, Path};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// The tokens and users of the file.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Tokens {
    pub(crate) tokens: Vec<TokenRow>,
}

/// A token, or a user of the pages.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenRow {
    pub(crate) name: String,
    pub(crate) scope: Scope,
    /// True for a user with a password, whom `homing admin-user` makes.
    pub(crate) is_user: bool,
    /// Null for never.
    #[schema(required)]
    pub(crate) ends_unix_ms: Option<u64>,
}

/// A new token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "name": "telemetry", "scope": "publisher", "expires": "30d" }))]
pub(crate) struct TokenOrder {
    #[schema(min_length = 1)]
    name: String,
    #[schema(value_type = Scope)]
    scope: String,
    /// The time after which the token is refused, such as `30d`. Without it the token has no end.
    #[serde(default)]
    #[schema(value_type = Option<DurationText>)]
    expires: Option<String>,
}

/// A token that was made.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct TokenMade {
    pub(crate) name: String,
    /// Shown once. The file has its digest.
    pub(crate) token: String,
}

/// Lists the tokens and users, without their secrets.
pub(crate) async fn list(state: State) -> JsonAnswer<Tokens> {
    let row = |entry: CredentialEntry| TokenRow {
        name: entry.name,
        scope: entry.scope,
        is_user: entry.is_user,
        ends_unix_ms: entry.ends,
    };
    Ok(Json(Tokens { tokens: state.credentials.known().entries().map(row).collect() }))
}

/// Makes a token. One of the same name is replaced.
pub(crate) async fn make(body: Bytes, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    let TokenOrder { name, scope, expires } =
        read_body(&body, r#"{"name": "telemetry", "scope": "publisher"}"#)?;
    let scope: Scope = scope.parse().map_err(Failed::Parameter)?;
    let lifetime = expires.as_deref().map(lifetime_of).transpose();
    let lifetime = lifetime.map_err(|what| Failed::Parameter(format!("expires: {what}")))?;
    let shown = lifetime.map(|time| ("expires", duration::format(time)));
    let parameters = [Some(("scope", scope.name().to_owned())), shown];
    let (action, new) = (("set_token", &*name), NewToken { name: name.clone(), scope, expires: lifetime });
    let token = change(&request.operator, action, &parameters, move |file| new.make(&file)).await?;
    Ok(HttpResponse::Created().json(TokenMade { name, token }))
}

pub(crate) async fn remove(name: Path<String>, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    let (action, token) = (("remove_token", name.as_str()), name.clone());
    done(change(&request.operator, action, &[], move |file| remove_token(&file, &token)).await)
}

/// Changes the file of credentials, and puts it in force.
async fn change<T: Send + 'static>(
    operator: &Operator,
    action: (&'static str, &str),
    parameters: &[Option<Parameter>],
    change: impl FnOnce(PathBuf) -> Result<T, CredentialError> + Send + 'static,
) -> Result<T, Failed> {
    operator.permit(Scope::Admin)?;
    let none = || {
        let what = "admin.credentials is off; `homing admin-token` makes a file".to_owned();
        Failed::Conflict(ProblemKind::NoFile, what)
    };
    let file = operator.state.credentials.path().ok_or_else(none)?;
    let state = operator.state.clone();
    let work = async move {
        let changed = state.changing.run(move || change(file)).await;
        state.credentials.look().await;
        changed.map_err(|_| Failed::Unconfirmed)?.map_err(Failed::from)
    };
    operator.act(action, parameters, work, |_| "done".to_owned()).await
}

impl From<CredentialError> for Failed {
    fn from(why: CredentialError) -> Failed {
        let text = why.to_string();
        match why {
            CredentialError::Name(_) => Failed::Parameter(text),
            CredentialError::NoSuchName { .. } => Failed::Conflict(ProblemKind::NoSuchEntry, text),
            CredentialError::File(error) => Failed::Mistakes(error.lines()),
            CredentialError::System(_) => Failed::Conflict(ProblemKind::FileUnusable, text),
            CredentialError::Randomness(_) | CredentialError::Password(_) => Failed::Busy,
        }
    }
}
