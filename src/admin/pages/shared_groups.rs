//! The page of the shared groups.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::subscribers::GroupView;
use crate::admin::queries::by_filter::shared_groups;
use crate::admin::request::{cursor_to, place_of};
use askama::Template;
use serde::Deserialize;

/// Groups on a page.
const GROUPS: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupsForm {
    cursor: Option<String>,
}

#[derive(Template)]
#[template(path = "shared_groups.html", config = "src/admin/askama.toml")]
struct GroupsPage {
    frame: PageFrame,
    groups: Vec<GroupView>,
    /// The cursor of the next page.
    next: Option<String>,
}

pub(super) async fn page(visit: Visit) -> PageResult {
    let GroupsForm { cursor } = visit.read()?;
    let from = place_of(cursor.as_deref())?;
    let found = shared_groups(&visit.state, from, GROUPS).await?;
    Ok(render(&GroupsPage {
        frame: PageFrame::of(&visit, "/topics").await,
        groups: found.rows.iter().map(GroupView::of).collect(),
        next: found.next.map(cursor_to),
    }))
}
