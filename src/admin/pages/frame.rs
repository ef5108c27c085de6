//! The frame of every page: places, the state of the broker, its worst problem, and the pace at
//! which the page follows the broker.

use super::assets::{ICON, SCRIPT, STYLE};
use super::entry::Visit;
use super::problems::problems;
use super::views::{clock_time, count, long};
use crate::admin::access::{Caller, Scope};
use crate::admin::cookies::theme_cookie_of;
use crate::admin::logins::LoggedIn;
use crate::admin::queries::stuck::stuck_clients;
use crate::admin::readiness::BrokerReadiness;
use crate::admin::serving_node::ServingNode;
use crate::admin::state::State;
use crate::broker::observer::Observer;
use crate::clock;
use crate::named_enum::{Named, named_enum};
use crate::time::Instant;
use actix_web::HttpRequest;
use actix_web::http::Method;

/// The places of the navigation, each with the scope that it needs.
const PLACES: [(&str, &str, Scope); 15] = [
    ("/", "Overview", Scope::Viewer),
    ("/clients", "Clients", Scope::Viewer),
    (CLUSTER, "Cluster", Scope::Viewer),
    ("/bridges", "Bridges", Scope::Viewer),
    ("/sinks", "Sinks", Scope::Viewer),
    ("/topics", "Topics", Scope::Viewer),
    ("/where", "Find a message", Scope::Viewer),
    ("/traces", "Traces", Scope::Operator),
    ("/redelivery", "Redelivery", Scope::Viewer),
    ("/deadlines", "Deadlines", Scope::Viewer),
    ("/dead-letters", "Dead letters", Scope::Viewer),
    ("/objectives", "Objectives", Scope::Viewer),
    ("/settings", "Settings", Scope::Viewer),
    ("/audit", "Audit", Scope::Admin),
    ("/api/v1/docs", "API", Scope::Viewer),
];

/// The place that only a node of a cluster has.
const CLUSTER: &str = "/cluster";

/// Returns true if only the node that serves has the page at this path. A node that stands by names
/// that node there.
pub(super) fn is_of_owner(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    !["cluster", "settings", "checks", "audit", "login", "logout", "theme", "assets", "api"].contains(&first)
}

/// Returns true if a path is for programs.
pub(crate) fn is_for_programs(path: &str) -> bool {
    path.starts_with("/api/")
}

/// The time between two looks of a page that shows what happens.
const SOON: u32 = 2;

/// The time between two looks of a page that shows what is there.
const LATER: u32 = 5;

/// Returns the seconds between two looks of a page at the broker; 0 if the page stays as it is: the
/// answer to a form, the description of the interface, and a payload, because the audit log notes
/// each look at it.
fn pace_of(request: &HttpRequest) -> u32 {
    let shows_payload = request.query_string().split('&').any(|pair| pair == "payload=true");
    if request.method() != Method::GET || shows_payload || is_for_programs(request.path()) {
        return 0;
    }
    match request.path().split('/').nth(1) {
        Some("" | "clients" | "cluster" | "bridges" | "sinks" | "traces" | "redelivery" | "deadlines") => {
            SOON
        }
        _ => LATER,
    }
}

/// Returns the place of a path in the navigation; empty for other paths.
fn place_of(path: &str) -> &'static str {
    let is_below = |place: &str| path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
    let mut all = PLACES.into_iter().map(|(place, ..)| place);
    all.find(|place| *place == path || *place != "/" && is_below(place)).unwrap_or_default()
}

/// The content of a page's frame.
pub(super) struct PageFrame {
    pub(super) login: Option<LoginFrame>,
    pub(super) theme: Theme,
    /// The path and query of the page, for the form of the colours.
    pub(super) here: String,
    /// The path of the place that the page belongs to.
    pub(super) place: &'static str,
    /// True on a node of a cluster.
    pub(super) is_node: bool,
    /// True on a node that stands by.
    pub(super) stands_by: bool,
    /// The time of day of the page, in UTC.
    pub(super) as_of: String,
    /// Seconds until the page is made again; 0 for never.
    pub(super) pace: u32,
    /// `None` without a login.
    pub(super) status: Option<Status>,
    /// The answer to the action that led here.
    pub(super) answer: Option<String>,
}

/// The login of a page, as its frame shows it.
pub(super) struct LoginFrame {
    pub(super) name: String,
    pub(super) scope: Scope,
    pub(super) csrf: String,
}

impl From<&LoggedIn> for LoginFrame {
    fn from(login: &LoggedIn) -> LoginFrame {
        let Caller { name, scope, .. } = login.caller.clone();
        LoginFrame { name, scope, csrf: login.csrf.clone() }
    }
}

/// The state of the broker in one line.
pub(super) struct Status {
    pub(super) is_ready: bool,
    pub(super) readiness: &'static str,
    pub(super) figures: Vec<PageFigure>,
    pub(super) problem: Option<WorstProblem>,
    /// The names of the kinds of all problems, the worst first.
    pub(super) kinds: Vec<&'static str>,
}

pub(super) struct PageFigure {
    pub(super) name: &'static str,
    /// The name in live updates; empty for none.
    pub(super) key: &'static str,
    pub(super) value: String,
}

/// A problem of the broker, and the page that shows it.
#[derive(Clone, Debug)]
pub(super) struct WorstProblem {
    pub(super) text: String,
    pub(super) link: Option<String>,
}

