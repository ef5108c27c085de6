//! The operator's settings that a shard needs.

use crate::access::meter::TrafficRates;
use crate::access::strikes::StrikeRule;
use crate::mqtt::packet::{ProtocolVersion, ReasonCode};
use crate::mqtt::topic::levels;
use crate::session::SessionPolicy;
use crate::session::authentication::{AuthPolicy, OwnerPolicy};
use crate::session::client_id_rule::ClientIdRule;
use crate::session::connect::ConnectRefusal;
use crate::session::drops::DropReason;
use crate::session::mount_point::MountPoint;
use crate::session::objectives::Objective;
use crate::session::policy::ConnectPolicy;
use crate::shard::access::AccessSettings;
use crate::shard::arrival::ListenerNumber;
use crate::shard::listener_terms::ListenerTerms;
use std::sync::Arc;
use std::time::Duration;

/// The slot under which a shard registers the deadline of its regular housekeeping. The kind is
/// [`DeadlineKind::Housekeeping`](crate::expiry::deadline::DeadlineKind).
pub const OWN_HOUSEKEEPING: u32 = 0;

/// The slot under which a shard registers the due time of its earliest delayed message. The kind is
/// the same.
pub const OWN_DELAYED: u32 = 1;

/// The settings of one shard. All shards of a broker have equal settings.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    /// The settings of the sessions.
    pub session: SessionPolicy,
    /// The rules about the clients that may enter, for listeners that are not in `listeners`.
    pub auth: AuthPolicy,
    /// The settings of each listener, by number; `None` for a vacant number, which has no clients.
    /// Empty if all have those of the broker, so that no packet needs a look-up.
    pub listeners: Vec<Option<ListenerTerms>>,
    /// The name of each listener, by number, or its address if it has no name.
    pub listener_names: Arc<[Box<str>]>,
    /// The rules about the topics that clients may write and read.
    pub access: AccessSettings,
    /// The rates of each client, by listener. Empty if no listener has any.
    pub rates: Vec<TrafficRates>,
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
    /// True if event topics are on. They need the detail of each event.
    pub event_topics: bool,
}

impl ShardSettings {
    /// Returns the rates of a client at a listener.
    pub(crate) fn rates_of(&self, listener: ListenerNumber) -> TrafficRates {
        self.rates.get(usize::from(listener.0)).copied().unwrap_or_default()
    }

    /// Returns the name of a listener; empty if it is not known.
    pub(crate) fn listener_name(&self, listener: ListenerNumber) -> &str {
        self.listener_names.get(usize::from(listener.0)).map_or("", |name| name)
    }

    /// Returns the rules about the clients that may enter by a listener.
    pub(crate) fn auth_of(&self, listener: ListenerNumber) -> &AuthPolicy {
        self.terms(listener).map_or(&self.auth, |terms| &terms.auth)
    }

    /// Returns the bounds on what a CONNECT at a listener requests.
    pub(crate) fn connect_policy(&self, listener: ListenerNumber) -> ConnectPolicy {
        self.terms(listener).map_or(self.session.connect, |terms| terms.connect)
    }

    /// Checks that the settings of a listener are known, and that its clients may speak a version.
    ///
    /// # Errors
    /// The refusal, if they may not.
    // 5.0 [MQTT-3.1.2-2]; 3.1.1 [MQTT-3.1.2-2]
    pub(crate) fn check_version(
        &self,
        listener: ListenerNumber,
        version: ProtocolVersion,
    ) -> Result<(), ConnectRefusal> {
        match self.terms(listener) {
            Some(terms) if terms.versions.contains(version) => return Ok(()),
            None if self.listeners.is_empty() => return Ok(()),
            Some(_) => {}
            // The settings of the broker may admit what those of the listener refuse.
            None => {
                let what = "the settings of the client's listener have not come to this thread yet";
                return Err(ConnectRefusal::new(ReasonCode::SERVER_UNAVAILABLE, what));
            }
        }
        let what = "this listener does not admit the client's version of MQTT (versions of [[listeners]])";
        Err(ConnectRefusal::new(ReasonCode::UNSUPPORTED_PROTOCOL_VERSION, what))
    }

    /// Returns the form of the client identifiers at a listener; `None` for any.
    pub(crate) fn client_id_rule(&self, listener: ListenerNumber) -> Option<&ClientIdRule> {
        self.terms(listener)?.client_id.as_ref()
    }

    /// Returns the mount point of a listener; `None` without one.
    pub(crate) fn mount_point(&self, listener: ListenerNumber) -> Option<&Arc<MountPoint>> {
        self.terms(listener)?.mount_point.as_ref()
    }

    /// Returns true if the mount point of a listener is not `from`. False if the listener has no
    /// settings any more.
    pub(crate) fn differs_in_mount_point(&self, listener: ListenerNumber, from: Option<&MountPoint>) -> bool {
        self.terms(listener).is_some_and(|terms| terms.mount_point.as_deref() != from)
    }

    /// Returns the largest CONNECT in bytes that is taken at a listener.
    pub(crate) fn connect_size(&self, listener: ListenerNumber) -> u32 {
        self.connect_policy(listener).packet_size.min(self.connect_size)
    }

    #[inline]
    fn terms(&self, listener: ListenerNumber) -> Option<&ListenerTerms> {
        self.listeners.get(usize::from(listener.0))?.as_ref()
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

/// The limits of stored dead letters, for all shards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterLimits {
    /// Maximum number of letters; 0 if none is stored.
    pub letters: usize,
    /// Maximum bytes.
    pub bytes: usize,
}

impl LetterLimits {
    /// Returns true if a letter of `bytes` bytes can be stored: it must fit the part of one of
    /// `shards` shards.
    pub(crate) fn admit(self, bytes: usize, shards: u8) -> bool {
        self.letters > 0 && bytes <= self.bytes / usize::from(shards.max(1))
    }
}

/// Returns true if a topic is reserved for the broker. A client's PUBLISH to such a topic is not
/// routed. The message is dropped and counted, unless the topic is a request of the client.
#[inline]
pub(crate) fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$') && is_own(topic)
}

#[cold]
fn is_own(topic: &str) -> bool {
    ["$SYS", "$dead", "$homing", "$delayed", "$share"]
        .iter()
        .any(|own| topic.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}
