//! /api/v1/me: the caller, so that a tool can check its token.

use super::json_answer::JsonAnswer;
use crate::admin::browser_login::login_of;
use crate::admin::request::Asker;
use crate::admin::state::State;
use actix_web::HttpRequest;
use actix_web::web::Json;
use serde_json::json;

/// Returns the name and the scope of the caller. A login has the text, too, that its requests need
/// if they change something.
pub(crate) async fn me(request: HttpRequest, caller: Asker, state: State) -> JsonAnswer {
    let mut answer = json!({ "name": caller.name, "scope": caller.scope.name() });
    if let Some(login) = login_of(&request, &state).filter(|login| login.caller == *caller) {
        answer["csrf"] = login.csrf.into();
    }
    Ok(Json(answer))
}
