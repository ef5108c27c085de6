//! A refused request of a client as a row.

use crate::clock;
use crate::events::refusals::{Refusal, RefusedKind};
use crate::time::duration::long;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use utoipa::ToSchema;

/// A refused PUBLISH, will or topic filter of a client, or several equal ones.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = RefusedRequest)]
pub(crate) struct RefusedRow {
    /// The client id, or its first 128 characters with a mark and the length of the whole.
    pub(crate) client_id: String,
    #[schema(required)]
    pub(crate) user: Option<String>,
    pub(crate) kind: RefusedKind,
    /// The topic name or topic filter, or its first 128 characters with a mark and the length of
    /// the whole. Empty for requests with further topics of a client that had many refused.
    pub(crate) topic: String,
    /// The cause of a drop, or `quota_exceeded` or `topic_filter_invalid` for a filter.
    #[schema(example = "not_authorized")]
    pub(crate) cause: Cow<'static, str>,
    /// The rule and its place, or the bound that was reached.
    #[schema(example = "no line of /etc/homing/acl allows it")]
    pub(crate) why: String,
    pub(crate) times: u64,
    /// Seconds since the last one.
    pub(crate) ago: u64,
}

impl RefusedRow {
    pub(crate) fn of(refusal: &Refusal) -> RefusedRow {
        let Refusal { at, client_id, user, kind, topic, cause, why, times } = refusal;
        RefusedRow {
            client_id: client_id.to_string(),
            user: user.as_ref().map(ToString::to_string),
            kind: *kind,
            topic: topic.to_string(),
            cause: Cow::Borrowed(cause),
            why: why.to_string(),
            times: *times,
            ago: clock::now().since(*at).as_secs(),
        }
    }

    /// Returns the refusal as one sentence: what the client tried, and why it may not.
    pub(crate) fn sentence(&self) -> String {
        let RefusedRow { kind, topic, cause, why, times, ago, .. } = self;
        let topic = if topic.is_empty() { "further topics" } else { topic };
        let ago = long(Duration::from_secs(*ago));
        let when = match times {
            1 => format!("{ago} ago"),
            _ => format!("{times} times, last {ago} ago"),
        };
        match (kind, &**cause) {
            (RefusedKind::Publish, "not_authorized") => {
                format!("tried {when}, and may not write {topic}: {why}.")
            }
            (RefusedKind::Will, "not_authorized") => {
                format!("its will on {topic} was refused {when}, because it may not write the topic: {why}.")
            }
            (RefusedKind::Subscription, "not_authorized") => {
                let comma = if *times == 1 { "" } else { "," };
                format!("tried {when}{comma} to subscribe to {topic}, and may read nothing of it: {why}.")
            }
            (RefusedKind::Publish, _) => {
                format!("its PUBLISH to {topic} was refused {when}: {cause}, {why}.")
            }
            (RefusedKind::Will, _) => format!("its will on {topic} was refused {when}: {cause}, {why}."),
            (RefusedKind::Subscription, _) => {
                format!("its subscription to {topic} was refused {when}: {cause}, {why}.")
            }
        }
    }

    /// Returns the client with its user, for people. Both are as the client chose them.
    pub(crate) fn client(&self) -> String {
        match &self.user {
            Some(user) => format!("{} (user {user})", self.client_id),
            None => self.client_id.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_tried_what_when_and_which_rule_forbids_it() {
        let row = |kind, cause: &'static str, why: &str, times| RefusedRow {
            client_id: "ann1".to_owned(),
            user: Some("ann".to_owned()),
            kind,
            topic: "alarms/1".to_owned(),
            cause: cause.into(),
            why: why.to_owned(),
            times,
            ago: 3,
        };
        let denied = row(RefusedKind::Publish, "not_authorized", "line 12 of acl denies it", 1);
        assert_eq!(denied.client(), "ann1 (user ann)");
        assert_eq!(denied.sentence(), "tried 3 s ago, and may not write alarms/1: line 12 of acl denies it.");
        let large = row(RefusedKind::Publish, "too_large", "the payload exceeds limits.payload_size", 5);
        assert_eq!(
            large.sentence(),
            "its PUBLISH to alarms/1 was refused 5 times, last 3 s ago: too_large, the payload exceeds limits.payload_size."
        );
        let filter = row(RefusedKind::Subscription, "not_authorized", "no line of acl allows it", 1);
        assert!(
            filter.sentence().starts_with("tried 3 s ago to subscribe to alarms/1, and may read nothing")
        );
        let earlier = RefusedRow { ago: 5_400, ..filter };
        assert!(earlier.sentence().starts_with("tried 1 h 30 min ago to subscribe"));
        let several = RefusedRow { times: 3, ago: 2, ..earlier };
        assert!(several.sentence().starts_with("tried 3 times, last 2 s ago, to subscribe to alarms/1, and"));
    }
}
