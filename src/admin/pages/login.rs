//! The login page: a token of `homing admin-token`, or a code of `homing ctl dashboard`, begins a
//! login.

use super::frame::theme_of;
use super::{
    ActionForm, COOKIE_NAME, Frame, PageResult, State, cookie_of, login_of, login_of_form, render, see,
};
use crate::admin::access::Caller;
use crate::clock;
use actix_web::http::header::SET_COOKIE;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use serde::Deserialize;
use tracing::{info, warn};

#[derive(Template)]
#[template(path = "login.html", config = "src/admin/askama.toml")]
struct LoginPage {
    frame: Frame,
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
    render(&LoginPage { frame: Frame::plain(theme_of(&request)), failed: None })
}

pub(super) async fn log_in(request: HttpRequest, state: State, form: web::Form<LoginForm>) -> HttpResponse {
    let Some(caller) = state.tokens().caller(form.token.trim()) else {
        warn!(target: "homing::audit", event = "audit.login_refused", "a login with an unknown token");
        return render(&LoginPage {
            frame: Frame::plain(theme_of(&request)),
            failed: Some("This token is not known."),
        });
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
    let site = request.headers().get("sec-fetch-site");
    let is_own = site.is_none_or(|site| site == "same-origin");
    let caller = state.logins().redeem(clock::now(), form.code.trim()).filter(|_| is_own);
    let Some(caller) = caller else {
        warn!(target: "homing::audit", event = "audit.login_refused", "a login with an unknown or used code");
        return render(&LoginPage {
            frame: Frame::plain(theme_of(&request)),
            failed: Some("This code is not known. It is valid once, and for 60 s."),
        });
    };
    begin(&state, caller)
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
        // Another site cannot send this cookie, and no script can read it.
        Some(cookie) => {
            let value = format!("{COOKIE_NAME}={cookie}; Path=/; HttpOnly; SameSite=Strict");
            let mut answer = see("/");
            if let Ok(value) = value.parse() {
                answer.headers_mut().insert(SET_COOKIE, value);
            }
            answer
        }
        None => HttpResponse::InternalServerError().finish(),
    }
}

pub(super) async fn log_out(request: HttpRequest, state: State, form: web::Form<ActionForm>) -> PageResult {
    login_of_form(&request, &state, &form.csrf)?;
    if let Some(cookie) = cookie_of(&request, COOKIE_NAME) {
        state.logins().end(clock::now(), cookie);
    }
    Ok(see("/login"))
}
