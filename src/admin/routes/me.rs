//! /api/v1/me: the caller, so that a tool can check its token.

use super::json_answer::JsonAnswer;
use crate::admin::access::Scope;
use crate::admin::browser_login::login_of;
use crate::admin::credentials::end_text;
use crate::admin::request::Asker;
use crate::admin::state::State;
use actix_web::HttpRequest;
use actix_web::web::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// The caller.
#[derive(Serialize, ToSchema)]
pub(super) struct Me {
    name: String,
    scope: Scope,
    /// The time until which the token is valid, in UTC; missing without an end. A login ends with
    /// its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-12-25T22:40:00Z")]
    ends: Option<String>,
    /// Of a login: the value of `X-CSRF-Token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    csrf: Option<String>,
}

/// Returns the name and the scope of the caller, and the time until which its token is valid, if it
/// has an end. A login has the text, too, that its requests need if they change something.
pub(crate) async fn me(request: HttpRequest, caller: Asker, state: State) -> JsonAnswer<Me> {
    let login = login_of(&request, &state).filter(|login| login.caller == *caller);
    Ok(Json(Me {
        name: caller.name.clone(),
        scope: caller.scope,
        ends: state.credentials.known().end_of(&caller).map(end_text),
        csrf: login.map(|login| login.csrf),
    }))
}
