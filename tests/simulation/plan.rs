//! What one seed plays: the broker's settings, the clients' manners, how slow and how cruel
//! everything is.

use crate::rng::Rng;
use homing::access::meter::{MeteredRate, TrafficRates};
use homing::access::strikes::StrikeRule;
use homing::login::access_rules::AccessSettings;
use homing::mqtt::packet::ProtocolVersion;
use homing::session::authentication::{AuthPolicy, OwnerPolicy};
use homing::session::objectives::Objective;
use homing::session::outbound::queue::{QueueLimits, QueuePolicy};
use homing::session::outbound::retry::{AckPolicy, OnAckTimeout, OnExhausted, RetryPolicy};
use homing::session::policy::SendPolicy;
use homing::session::policy::{ConnectPolicy, SessionPolicy, SubscriptionPolicy};
use homing::session::redelivery_policy::RedeliveryPolicy;
use homing::shard::ShardSettings;
use homing::shard::turn::STEPS_PER_TURN;
use homing::shard::{DelayedLimits, LetterLimits};
use std::sync::Arc;
use std::time::Duration;

pub struct Plan {
    pub shards: u8,
    pub settings: ShardSettings,
    pub clients: Vec<Manners>,
    /// How long the clients misbehave.
    pub chaos_ms: u64,
    /// When the broker crashes.
    pub crashes: Vec<u64>,
    /// How often besides it does so while something is half committed.
    pub crashes_apart: u64,
    /// The most that each takes, in milliseconds.
    pub peer_batch_ms: u64,
    pub register_ms: u64,
    pub expired_ms: u64,
    pub turn_ms: u64,
    pub network_ms: u64,
    /// Bytes in the kernel's buffers, at most.
    pub send_buffer: usize,
    pub receive_buffer: usize,
    /// Entries the expiry queue looks at in one round.
    pub poll_budget: usize,
    /// Of 100 steps of a client those that hurt.
    pub cruelty: u64,
    /// Between two steps of a client, at most.
    pub step_ms: u64,
    /// How long everybody behaves before everybody leaves.
    pub settling_ms: u64,
    /// Of 100 publishes those that are for later.
    pub delays: u64,
    pub delay_seconds: [u64; 4],
    pub store: Option<StorePlan>,
    /// Whether work is handed out through a group whose members come and go.
    pub work: Option<Work>,
}

/// A work queue: client 0 publishes, and gets the dead letters, client 1 is a member that stays,
/// the others are members that end their sessions.
#[derive(Clone, Copy)]
pub struct Work {
    /// Of 100 messages those at which a member ends its session, and those that a member refuses.
    pub ends: u64,
    pub refuses: u64,
    /// Whether what is refused is a dead letter.
    pub letters: bool,
}

/// How a store keeps everybody waiting.
#[derive(Clone, Copy)]
pub struct StorePlan {
    /// The most that a commit, and what goes to and from it, each take.
    pub store_ms: u64,
    /// Records that one transaction takes, about.
    pub records: u64,
}

/// How one client behaves.
#[derive(Clone)]
pub struct Manners {
    pub name: String,
    pub version: ProtocolVersion,
    pub sessions: Sessions,
    /// Seconds a 5.0 session outlives its connection, where it is to.
    pub expiry: u32,
    pub receive_maximum: Option<u16>,
    /// Seconds.
    pub keep_alive: u16,
    /// Of 100 acknowledgements those that it keeps back.
    pub withholds: u64,
    /// Of 100 of its doings those that are publishes.
    pub publishes: u64,
    /// Of 100 times that it loses its connection those that it stays away for a while.
    pub strays: u64,
    /// For how long then.
    pub stays_away_ms: u64,
    /// Of 100 publishes those that are retained.
    pub retains: u64,
    /// Of 100 of its connections those with a will.
    pub wills: u64,
    /// Topic Aliases that a 5.0 client allows.
    pub alias_maximum: Option<u16>,
    /// Whether its subscriptions have identifiers.
    pub identifies: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    Clean,
    Kept,
    Mixed,
}

/// What a kept session's expiry is when it is to outlast the simulation.
pub const LONG: u32 = 3600;

/// Such that seeds that failed before there was a store play without one.
const VARIATION: u64 = 0x14_0000_0000;

