//! SUBSCRIBE and UNSUBSCRIBE to both sides.

use super::hello::TermsThere;
use super::outcome::{LinkEnd, LinkNews};
use super::rules::TopicRules;
use crate::mqtt::codec::encode;
use crate::mqtt::packet::{
    Packet, PacketId, Properties, ProtocolVersion, QoS, ReasonCode, Subscribe, SubscribeFilter,
    SubscriptionOptions, Unsubscribe,
};
use crate::mqtt::topic::has_wildcard;

/// The Packet Identifier of SUBSCRIBE. A message of the shard with the same identifier waits for
/// the SUBACK of the other broker. 5.0 [MQTT-2.2.1-3], 3.1.1 [MQTT-2.3.1-2]
const SUBSCRIBE_ID: u16 = u16::MAX;

/// The most filters of one SUBSCRIBE to another broker. Some brokers take no more: AWS IoT Core
/// closes the connection.
const AT_ONCE: usize = 8;

/// The Subscription Identifier of the filters of a session that has never been connected with the
/// other broker. Such a session numbers its messages anew, while the other broker may remember QoS 2
/// identifiers of an earlier session. The mark is stored with the filters, so it outlives crashes.
pub const FRESH_SESSION: u32 = 1;

/// The subscriptions of one connection at both sides, until all of them are answered.
#[derive(Debug)]
pub(super) struct Subscribing {
    /// Filters that the session here has from earlier rules.
    stale: Vec<String>,
    awaits_here: bool,
    /// The filters for the other broker.
    there: Vec<(String, SubscriptionOptions)>,
    /// The number of them that the other broker has answered.
    answered: usize,
}

impl Subscribing {
    /// Returns the subscriptions of a connection with these terms. Filters with wildcards that the
    /// other broker does not take are left out, and reported.
    pub(super) fn new(
        rules: &TopicRules,
        terms: &TermsThere,
        stale: Vec<String>,
        news: &mut Vec<LinkNews>,
    ) -> Subscribing {
        let mut there = Vec::new();
        for (filter, options) in rules.subscriptions_there() {
            if terms.takes_wildcards || !has_wildcard(filter) {
                there.push((filter.to_owned(), options));
            } else {
                let reason = ReasonCode::WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED;
                news.push(LinkNews::FilterRefusedThere(filter.to_owned(), reason));
            }
        }
        Subscribing { stale, awaits_here: true, there, answered: 0 }
    }

    /// Returns true while the other broker has to answer a SUBSCRIBE.
    pub(super) fn awaits_there(&self) -> bool {
        self.answered < self.there.len()
    }

    /// Returns true if a packet of the shard has the identifier of the SUBSCRIBE that the other broker
    /// has to answer.
    #[inline]
    pub(super) fn holds_back(&self, packet: &Packet<'_>) -> bool {
        let has_its_id = |id: PacketId| id.get() == SUBSCRIBE_ID;
        self.awaits_there()
            && match packet {
                Packet::Publish(publish) => publish.packet_id.is_some_and(has_its_id),
                Packet::Pubrel(ack) => has_its_id(ack.packet_id),
                _ => false,
            }
    }

    /// Returns true if both sides have answered.
    pub(super) fn is_complete(&self) -> bool {
        !self.awaits_here && !self.awaits_there()
    }

    /// Returns the filters of the SUBSCRIBE that the other broker has to answer.
    fn asked_there(&self) -> &[(String, SubscriptionOptions)] {
        let left = self.there.get(self.answered..).unwrap_or_default();
        left.get(..AT_ONCE).unwrap_or(left)
    }

