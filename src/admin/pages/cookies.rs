//! The cookies of the pages.

use actix_web::http::header::{COOKIE, LOCATION, SET_COOKIE};
use actix_web::{HttpRequest, HttpResponse};

/// The name of the cookie of a login.
pub(super) const LOGIN_COOKIE: &str = "homing_login";

/// The name of the cookie that has the colours.
pub(super) const THEME_COOKIE: &str = "homing_theme";

/// Returns the value of a cookie, if the request has it.
pub(super) fn cookie_of<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut pairs = request.headers().get_all(COOKIE).filter_map(|value| value.to_str().ok());
    pairs.find_map(|all| all.split(';').find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('=')))
}

/// Returns an answer that leads to another page.
pub(super) fn see(path: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, path)).finish()
}

/// Returns an answer that leads to another page and sets a cookie, such as `name=value; Path=/`. No
/// script can read the cookie, and another site cannot send it.
pub(super) fn see_with_cookie(path: &str, cookie: &str) -> HttpResponse {
    let mut answer = see(path);
    if let Ok(value) = format!("{cookie}; HttpOnly; SameSite=Strict").parse() {
        answer.headers_mut().insert(SET_COOKIE, value);
    }
    answer
}