/// Likewise from before there was this.
const CRASHES_APART: u64 = 0x15_0000_0000;

/// Likewise.
const SHORT_TURNS: u64 = 0x16_0000_0000;

/// Likewise, and none of the seeds that failed before has a work queue.
const WORK: u64 = 0x17_0000_0000;

/// Messages in a queue that no plan fills.
const ROOMY: usize = 100_000;

impl Plan {
    pub fn new(rng: &mut Rng, seed: u64) -> Plan {
        let mut plan = Plan::plain(rng);
        plan.vary(&mut Rng::new(seed ^ VARIATION));
        plan.crash_apart(&mut Rng::new(seed ^ CRASHES_APART));
        plan.hurry(&mut Rng::new(seed ^ SHORT_TURNS));
        plan.work(&mut Rng::new(seed ^ WORK));
        plan.settings.rates = rates(seed);
        plan
    }

    /// One publisher, a slow disk, and members that leave or refuse between a message and its
    /// commit.
    fn work(&mut self, rng: &mut Rng) {
        if !rng.percent(10) {
            return;
        }
        let letters = rng.percent(30);
        let settings = &mut self.settings;
        settings.session.send.redelivery.negative_ack = letters;
        // At most so many wait for room as nobody has to wait longer for than the messages are
        // held.
        let narrow = !letters && rng.percent(60);
        let policy = rng.pick(&[QueuePolicy::Refuse, QueuePolicy::Hold]);
        let messages = if narrow { rng.between(1, 3) as usize } else { ROOMY };
        settings.session.send.queue = QueueLimits { messages, bytes: 1 << 26, policy };
        settings.session.send.in_flight = rng.pick(&[1, 4]);
        (settings.session.send.outbox, settings.session.receive_maximum) = (100_000, 20);
        (settings.session.connect.session_expiry, settings.steps_per_turn) = (LONG, 10_000);
        settings.hold_timeout = Duration::from_millis(rng.pick(&[1_000, 20_000]));
        settings.write_timeout = Duration::from_secs(5);
        if narrow || rng.percent(80) {
            self.store = Some(StorePlan { store_ms: rng.pick(&[20, 80, 200]), records: 1_024 });
            self.crashes_apart = rng.below(3);
        }
        (self.delays, self.chaos_ms, self.cruelty) = (0, 6_000, 1);
        (self.peer_batch_ms, self.network_ms, self.step_ms) = (rng.pick(&[1, 5, 40]), rng.pick(&[1, 5]), 60);
        (self.send_buffer, self.receive_buffer) = (16_000, 16_000);
        for (n, manners) in self.clients.iter_mut().enumerate() {
            let publishes = n == 0;
            let v5 = !publishes || letters || rng.percent(50);
            manners.version = if v5 { ProtocolVersion::V5 } else { ProtocolVersion::V3_1_1 };
            (manners.sessions, manners.expiry) = (Sessions::Kept, LONG);
            (manners.receive_maximum, manners.keep_alive) = (rng.pick(&[None, Some(1)]), 0);
            manners.publishes = if publishes { 100 } else { 0 };
            manners.withholds = if publishes { 0 } else { rng.pick(&[0, 30]) };
            (manners.strays, manners.stays_away_ms) = (30, 3_500);
            (manners.retains, manners.wills) = (0, 0);
            (manners.alias_maximum, manners.identifies) = (None, false);
        }
        self.work = Some(Work { ends: rng.pick(&[5, 20]), refuses: rng.pick(&[0, 20]), letters });
    }

    /// Drawn apart from all else, so that seeds without do what they did before there was any.
    fn vary(&mut self, rng: &mut Rng) {
        if rng.percent(60) {
            self.store = Some(StorePlan {
                store_ms: rng.pick(&[1, 5, 20, 80]),
                records: rng.pick(&[20, 1_024, 1_024]),
            });
            let crashes = rng.pick(&[0, 0, 1, 1, 2]);
            self.crashes = (0..crashes).map(|_| rng.below(self.chaos_ms)).collect();
        }
        if rng.percent(40) {
            self.delays = rng.pick(&[5, 20]);
        }
        match rng.below(100) {
            0..2 => self.queue_deep(rng),
            2..5 => self.hold(rng),
            5..8 => self.back_off(rng),
            8..10 => self.put_off(),
            _ => {}
        }
    }