    /// Appends the next SUBSCRIBE to the other broker, if there is one.
    ///
    /// # Errors
    /// A filter is longer than the protocol allows.
    pub(super) fn put_there(
        &self,
        highest: QoS,
        version: ProtocolVersion,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkEnd> {
        let asked: Vec<_> = self.asked_there().iter().map(|(f, options)| (f.as_str(), *options)).collect();
        if asked.is_empty() { Ok(()) } else { put_subscribe(&asked, highest, version, None, out) }
    }

    /// Notes a SUBACK of the other broker.
    ///
    /// # Errors
    /// It has another number of reasons than its SUBSCRIBE has filters.
    pub(super) fn answered_there(
        &mut self,
        reasons: &[ReasonCode],
        news: &mut Vec<LinkNews>,
    ) -> Result<(), LinkEnd> {
        let asked = self.asked_there();
        let count = asked.len();
        if count != reasons.len() {
            return Err(LinkEnd::Suback { asked: count, found: reasons.len() });
        }
        let refused = asked.iter().zip(reasons).filter(|(_, reason)| reason.is_error());
        news.extend(refused.map(|((f, _), reason)| LinkNews::FilterRefusedThere(f.clone(), *reason)));
        self.answered += count;
        Ok(())
    }

    /// Gives the session here the filters of the rules, and takes the others away.
    ///
    /// # Errors
    /// A filter is longer than the protocol allows.
    pub(super) fn put_here(
        &mut self,
        rules: &TopicRules,
        highest: QoS,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkEnd> {
        let filters = rules.subscriptions_here();
        self.awaits_here = !filters.is_empty();
        put_filters_here(&filters, &self.stale, highest, None, out)
    }

    /// Notes the SUBACK of the shard.
    pub(super) fn answered_here(
        &mut self,
        rules: &TopicRules,
        reasons: &[ReasonCode],
        news: &mut Vec<LinkNews>,
    ) {
        let filters = rules.subscriptions_here();
        let refused = filters.into_iter().zip(reasons).filter(|(_, reason)| reason.is_error());
        news.extend(refused.map(|((f, _), reason)| LinkNews::FilterRefusedHere(f.to_owned(), *reason)));
        self.awaits_here = false;
    }
}

/// Appends UNSUBSCRIBE and SUBSCRIBE to the shard. `highest` is the highest QoS of the other
/// broker. `mark` is [`FRESH_SESSION`] or nothing.
///
/// # Errors
/// A filter is longer than the protocol allows.
pub fn put_filters_here(
    filters: &[(&str, SubscriptionOptions)],
    stale: &[String],
    highest: QoS,
    mark: Option<u32>,
    out: &mut Vec<u8>,
) -> Result<(), LinkEnd> {
    if let (false, Some(packet_id)) = (stale.is_empty(), PacketId::new(SUBSCRIBE_ID - 1)) {
        let filters = stale.iter().map(String::as_str).collect();
        let unsubscribe = Unsubscribe { packet_id, properties: Properties::EMPTY, filters };
        encode(&Packet::Unsubscribe(unsubscribe), ProtocolVersion::V5, out)?;
    }
    if filters.is_empty() {
        return Ok(());
    }
    put_subscribe(filters, highest, ProtocolVersion::V5, mark, out)
}

fn put_subscribe(
    filters: &[(&str, SubscriptionOptions)],
    highest: QoS,
    version: ProtocolVersion,
    subscription_id: Option<u32>,
    out: &mut Vec<u8>,
) -> Result<(), LinkEnd> {
    let Some(packet_id) = PacketId::new(SUBSCRIBE_ID) else { return Ok(()) };
    let filters = filters.iter().map(|(filter, options)| {
        let options = SubscriptionOptions { qos: options.qos.min(highest), ..*options };
        // 3.x has the QoS alone.
        let of_v3 = SubscriptionOptions { qos: options.qos, ..SubscriptionOptions::default() };
        SubscribeFilter { filter, options: if version.is_v5() { options } else { of_v3 } }
    });
    let subscribe =
        Subscribe { packet_id, subscription_id, properties: Properties::EMPTY, filters: filters.collect() };
    Ok(encode(&Packet::Subscribe(subscribe), version, out)?)
}
