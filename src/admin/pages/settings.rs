//! The page of settings: the values in force, and their reload.

use super::entry::{SubmittedForm, Visit};
use super::frame::PageFrame;
use super::page::{NoPage, PageResult, render};
use super::prose::{Prose, prose};
use crate::admin::commands::{ReloadEnd, configuration, reload};
use crate::admin::failed::Failed;
use crate::broker::reload::ReloadMode;
use crate::config::{KeyChange, KeyInForce, help_of};
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use serde::Deserialize;

/// Keys that the page explains at most.
const EXPLAINED: usize = 20;

/// The filter of the list of keys.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SettingsFilter {
    /// A part of the key; all keys if it is empty.
    key: String,
    show: SettingsShown,
}

/// The keys that the page lists.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum SettingsShown {
    #[default]
    All,
    /// Keys whose value is not the built-in default.
    Changed,
}

#[derive(Deserialize)]
pub(super) struct ReloadForm {
    mode: String,
}

#[derive(Template)]
#[template(path = "settings.html", config = "src/admin/askama.toml")]
struct SettingsPage {
    frame: PageFrame,
    filter: SettingsFilter,
    settings: Vec<KeyInForce>,
    /// What each listed key does, if only a few are listed.
    help: Vec<(String, Prose)>,
    /// The number of keys whose new value waits for a restart.
    pending: usize,
    /// The report of the reload that the form asked for.
    report: Option<ReloadReport>,
}

/// The report of a reload, or of a check.
struct ReloadReport {
    /// The result, as one sentence.
    title: &'static str,
    /// All mistakes; may be empty.
    mistakes: Vec<String>,
    changes: Vec<KeyChange>,
    /// Further sentences: values that do not count, and changes of files.
    notes: Vec<String>,
}

impl ReloadReport {
    fn of(mode: ReloadMode, end: ReloadEnd) -> ReloadReport {
        let short =
            |title, mistakes| ReloadReport { title, mistakes, changes: Vec::new(), notes: Vec::new() };
        let reloaded = match end {
            ReloadEnd::Done(reloaded) => reloaded,
            ReloadEnd::Refused(mistakes) => {
                return short("Nothing is changed, because of a mistake.", mistakes);
            }
            ReloadEnd::UnderWay => {
                return short("The reload is under way. The log says how it ends.", Vec::new());
            }
        };
        let shadowed = reloaded.shadowed.iter().map(|shadowed| {
            format!(
                "{}: {} wins over the file, so a change in the file has no effect.",
                shadowed.key, shadowed.by
            )
        });
        let listeners =
            reloaded.listeners.iter().map(|change| format!("{change} ({})", change.effect.title()));
        let notes = listeners.chain(shadowed).chain(reloaded.of_files()).collect();
        let title = match (mode, reloaded.is_as_before()) {
            (ReloadMode::Check, true) => "Everything is right. A reload would change nothing.",
            (ReloadMode::Check, false) => "Everything is right. A reload would make these changes.",
            (ReloadMode::Apply, true) => "Everything was read again. Nothing changed.",
            (ReloadMode::Apply, false) => "Everything was read again.",
        };
        ReloadReport { title, mistakes: Vec::new(), changes: reloaded.changes, notes }
    }
}

pub(super) async fn page(visit: Visit) -> PageResult {
    let filter = visit.read()?;
    settings(&visit, filter, None).await
}

/// Reads the configuration again, or only checks it, and shows the report.
pub(super) async fn read_again(form: SubmittedForm<ReloadForm>) -> PageResult {
    let SubmittedForm { visit, operator, fields: form } = form;
    let mode = match form.mode.as_str() {
        "check" => ReloadMode::Check,
        "apply" => ReloadMode::Apply,
        other => {
            let what = format!("mode is {other:?}, and must be check or apply");
            return Err(NoPage::Failed(Failed::Parameter(what)));
        }
    };
    let report = ReloadReport::of(mode, reload(&operator, mode).await?);
    let is_refused = !report.mistakes.is_empty();
    let mut answer = settings(&visit, SettingsFilter::default(), Some(report)).await?;
    if is_refused {
        *answer.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    }
    Ok(answer)
}

async fn settings(
    visit: &Visit,
    filter: SettingsFilter,
    report: Option<ReloadReport>,
) -> Result<HttpResponse, NoPage> {
    let mut settings = configuration(&visit.state).await?;
    let pending = settings.iter().filter(|setting| setting.pending.is_some()).count();
    settings.retain(|setting| {
        setting.key.contains(filter.key.trim()) && (filter.show == SettingsShown::All || setting.is_changed())
    });
    let few = if settings.len() <= EXPLAINED { &*settings } else { &[] };
    let help =
        few.iter().filter_map(|setting| Some((setting.key.to_string(), prose(&help_of(&setting.key)?))));
    Ok(render(&SettingsPage {
        help: help.collect(),
        frame: PageFrame::of(visit, "/settings").await,
        filter,
        settings,
        pending,
        report,
    }))
}