    fn crash_apart(&mut self, rng: &mut Rng) {
        if self.store.is_some() && rng.percent(50) {
            self.crashes_apart = rng.between(1, 2);
        }
    }

    /// Turns so short that most work goes on in a later one.
    fn hurry(&mut self, rng: &mut Rng) {
        if rng.percent(40) {
            self.settings.steps_per_turn = rng.pick(&[4, 20, 100]);
        }
    }

    /// Busy publishers and receivers that stay away: long queues, which are not in memory.
    fn queue_deep(&mut self, rng: &mut Rng) {
        (self.peer_batch_ms, self.network_ms, self.step_ms, self.cruelty) = (5, 1, 30, 3);
        self.settings.session.receive_maximum = 20;
        self.settings.session.send.in_flight = 20;
        self.settings.session.send.outbox = 4_000;
        (self.send_buffer, self.receive_buffer) = (1_000, 1_000);
        self.settings.session.send.queue =
            QueueLimits { messages: ROOMY, ..self.settings.session.send.queue };
        self.delays = 0;
        for manners in &mut self.clients {
            let receives = rng.percent(40);
            manners.publishes = if receives { 10 } else { 95 };
            (manners.strays, manners.stays_away_ms) = if receives { (100, 6_000) } else { (0, 0) };
            manners.receive_maximum = None;
            (manners.sessions, manners.expiry, manners.withholds) = (Sessions::Kept, LONG, 0);
        }
        self.settings.session.connect.session_expiry = LONG;
    }

    /// Queues of one or two, and publishers that stay connected while their acknowledgement waits
    /// for room.
    fn hold(&mut self, rng: &mut Rng) {
        self.settings.session.send.queue =
            QueueLimits { messages: rng.between(1, 2) as usize, bytes: 1 << 26, policy: QueuePolicy::Hold };
        self.settings.session.send.in_flight = 1;
        self.settings.session.receive_maximum = 20;
        self.settings.hold_timeout = Duration::from_secs(5);
        (self.cruelty, self.step_ms, self.network_ms) = (3, 120, 5);
        (self.send_buffer, self.receive_buffer) = (16_000, 16_000);
        for manners in &mut self.clients {
            manners.receive_maximum = None;
            manners.sessions = Sessions::Kept;
        }
    }

    /// Packets that have been sent again and again, beside new ones.
    fn back_off(&mut self, rng: &mut Rng) {
        let retry = &mut self.settings.session.send.redelivery.retry;
        retry.interval = Duration::from_millis(rng.pick(&[500, 1_000]));
        (retry.backoff, retry.max_interval, retry.attempts) = (2.0, Duration::from_secs(60), 0);
        (retry.jitter, retry.resends_per_tick) = (0.0, 100);
        self.settings.session.send.in_flight = 20;
        self.cruelty = 3;
        self.chaos_ms = 12_000;
        (self.network_ms, self.send_buffer, self.receive_buffer) = (5, 16_000, 16_000);
        for manners in &mut self.clients {
            manners.version = rng.pick(&[ProtocolVersion::V3_1, ProtocolVersion::V3_1_1]);
            (manners.withholds, manners.keep_alive) = (80, 0);
            (manners.alias_maximum, manners.identifies) = (None, false);
        }
    }

    /// Messages that are put off for longer than is read ahead.
    fn put_off(&mut self) {
        self.store.get_or_insert(StorePlan { store_ms: 20, records: 1_024 });
        // Under `disconnect` clients need not come to rest, and put off what they repeat.
        let queue = &mut self.settings.session.send.queue;
        (queue.messages, queue.policy) = (ROOMY, QueuePolicy::Refuse);
        self.delays = 20;
        self.delay_seconds = [1, 30, 61, 75];
        self.settling_ms = 95_000;
    }

