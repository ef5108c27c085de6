//! The login page: a token of `homing admin-token`, or a code of `homing ctl dashboard`, begins a
//! login.

use super::cookies::{LOGIN_COOKIE, cookie_of, see, see_with_cookie};
use super::entry::{ActionForm, is_own_site, login_of, login_of_form};
use super::frame::{PageFrame, theme_of};
use super::page::{PageResult, render};
use crate::admin::access::Caller;
use crate::admin::request::still_admits;
use crate::admin::state::{LoginFailure, State};
use crate::clock;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use serde::Deserialize;
use tracing::{info, warn};

#[derive(Template)]
#[template(path = "login.html", config = "src/admin/askama.toml")]
struct LoginPage {
    frame: PageFrame,
    failed: Option<&'static str>,
}

#[derive(Deserialize)]
pub(super) struct LoginForm {
    token: String,
}

#[derive(Deserialize)]
pub(super) struct CodeForm {
    code: String,
}

pub(super) async fn page(request: HttpRequest) -> HttpResponse {
    login_form(&request, None)
}

pub(super) async fn log_in(request: HttpRequest, state: State, form: web::Form<LoginForm>) -> HttpResponse {
    let Some(caller) = state.tokens().caller(form.token.trim()) else {
        return refuse(&request, &state, "This token is not known.");
    };
    begin(&state, caller)
}

/// Begins a login by a one-time code of `homing ctl dashboard`.
pub(super) async fn log_in_by_code(
    request: HttpRequest,
    state: State,
    form: web::Form<CodeForm>,
) -> HttpResponse {
    // No other page may log a browser in.
    let caller = state.logins().redeem(clock::now(), form.code.trim());
    let caller = caller.filter(|caller| is_own_site(&request) && still_admits(&state, caller));
    let Some(caller) = caller else {
        return refuse(&request, &state, "This code is not known. It is valid once, and for 60 s.");
    };
    begin(&state, caller)
}

/// Returns the login page after a failed login. After too many failures of an address the answer is
/// 429. The first of these answers has a line in the log, and the others have none. A valid token
/// or code is still admitted: both are 256 random bits, so that nobody guesses one, and a flood
/// locks no operator out.
fn refuse(request: &HttpRequest, state: &State, why: &'static str) -> HttpResponse {
    // Users of the Unix socket have no address, and are known.
    let address = request.peer_addr().map(|address| address.ip());
    let failure = address.map_or(LoginFailure::Counted, |address| state.login_failed(clock::now(), address));
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    let what = match failure {
        LoginFailure::Counted => "a login with an unknown token or code",
        LoginFailure::BeginsBlock => {
            "too many logins with an unknown token or code; further ones of this address are refused for 5 minutes and not logged"
        }
        LoginFailure::Blocked => return too_many(request),
    };
    warn!(target: "homing::audit", event = "audit.login_refused", address, "{what}");
    if failure == LoginFailure::BeginsBlock { too_many(request) } else { login_form(request, Some(why)) }
}

/// Returns the login page with 429.
fn too_many(request: &HttpRequest) -> HttpResponse {
    let mut answer = login_form(request, Some("Too many logins from this address failed."));
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("300"));
    answer
}

/// Returns the login page, which says why a login failed.
fn login_form(request: &HttpRequest, failed: Option<&'static str>) -> HttpResponse {
    render(&LoginPage { frame: PageFrame::plain(theme_of(request)), failed })
}

/// Answers 204 with a login and 401 without, for the script of the pages.
pub(super) async fn state_of_login(request: HttpRequest, state: State) -> HttpResponse {
    match login_of(&request, &state) {
        Ok(_) => HttpResponse::NoContent().finish(),
        Err(_) => HttpResponse::Unauthorized().finish(),
    }
}

fn begin(state: &State, caller: Caller) -> HttpResponse {
    info!(target: "homing::audit", event = "audit.login", who = %caller.name, scope = %caller.scope, "a login");
    match state.logins().begin(clock::now(), caller) {
        Some(cookie) => see_with_cookie("/", &format!("{LOGIN_COOKIE}={cookie}; Path=/")),
        None => HttpResponse::InternalServerError().finish(),
    }
}

pub(super) async fn log_out(request: HttpRequest, state: State, form: web::Form<ActionForm>) -> PageResult {
    login_of_form(&request, &state, &form.csrf)?;
    if let Some(cookie) = cookie_of(&request, LOGIN_COOKIE) {
        state.logins().end(clock::now(), cookie);
    }
    Ok(see("/login"))
}
