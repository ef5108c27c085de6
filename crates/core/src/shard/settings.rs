//! The operator's settings that a shard needs.

use crate::access::meter::TrafficRates;
use crate::access::strikes::StrikeRule;
use crate::letters::stored_letters::LetterLimits;
use crate::login::access_rules::AccessSettings;
use crate::login::listener_terms::ListenerTerms;
use crate::mqtt::topic::{is_reserved, levels};
use crate::session::SessionPolicy;
use crate::session::authentication::{AuthPolicy, OwnerPolicy};
use crate::session::drops::DropReason;
use crate::session::objectives::Objective;
use crate::session::outbound::queue::QueueBounds;
use crate::session::policy::ConnectPolicy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The slot under which a shard registers the deadline of its regular housekeeping. The kind is
/// [`DeadlineKind::Housekeeping`](crate::expiry::deadline::DeadlineKind).
pub const OWN_HOUSEKEEPING: u32 = 0;

/// The slot under which a shard registers the due time of its earliest delayed message. The kind is
/// the same.
pub const OWN_DELAYED: u32 = 1;

/// The queues that have bounds of their own, by the Client Identifiers of their sessions: those of
/// bridges and sinks.
pub type OwnQueues = BTreeMap<Box<str>, QueueBounds>;

/// The settings of one shard. All shards of a broker have equal settings.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    /// The settings of the sessions.
    pub session: SessionPolicy,
    /// The queues that have bounds of their own.
    pub own_queues: Arc<OwnQueues>,
    /// The rules about the clients that may enter, for listeners without rules of their own.
    pub auth: AuthPolicy,
    /// The rules about the topics that clients may write and read.
    pub access: AccessSettings,
    /// The rates of each client, for listeners without rates of their own. `None` if no listener
    /// has any, so that no packet needs a look-up.
    pub rates: Option<TrafficRates>,
    /// The rule about clients that connect too often. The limit 0 bans nobody.
    pub flapping: StrikeRule,
    /// The rules about the owners of sessions.
    pub owners: OwnerPolicy,
    /// True if the user name of a CONNECT is a token. Then no event has it.
    pub user_names_are_tokens: bool,
    /// The maximum time until the decision about a CONNECT.
    pub auth_timeout: Duration,
    /// The maximum time from the acceptance of a connection to the end of its CONNECT.
    pub connect_timeout: Duration,
    /// The largest CONNECT in bytes.
    pub connect_size: u32,
    /// The maximum time without progress while bytes are pending.
    pub write_timeout: Duration,
    /// Maximum number of sessions in all shards.
    pub sessions: usize,
    /// The maximum time that a publisher's acknowledgement waits for room under the policy `hold`.
    pub hold_timeout: Duration,
    /// The width of a bucket of the expiry queue.
    pub expiry_interval: Duration,
    /// Steps of one turn. The default is [`crate::shard::turn::STEPS_PER_TURN`].
    pub steps_per_turn: u32,
    /// The limits of delayed messages.
    pub delayed: DelayedLimits,
    /// The limits of stored dead letters.
    pub letters: LetterLimits,
    /// Maximum number of last-disconnect records, in all shards.
    pub last_disconnects: usize,
    /// The delivery objectives.
    pub objectives: Arc<[Objective]>,
    /// True if event topics are on. Event topics need the detail of each event.
    pub event_topics: bool,
}

impl ShardSettings {
    /// Returns the rates of a client at a listener.
    pub(crate) fn rates_of(&self, listener: &ListenerTerms) -> TrafficRates {
        self.rates.map(|broker| listener.rates(broker)).unwrap_or_default()
    }

    /// Returns the rules about the clients that may enter by a listener.
    pub(crate) fn auth_of<'a>(&'a self, listener: &'a ListenerTerms) -> &'a AuthPolicy {
        listener.auth.as_ref().unwrap_or(&self.auth)
    }

    /// Returns the bounds on what a CONNECT at a listener requests.
    pub(crate) fn connect_policy(&self, listener: &ListenerTerms) -> ConnectPolicy {
        let broker = self.session.connect;
        ConnectPolicy {
            packet_size: listener.packet_size.unwrap_or(broker.packet_size),
            keep_alive_maximum: listener.keep_alive_maximum.unwrap_or(broker.keep_alive_maximum),
            ..broker
        }
    }

    /// Returns the largest CONNECT in bytes that is taken at a listener.
    pub(crate) fn connect_size(&self, listener: &ListenerTerms) -> u32 {
        self.connect_policy(listener).packet_size.min(self.connect_size)
    }

    /// Returns why a client may not publish to a topic, or `None` if it may.
    pub(crate) fn topic_refusal(&self, topic: &str) -> Option<DropReason> {
        if is_reserved(topic) {
            return Some(DropReason::ReservedTopic);
        }
        // Each level but the first takes at least one byte, so a short topic cannot have too many
        // levels.
        let most = self.session.topic_levels;
        (topic.len() >= most && levels(topic) > most).then_some(DropReason::TopicTooDeep)
    }
}

/// Limits of delayed messages, for all shards together.
#[derive(Clone, Copy, Debug)]
pub struct DelayedLimits {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum bytes.
    pub bytes: usize,
    /// The longest delay, in seconds.
    pub horizon: u32,
}
