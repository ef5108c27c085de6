//! The Topic Filters of one session, and the checks of SUBSCRIBE and UNSUBSCRIBE.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::codec::PacketType;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::packet::{
    Packet, PacketId, Properties, ReasonCode, RetainHandling, Suback, Subscribe, SubscribeFilter, Unsuback,
};
use crate::mqtt::topic;
use crate::mqtt::topic::TopicFilter;
use crate::named_enum::named_enum;
use crate::session::policy::SessionPolicy;
use crate::session::violation::Violation;
use hashbrown::{HashSet, hash_set};

/// The Topic Filters of one session, `$share/...` filters in full. The Subscription Options are in
/// the subscription tree; the session needs the filters to be removed from the tree.
///
/// Most sessions have one filter. A table for one filter would cost ten times the filter.
#[derive(Debug, Default)]
pub struct Subscriptions {
    filters: OwnFilters,
    charge: Charge,
}

/// A Topic Filter of a SUBSCRIBE that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedFilter<'a> {
    /// The filter, with its share name if it has one.
    pub filter: TopicFilter<'a>,
    /// True if the session has this filter already. Its options are replaced.
    pub known: bool,
    /// True if the retained messages that match are sent.
    pub sends_retained: bool,
}

/// A Topic Filter that is refused in SUBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterRefusal {
    /// The reason code; 3.x has one failure code for all.
    pub reason: ReasonCode,
    /// The text for the log.
    pub what: &'static str,
}

named_enum! {
    /// The cause for which a Topic Filter is refused.
    pub enum FilterCause {
        /// The client may read no topic of the filter.
        NotAuthorized = "not_authorized",
        /// A bound is reached.
        QuotaExceeded = "quota_exceeded",
        /// The text is no Topic Filter, or has too many levels.
        TopicFilterInvalid = "topic_filter_invalid",
    }
}

impl FilterRefusal {
    /// Returns the cause.
    pub fn cause(&self) -> FilterCause {
        match self.reason {
            ReasonCode::NOT_AUTHORIZED => FilterCause::NotAuthorized,
            ReasonCode::TOPIC_FILTER_INVALID => FilterCause::TopicFilterInvalid,
            _ => FilterCause::QuotaExceeded,
        }
    }
}

/// The packet that answers a SUBSCRIBE or UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// SUBACK.
    Suback,
    /// UNSUBACK.
    Unsuback,
}

impl AnswerKind {
    /// Returns the type of the packet.
    pub const fn packet_type(self) -> PacketType {
        match self {
            AnswerKind::Suback => PacketType::Suback,
            AnswerKind::Unsuback => PacketType::Unsuback,
        }
    }

    /// Returns the answer to the packet with this identifier. `reasons` has one reason code for
    /// each of its filters, in their order.
    // 3.1.1 and 5.0 [MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.10.4-4], [MQTT-3.10.4-5]
    pub fn packet(self, packet_id: PacketId, reasons: Vec<ReasonCode>) -> Packet<'static> {
        let properties = Properties::EMPTY;
        match self {
            AnswerKind::Suback => Packet::Suback(Suback { packet_id, properties, reasons }),
            AnswerKind::Unsuback => Packet::Unsuback(Unsuback { packet_id, properties, reasons }),
        }
    }
}

/// Checks a SUBSCRIBE as a whole.
///
/// # Errors
/// [`Violation`] for No Local on a shared subscription.
pub fn check(subscribe: &Subscribe<'_>) -> Result<(), Violation> {
    let shared_no_local = |f: &SubscribeFilter<'_>| f.options.no_local && f.filter.starts_with("$share/");
    if subscribe.filters.iter().any(shared_no_local) {
        // 5.0 [MQTT-3.8.3-4]
        let what = "No Local on a shared subscription";
        return Err(Violation { reason: ReasonCode::PROTOCOL_ERROR, what });
    }
    Ok(())
}

/// Returns true if a subscription to a filter that is not shared gets the retained messages.
// 3.1.1 [MQTT-3.3.1-6], [MQTT-3.8.4-3]; 5.0 [MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]
fn sends_retained(handling: RetainHandling, known: bool) -> bool {
    match handling {
        RetainHandling::SendAtSubscribe => true,
        RetainHandling::SendIfNew => !known,
        RetainHandling::DoNotSend => false,
    }
}

/// Bytes of a filter beside its text: its place in a table that is half full, and the allocator's
/// rounding.
const FILTER: usize = 48;

#[derive(Debug, Default)]
enum OwnFilters {
    #[default]
    None,
    One(Box<str>),
    /// The filters, and the levels of all with wildcards, which bound their nodes in the
    /// subscription tree. The levels take no room here, where the tag of the enum leaves a gap.
    Several(Box<Filters>, u32),
}

type Filters = HashSet<Box<str>, Keyed>;

impl Subscriptions {
    /// Returns the number of filters.
    pub fn len(&self) -> usize {
        match &self.filters {
            OwnFilters::None => 0,
            OwnFilters::One(_) => 1,
            OwnFilters::Several(filters, _) => filters.len(),
        }
    }

