//! The answer to an action: one line on the page that follows, once.
//!
//! The answer waits in the login, so no link can make a page say something, and a reload says
//! nothing again.

use super::entry::Visit;
use crate::admin::cookies::{login_cookie_of, see};
use crate::clock;
use actix_web::HttpResponse;

impl Visit {
    /// Leads to a page of this interface, which says what happened. `place` is its path and query.
    pub(super) fn answered(&self, place: &str, said: impl Into<String>) -> HttpResponse {
        if let Some(cookie) = login_cookie_of(&self.request) {
            self.state.logins.tell(clock::now(), cookie, (place, said.into()));
        }
        see(place)
    }

    /// Takes the answer that waits for a page.
    pub(super) fn taken(&self, place: &str) -> Option<String> {
        self.state.logins.told(clock::now(), login_cookie_of(&self.request)?, place)
    }
}
