//! The cookies of the pages.

use super::https::Scheme;
use actix_web::http::header::{COOKIE, LOCATION, SET_COOKIE};
use actix_web::{HttpRequest, HttpResponse};

/// The name of the cookie of a login.
const LOGIN_COOKIE: &str = "homing_login";

/// The name of the cookie that has the colours.
const THEME_COOKIE: &str = "homing_theme";

/// Returns the value of a cookie, if the request has it.
fn cookie_of<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut pairs = request.headers().get_all(COOKIE).filter_map(|value| value.to_str().ok());
    pairs.find_map(|all| all.split(';').find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('=')))
}

/// Returns the value of the cookie of a login, if the request has it.
pub(super) fn login_cookie_of(request: &HttpRequest) -> Option<&str> {
    cookie_of(request, LOGIN_COOKIE)
}

/// Returns the value of the cookie that has the colours, if the request has it.
pub(super) fn theme_cookie_of(request: &HttpRequest) -> Option<&str> {
    cookie_of(request, THEME_COOKIE)
}

/// Returns the cookie of the colours as a header has it. The browser keeps it for a year.
pub(super) fn theme_cookie(scheme: Scheme, value: &str) -> String {
    guarded(scheme, &format!("{THEME_COOKIE}={value}; Path=/; Max-Age=31536000"))
}

/// Returns the cookie of a login as a header has it. `value` is the value of the cookie.
pub(super) fn login_cookie(scheme: Scheme, value: &str) -> String {
    guarded(scheme, &format!("{LOGIN_COOKIE}={value}; Path=/"))
}

/// Returns the header that takes the cookie of a login out of the browser.
pub(super) fn ended_login_cookie(scheme: Scheme) -> String {
    guarded(scheme, &format!("{LOGIN_COOKIE}=; Path=/; Max-Age=0"))
}

/// Returns an answer that leads to another page.
pub(super) fn see(path: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, path)).finish()
}

/// Returns an answer that leads to another page and sets a cookie. `cookie` is one that this module
/// made.
pub(super) fn see_with_cookie(path: &str, cookie: &str) -> HttpResponse {
    let mut answer = see(path);
    if let Ok(value) = cookie.parse() {
        answer.headers_mut().insert(SET_COOKIE, value);
    }
    answer
}

/// Returns a cookie that no script can read, and that another site cannot send. A cookie of HTTPS
/// is not sent over plain HTTP.
fn guarded(scheme: Scheme, cookie: &str) -> String {
    let secure = match scheme {
        Scheme::Http => "",
        Scheme::Https => "; Secure",
    };
    format!("{cookie}; HttpOnly; SameSite=Strict{secure}")
}
