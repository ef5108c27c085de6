//! The login of a browser: a request belongs to it by a cookie, and proves that a page of this
//! interface sent it.

use super::cookies::login_cookie_of;
use super::logins::LoggedIn;
use super::request_origin::origin_of;
use super::state::AdminState;
use crate::clock;
use actix_web::HttpRequest;
use aws_lc_rs::constant_time::verify_slices_are_equal;

/// The header of a request for programs that has the text of its login.
const CSRF_HEADER: &str = "x-csrf-token";

/// Returns the login of a cookie; `None` if it is unknown or has ended.
pub(super) fn login_of_cookie(state: &AdminState, cookie: &str) -> Option<LoggedIn> {
    state.logins.find(clock::now(), cookie).filter(|login| state.still_admits(&login.caller))
}

/// Returns the login of a request; `None` if it is missing, unknown or has ended.
pub(super) fn login_of(request: &HttpRequest, state: &AdminState) -> Option<LoggedIn> {
    let login = login_of_cookie(state, login_cookie_of(request)?)?;
    Some(LoggedIn { caller: login.caller.with_origin(origin_of(request)), ..login })
}

/// Returns true if no other site sent the request. A browser says where a request comes from, and
/// another site cannot forge that. Tools that are no browser say nothing.
pub(super) fn is_own_site(request: &HttpRequest) -> bool {
    request.headers().get("sec-fetch-site").is_none_or(|site| site == "same-origin")
}

/// Returns true if a request that changes something comes from a page of this login. `csrf` is the
/// text that the page has sent. Another site cannot know it.
pub(super) fn is_of_own_page(request: &HttpRequest, login: &LoggedIn, csrf: &str) -> bool {
    is_own_site(request) && verify_slices_are_equal(login.csrf.as_bytes(), csrf.as_bytes()).is_ok()
}

/// Returns true if a request for programs may use its login: it only looks, or a script of a page
/// of this login sent it.
pub(super) fn may_use(request: &HttpRequest, login: &LoggedIn) -> bool {
    let csrf = request.headers().get(CSRF_HEADER).and_then(|text| text.to_str().ok());
    request.method().is_safe() || csrf.is_some_and(|csrf| is_of_own_page(request, login, csrf))
}
