//! A page, or the reason why there is none.

use super::cookies::see;
use super::frame::{PageFrame, Theme};
use crate::admin::failed::Failed;
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
use askama::Template;

/// The reason why there is no page.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoPage {
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
        let frame = PageFrame::plain(Theme::System);
        let mut answer = render(&ErrorPage { frame, title, detail: self.to_string() });
        *answer.status_mut() = status;
        answer
    }
}

/// The page that says why there is no other.
#[derive(Template)]
#[template(path = "error.html", config = "src/admin/askama.toml")]
struct ErrorPage {
    frame: PageFrame,
    title: &'static str,
    detail: String,
}

/// A page, or the reason why there is none.
pub(super) type PageResult = Result<HttpResponse, NoPage>;

/// Returns a page.
pub(super) fn render(page: &impl Template) -> HttpResponse {
    match page.render() {
        Ok(text) => HttpResponse::Ok().content_type("text/html; charset=utf-8").body(text),
        Err(error) => {
            tracing::error!(event = "admin.page_failed", %error, "a page of the HTTP interface cannot be made");
            HttpResponse::InternalServerError().finish()
        }
    }
}
