//! The login page: a user with a password, a token of `homing admin-token`, or a code of
//! `homing ctl dashboard` begins a login.

use super::entry::{NoFields, SubmittedForm, is_own_path};
use super::frame::{PageFrame, theme_of};
use super::page::{PageResult, render};
use crate::admin::access::Caller;
use crate::admin::browser_login::is_own_site;
use crate::admin::cookies::{ended_login_cookie, login_cookie, login_cookie_of, see_with_cookie};
use crate::admin::credentials::RefusedToken;
use crate::admin::failed::Failed;
use crate::admin::login_attempt;
use crate::admin::login_failures::Shown;
use crate::admin::state::State;
use crate::clock;
use actix_web::http::header::RETRY_AFTER;
use actix_web::{HttpRequest, HttpResponse, ResponseError, web};
use askama::Template;
use serde::Deserialize;
use zeroize::Zeroizing;

#[derive(Template)]
#[template(path = "login.html", config = "src/admin/askama.toml")]
struct LoginPage {
    frame: PageFrame,
    failed: Option<String>,
    /// The page that follows the login; empty for the first one.
    to: String,
}

/// The page that follows a login.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LoginTarget {
    to: String,
}

/// The forms of the login page: a user with a password, or a token.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum LoginForm {
    Password {
        user: String,
        password: String,
        #[serde(default)]
        to: String,
    },
    Token {
        token: String,
        #[serde(default)]
        to: String,
    },
}

#[derive(Deserialize)]
pub(super) struct CodeForm {
    code: String,
}

pub(super) async fn page(request: HttpRequest, asked: web::Query<LoginTarget>) -> HttpResponse {
    login_form(&request, None, &asked.to)
}

pub(super) async fn log_in(request: HttpRequest, state: State, form: web::Form<LoginForm>) -> HttpResponse {
    // No other page may log a browser in.
    if !is_own_site(&request) {
        return refused(&request, &Failed::ForeignRequest, "This form is not of this site.", "");
    }
    match form.into_inner() {
        LoginForm::Password { user, password, to } => {
            let password = Zeroizing::new(password);
            match login_attempt::by_password(&request, &state, user, password).await {
                Ok(caller) => begin(&request, &state, caller, ("password", &to)),
                Err(failed) => {
                    refused(&request, &failed, "The user is not known, or the password is wrong.", &to)
                }
            }
        }
        LoginForm::Token { token, to } => {
            match state.credentials.known().caller_of_token(token.trim(), clock::unix_millis()) {
                Ok(caller) => begin(&request, &state, caller, ("token", &to)),
                Err(RefusedToken::Unknown) => {
                    let failed = login_attempt::failed(&request, &state, Shown::Secret, "an unknown token");
                    refused(&request, &failed, "This token is not known.", &to)
                }
                Err(RefusedToken::Ended) => {
                    let failed =
                        login_attempt::failed(&request, &state, Shown::Secret, "a token that has ended");
                    refused(&request, &failed, "This token has ended.", &to)
                }
            }
        }
    }
}

/// Begins a login by a one-time code of `homing ctl dashboard`.
pub(super) async fn log_in_by_code(
    request: HttpRequest,
    state: State,
    form: web::Form<CodeForm>,
) -> HttpResponse {
    // No other page may log a browser in.
    let caller = state.logins.redeem(clock::now(), form.code.trim());
    let caller = caller.filter(|caller| is_own_site(&request) && state.still_admits(caller));
    let Some(caller) = caller else {
        let failed = login_attempt::failed(&request, &state, Shown::Secret, "an unknown code");
        return refused(&request, &failed, "This code is not known. It is valid once, and for 60 s.", "");
    };
    begin(&request, &state, caller, ("code", ""))
}

/// Returns the login page after a failed login. `unknown` is the error text for wrong credentials,
/// and `to` the page that follows a login.
fn refused(request: &HttpRequest, failed: &Failed, unknown: &str, to: &str) -> HttpResponse {
    let text = match failed {
        Failed::UnknownCredentials | Failed::ForeignRequest => unknown.to_owned(),
        Failed::TooManyLogins => "Too many logins like this one failed. Try again in 5 minutes.".to_owned(),
        _ => "The broker is busy. Try again.".to_owned(),
    };
    let mut answer = login_form(request, Some(text), to);
    if !matches!(failed, Failed::UnknownCredentials) {
        // The status and the time to wait are those of the same failure for programs.
        let problem = failed.error_response();
        *answer.status_mut() = problem.status();
        if let Some(time) = problem.headers().get(RETRY_AFTER) {
            answer.headers_mut().insert(RETRY_AFTER, time.clone());
        }
    }
    answer
}

/// Returns the login page, which says why a login failed.
fn login_form(request: &HttpRequest, failed: Option<String>, to: &str) -> HttpResponse {
    let to = if is_own_path(to) { to.to_owned() } else { String::new() };
    render(&LoginPage { frame: PageFrame::plain(theme_of(request)), failed, to })
}

/// Begins a login, and leads to the page requested before, or to the first page.
fn begin(
    request: &HttpRequest,
    state: &State,
    caller: Caller,
    (by, to): (&'static str, &str),
) -> HttpResponse {
    let cookie = match login_attempt::begin(request, state, caller, by) {
        Ok(cookie) => cookie,
        Err(failed) => return refused(request, &failed, "", to),
    };
    see_with_cookie(if is_own_path(to) { to } else { "/" }, &login_cookie(state, &cookie))
}

pub(super) async fn log_out(form: SubmittedForm<NoFields>) -> PageResult {
    let visit = form.visit;
    if let Some(cookie) = login_cookie_of(&visit.request) {
        visit.state.logins.end(clock::now(), cookie);
    }
    Ok(see_with_cookie("/login", &ended_login_cookie(&visit.state)))
}
