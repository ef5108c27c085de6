//! The settings and the shared state of shards without a driver.

use homing::access::strikes::StrikeRule;
use homing::login::access_rules::AccessSettings;
use homing::login::debts::Debts;
use homing::mqtt::charge::Budget;
use homing::routing::retained::{Retained, RetainedLimits};
use homing::session::authentication::{AuthPolicy, OwnerPolicy};
use homing::session::outbound::queue::{QueueLimits, QueuePolicy};
use homing::session::outbound::retry::{AckPolicy, OnAckTimeout, OnExhausted, RetryPolicy};
use homing::session::policy::{ConnectPolicy, SendPolicy, SessionPolicy, SubscriptionPolicy};
use homing::session::redelivery_policy::RedeliveryPolicy;
use homing::shard::turn::STEPS_PER_TURN;
use homing::shard::{DelayedLimits, LetterLimits, PartialShare, ShardSettings, SharedState};
use homing::shared::lease::Lease;
use homing::shared::totals::Totals;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The width of a bucket of the expiry queue.
pub const BUCKET_MS: u64 = 250;

/// The state that the shards of a broker without bounds on memory share.
pub fn shared_state(retained: RetainedLimits) -> SharedState {
    SharedState {
        retained: Mutex::new(Retained::new(retained)),
        budget: Arc::new(Budget::new(u64::MAX)),
        partial: PartialShare::new(u64::MAX, 0),
        store_full: AtomicBool::new(false),
        totals: Totals::default(),
        debts: Debts::default(),
        store_room: AtomicI64::new(i64::MAX),
        lease: Lease::default(),
        name: None,
    }
}

/// Generous settings, for a script to make narrower.
pub fn settings() -> ShardSettings {
    let queue = QueueLimits { messages: 1_000, bytes: 1 << 20, policy: QueuePolicy::Refuse };
    let retry = RetryPolicy {
        min_interval: Duration::from_millis(100),
        interval: Duration::from_secs(20),
        backoff: 2.0,
        max_interval: Duration::from_secs(300),
        jitter: 0.2,
        attempts: 5,
        on_exhausted: OnExhausted::Disconnect,
        resends_per_tick: 1_000,
    };
    let ack = AckPolicy {
        timeout: Duration::from_secs(60),
        max_timeout: Duration::from_secs(600),
        on_timeout: OnAckTimeout::Auto,
    };
    ShardSettings {
        session: SessionPolicy {
            send: SendPolicy {
                stored_queue: queue.clone(),
                queue,
                redelivery: RedeliveryPolicy::new(retry, ack),
                rules: Vec::new(),
                outbox: 1 << 20,
                in_flight: 1_000,
            },
            receive_maximum: 100,
            topic_levels: 16,
            payload_size: usize::MAX,
            connect: ConnectPolicy {
                packet_size: 1 << 20,
                client_id: 65_535,
                topic_alias_maximum: 10,
                keep_alive_maximum: 0,
                allow_never: true,
                retain_available: true,
                session_expiry: 3_600,
            },
            subscriptions: SubscriptionPolicy { filters: 100, wildcard_levels: 131_072 },
        },
        own_queues: Arc::default(),
        auth: AuthPolicy::default(),
        connect_size: u32::MAX,
        access: AccessSettings::default(),
        rates: None,
        flapping: StrikeRule::default(),
        owners: OwnerPolicy::default(),
        user_names_are_tokens: false,
        auth_timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(30),
        sessions: 1_000,
        delayed: DelayedLimits { messages: 100, bytes: 1 << 20, horizon: 3600 },
        letters: LetterLimits { letters: 0, bytes: 0 },
        last_disconnects: 16,
        objectives: Arc::default(),
        event_topics: false,
        hold_timeout: Duration::from_secs(10),
        expiry_interval: Duration::from_millis(BUCKET_MS),
        steps_per_turn: STEPS_PER_TURN,
    }
}
