//! The frame of every page: places, the state of the broker, and its worst problem.

use super::assets::{ICON, SCRIPT, STYLE};
use super::clients::{view_of, views};
use super::views::{ClientView, count, seconds};
use super::{LoginFrame, State, cookie_of};
use crate::admin::access::Scope;
use crate::admin::logins::LoggedIn;
use crate::admin::routes::clients::{ListParameters, list_sessions};
use crate::broker::observer::Observer;
use crate::clock;
use crate::shard::observe::query::SessionSummary;
use crate::time::Instant;
use actix_web::HttpRequest;
use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The name of the cookie that has the colours.
pub(super) const THEME_COOKIE: &str = "homing_theme";

/// Time for which the search for stuck clients is not done again.
const FRESH: Duration = Duration::from_secs(3);

/// Stuck clients that the search finds at most.
const STUCK: usize = 100;

/// The places of the navigation, each with the scope that it needs.
const PLACES: [(&str, &str, Scope); 7] = [
    ("/", "Overview", Scope::Viewer),
    ("/clients", "Clients", Scope::Viewer),
    ("/where", "Where", Scope::Viewer),
    ("/timeline", "Redelivery", Scope::Viewer),
    ("/wheel", "Deadlines", Scope::Viewer),
    ("/objectives", "Objectives", Scope::Viewer),
    ("/audit", "Audit", Scope::Admin),
];

/// What the frame of a page shows.
pub(super) struct Frame {
    pub(super) login: Option<LoginFrame>,
    pub(super) theme: Theme,
    /// The path and query of the page, for the form of the colours.
    pub(super) here: String,
    /// The path of the place that the page belongs to.
    pub(super) place: &'static str,
    /// `None` without a login.
    pub(super) status: Option<Status>,
}

/// The state of the broker in one line.
pub(super) struct Status {
    pub(super) is_ready: bool,
    pub(super) readiness: &'static str,
    pub(super) figures: Vec<Figure>,
    pub(super) problem: Option<Problem>,
}

/// A figure with its name.
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// The name in live updates; empty for none.
    pub(super) key: &'static str,
    pub(super) value: String,
}

/// What is wrong, and the page that shows it.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) text: String,
    pub(super) link: Option<String>,
}

/// The clients that left a message unacknowledged for 10 s.
#[derive(Clone, Debug, Default)]
pub(super) struct Stuck {
    /// The clients, the longest wait first.
    pub(super) clients: Vec<ClientView>,
    /// True if there are more clients.
    pub(super) more: bool,
    worst: Option<Problem>,
}

/// The last search for stuck clients. All pages share it.
#[derive(Default)]
pub(in crate::admin) struct StuckSearch(Mutex<Option<(Instant, Arc<Stuck>)>>);

/// The colours of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Theme {
    /// As the system has them.
    #[default]
    System,
    Dark,
    Light,
}

impl Theme {
    /// Returns the colours of a name; those of the system for any other text.
    pub(super) fn of(name: &str) -> Theme {
        let all = [Theme::System, Theme::Dark, Theme::Light];
        all.into_iter().find(|theme| theme.name() == name).unwrap_or_default()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Dark => "dark",
            Theme::Light => "light",
        }
    }

    /// Returns the name, if it is not that of the system.
    pub(super) fn chosen(self) -> Option<&'static str> {
        (self != Theme::System).then(|| self.name())
    }

    /// Returns the name of the colours that follow at the switch.
    pub(super) fn next(self) -> &'static str {
        match self {
            Theme::System => "dark",
            Theme::Dark => "light",
            Theme::Light => "system",
        }
    }
}

impl Frame {
    /// Returns the frame of a page without a login.
    pub(super) fn plain(theme: Theme) -> Frame {
        Frame { login: None, theme, here: String::new(), place: "", status: None }
    }

    /// Returns the frame of a page of a login. `place` is the path in the navigation.
    pub(super) async fn of(
        request: &HttpRequest,
        state: &State,
        login: &LoggedIn,
        place: &'static str,
    ) -> Frame {
        let here = request.uri().path_and_query().map_or("/", |here| here.as_str()).to_owned();
        let status = match state.observer() {
            Some(observer) => Status::of(state, observer).await,
            None => Status {
                is_ready: false,
                readiness: "Starting",
                figures: Vec::new(),
                problem: Some(Problem { text: "Clients cannot connect yet.".to_owned(), link: None }),
            },
        };
        Frame { login: Some(login.into()), theme: theme_of(request), here, place, status: Some(status) }
    }