named_enum! {
    /// The colours of a page.
    #[derive(Default)]
    pub(super) enum Theme {
        /// As the system has them.
        #[default]
        System = "system",
        Dark = "dark",
        Light = "light",
    }
}

impl Theme {
    /// Returns the name, if it is not that of the system.
    pub(super) fn chosen(self) -> Option<&'static str> {
        (self != Theme::System).then(|| self.name())
    }

    /// Returns the name of the colours that follow at the switch.
    pub(super) fn next(self) -> &'static str {
        Theme::ALL[(self as usize + 1) % Theme::ALL.len()].name()
    }
}

impl PageFrame {
    /// Returns the frame of a page without a login.
    pub(super) fn plain(theme: Theme) -> PageFrame {
        let as_of = clock_time(clock::unix_millis());
        PageFrame {
            login: None,
            theme,
            here: String::new(),
            place: "",
            is_node: false,
            stands_by: false,
            as_of,
            pace: 0,
            status: None,
            answer: None,
        }
    }

    /// Returns the frame of a page of a login. `place` is the path in the navigation.
    pub(super) async fn of(visit: &Visit, place: &'static str) -> PageFrame {
        let Visit { request, state, login } = visit;
        let here = request.uri().path_and_query().map_or("/", |here| here.as_str()).to_owned();
        let status = match state.observer() {
            // The overview has its own list of all problems.
            Some(observer) if place == "/" => Status { problem: None, ..Status::of(state, observer).await },
            Some(observer) => Status::of(state, observer).await,
            None => Status::without_broker(state),
        };
        let (theme, pace) = (theme_of(request), pace_of(request));
        let answer = visit.taken(&here);
        PageFrame {
            login: Some(login.into()),
            here,
            place,
            is_node: state.cluster().is_some(),
            stands_by: state.serving_node().is_some(),
            pace,
            status: Some(status),
            answer,
            ..PageFrame::plain(theme)
        }
    }

    /// Returns the frame of the error page. Its place is that of the path.
    pub(super) async fn of_error(visit: &Visit) -> PageFrame {
        let frame = PageFrame::of(visit, place_of(visit.request.path())).await;
        // The path of a form has no page to go back to.
        let here = if visit.request.method() == Method::GET { frame.here } else { "/".to_owned() };
        PageFrame { here, ..frame }
    }

    /// Returns the text that every form of the page has; empty without a login.
    pub(super) fn csrf(&self) -> &str {
        self.login.as_ref().map_or("", |login| &login.csrf)
    }

    /// Returns true if the login may act on clients and messages.
    pub(super) fn may_act(&self) -> bool {
        self.scope() >= Scope::Operator
    }

    /// Returns the scope of the login; that of a viewer without one.
    pub(super) fn scope(&self) -> Scope {
        self.login.as_ref().map_or(Scope::Viewer, |login| login.scope)
    }

    /// Returns the path and name of each place that the login may see.
    pub(super) fn places(&self) -> Vec<(&'static str, &'static str)> {
        let is_there =
            |path: &str| (path != CLUSTER || self.is_node) && !(self.stands_by && is_of_owner(path));
        let seen = PLACES.into_iter().filter(|(_, _, needed)| *needed <= self.scope());
        let seen = seen.filter(|(path, ..)| is_there(path));
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
    theme_cookie_of(request).and_then(Theme::of_name).unwrap_or_default()
}

impl Status {
    /// Returns the state of a process without a broker: it starts, or stands by.
    fn without_broker(state: &State) -> Status {
        let problem = match state.serving_node() {
            Some(ServingNode { owner: Some(owner), pages }) => {
                WorstProblem { text: format!("The node {owner} serves."), link: pages.map(|url| url + "/") }
            }
            Some(_) => WorstProblem { text: "Nobody serves.".to_owned(), link: Some(CLUSTER.to_owned()) },
            None => WorstProblem { text: "Clients cannot connect yet.".to_owned(), link: None },
        };
        let readiness = BrokerReadiness::of(state, clock::now());
        let (figures, kinds) = (Vec::new(), Vec::new());
        Status { is_ready: false, readiness: readiness.title(), figures, problem: Some(problem), kinds }
    }

    /// Returns the state of the broker now.
    pub(super) async fn of(state: &State, observer: &Observer) -> Status {
        let (all, stuck) = (problems(state, observer).await, stuck_clients(state).await);
        let worst = all.first();
        let total = observer.statistics().total();
        let figure = |name, key, value| PageFigure { name, key, value };
        let more = if stuck.has_more { "+" } else { "" };
        let readiness = BrokerReadiness::of(state, clock::now());
        Status {
            is_ready: readiness.is_ready(),
            readiness: readiness.title(),
            figures: vec![
                figure("up", "up", long(clock::now().since(Instant::ZERO))),
                figure("online", "online", count(total.connected)),
                figure("away", "away", count(total.away())),
                figure("stuck", "stuck", format!("{}{more}", stuck.rows.len())),
                figure("queued", "queued", count(total.session_totals.queued)),
            ],
            kinds: all.iter().map(|problem| problem.kind.name()).collect(),
            problem: worst
                .map(|problem| WorstProblem { text: problem.text.clone(), link: problem.link.clone() }),
        }
    }
}
