//! The cookies of the pages.
//!
//! A browser sends a cookie to every port of its host. So the name of a login's cookie has the port
//! of the interface: two brokers on one host do not end each other's logins. Over HTTPS the name
//! begins with `__Host-`: then no other host of the domain, and no plain HTTP, can set the cookie.

use super::https::Scheme;
use super::state::{AdminState, State};
use actix_web::http::header::{COOKIE, LOCATION, SET_COOKIE};
use actix_web::{HttpRequest, HttpResponse};

fn login_cookie_name(scheme: Scheme, port: u16) -> String {
    let prefix = match scheme {
        Scheme::Http => "",
        Scheme::Https => "__Host-",
    };
    format!("{prefix}homing_login_{port}")
}

/// The name of the cookie that has the colours.
const THEME_COOKIE: &str = "homing_theme";

/// Returns the value of a cookie, if the request has it.
fn cookie_of<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut pairs = request.headers().get_all(COOKIE).filter_map(|value| value.to_str().ok());
    pairs.find_map(|all| all.split(';').find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('=')))
}

/// Returns the value of the cookie of a login, if the request has it.
pub(super) fn login_cookie_of(request: &HttpRequest) -> Option<&str> {
    let state = request.app_data::<State>()?;
    cookie_of(request, &login_cookie_name(state.scheme, state.port()))
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
pub(super) fn login_cookie(state: &AdminState, value: &str) -> String {
    let name = login_cookie_name(state.scheme, state.port());
    guarded(state.scheme, &format!("{name}={value}; Path=/"))
}

/// Returns the header that takes the cookie of a login out of the browser.
pub(super) fn ended_login_cookie(state: &AdminState) -> String {
    login_cookie(state, "") + "; Max-Age=0"
}

/// Returns an answer that leads to another page.
pub(super) fn see(path: &str) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, path)).finish()
}

/// Returns an answer that leads to another page and sets a cookie. `cookie` must come from this
/// module.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_of_a_login_is_of_one_port_and_of_one_host() {
        assert_eq!(login_cookie_name(Scheme::Http, 11_883), "homing_login_11883");
        assert_eq!(login_cookie_name(Scheme::Https, 11_884), "__Host-homing_login_11884");
    }
}
