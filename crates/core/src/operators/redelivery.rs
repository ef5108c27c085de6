//! The redelivery settings of one session, each with its source.

use crate::mqtt::packet::ProtocolVersion;
use crate::session::ack_wait::RequestedTime;
use crate::session::outbound::retry::{OnAckTimeout, OnExhausted};
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::view::ShardView;
use std::time::Duration;

/// The place that a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The client requested the setting, within the operator's bounds.
    Client,
    /// The rule of `[[redelivery.rules]]` with this number, from 1.
    Rule(usize),
    /// The section `[redelivery]`, or its default.
    Section,
}

/// A setting with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcedSetting<T> {
    /// The value.
    pub value: T,
    /// The source of the value.
    pub source: SettingSource,
}

impl<T> SourcedSetting<T> {
    fn by_operator(value: T, rule: Option<usize>) -> SourcedSetting<T> {
        SourcedSetting { value, source: rule.map_or(SettingSource::Section, SettingSource::Rule) }
    }
}

/// The redelivery settings of a session as a whole.
#[derive(Clone, Debug)]
pub struct SourcedRedelivery {
    /// The protocol version of the last connection.
    pub version: ProtocolVersion,
    /// The first interval of a 3.x connection, or the ack timeout of a 5.0 connection. Zero is off.
    pub wait: SourcedSetting<Duration>,
    /// Resends of one packet; 0 for no limit.
    pub attempts: SourcedSetting<u16>,
    /// The action once a packet is exhausted.
    pub on_exhausted: SourcedSetting<OnExhausted>,
    /// The action after the ack timeout.
    pub on_ack_timeout: SourcedSetting<OnAckTimeout>,
    /// The numbers of the rules that hold for some topics of the session, from 1.
    pub by_topic: Vec<usize>,
}

impl SourcedRedelivery {
    /// Returns the settings of a session. Costs one comparison for each rule: 64 at most.
    pub(super) fn of(entry: &SessionEntry, shard: ShardView<'_>) -> SourcedRedelivery {
        let session = &entry.session;
        let user = entry.user().map(|user| user.user());
        let sources = shard.redelivery_rules().sources(&session.client_id, user);
        let time = RequestedTime::of(session.version);
        let own = &session.sender.redelivery().own;
        let rule_of_wait = match time {
            RequestedTime::RetryInterval => sources.interval,
            RequestedTime::AckTimeout => sources.ack_timeout,
        };
        let wait = match session.requested(time) {
            Some(value) => SourcedSetting { value, source: SettingSource::Client },
            None => SourcedSetting::by_operator(session.granted(time), rule_of_wait),
        };
        SourcedRedelivery {
            version: session.version,
            wait,
            attempts: SourcedSetting::by_operator(own.retry.attempts, sources.attempts),
            on_exhausted: SourcedSetting::by_operator(own.retry.on_exhausted, sources.on_exhausted),
            on_ack_timeout: SourcedSetting::by_operator(own.ack.on_timeout, sources.on_ack_timeout),
            by_topic: sources.by_topic,
        }
    }
}
