//! The pages of the HTTP interface, for people. They work without JavaScript.
//!
//! askama escapes every value. Nothing here marks a text as safe, so a client identifier or a topic
//! never becomes markup.

mod assets;
mod clients;
mod frame;
mod lists;
mod live;
mod login;
mod timeline;
mod views;
mod wheel;
mod whereabouts;

use super::access::{Caller, Scope};
use super::logins::LoggedIn;
use super::routes::Failed;
use super::state::AdminState;
use crate::clock;
use actix_web::http::StatusCode;
use actix_web::http::header::{COOKIE, LOCATION, SET_COOKIE};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use askama::Template;
pub(super) use frame::StuckSearch;
use frame::{Frame, THEME_COOKIE, Theme};
pub(super) use live::{LiveStreams, events};
use serde::Deserialize;

/// The name of the cookie of a login.
const COOKIE_NAME: &str = "homing_login";

/// What the frame of every page shows of a login.
struct LoginFrame {
    name: String,
    scope: Scope,
    csrf: String,
}

impl From<&LoggedIn> for LoginFrame {
    fn from(login: &LoggedIn) -> LoginFrame {
        let Caller { name, scope } = login.caller.clone();
        LoginFrame { name, scope, csrf: login.csrf.clone() }
    }
}

/// The form of an action: every form has the text of its login.
#[derive(Deserialize)]
struct ActionForm {
    csrf: String,
    #[serde(default)]
    confirm: String,
    /// The way of a redelivery.
    #[serde(default)]
    by: String,
    /// The name of a message, and what is done with it.
    #[serde(default)]
    mid: String,
    #[serde(default)]
    verb: String,
    #[serde(default)]
    note: String,
}

/// Adds all pages.
pub(super) fn add_routes(app: &mut ServiceConfig) {
    app.route("/", web::get().to(clients::overview))
        .route("/clients", web::get().to(clients::list))
        .route("/clients/{id}", web::get().to(clients::one))
        .route("/clients/{id}/disconnect", web::post().to(clients::disconnect))
        .route("/clients/{id}/end", web::post().to(clients::end))
        .route("/clients/{id}/redeliver", web::post().to(clients::redeliver))
        .route("/clients/{id}/message", web::post().to(clients::on_message))
        .route("/objectives", web::get().to(lists::objectives))
        .route("/audit", web::get().to(lists::audit))
        .route("/where", web::get().to(whereabouts::page))
        .route("/timeline", web::get().to(timeline::timeline))
        .route("/wheel", web::get().to(wheel::wheel))
        .route("/login", web::get().to(login::page))
        .route("/login", web::post().to(login::log_in))
        .route("/login/code", web::post().to(login::log_in_by_code))
        .route("/login/state", web::get().to(login::state_of_login))
        .route("/logout", web::post().to(login::log_out))
        .route("/theme", web::post().to(change_theme))
        .route("/assets/{file}", web::get().to(assets::asset));
}

/// The form that changes the colours.
#[derive(Deserialize)]
struct ThemeForm {
    csrf: String,
    theme: String,
    /// The page to go back to.
    back: String,
}

async fn change_theme(request: HttpRequest, state: State, form: web::Form<ThemeForm>) -> PageResult {
    login_of_form(&request, &state, &form.csrf)?;
    let theme = Theme::of(&form.theme).name();
    let cookie = format!("{THEME_COOKIE}={theme}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict");
    // A path of this interface. A browser takes two slashes, and a backslash, for another host.
    let is_path = form.back.starts_with('/') && !form.back[1..].starts_with(['/', '\\']);
    let mut answer = see(if is_path { &form.back } else { "/" });
    if let Ok(value) = cookie.parse() {
        answer.headers_mut().insert(SET_COOKIE, value);
    }
    Ok(answer)
}

/// Returns the value of a cookie, if the request has it.
fn cookie_of<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut pairs = request.headers().get_all(COOKIE).filter_map(|value| value.to_str().ok());
    pairs.find_map(|all| all.split(';').find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('=')))
}

/// The reason why there is no page.
#[derive(Debug, thiserror::Error)]
enum NoPage {
    /// There is no cookie, or its login has ended. The answer leads to the login page.
    #[error("there is no login")]
    NoLogin,
    /// The form is not of a page of this login.
    #[error("the form is not of this login; open the page again")]
    ForeignForm,
    /// The client id that confirms an action is not that of the page.
    #[error("the client id that you wrote is not the one of this page; go back and write it again")]
    NotConfirmed,
    /// What the page shows cannot be had, or the action is refused.
    #[error("{0}")]
    Failed(#[from] Failed),
}

impl ResponseError for NoPage {
    fn error_response(&self) -> HttpResponse {
        let status = match self {
            NoPage::NoLogin => return see("/login"),
            NoPage::ForeignForm => StatusCode::FORBIDDEN,
            NoPage::NotConfirmed => StatusCode::CONFLICT,
            NoPage::Failed(failed) => failed.status_code(),
        };
        let title = status.canonical_reason().unwrap_or("Error");
        let frame = Frame::plain(Theme::System);
        let mut answer = render(&ErrorPage { frame, title, detail: self.to_string() });
        *answer.status_mut() = status;
        answer
    }
}

/// The page that says why there is no other.
#[derive(Template)]
#[template(path = "error.html", config = "src/admin/askama.toml")]
struct ErrorPage {
    frame: Frame,
    title: &'static str,
    detail: String,
}

/// A page, or the reason why there is none.
type PageResult = Result<HttpResponse, NoPage>;

/// Returns the login of a request.
///
/// # Errors
/// There is none.
fn login_of(request: &HttpRequest, state: &AdminState) -> Result<LoggedIn, NoPage> {
    let found = cookie_of(request, COOKIE_NAME).and_then(|cookie| state.logins().find(clock::now(), cookie));
    // A login does not outlive its token. A user of the Unix socket has none.
    let may_stay = |caller: &Caller| caller.is_of_socket() || state.tokens().has(caller);
    found.filter(|login| may_stay(&login.caller)).ok_or(NoPage::NoLogin)
}

/// Returns the login of a form.
///
/// # Errors
/// There is no login, or the form does not come from a page of this login.
fn login_of_form(request: &HttpRequest, state: &AdminState, csrf: &str) -> Result<LoggedIn, NoPage> {
    let login = login_of(request, state)?;
    // A browser says where a form was, and another site cannot forge it.
    let site = request
        .headers()
        .get("sec-fetch-site")
        .map_or("same-origin", |value| value.to_str().unwrap_or("unreadable"));
    let same = aws_lc_rs::constant_time::verify_slices_are_equal(login.csrf.as_bytes(), csrf.as_bytes());
    if site == "same-origin" && same.is_ok() { Ok(login) } else { Err(NoPage::ForeignForm) }
}

/// Returns an answer that leads to another page.
fn see(path: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, path)).finish()
}

/// Returns a page.
fn render(page: &impl Template) -> HttpResponse {
    match page.render() {
        Ok(text) => HttpResponse::Ok().content_type("text/html; charset=utf-8").body(text),
        Err(error) => {
            tracing::error!(event = "admin.page_failed", %error, "a page of the HTTP interface cannot be made");
            HttpResponse::InternalServerError().finish()
        }
    }
}

/// Returns the state of the interface: a shorter name for its type.
type State = Data<AdminState>;
