//! The rules by which a request belongs to a login.

use super::page::NoPage;
use crate::admin::access::{Caller, Scope};
use crate::admin::browser_login::{self, is_of_own_page, login_of_cookie};
use crate::admin::cookies::login_cookie_of;
use crate::admin::failed::Failed;
use crate::admin::logins::LoggedIn;
use crate::admin::request::caller;
use crate::admin::state::{AdminState, State};
use actix_web::HttpRequest;
use actix_web::http::Method;
use serde::Deserialize;

/// The form of an action: every form has the text of its login.
#[derive(Deserialize)]
pub(super) struct ActionForm {
    pub(super) csrf: String,
    #[serde(default)]
    pub(super) confirm: String,
    /// The way of a redelivery.
    #[serde(default)]
    pub(super) by: String,
    /// The name of a message, and the action on it.
    #[serde(default)]
    pub(super) mid: String,
    #[serde(default)]
    pub(super) verb: String,
    #[serde(default)]
    pub(super) note: String,
}

/// Returns the login of a request. Errors: the request has no valid login.
pub(super) fn login_of(request: &HttpRequest, state: &AdminState) -> Result<LoggedIn, NoPage> {
    let here = || request.uri().path_and_query().map_or("", |here| here.as_str()).to_owned();
    // The path of a form has no page to go back to.
    let asked =
        || if request.method() == Method::GET && request.path() != "/" { here() } else { String::new() };
    browser_login::login_of(request, state).ok_or_else(|| NoPage::NoLogin(asked()))
}

/// Returns true if a text is the path of a page of this interface, so that no link leads a login
/// elsewhere. A browser takes two slashes, and a backslash, for another host, and leaves out
/// control characters.
pub(super) fn is_own_path(text: &str) -> bool {
    let is_path = text.starts_with('/') && !text[1..].starts_with(['/', '\\']);
    is_path && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The proof of one who may look: by a browser or by a tool.
#[derive(Clone, Debug)]
pub(crate) enum PageReader {
    /// A login of the pages: the value of its cookie.
    Login(String),
    /// A token, or a user of the Unix socket.
    Caller(Caller),
}

impl PageReader {
    /// Returns the reader of a request. A login that has not ended wins over a token. Errors:
    /// nothing proves who asks.
    pub(crate) fn of(request: &HttpRequest) -> Result<PageReader, Failed> {
        let cookie = login_cookie_of(request);
        let state = request.app_data::<State>();
        match cookie.zip(state).filter(|(cookie, state)| login_of_cookie(state, cookie).is_some()) {
            Some((cookie, _)) => Ok(PageReader::Login(cookie.to_owned())),
            None => caller(request, Scope::Viewer).map(PageReader::Caller),
        }
    }

    /// Returns the caller; `None` if the login has ended.
    pub(super) fn caller(&self, state: &AdminState) -> Option<Caller> {
        match self {
            PageReader::Login(cookie) => login_of_cookie(state, cookie).map(|login| login.caller),
            PageReader::Caller(caller) => Some(caller.clone()),
        }
    }

    /// Returns true if the reader may still look: a login ends, and a token may be removed.
    pub(super) fn may_still_read(&self, state: &AdminState) -> bool {
        match self {
            PageReader::Login(cookie) => login_of_cookie(state, cookie).is_some(),
            PageReader::Caller(caller) => state.still_admits(caller),
        }
    }
}

/// Returns the login of a form. Errors: there is no login, or the form does not come from a page of
/// this login.
pub(super) fn login_of_form(
    request: &HttpRequest,
    state: &AdminState,
    csrf: &str,
) -> Result<LoggedIn, NoPage> {
    let login = login_of(request, state)?;
    if is_of_own_page(request, &login, csrf) { Ok(login) } else { Err(NoPage::ForeignForm) }
}

#[cfg(test)]
mod tests {
    use super::is_own_path;

    #[test]
    fn only_a_path_of_this_site_is_one_to_go_back_to() {
        for own in ["/", "/clients?prefix=a", "/where?topic=a%2Fb"] {
            assert!(is_own_path(own), "{own}");
        }
        for other in ["", "clients", "//evil", "/\\evil", "https://evil", "/\t/evil", "/a b", "/\u{e9}", "\\"]
        {
            assert!(!is_own_path(other), "{other:?}");
        }
    }
}
