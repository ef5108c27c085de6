//! The switch of the colours.

use super::entry::{SubmittedForm, is_own_path};
use super::frame::Theme;
use super::page::PageResult;
use crate::admin::cookies::{see_with_cookie, theme_cookie};
use crate::named_enum::Named;
use serde::Deserialize;

/// The form that changes the colours.
#[derive(Deserialize)]
pub(super) struct ThemeForm {
    theme: String,
    /// The page to go back to.
    back: String,
}

/// Changes the colours, and goes back to the page.
pub(super) async fn change_theme(form: SubmittedForm<ThemeForm>) -> PageResult {
    let SubmittedForm { visit, fields: form, .. } = form;
    let theme = Theme::of_name(&form.theme).unwrap_or_default().name();
    let back = if is_own_path(&form.back) { &form.back } else { "/" };
    Ok(see_with_cookie(back, &theme_cookie(visit.state.scheme, theme)))
}