    /// True if the session has no filter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the session has this filter.
    pub fn contains(&self, filter: &str) -> bool {
        match &self.filters {
            OwnFilters::None => false,
            OwnFilters::One(only) => **only == *filter,
            OwnFilters::Several(filters, _) => filters.contains(filter),
        }
    }

    /// Returns the levels of all filters with wildcards, with this filter included.
    fn levels_with(&self, filter: &str) -> u32 {
        let levels = match &self.filters {
            OwnFilters::None => 0,
            OwnFilters::One(only) => wild_levels(only),
            OwnFilters::Several(_, levels) => *levels,
        };
        levels.saturating_add(wild_levels(filter))
    }

    /// Checks one Topic Filter of a SUBSCRIBE.
    ///
    /// # Errors
    /// [`FilterRefusal`] if the text is not a Topic Filter, or one of the operator's bounds is
    /// reached.
    pub fn check<'a>(
        &self,
        requested: &SubscribeFilter<'a>,
        policy: &SessionPolicy,
    ) -> Result<CheckedFilter<'a>, FilterRefusal> {
        let refuse = |reason, what| Err(FilterRefusal { reason, what });
        let Ok(filter) = TopicFilter::parse(requested.filter, policy.topic_levels) else {
            return refuse(
                ReasonCode::TOPIC_FILTER_INVALID,
                "the text is no topic filter, or has more levels than limits.topic_levels",
            );
        };
        let bounds = &policy.subscriptions;
        let known = self.contains(requested.filter);
        if !known && self.len() >= bounds.filters {
            return refuse(ReasonCode::QUOTA_EXCEEDED, "limits.subscriptions_per_client is reached");
        }
        if !known && self.levels_with(requested.filter) > bounds.wildcard_levels {
            return refuse(ReasonCode::QUOTA_EXCEEDED, "limits.wildcard_levels is reached");
        }
        let sends_retained = !filter.is_shared() && sends_retained(requested.options.retain_handling, known);
        Ok(CheckedFilter { filter, known, sends_retained })
    }

    /// Removes a filter of an UNSUBSCRIBE. Returns its reason code for UNSUBACK: success if the
    /// session had the filter.
    // 3.1.1 and 5.0 [MQTT-3.10.4-1]
    pub fn unsubscribe(&mut self, filter: &str) -> ReasonCode {
        if self.remove(filter) {
            return ReasonCode::SUCCESS;
        }
        match TopicFilter::parse(filter, usize::MAX) {
            Ok(_) => ReasonCode::NO_SUBSCRIPTION_EXISTED,
            Err(_) => ReasonCode::TOPIC_FILTER_INVALID,
        }
    }

    /// Inserts a filter. Returns true if the filter is new.
    pub fn insert(&mut self, filter: &str) -> bool {
        if self.contains(filter) {
            return false;
        }
        let levels = self.levels_with(filter);
        self.filters = match std::mem::take(&mut self.filters) {
            OwnFilters::None => OwnFilters::One(filter.into()),
            OwnFilters::One(only) => {
                OwnFilters::Several(Box::new(Filters::from_iter([only, filter.into()])), levels)
            }
            OwnFilters::Several(mut filters, _) => {
                filters.insert(filter.into());
                OwnFilters::Several(filters, levels)
            }
        };
        self.charge.add(filter.len() + FILTER);
        true
    }

    /// Removes a filter. Returns true if the session had it.
    fn remove(&mut self, filter: &str) -> bool {
        let removed = match &mut self.filters {
            OwnFilters::Several(filters, levels) => {
                let removed = filters.remove(filter);
                if removed {
                    *levels = levels.saturating_sub(wild_levels(filter));
                }
                removed
            }
            OwnFilters::One(only) if **only == *filter => {
                self.filters = OwnFilters::None;
                true
            }
            _ => false,
        };
        if removed {
            self.charge.sub(filter.len() + FILTER);
        }
        removed
    }

    /// Consumes the set and returns its filters one by one.
    pub fn drain(self) -> Drained {
        let (only, several) = match self.filters {
            OwnFilters::None => (None, None),
            OwnFilters::One(only) => (Some(only), None),
            OwnFilters::Several(filters, _) => (None, Some(filters.into_iter())),
        };
        Drained { only, several, _charge: self.charge }
    }

    /// Iterates over the filters, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (only, several) = match &self.filters {
            OwnFilters::None => (None, None),
            OwnFilters::One(only) => (Some(only), None),
            OwnFilters::Several(filters, _) => (None, Some(filters.iter())),
        };
        only.into_iter().chain(several.into_iter().flatten()).map(AsRef::as_ref)
    }
}

/// Iterator over removed filters. Their charge stays until the iterator is dropped.
#[derive(Debug)]
pub struct Drained {
    only: Option<Box<str>>,
    several: Option<hash_set::IntoIter<Box<str>>>,
    _charge: Charge,
}

impl Iterator for Drained {
    type Item = Box<str>;

