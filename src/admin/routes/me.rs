//! /api/v1/me: the caller, so that a tool can check its token.

use super::json_answer::JsonAnswer;
use crate::admin::browser_login::login_of;
use crate::admin::credentials::end_text;
use crate::admin::request::Asker;
use crate::admin::state::State;
use actix_web::HttpRequest;
use actix_web::web::Json;
use serde_json::json;

/// Returns the name and the scope of the caller, and the time until which its token is valid, if it
/// has an end. A login has the text, too, that its requests need if they change something.
pub(crate) async fn me(request: HttpRequest, caller: Asker, state: State) -> JsonAnswer {
    let mut answer = json!({ "name": caller.name, "scope": caller.scope.name() });
    if let Some(ends) = state.credentials().end_of(&caller) {
        answer["ends"] = end_text(ends).into();
    }
    if let Some(login) = login_of(&request, &state).filter(|login| login.caller == *caller) {
        answer["csrf"] = login.csrf.into();
    }
    Ok(Json(answer))
}
