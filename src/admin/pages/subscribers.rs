//! The clients that get the messages of a topic now.

use super::views::{LONG, link_of, shown};
use crate::admin::segment::segment;
use crate::operators::receivers::{MatchedReceivers, MatchedSession};

/// The receivers of a topic.
pub(super) struct SubscriberList {
    pub(super) rows: Vec<SubscriberView>,
    pub(super) groups: Vec<GroupView>,
    /// False if there are more receivers than these.
    pub(super) is_complete: bool,
}

/// A client whose subscriptions match the topic now.
pub(super) struct SubscriberView {
    pub(super) name: String,
    pub(super) link: Option<String>,
    pub(super) state: &'static str,
    pub(super) qos: u8,
    pub(super) filters: String,
}

/// A shared group whose filter matches the topic now. Each message goes to one member.
pub(super) struct GroupView {
    pub(super) filter: String,
    /// The page of its members; `None` if the filter is too long for a link.
    pub(super) link: Option<String>,
    pub(super) members: usize,
}

impl GroupView {
    pub(super) fn of((filter, members): &(Box<str>, usize)) -> GroupView {
        let link = || format!("/topics?filter={}", segment(filter));
        GroupView { filter: shown(filter), link: (filter.len() <= LONG).then(link), members: *members }
    }
}

impl SubscriberList {
    pub(super) fn of(found: &MatchedReceivers) -> SubscriberList {
        SubscriberList {
            rows: found.sessions().iter().map(SubscriberView::of).collect(),
            groups: found.groups.iter().map(GroupView::of).collect(),
            is_complete: !found.more,
        }
    }

    /// Returns true if nobody gets the messages.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.groups.is_empty()
    }
}

impl SubscriberView {
    fn of(session: &MatchedSession) -> SubscriberView {
        let filters: Vec<String> = session.filters.iter().map(|filter| shown(filter)).collect();
        SubscriberView {
            name: shown(&session.client_id),
            link: link_of(&session.client_id),
            state: session.presence().name(),
            qos: session.qos as u8,
            filters: filters.join(", "),
        }
    }
}