    fn plain(rng: &mut Rng) -> Plan {
        let shards = rng.between(2, 4) as u8;
        let clients = (0..rng.between(3, 6)).map(|n| manners(rng, n)).collect();
        let slow = rng.pick(&[1, 5, 20, 80]);
        let chaos_ms = rng.between(3_000, 8_000);
        let crashes = rng.pick(&[0, 0, 0, 1, 2]);
        Plan {
            shards,
            settings: settings(rng),
            clients,
            chaos_ms,
            crashes: (0..crashes).map(|_| rng.below(chaos_ms)).collect(),
            peer_batch_ms: rng.pick(&[1, 5, 40, 200]),
            register_ms: rng.pick(&[1, 10, 80]),
            expired_ms: rng.pick(&[1, 10, 80]),
            turn_ms: rng.pick(&[1, 2, 4]),
            network_ms: slow,
            send_buffer: rng.pick(&[64, 200, 1_000, 16_000]),
            receive_buffer: rng.pick(&[64, 200, 1_000, 16_000]),
            poll_budget: rng.pick(&[1, 3, 100]),
            cruelty: rng.pick(&[3, 10, 20]),
            step_ms: rng.pick(&[120, 250, 600]),
            settling_ms: 20_000,
            delays: 0,
            delay_seconds: [1, 1, 2, 5],
            store: None,
            work: None,
            crashes_apart: 0,
        }
    }

    /// How much later than its bucket an expired deadline may be handled: twice the ways there and
    /// back, since a deadline that moved is registered again, and rounds of the poll between.
    pub fn lateness_ms(&self) -> u64 {
        2 * (self.register_ms + self.expired_ms) + 4 * self.turn_ms + 100
    }

    /// How much later than it could the broker does something that it does at a deadline and that
    /// has a way to other shards.
    pub fn late_ms(&self) -> u64 {
        self.interval_ms() + self.lateness_ms() + self.under_way_ms()
    }

    /// How long a peer batch and its ticket may take.
    pub fn under_way_ms(&self) -> u64 {
        2 * (self.peer_batch_ms + self.turn_ms)
    }

    /// Unfinished deliveries of a session at most, those of earlier connections among them.
    pub fn most_in_flight(&self) -> usize {
        4 * usize::from(self.settings.session.send.in_flight)
    }

    pub fn store_ms(&self) -> u64 {
        self.store.map_or(1, |store| store.store_ms)
    }

    pub fn interval_ms(&self) -> u64 {
        self.settings.expiry_interval.as_millis() as u64
    }

    pub fn retry(&self) -> &RetryPolicy {
        &self.settings.session.send.redelivery.retry
    }

    /// Whether all comes to rest once the clients behave. Under the policy `disconnect` it need
    /// not: a client whose window and queue are full is cut by the next message, before it has
    /// acknowledged anything, at each return.
    pub fn settles(&self) -> bool {
        self.settings.session.send.queue.policy != QueuePolicy::Disconnect
    }

    /// Whether a queue in this plan may overflow.
    pub fn loses(&self) -> bool {
        self.settings.session.send.queue.messages < ROOMY
    }
}

fn manners(rng: &mut Rng, n: u64) -> Manners {
    let version = rng.pick(&[
        ProtocolVersion::V3_1,
        ProtocolVersion::V3_1_1,
        ProtocolVersion::V3_1_1,
        ProtocolVersion::V5,
        ProtocolVersion::V5,
        ProtocolVersion::V5,
    ]);
    Manners {
        name: format!("client-{n}-{}", rng.below(1000)),
        version,
        sessions: rng.pick(&[
            Sessions::Clean,
            Sessions::Kept,
            Sessions::Kept,
            Sessions::Kept,
            Sessions::Mixed,
        ]),
        expiry: rng.pick(&[LONG, LONG, LONG, 1, 3]),
        receive_maximum: rng.pick(&[None, Some(1), Some(2), Some(5)]),
        keep_alive: rng.pick(&[0, 1, 2, 3]),
        withholds: rng.pick(&[0, 10, 50, 80]),
        publishes: rng.pick(&[10, 50, 90]),
        strays: rng.pick(&[0, 30, 60]),
        stays_away_ms: 3_500,
        retains: rng.pick(&[0, 0, 10, 40]),
        wills: rng.pick(&[0, 50, 100]),
        alias_maximum: rng.pick(&[None, Some(1), Some(3)]).filter(|_| version.is_v5()),
        identifies: version.is_v5() && rng.percent(75),
    }
}

