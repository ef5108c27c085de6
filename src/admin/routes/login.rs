//! /api/v1/login, /api/v1/login/code and /api/v1/logout: logins of browsers.

use super::json_answer::JsonAnswer;
use crate::admin::access::{Caller, Scope};
use crate::admin::audit::AuditedAction;
use crate::admin::browser_login::{is_own_site, login_of_cookie};
use crate::admin::cookies::{ended_login_cookie, login_cookie, login_cookie_of};
use crate::admin::failed::Failed;
use crate::admin::login_attempt;
use crate::admin::request::{Asker, read_body};
use crate::admin::state::State;
use crate::clock;
use actix_web::http::header::SET_COOKIE;
use actix_web::web::Json;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// The body of /api/v1/login.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordLogin {
    user: String,
    password: String,
}

/// A login that has begun.
#[derive(Serialize, ToSchema)]
#[schema(as = Login)]
pub(crate) struct LoginAnswer {
    name: String,
    scope: Scope,
    /// The value of `X-CSRF-Token`.
    csrf: String,
}

/// A code that begins a login.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = LoginCode)]
pub(crate) struct LoginCodeAnswer {
    pub(crate) code: String,
    /// Seconds.
    pub(crate) expires_in: u64,
    pub(crate) urls: Vec<String>,
}

/// Begins a login with the name and the password of a user. Returns the cookie of the login, and
/// the text that a request with the cookie needs if it changes something.
pub(crate) async fn log_in(
    request: HttpRequest,
    state: State,
    body: web::Bytes,
) -> Result<HttpResponse, Failed> {
    // Another site could log a browser in as somebody else.
    if !is_own_site(&request) {
        return Err(Failed::ForeignRequest);
    }
    let body = Zeroizing::new(body.to_vec());
    let given: PasswordLogin = read_body(&body, r#"{"user": "ann", "password": "..."}"#)?;
    let password = Zeroizing::new(given.password);
    let caller = login_attempt::by_password(&request, &state, given.user, password).await?;
    let cookie = login_attempt::begin(&request, &state, caller, "password")?;
    let login = login_of_cookie(&state, &cookie).ok_or(Failed::UnknownCredentials)?;
    let Caller { name, scope, .. } = login.caller;
    let body = LoginAnswer { name, scope, csrf: login.csrf };
    Ok(HttpResponse::Ok().insert_header((SET_COOKIE, login_cookie(&state, &cookie))).json(body))
}

/// Ends the login that the request belongs to. A token stays valid.
pub(crate) async fn log_out(request: HttpRequest, state: State) -> HttpResponse {
    if let Some(cookie) = login_cookie_of(&request) {
        state.logins.end(clock::now(), cookie);
    }
    HttpResponse::NoContent().insert_header((SET_COOKIE, ended_login_cookie(&state))).finish()
}

/// Returns a code that begins one login within a minute, with the scope of the caller, and the
/// addresses of the pages.
pub(crate) async fn code(caller: Asker, state: State) -> JsonAnswer<LoginCodeAnswer> {
    let caller = caller.into_inner();
    let (arguments, result) = (String::new(), "done".to_owned());
    state.audit.note(&caller, &AuditedAction { action: "login_code", target: "", arguments, result });
    let code = state.logins.code_for(clock::now(), caller).ok_or(Failed::Busy)?;
    let urls = state.page_urls().map(|url| url + "/").collect();
    Ok(Json(LoginCodeAnswer { code, expires_in: 60, urls }))
}
