//! The rules by which a request belongs to a login.

use super::frame::is_of_owner;
use super::page::NoPage;
use crate::admin::access::{Caller, Scope};
use crate::admin::browser_login::{self, is_of_own_page, login_of_cookie};
use crate::admin::cookies::login_cookie_of;
use crate::admin::failed::Failed;
use crate::admin::logins::LoggedIn;
use crate::admin::operator::Operator;
use crate::admin::request::{caller, parse_query};
use crate::admin::state::{AdminState, State};
use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::web::Form;
use actix_web::{Error, FromRequest, HttpRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::future::{Ready, ready};
use std::pin::Pin;

/// The request of a login, from which a page is made.
pub(super) struct Visit {
    pub(super) request: HttpRequest,
    pub(super) state: State,
    pub(super) login: LoggedIn,
}

/// A form of a page of this login, by which an operator acts.
pub(super) struct SubmittedForm<T> {
    pub(super) visit: Visit,
    pub(super) operator: Operator,
    pub(super) fields: T,
}

/// A form as a browser sends it. Every form has the text of its login, which no other site knows.
#[derive(Deserialize)]
struct SentForm<T> {
    csrf: String,
    /// The note for the audit log.
    #[serde(default)]
    note: String,
    #[serde(flatten)]
    fields: T,
}

/// The fields of a form that has only the text of its login and a note.
#[derive(Deserialize)]
pub(super) struct NoFields {}

impl Visit {
    /// Returns the visit of a request. Errors: the request has no valid login.
    pub(super) fn of(request: &HttpRequest) -> Result<Visit, NoPage> {
        let state = request.app_data::<State>().ok_or(Failed::Unauthorized)?.clone();
        let login = login_of(request, &state)?;
        Ok(Visit { request: request.clone(), state, login })
    }

    /// Returns the visit of a request for a page that this node has. Errors: the request has no valid
    /// login, or only the node that serves has the page.
    fn served(request: &HttpRequest) -> Result<Visit, NoPage> {
        let visit = Visit::of(request)?;
        match visit.state.serving_node().filter(|_| is_of_owner(request.path())) {
            Some(serving) => Err(Failed::Standby(serving).into()),
            None => Ok(visit),
        }
    }

    /// Reads the query string. Errors: a parameter is unknown, or its value cannot be read.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failed> {
        parse_query(self.request.query_string())
    }
}

impl FromRequest for Visit {
    type Error = NoPage;
    type Future = Ready<Result<Visit, NoPage>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Visit::served(request))
    }
}

impl<T: DeserializeOwned + 'static> FromRequest for SubmittedForm<T> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<SubmittedForm<T>, Error>>>>;

    /// Reads the form, and then looks up its login. Errors: the form cannot be read, there is no
    /// login, or the form does not come from a page of it.
    fn from_request(request: &HttpRequest, body: &mut Payload) -> Self::Future {
        let (form, request) = (Form::<SentForm<T>>::from_request(request, body), request.clone());
        Box::pin(async move {
            let SentForm { csrf, note, fields } = form.await?.into_inner();
            let visit = Visit::served(&request)?;
            if !is_of_own_page(&request, &visit.login, &csrf) {
                return Err(NoPage::ForeignForm.into());
            }
            let (state, caller) = (visit.state.clone(), visit.login.caller.clone());
            Ok(SubmittedForm { visit, operator: Operator { state, caller, note }, fields })
        })
    }
}

/// Returns the login of a request. Errors: the request has no valid login.
fn login_of(request: &HttpRequest, state: &AdminState) -> Result<LoggedIn, NoPage> {
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