    fn next(&mut self) -> Option<Box<str>> {
        self.only.take().or_else(|| self.several.as_mut()?.next())
    }
}

/// Returns the levels of a filter with wildcards, which may have one tree node each; 0 without
/// wildcards.
fn wild_levels(filter: &str) -> u32 {
    if topic::has_wildcard(filter) { u32::try_from(topic::levels(filter)).unwrap_or(u32::MAX) } else { 0 }
}

impl Recount for Subscriptions {
    fn recount(&self) -> Recounted {
        let in_use = self.iter().map(|filter| filter.len() + FILTER).sum();
        Recounted { in_use, charged: self.charge.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::{QoS, SubscriptionOptions};
    use crate::session::policy::tests::policy;

    fn requested(filter: &str, retain_handling: RetainHandling) -> SubscribeFilter<'_> {
        let options = SubscriptionOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling,
        };
        SubscribeFilter { filter, options }
    }

    // 5.0 [MQTT-3.8.3-4]
    #[test]
    fn no_local_on_a_shared_subscription_is_a_protocol_error() {
        for (filter, no_local, allowed) in
            [("$share/g/a", true, false), ("$share/g/a", false, true), ("a", true, true)]
        {
            let mut filter = requested(filter, RetainHandling::DoNotSend);
            filter.options.no_local = no_local;
            let subscribe = Subscribe {
                packet_id: PacketId::new(1).expect("not zero"),
                properties: Properties::EMPTY,
                subscription_id: None,
                filters: vec![requested("b", RetainHandling::DoNotSend), filter],
            };
            let expected = if allowed { Ok(()) } else { Err(ReasonCode::PROTOCOL_ERROR) };
            assert_eq!(check(&subscribe).map_err(|v| v.reason), expected);
        }
    }

    // 5.0 [MQTT-3.3.1-10]
    #[test]
    fn retained_messages_are_sent_by_retain_handling_and_never_to_a_share() {
        let mut s = Subscriptions::default();
        assert!(s.insert("known") && s.insert("$share/g/known"));
        let sends =
            |filter, handling| s.check(&requested(filter, handling), &policy()).map(|c| c.sends_retained);
        use RetainHandling::{DoNotSend, SendAtSubscribe, SendIfNew};
        for (handling, new, known) in
            [(SendAtSubscribe, true, true), (SendIfNew, true, false), (DoNotSend, false, false)]
        {
            assert_eq!((sends("new", handling), sends("known", handling)), (Ok(new), Ok(known)));
            assert_eq!(sends("$share/g/new", handling), Ok(false));
        }
    }

    #[test]
    fn a_new_filter_beyond_a_bound_is_refused_and_a_known_one_is_not() {
        let mut policy = policy();
        (policy.subscriptions.filters, policy.subscriptions.wildcard_levels) = (3, 4);
        let mut s = Subscriptions::default();
        assert!(s.insert("a/+") && s.insert("b"));
        let check = |s: &Subscriptions, filter| {
            let checked = s.check(&requested(filter, RetainHandling::DoNotSend), &policy);
            checked.map(|c| c.known).map_err(|refusal| refusal.reason)
        };
        assert_eq!(check(&s, "a/#/b"), Err(ReasonCode::TOPIC_FILTER_INVALID));
        assert_eq!(check(&s, "a/b/+"), Err(ReasonCode::QUOTA_EXCEEDED), "wildcard levels");
        assert_eq!((check(&s, "b/+"), check(&s, "a/b/c")), (Ok(false), Ok(false)));
        assert!(s.insert("c"));
        assert_eq!((check(&s, "d"), check(&s, "b")), (Err(ReasonCode::QUOTA_EXCEEDED), Ok(true)));
    }

    // 5.0 [MQTT-3.10.4-1]
    #[test]
    fn a_filter_is_removed_character_by_character() {
        let mut s = Subscriptions::default();
        assert!(s.insert("a/+"));
        assert_eq!(s.unsubscribe("a/b"), ReasonCode::NO_SUBSCRIPTION_EXISTED);
        assert_eq!(s.unsubscribe("a/+/#/b"), ReasonCode::TOPIC_FILTER_INVALID);
        assert_eq!(s.unsubscribe("a/+"), ReasonCode::SUCCESS);
        assert_eq!(s.unsubscribe("a/+"), ReasonCode::NO_SUBSCRIPTION_EXISTED);
    }

    #[test]
    fn filters_come_and_go_in_any_number() {
        let mut s = Subscriptions::default();
        for (filter, len) in [("a", 1), ("b", 2), ("c", 3)] {
            assert!(s.insert(filter) && !s.insert(filter) && s.contains(filter));
            assert_eq!((s.len(), s.iter().count()), (len, len));
        }
        assert!(s.remove("b") && !s.remove("b") && !s.contains("b"));
        let mut rest: Vec<_> = s.drain().collect();
        rest.sort();
        assert_eq!(rest, ["a".into(), "c".into()]);
        let mut s = Subscriptions::default();
        assert!(s.insert("a") && s.remove("a") && s.is_empty() && s.drain().next().is_none());
    }
}
