//! The login page: a token of `homing admin-token` begins a login.

use super::frame::theme_of;
use super::{ActionForm, COOKIE_NAME, Frame, PageResult, State, cookie, login_of_form, render, see};
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
    failed: bool,
}

#[derive(Deserialize)]
pub(super) struct LoginForm {
    token: String,
}

pub(super) async fn page(request: HttpRequest) -> HttpResponse {
    render(&LoginPage { frame: Frame::plain(theme_of(&request)), failed: false })
}

pub(super) async fn log_in(request: HttpRequest, state: State, form: web::Form<LoginForm>) -> HttpResponse {
    let Some(caller) = state.tokens().caller(form.token.trim()) else {
        warn!(target: "homing::audit", event = "audit.login_refused", "a login with an unknown token");
        return render(&LoginPage { frame: Frame::plain(theme_of(&request)), failed: true });
    };
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
    if let Some(cookie) = cookie(&request) {
        state.logins().end(clock::now(), cookie);
    }
    Ok(see("/login"))
}
