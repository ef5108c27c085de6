//! The moments of redelivery, for the timeline of the HTTP interface.
//!
//! An event that is no moment costs a comparison, and a moment without a listener one load more.

use super::feed::Feed;
use crate::events::client_events::{ClientEvent, Occurrence, RedeliveryTime};
use crate::mqtt::topic::first_chars;
use crate::named_enum::named_enum;
use std::borrow::Cow;

/// Moments that wait for their listener at most.
pub const WAITING: usize = 4_096;

/// The longest client identifier of a moment, in bytes. A longer one is cut, and is no key then.
const LONGEST_ID: usize = 1_024;

/// The longest text of a moment, in characters.
const LONGEST_TEXT: usize = 256;

/// Something that happened to a message that a client did not acknowledge in time, or to the
/// connection of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineMoment {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// The Client Identifier, or its first 1,024 bytes.
    pub client_id: Box<str>,
    /// The kind.
    pub kind: MomentKind,
    /// True if the moment is about an overdue message of the client.
    pub is_overdue: bool,
    /// The circumstances as a text.
    pub text: Box<str>,
}

named_enum! {
    /// The kind of a moment.
    pub enum MomentKind {
        /// An acknowledgement is overdue.
        Stalled = "stalled",
        /// Packets were sent again.
        Redelivered = "redelivered",
        /// A packet was sent as often as allowed.
        Exhausted = "exhausted",
        /// The connection ended.
        Disconnected = "disconnected",
        /// The client connected, and its session was there.
        Returned = "returned",
        /// The overdue message is acknowledged. The interface finds this by asking.
        Acknowledged = "acknowledged",
    }
}

/// Offers an event to the listener of moments, if the event is a moment.
pub(super) fn offer(to: &Feed<TimelineMoment>, unix_ms: impl FnOnce() -> u64, event: &ClientEvent) {
    let Some(kind) = kind_of(&event.occurrence) else { return };
    let Some(client_id) = event.client_id.as_deref() else { return };
    to.offer(|| TimelineMoment {
        unix_ms: unix_ms(),
        client_id: client_id[..client_id.floor_char_boundary(LONGEST_ID)].into(),
        kind,
        is_overdue: event.occurrence.is_overdue(),
        text: first_chars(&text_of(&event.occurrence), LONGEST_TEXT).into(),
    });
}

/// Returns the kind of an event; `None` if the event is no moment. A plain DISCONNECT and the first
/// connection of a client are no moments.
fn kind_of(occurrence: &Occurrence) -> Option<MomentKind> {
    match occurrence {
        Occurrence::Stalled(_) => Some(MomentKind::Stalled),
        Occurrence::Redelivered { .. } => Some(MomentKind::Redelivered),
        Occurrence::Exhausted(_) => Some(MomentKind::Exhausted),
        Occurrence::Disconnected(cause) => cause.needs_explanation().then_some(MomentKind::Disconnected),
        Occurrence::Connected { session_present, .. } => session_present.then_some(MomentKind::Returned),
        _ => None,
    }
}

/// Returns the circumstances of a moment.
fn text_of(occurrence: &Occurrence) -> Cow<'static, str> {
    match occurrence {
        Occurrence::Stalled(stall) => stall.to_string().into(),
        Occurrence::Redelivered { publishes, releases, when } => {
            let on = match when {
                RedeliveryTime::Live => "on the live connection",
                RedeliveryTime::AtReturn => "at the return of the client",
            };
            format!("{publishes} PUBLISH and {releases} PUBREL sent again {on}").into()
        }
        Occurrence::Exhausted(_) => "redelivery.attempts is used up".into(),
        Occurrence::Disconnected(cause) => cause.to_string().into(),
        _ => "the client connected again, and its session was there".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::events::tests::every_event;

    #[test]
    fn a_moment_has_the_client_and_a_text_and_a_full_channel_counts() {
        let (feed, events) = (Feed::default(), every_event());
        let offer_all = || events.iter().for_each(|event| offer(&feed, || 7, event));
        offer_all();
        assert_eq!(feed.lost(), 0, "nobody listens");
        let mut from = feed.listen(WAITING).expect("the first listener");
        assert!(feed.listen(WAITING).is_none());
        offer_all();
        let mut kinds = Vec::new();
        while let Ok(moment) = from.try_recv() {
            assert!(!moment.text.is_empty() && !moment.client_id.is_empty() && moment.unix_ms == 7);
            kinds.push(moment.kind);
        }
        for kind in [MomentKind::Stalled, MomentKind::Redelivered, MomentKind::Disconnected] {
            assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
        }
        (0..=WAITING).for_each(|_| offer_all());
        assert!(feed.lost() > 0);
    }
}
