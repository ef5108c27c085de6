//! The switch of the colours.

use super::entry::{is_own_path, login_of_form};
use super::frame::Theme;
use super::page::PageResult;
use crate::admin::cookies::{see_with_cookie, theme_cookie};
use crate::admin::state::State;
use actix_web::{HttpRequest, web};
use serde::Deserialize;

/// The form that changes the colours.
#[derive(Deserialize)]
pub(super) struct ThemeForm {
    csrf: String,
    theme: String,
    /// The page to go back to.
    back: String,
}

/// Changes the colours, and goes back to the page.
pub(super) async fn change_theme(
    request: HttpRequest,
    state: State,
    form: web::Form<ThemeForm>,
) -> PageResult {
    login_of_form(&request, &state, &form.csrf)?;
    let theme = Theme::of(&form.theme).name();
    let back = if is_own_path(&form.back) { &form.back } else { "/" };
    Ok(see_with_cookie(back, &theme_cookie(state.scheme(), theme)))
}
