//! The page that asks before something is lost.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::render;
use actix_web::HttpResponse;
use askama::Template;

/// The value of the field `confirm` in the form of the page.
const CONFIRMED: &str = "yes";

/// A question before something is lost.
pub(super) struct ConfirmQuestion {
    pub(super) title: String,
    pub(super) text: &'static str,
    /// The path of the form, and its fields.
    pub(super) action: String,
    pub(super) fields: Vec<(&'static str, String)>,
    /// The note that was written so far.
    pub(super) note: String,
    pub(super) button: &'static str,
    /// The page to go back to.
    pub(super) back: String,
}

#[derive(Template)]
#[template(path = "confirm.html", config = "src/admin/askama.toml")]
struct ConfirmPage {
    frame: PageFrame,
    confirmed: &'static str,
    question: ConfirmQuestion,
}

/// Returns true if the form of the page was sent.
pub(super) fn is_confirmed(confirm: &str) -> bool {
    confirm == CONFIRMED
}

/// Returns the page. `place` is its place in the navigation.
pub(super) async fn ask(visit: &Visit, place: &'static str, question: ConfirmQuestion) -> HttpResponse {
    let frame = PageFrame::of(visit, place).await;
    // The path of a form has no page to go back to.
    let frame = PageFrame { here: question.back.clone(), ..frame };
    render(&ConfirmPage { frame, confirmed: CONFIRMED, question })
}