/// One seed in eight limits what clients send. The choice takes no random number, and leaves out
/// the seeds that failed once, so that each of these is as it was.
fn rates(seed: u64) -> Option<TrafficRates> {
    let burst = Duration::from_millis(100);
    let rates = TrafficRates { messages: MeteredRate::new(40, burst), bytes: MeteredRate::new(4_000, burst) };
    (seed >= 100 && seed % 8 == 6).then_some(rates)
}

fn settings(rng: &mut Rng) -> ShardSettings {
    let queue = if rng.percent(75) {
        QueueLimits {
            messages: ROOMY,
            bytes: 1 << 26,
            policy: rng.pick(&[QueuePolicy::Refuse, QueuePolicy::Hold]),
        }
    } else {
        let policy = rng.pick(&[
            QueuePolicy::Refuse,
            QueuePolicy::DropOldest,
            QueuePolicy::Disconnect,
            QueuePolicy::Hold,
            QueuePolicy::Hold,
        ]);
        QueueLimits { messages: rng.between(1, 5) as usize, bytes: 1 << 26, policy }
    };
    let receive_maximum = rng.pick(&[1, 3, 20]);
    let retry = RetryPolicy {
        min_interval: Duration::from_millis(100),
        interval: Duration::from_millis(rng.pick(&[0, 500, 1_000, 2_000, 2_000])),
        backoff: rng.pick(&[1.0, 1.5, 2.0]),
        max_interval: Duration::from_secs(4),
        jitter: rng.pick(&[0.0, 0.2]),
        attempts: rng.pick(&[0, 1, 3]),
        on_exhausted: rng.pick(&[OnExhausted::Disconnect, OnExhausted::Keep]),
        resends_per_tick: rng.pick(&[1, 2, 100]),
    };
    // The action against an application is the policy's own; here a live 5.0 connection is left
    // alone.
    let ack =
        AckPolicy { timeout: Duration::ZERO, max_timeout: Duration::ZERO, on_timeout: OnAckTimeout::Auto };
    let send = SendPolicy {
        stored_queue: queue.clone(),
        queue,
        redelivery: RedeliveryPolicy::new(retry, ack),
        rules: Vec::new(),
        outbox: rng.pick(&[100, 400, 4_000, 100_000]),
        in_flight: rng.pick(&[1, 4, 20]),
    };
    let connect_timeout = Duration::from_millis(rng.between(1_000, 3_000));
    let write_timeout = Duration::from_millis(rng.between(1_500, 5_000));
    let connect = ConnectPolicy {
        packet_size: 1 << 20,
        client_id: 1_024,
        keep_alive_maximum: 0,
        allow_never: true,
        retain_available: true,
        session_expiry: rng.pick(&[LONG, LONG, LONG, LONG, 2]),
        topic_alias_maximum: rng.pick(&[0, 1, 3]),
    };
    ShardSettings {
        session: SessionPolicy {
            send,
            receive_maximum,
            topic_levels: 16,
            payload_size: usize::MAX,
            connect,
            subscriptions: SubscriptionPolicy { filters: 100, wildcard_levels: 131_072 },
        },
        own_queues: Arc::default(),
        auth: AuthPolicy::default(),
        connect_size: u32::MAX,
        access: AccessSettings::default(),
        flapping: StrikeRule::default(),
        rates: None,
        owners: OwnerPolicy::default(),
        user_names_are_tokens: false,
        auth_timeout: Duration::from_secs(5),
        connect_timeout,
        write_timeout,
        sessions: 1_000,
        delayed: DelayedLimits { messages: 10_000, bytes: 1 << 20, horizon: 3600 },
        letters: LetterLimits { letters: 0, bytes: 0 },
        last_disconnects: 0,
        // The ring asserts that no delivery ends twice.
        objectives: vec![Objective {
            name: "all".into(),
            topic: "#".into(),
            client_id: None,
            within: Duration::from_millis(rng.pick(&[100, 2_000, 60_000])),
            target: 0.9,
        }]
        .into(),
        event_topics: false,
        hold_timeout: Duration::from_millis(rng.between(500, 3_000)),
        expiry_interval: Duration::from_millis(rng.pick(&[50, 250, 400])),
        steps_per_turn: STEPS_PER_TURN,
    }
}