    /// Returns the path and name of each place that the login may see.
    pub(super) fn places(&self) -> Vec<(&'static str, &'static str)> {
        let scope = self.login.as_ref().map_or(Scope::Viewer, |login| login.scope);
        let seen = PLACES.into_iter().filter(|(_, _, needed)| *needed <= scope);
        seen.map(|(path, name, _)| (path, name)).collect()
    }

    pub(super) fn style(&self) -> String {
        STYLE.path()
    }

    pub(super) fn script(&self) -> String {
        SCRIPT.path()
    }

    pub(super) fn icon(&self) -> String {
        ICON.path()
    }
}

/// Returns the colours that the cookie of a request asks for.
pub(super) fn theme_of(request: &HttpRequest) -> Theme {
    cookie_of(request, THEME_COOKIE).map_or(Theme::System, Theme::of)
}

impl Status {
    /// Returns the state of the broker now.
    pub(super) async fn of(state: &State, observer: &Observer) -> Status {
        let stuck = stuck(state, observer).await;
        let (statistics, total) = (observer.statistics(), observer.statistics().total());
        let figure = |name, key, value| Figure { name, key, value };
        let more = if stuck.more { "+" } else { "" };
        let (is_ready, readiness) = match statistics.is_stopping() {
            false => (true, "Ready"),
            true => (false, "Stopping"),
        };
        Status {
            is_ready,
            readiness,
            figures: vec![
                figure("online", "online", count(total.connected)),
                figure("away", "away", count(total.away())),
                figure("stuck", "stuck", format!("{}{more}", stuck.clients.len())),
                figure("deadlines", "deadlines", count(statistics.expiry.keys())),
            ],
            problem: problem(observer, &stuck),
        }
    }
}

/// Returns the worst problem: a full store, then short memory, then the client that has left a
/// message unacknowledged for the longest time.
fn problem(observer: &Observer, stuck: &Stuck) -> Option<Problem> {
    let plain = |text: &str| Some(Problem { text: text.to_owned(), link: None });
    if observer.shared().store_full.load(Ordering::Relaxed) {
        return plain("The store is full: new work is refused.");
    }
    let (held, limit) = (observer.statistics().memory(), observer.statistics().memory_limit());
    if held / 9 >= limit / 10 {
        return plain("More than 90 % of limits.memory is in use: new work is refused soon.");
    }
    stuck.worst.clone()
}

/// Returns the clients that are stuck, as of the last three seconds. Without an answer of the
/// shards, the last result stands.
pub(super) async fn stuck(state: &State, observer: &Observer) -> Arc<Stuck> {
    let now = clock::now();
    let last = state.stuck().last();
    if let Some((at, stuck)) = &last
        && now < *at + FRESH
    {
        return Arc::clone(stuck);
    }
    let Ok(mut listed) = list_sessions(state, observer, &ListParameters::stuck(STUCK, "10s")).await else {
        return last.map(|(_, stuck)| stuck).unwrap_or_default();
    };
    let age = |row: &SessionSummary| row.oldest.map(|stall| stall.age);
    listed.rows.sort_by_key(|row| Reverse(age(&row.session)));
    let worst = listed.rows.first().map(|found| {
        let row = &found.session;
        let view = view_of(state, found);
        let packet = row.oldest.map_or(0, |stall| stall.packet_id.get());
        let age = age(row).map(seconds).unwrap_or_default();
        let name: String = view.name.chars().take(64).collect();
        Problem {
            text: format!("{name} has not acknowledged packet {packet} for {age}: {}.", view.detail),
            link: Some(format!("/clients/{}{}", view.path, view.suffix)),
        }
    });
    let stuck = Arc::new(Stuck { clients: views(state, &listed), more: listed.next.is_some(), worst });
    state.stuck().found(now, &stuck);
    stuck
}

impl StuckSearch {
    fn last(&self) -> Option<(Instant, Arc<Stuck>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn found(&self, now: Instant, stuck: &Arc<Stuck>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(stuck)));
    }
}
