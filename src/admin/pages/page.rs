//! Pages of the HTTP interface, and the error page.

use super::entry::Visit;
use super::frame::{PageFrame, Theme, is_of_owner};
use crate::admin::cookies::see;
use crate::admin::failed::Failed;
use crate::admin::problem::problem_answer;
use crate::admin::problem_kind::ProblemKind;
use crate::admin::segment::segment;
use crate::admin::serving_node::ServingNode;
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use askama::Template;

pub(crate) use super::frame::is_for_programs;

/// The reason why there is no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPage {
    /// There is no cookie, or its login has ended. The answer leads to the login page, and from
    /// there to this page; empty for the first one.
    #[error("there is no login")]
    NoLogin(String),
    /// The form is not of a page of this login.
    #[error("the form is not of this login; open the page again")]
    ForeignForm,
    /// The client id that confirms an action is not that of the page.
    #[error("the client id that you wrote is not the one of this page; write it again")]
    NotConfirmed,
    /// There is no page at this path.
    #[error("there is no such page; the links above lead to all pages")]
    NoSuchPage,
    /// The content of the page is not available, or the action is refused.
    #[error("{0}")]
    Failed(#[from] Failed),
}

impl ResponseError for NoPage {
    fn status_code(&self) -> StatusCode {
        match self {
            NoPage::NoLogin(_) => StatusCode::SEE_OTHER,
            NoPage::ForeignForm => StatusCode::FORBIDDEN,
            NoPage::NotConfirmed => StatusCode::CONFLICT,
            NoPage::NoSuchPage => StatusCode::NOT_FOUND,
            NoPage::Failed(failed) => failed.status_code(),
        }
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            NoPage::NoLogin(to) if to.is_empty() => see("/login"),
            NoPage::NoLogin(to) => see(&format!("/login?to={}", segment(to))),
            _ => error_page(PageFrame::plain(Theme::System), self.status_code(), self.to_string(), None),
        }
    }
}

/// Returns the page of an error. `serving` is the node that serves in place of this one.
fn error_page(
    frame: PageFrame,
    status: StatusCode,
    detail: String,
    serving: Option<ServingNode>,
) -> HttpResponse {
    let is_of_owner = serving.is_some();
    let title =
        if is_of_owner { "This node stands by" } else { status.canonical_reason().unwrap_or("Error") };
    let owner = serving.and_then(|ServingNode { owner, pages }| owner.zip(pages));
    let mut answer = render(&ErrorPage { frame, title, detail, is_of_owner, owner });
    *answer.status_mut() = status;
    answer
}

/// Returns the page of an error with the frame of its login, so that the reader can go on from
/// there. The reason for an error is known before its login is. Other answers are unchanged.
pub(crate) async fn framed(response: ServiceResponse) -> ServiceResponse {
    let (request, status) = (response.request().clone(), response.status());
    let is_error = status.is_client_error() || status.is_server_error();
    let found = response.response().error().filter(|_| is_error && !is_for_programs(request.path()));
    let Some(found) = found.map(ToString::to_string) else { return response };
    let Ok(visit) = Visit::of(&request) else { return response };
    let frame = PageFrame::of_error(&visit).await;
    let is_of_owner = status == StatusCode::SERVICE_UNAVAILABLE && is_of_owner(request.path());
    let serving = visit.state.serving_node().filter(|_| is_of_owner);
    response.into_response(error_page(frame, status, found, serving))
}

/// Answers for a path that leads nowhere.
pub(crate) async fn unknown(request: HttpRequest) -> PageResult {
    if !is_for_programs(request.path()) && Visit::of(&request).is_ok() {
        return Err(NoPage::NoSuchPage);
    }
    Ok(problem_answer(ProblemKind::NotFound, "there is no such path; /api/v1/docs lists all paths"))
}

#[derive(Template)]
#[template(path = "error.html", config = "src/admin/askama.toml")]
struct ErrorPage {
    frame: PageFrame,
    title: &'static str,
    detail: String,
    /// Only the node that serves has the page.
    is_of_owner: bool,
    /// The name of that node, and the URL of its pages.
    owner: Option<(String, String)>,
}

/// A page, or its error page.
pub(crate) type PageResult = Result<HttpResponse, NoPage>;

/// Returns the result of a form, and its mistake, which the page shows beside the form. Errors: the
/// failure is not a mistake of the form.
pub(super) fn or_mistake<T>(
    result: Result<T, Failed>,
    none: impl FnOnce() -> T,
) -> Result<(T, Option<String>), NoPage> {
    match result {
        Ok(found) => Ok((found, None)),
        Err(Failed::Parameter(mistake)) => Ok((none(), Some(mistake))),
        Err(other) => Err(other.into()),
    }
}

/// Returns a page with a form, whose status says if the form has a mistake.
pub(super) fn render_form(page: &impl Template, mistake: bool) -> HttpResponse {
    let mut answer = render(page);
    if mistake {
        *answer.status_mut() = StatusCode::BAD_REQUEST;
    }
    answer
}

pub(super) fn render(page: &impl Template) -> HttpResponse {
    match page.render() {
        Ok(text) => HttpResponse::Ok().content_type("text/html; charset=utf-8").body(text),
        Err(error) => {
            tracing::error!(event = "admin.page_failed", %error, "a page of the HTTP interface cannot be made");
            HttpResponse::InternalServerError().finish()
        }
    }
}
