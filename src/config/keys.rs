//! Every key of the configuration, with its type, default, values and documentation. This table is
//! the one place.
//!
//! From it come the structs, their defaults, the checks, `config/homing.toml` and
//! `docs/configuration.md`. A test compares both files with the table; `HOMING_RENEW=1 cargo test
//! --test program config` writes them.
//!
//! In Rust, a key that takes a word holds the zero of its type for that word: `runtime.threads` is
//! 0 for "auto".

use super::choices::{
    AnonymousClients, DeniedPublish, DeniedSubscribe, Durability, JwtFrom, LogFormat, OnAckTimeout,
    OnExhausted, QueuePolicy,
};
use super::count_in;
use super::listener::{self, Listener};
use super::listener_checks;
use super::redelivery_rule::{self, RedeliveryRule};
use super::rule::{ValueType, days, millis, seconds};
use super::size::ByteSize;
use super::table::{Key, Section, configuration};
use super::value;
use crate::access::strikes::StrikeRule;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// IANA's port for MQTT over plain TCP.
const MQTT_PORT: u16 = 1883;

/// A 1 before the port of MQTT.
const ADMIN_PORT: u16 = 11_883;

/// A Remaining Length counts to one byte below 256 MiB (5.0 section 1.5.5, 3.1.1 section 2.2.3).
/// The last of these MiB are for what the broker adds to a message: the topic where the client sent
/// an alias, Subscription Identifiers, the properties of a dead letter.
pub(super) const LARGEST_PACKET: u64 = 255 << 20;

pub(super) const ONE_KIB: u64 = 1 << 10;
const ONE_TIB: u64 = 1 << 40;
const SIXTEEN_TIB: u64 = 16 << 40;
const ONE_BILLION: i64 = 1_000_000_000;

/// One second below 2^32 - 1, which on the wire means "never expires" (5.0 section 3.1.2.11.2).
const LONGEST_EXPIRY: u64 = u32::MAX as u64 - 1;

/// Causes of a drop that concern one receiver. No other key makes dead letters of them.
pub(super) const DEAD_LETTER_CAUSES: &[&str] =
    &["queue_refused", "queue_overflow", "expired", "too_large", "outbox_full", "session_ended"];

/// The methods of authentication.
pub(super) const AUTH_METHODS: &[&str] = &["certificate", "password", "scram", "jwt"];

/// The default data directory, relative to the working directory.
const DEFAULT_DIRECTORY: &str = "homing-data";

configuration! {
    /// The threads of the process.
    [runtime] Runtime {
        /// Threads that carry connections and sessions. A session lives on one thread.
        threads: usize = 0,
            ValueType::Integer(1, 64).or("auto", "one thread for each core that this process may use"),
            why: "A second thread on one core only adds switches between threads.",
            elsewhere: "FlashMQ `thread_count`";
        /// Threads that do the handshakes of TLS, WebSocket and the PROXY protocol. They start only
        /// if a listener needs them, and have a lower priority than the threads that carry
        /// connections.
        handshake_threads: usize = 0,
            ValueType::Integer(1, 64).or("auto", "half of `threads`, at least one"),
            why: "A full handshake takes as much CPU time as thousands of messages.";
    }

    /// The listeners, and the time that a connection may make no progress.
    [network] Network {
        /// Addresses to listen on, each IP:PORT, IPv6 as `[::1]:1883`. Port 0 takes a free port. In
        /// the environment and in flags, separate the addresses by commas. `--listen ADDR:PORT`
        /// does the same.
        listen: Vec<SocketAddr> = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), MQTT_PORT)],
            ValueType::Addresses.only(),
            why: "Nothing is encrypted by default, so the default is this machine alone.",
            elsewhere: "mosquitto `listener`, EMQX `listeners.tcp.default.bind`, FlashMQ `listen`";
        /// A file that holds the addresses while the broker runs, one on a line. Scripts read it
        /// where a port is 0. `homing health` asks the first address in it.
        addresses_file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            why: "A broker with fixed ports does not need it.";
        /// Connections that the kernel holds for each listener until the broker accepts them. The
        /// kernel caps the number at net.core.somaxconn and does not answer further connections;
        /// their clients try again.
        backlog: u32 = 4096,
            ValueType::Integer(1, 65_535).only(),
            why: "A whole fleet may reconnect at once.",
            elsewhere: "EMQX `listeners.tcp.default.tcp_options.backlog`";
        /// Time from the connection to the end of the CONNECT packet. A connection whose CONNECT
        /// packet is not complete by then is closed.
        connect_timeout: Duration = Duration::from_secs(10),
            ValueType::Duration(millis(100), seconds(3600)).only(),
            why: "A slow mobile link needs no more, and a silent connection costs little.",
            standard: "A server should close a connection that sends no CONNECT within a reasonable time \
                       (5.0 section 3.1.4; 3.1.1 section 3.1.4).",
            elsewhere: "EMQX `mqtt.idle_timeout`";
        /// Time without progress on a connection. A connection that takes no bytes for this long
        /// while some wait for it is closed. So is one that has begun a packet and sends no byte of
        /// the rest for this long.
        write_timeout: Duration = Duration::from_secs(30),
            ValueType::Duration(millis(100), days(1)).only(),
            why: "It is above a usual retransmission pause of TCP.",
            elsewhere: "EMQX `listeners.tcp.default.tcp_options.send_timeout`, NATS `write_deadline`";
    }

    /// Who may connect. A client that may not gets return code 5, or 0x87 in 5.0. The answer does
    /// not show if the user name exists.
    [auth] Auth {
        /// The connections on which clients without user name and password may enter. "loopback":
        /// the listener is bound to a loopback address or a Unix socket, and the client is on this
        /// machine. "never" and "always" hold for all connections. Where no method is set, a user
        /// name that a client sends all the same is not verified, and counts as it is. Where a
        /// method is set, a client with a wrong password never becomes anonymous.
        anonymous: AnonymousClients = AnonymousClients::Loopback,
            ValueType::OneOf(AnonymousClients::WORDS).only(),
            why: "The first steps on one machine need no user. A broker that others can reach lets nobody in by mistake.",
            elsewhere: "mosquitto `allow_anonymous`, FlashMQ `allow_anonymous`, EMQX `authentication`";
        /// The file with the users and the hashes of their passwords, as `homing passwd` and
        /// `mosquitto_passwd` write it. SIGHUP reads it again: users who have left it, or have
        /// another password, are disconnected with 0x87. A file with a mistake changes nothing.
        password_file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "mosquitto and FlashMQ `password_file`";
        /// The methods of authentication, in their order. The first method that fits the client's
        /// credentials decides. "certificate": the name in the client's verified certificate.
        /// "password": `password_file`. "scram": SCRAM-SHA-256 with the users of `password_file`
        /// who have a $scram-sha-256$ line, for 5.0 clients that name it as Authentication Method.
        /// "jwt": a token, signed with a key of `jwt_keys`. A user who is not in the password file,
        /// and a password that is no token, are left to the next method.
        methods: Vec<String> = Vec::new(),
            ValueType::SomeOf(AUTH_METHODS).or("auto", "\"certificate\", with jwt_keys \"jwt\", and with password_file \"scram\" and \"password\""),
            why: "A file that is named is meant to be used.";
        /// The file with the keys of JSON Web Tokens: a JWK Set, in JSON. The key fixes the
        /// algorithm: HS256 to HS512, RS256 to RS512, PS256 to PS512, ES256 to ES512 or EdDSA. A
        /// token needs `exp`, and its connection ends then (5.0: 0xA0). Its claims `acl` and
        /// `is_superuser` are the rules of the session. SIGHUP reads the file again.
        /// docs/security.md has a recipe.
        jwt_keys: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "EMQX `authentication` with mechanism `jwt`";
        /// The audience (`aud`) that a token must name. With "off" a token that names one is
        /// refused, because it is meant for somebody else.
        jwt_audience: String = String::new(),
            ValueType::Checked(is_text, "a text").or("off", "tokens without an audience"),
            why: "One issuer may sign tokens for many services.";
        /// The issuer (`iss`) that a token must name.
        jwt_issuer: String = String::new(),
            ValueType::Checked(is_text, "a text").or("off", "any issuer");
        /// The claim with the user name. The user name of CONNECT does not count.
        jwt_user_claim: String = "sub".to_owned(),
            ValueType::Checked(is_text, "the name of a claim").only();
        /// The place of the token in CONNECT.
        jwt_from: JwtFrom = JwtFrom::Password,
            ValueType::OneOf(JwtFrom::WORDS).only(),
            elsewhere: "EMQX `authentication.from`";
        /// Threads that check passwords and tokens. With "auto" it is 1 below 4 cores, else a
        /// quarter of the cores. They run with lower priority than the threads of connections.
        workers: usize = 0,
            ValueType::Integer(1, 64).or("auto", "1 below 4 cores, else a quarter of them"),
            why: "A hash may take 40 ms. Logins must not delay the messages of others.";
        /// The time within which a client's credentials are checked. A client whose check would not
        /// fit is refused at once: 5.0 with 0x89, 3.x with return code 3. A check that is not done
        /// in time ends with 0x88 and 3.
        timeout: Duration = Duration::from_secs(5),
            ValueType::Duration(millis(100), seconds(60)).only(),
            why: "Clients usually give up and try again after 10 to 30 seconds.";
        /// The time for which a right password is remembered, so that a returning client costs no
        /// hash. The memory holds no password, ends with the process, and does not outlive a change
        /// of the user's line in `password_file`.
        cache: Duration = Duration::from_secs(600),
            ValueType::Duration(seconds(1), days(1)).or("off", "every password is checked by its hash"),
            why: "After a short loss of the network a fleet returns within minutes.";
        /// Failed logins of one address within a minute. At this number the address is blocked for
        /// five minutes: its logins with a password are refused with 0x8A, and 5 in 3.x, even with
        /// the right one. An IPv6 address counts by its first 64 bits. Its first 48 bits count too,
        /// with 16 times the number. Addresses of this machine are never blocked.
        failures: u32 = 10,
            ValueType::Integer(1, 1_000_000).or("off", "addresses are never blocked"),
            why: "Nobody guesses a good password in 10 trials a minute. Raise it where many clients share one address.";
        /// True if a session belongs to the user who made it. Another user with the same client id
        /// is refused (5.0: 0x85; 3.x: return code 2), whether the session is connected or not, and
        /// with Clean Start, too. A name that nothing verifies owns nothing.
        session_owner: bool = true,
            ValueType::Boolean.only(),
            why: "Otherwise each user could read the queue of another user's session, or end it.";
        /// True if a session without an owner belongs to the first user who connects with its
        /// client id. Anonymous clients make such sessions, and so did versions before 0.2. With
        /// false that user is refused in the same way.
        adopt_unowned_sessions: bool = true,
            ValueType::Boolean.only(),
            why: "A fleet that gets user names keeps its sessions.";
    }

    /// The topics that clients may publish to and receive.
    [acl] Acl {
        /// The file with the rules, in the format of mosquitto's `acl_file`. Without a file,
        /// clients may publish and subscribe to everything; but once clients are authenticated,
        /// nobody gets `$SYS/broker/clients/#`, `$SYS/broker/events/#` and `$dead/#` without a
        /// rule. SIGHUP reads the file again. A file with a mistake changes nothing.
        file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "mosquitto `acl_file`, FlashMQ `mosquitto_acl_file`";
        /// The treatment of a filter of which the client may read no topic. "refuse": SUBACK has
        /// 0x87, or 0x80 in 3.x. "filter": the filter is granted, and nothing is delivered. A
        /// filter of which the client may read a part is granted in both cases, and delivers that
        /// part.
        on_denied_subscribe: DeniedSubscribe = DeniedSubscribe::Refuse,
            ValueType::OneOf(DeniedSubscribe::WORDS).only(),
            why: "A client that waits for messages that never come is hard to find.",
            elsewhere: "mosquitto grants, EMQX `authorization.deny_action`";
        /// The treatment of a PUBLISH to a topic that the client may not write. "drop": the message
        /// is dropped and counted; a 5.0 client gets 0x87 at QoS 1 and 2, and 3.x an
        /// acknowledgement. "disconnect": the client is disconnected, too.
        on_denied_publish: DeniedPublish = DeniedPublish::Drop,
            ValueType::OneOf(DeniedPublish::WORDS).only(),
            why: "3.x has no way to refuse a message, and a client that is disconnected sends it again.",
            elsewhere: "EMQX `authorization.deny_action`";
    }

    /// Clients that may not enter.
    [bans] Bans {
        /// The file with the bans: lines `client GLOB`, `user NAME`, `address NETWORK` and
        /// `serial HEX`, each with ` until 2027-01-31T12:00:00Z` behind it if the ban has an end. A
        /// banned client gets 0x8A, and 5 in 3.x. A banned user gets it only with the right
        /// credentials. SIGHUP reads the file again and disconnects clients that are banned now
        /// (5.0: 0x98). A file with a mistake changes nothing.
        file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "EMQX `banned`";
        /// Connects of one client within a time, after which it is banned: "15 in 1m for 5m". The
        /// 15th connect is accepted; further ones get 0x8A, and 5 in 3.x, for five minutes. A
        /// client is a client id with an authenticated user, so nobody else can get it banned.
        /// Clients without one are not counted. Disconnects for an overdue acknowledgement do not
        /// count.
        flapping: StrikeRule = StrikeRule::default(),
            ValueType::Checked(count_in::is_rule, count_in::WORDS).or("off", "connects are not counted"),
            why: "A bad network makes clients reconnect, too.",
            elsewhere: "EMQX `flapping_detect`";
    }

    /// Bounds on each client, each session and the whole broker.
    [limits] Limits {
        /// Connections at one time in the whole broker. A connection beyond it is closed when it is
        /// accepted, and the log says so.
        connections: u32 = 0,
            ValueType::Integer(1, 100_000_000).or("auto", "as many as the file descriptor limit of the process allows"),
            why: "Each connection takes a file descriptor.",
            elsewhere: "mosquitto `max_connections`, EMQX `listeners.tcp.default.max_connections`";
        /// Connections in their handshakes (PROXY, TLS, WebSocket) at one time in the whole broker.
        /// At the limit, the oldest one of the address with the most is closed, if that address has
        /// more than 8 (IPv6 addresses count by their first 64 bits; with the same first 48 bits
        /// they may have 64 together). Otherwise the oldest one of all is closed, if it is older
        /// than two seconds. Until then no more are accepted, and their clients wait.
        handshakes: u32 = 4096,
            ValueType::Integer(1, 1_000_000).only(),
            why: "A returning fleet waits, and one host cannot keep the others out.";
        /// Connections that are accepted in a second, in the whole broker. More wait in the backlog
        /// of the kernel. A listener may have a rate of its own besides.
        connects_per_second: u32 = 0,
            ValueType::Integer(1, listener::MOST_MESSAGES).or("unlimited", "as many as come"),
            why: "A fleet returns sooner, and no client waits so long that it gives up.",
            elsewhere: "EMQX `listeners.tcp.default.max_conn_rate`";
        /// Connections that one address may open within a time: "100 in 10s". Further connections
        /// of the address are closed when they are accepted, for the same time, or for another one
        /// with "100 in 10s for 1m". IPv6 addresses count by their first 64 bits. Behind a proxy
        /// that names the client, the client's address counts. The newest 65,536 addresses are
        /// counted.
        connects_per_address: StrikeRule = StrikeRule::default(),
            ValueType::Checked(count_in::is_rule, count_in::WORDS).or("unlimited", "addresses are not counted"),
            why: "Many clients may share one address.";
        /// Sessions at one time in the whole broker, connected or not. A client that needs a new
        /// session beyond it is refused: 5.0 with 0x97, 3.x with return code 3. A client whose
        /// session is there is accepted.
        sessions: u32 = 1_000_000,
            ValueType::Integer(1, ONE_BILLION).only();
        /// The longest Session Expiry Interval that a client is granted. A 5.0 client that asks for
        /// more gets this much, and CONNACK says so. A 3.1 or 3.1.1 session without Clean Session
        /// gets exactly this. With 0s a session ends with its connection.
        session_expiry: Duration = Duration::from_secs(7 * 24 * 3600),
            ValueType::WholeSeconds(0, LONGEST_EXPIRY).only(),
            why: "A device survives a long weekend, and a lost one is forgotten.",
            standard: "Session Expiry Interval (5.0 sections 3.1.2.11.2 and 3.2.2.3.2).",
            elsewhere: "mosquitto `persistent_client_expiration`, EMQX `mqtt.session_expiry_interval`, \
                        FlashMQ `expire_sessions_after_seconds`";
        /// The largest packet that is accepted from a client, with its fixed header. The size is
        /// checked before the packet is buffered. A client that sends a larger packet is
        /// disconnected (5.0: 0x95).
        packet_size: ByteSize = ByteSize::mib(2),
            ValueType::Size(ONE_KIB, LARGEST_PACKET).only(),
            why: "A payload of 1 MiB fits. The protocol ends at 256 MiB.",
            standard: "5.0 clients are told it as Maximum Packet Size [MQTT-3.2.2-15].",
            elsewhere: "mosquitto, EMQX (`mqtt.`) and FlashMQ `max_packet_size`, NATS `max_payload`";
        /// The largest CONNECT that is accepted, if `packet_size` is not lower. A will and a token
        /// in the password count. A client that sends a larger CONNECT is disconnected.
        connect_size: ByteSize = ByteSize::kib(64),
            ValueType::Size(ONE_KIB, LARGEST_PACKET).only(),
            why: "A client that nothing has authenticated can use little memory.";
        /// PUBLISH packets that each client may send a second. A client that sends more is not read
        /// for a while, so that it sends no more than this on average. Nothing is dropped, and
        /// Keep Alive stands still meanwhile. A client that sent less may send the messages of one
        /// and a quarter `expiry.tick` at once.
        messages_per_second: u32 = 0,
            ValueType::Integer(1, listener::MOST_MESSAGES).or("unlimited", "clients send as fast as they can"),
            why: "The right rate depends on the clients.",
            elsewhere: "EMQX `listeners.tcp.default.messages_rate`";
        /// Bytes that each client may send a second, in packets of any kind. The rule is the same.
        /// A packet counts when it is whole, so a large one may make a long pause.
        bytes_per_second: ByteSize = ByteSize(0),
            ValueType::Size(listener::LEAST_BYTES, listener::MOST_BYTES).or("unlimited", "clients send as fast as they can"),
            elsewhere: "EMQX `listeners.tcp.default.bytes_rate`";
        /// QoS 1 and 2 messages that a client may send before the first of them is acknowledged, in
        /// every version. A 5.0 client that sends more is disconnected with 0x93. A 3.x client is
        /// not read until there is room.
        receive_maximum: u16 = 100,
            ValueType::Integer(1, 65_535).only(),
            standard: "5.0 clients are told it as Receive Maximum [MQTT-3.3.4-7].";
        /// QoS 1 and 2 messages that are sent to a client before it has acknowledged the first of
        /// them. Further messages wait in the queue. A 5.0 client may ask for less with Receive
        /// Maximum.
        in_flight: u16 = 100,
            ValueType::Integer(1, 65_535).only(),
            why: "A reconnect resends no more than this at once.",
            standard: "The broker never exceeds the client's Receive Maximum [MQTT-3.3.4-9].",
            elsewhere: "mosquitto `max_inflight_messages`, EMQX `mqtt.max_inflight`, NATS `max_ack_pending`";
        /// Messages that wait in the queue of one session, without those in flight. This key holds
        /// for sessions in memory; for sessions in the store, see `store.queue_messages`. At the
        /// bound `queue_policy` decides.
        queue_messages: u32 = 1000,
            ValueType::Integer(1, ONE_BILLION).only(),
            elsewhere: "mosquitto `max_queued_messages`, EMQX `mqtt.max_mqueue_len`, \
                        FlashMQ `max_qos_msg_pending_per_client`";
        /// Bytes that wait in the queue of one session. A message counts with its full size in
        /// every queue that it waits in. At the bound `queue_policy` decides.
        queue_bytes: ByteSize = ByteSize::mib(16),
            ValueType::Size(ONE_KIB, ONE_TIB).only(),
            elsewhere: "mosquitto `max_queued_bytes`, FlashMQ `max_qos_bytes_pending_per_client`";
        /// The policy for a message whose receiver's queue is full, once expired messages have been
        /// evicted. "refuse" does not queue the new message; a 5.0 publisher gets 0x97
        /// where nobody else took it. "drop_oldest" drops the oldest queued message. "disconnect"
        /// disconnects the receiver. "hold" keeps back the publisher's acknowledgement until there
        /// is room. A shared message that every member refuses waits for one of them, until that
        /// member has room or its session ends.
        queue_policy: QueuePolicy = QueuePolicy::Refuse,
            ValueType::OneOf(QueuePolicy::WORDS).only(),
            why: "No message is dropped that the broker has accepted.";
        /// The time that "hold" waits for room. The message is refused after that.
        hold_timeout: Duration = Duration::from_secs(10),
            ValueType::Duration(millis(1), seconds(3600)).only(),
            why: "Publishers usually wait longer for an acknowledgement.";
        /// Encoded bytes that wait for one socket. Beyond it QoS 0 messages are dropped and
        /// counted. QoS 1 and 2 messages stay in their queue.
        outbox: ByteSize = ByteSize::mib(1),
            ValueType::Size(ONE_KIB, ONE_TIB).only(),
            elsewhere: "FlashMQ `client_max_write_buffer_size`";
        /// Retained messages in the whole broker. Beyond it a message for a new topic is not
        /// retained: a 5.0 publisher gets 0x97 at QoS 1 and 2, and the message is routed at QoS 1.
        retained_messages: u32 = 100_000,
            ValueType::Integer(1, ONE_BILLION).or("off", "no message is retained"),
            elsewhere: "EMQX `retainer.backend.max_retained_messages`";
        /// Bytes of retained messages in the whole broker. A newer message that does not fit ends
        /// the older one of its topic, too.
        retained_bytes: ByteSize = ByteSize::mib(256),
            ValueType::Size(ONE_KIB, SIXTEEN_TIB).only(),
            why: "It is a quarter of the default `limits.memory`.";
        /// Messages in the whole broker that wait to be published later, by
        /// `$delayed/<seconds>/<topic>`. A message beyond it is refused: 5.0 with 0x97; 3.x is not
        /// acknowledged and its connection is closed.
        delayed_messages: u32 = 100_000,
            ValueType::Integer(1, ONE_BILLION).or("off", "all delayed messages are refused"),
            elsewhere: "EMQX `delayed.max_delayed_messages`";
        /// Bytes of the messages that wait to be published later. Beyond it they are refused in the
        /// same way. With a store, messages that are due later than a minute from now are on the
        /// disk alone.
        delayed_bytes: ByteSize = ByteSize::mib(256),
            ValueType::Size(ONE_KIB, SIXTEEN_TIB).only(),
            why: "It is a quarter of the default `limits.memory`.";
        /// The longest delay. A message with a longer one is refused in the same way.
        delayed_horizon: Duration = Duration::from_secs(30 * 24 * 3600),
            ValueType::WholeSeconds(0, LONGEST_EXPIRY).only();
        /// Levels of a topic name or topic filter. A message for a deeper topic is dropped and
        /// counted (5.0: 0x90). A deeper filter is refused (5.0: 0x8F, 3.x: 0x80).
        topic_levels: u16 = 256,
            ValueType::Integer(1, 65_535).only(),
            why: "No usual hierarchy is so deep, and the depth of the index is bounded.",
            elsewhere: "EMQX `mqtt.max_topic_levels`";
        /// Subscriptions of one session. Further filters are refused: 5.0 with 0x97, 3.x with 0x80.
        /// One SUBSCRIBE is read to as many filters, or to 1024 if that is more; the others are
        /// refused. A SUBSCRIBE or UNSUBSCRIBE with more than 65535 filters ends the connection.
        subscriptions_per_client: u32 = 10_000,
            ValueType::Integer(1, 100_000_000).only();
        /// Levels of all filters with wildcards of one session together. Further filters with
        /// wildcards are refused: 5.0 with 0x97, 3.x with 0x80. Each level may be a node of the
        /// subscription index, which takes some 100 bytes. Every PUBLISH whose topic leads to a
        /// node visits it, which takes 60 ns.
        wildcard_levels: u32 = 131_072,
            ValueType::Integer(1, 1_000_000_000).only(),
            why: "10,000 filters may have 13 levels each.";
        /// Topic aliases that a 5.0 client may use towards the broker. A client that uses a higher
        /// one is disconnected with 0x94.
        topic_alias_maximum: u16 = 10,
            ValueType::Integer(1, 65_535).or("off", "clients may use none"),
            why: "Each alias costs the broker a topic name for each connection.",
            standard: "5.0 clients are told it as Topic Alias Maximum [MQTT-3.3.2-9].",
            elsewhere: "mosquitto `max_topic_alias`, EMQX `mqtt.max_topic_alias`, \
                        FlashMQ `max_incoming_topic_alias_value`";
        /// Memory in the whole broker for what clients make it hold: messages (each counted once),
        /// sessions, wills, subscriptions and their index, queues, what waits to be written,
        /// half-received packets, topic aliases, retained messages, what is read back from the
        /// store. Beyond it QoS 1 and 2 are refused, and QoS 0 is dropped and counted; new
        /// subscriptions and sessions are refused, too. Half-received packets have a quarter of it;
        /// beyond that the client with the largest half-received packet is disconnected. The limit
        /// is at least packet_size. The process takes up to half as much again, 64 MiB, and 2 KiB
        /// for each connection.
        memory: ByteSize = ByteSize::gib(1),
            ValueType::Size(ONE_KIB, SIXTEEN_TIB).only(),
            why: "It fits a machine with 2 GiB.",
            elsewhere: "mosquitto `memory_limit`";
    }

    /// Bounds on the Keep Alive that clients ask for.
    [keep_alive] KeepAlive {
        /// The longest Keep Alive. A 5.0 client that asks for a longer one, or for none, is told to
        /// use this one. A client that sends no packet for one and a half times its Keep Alive is
        /// disconnected (5.0: 0x8D).
        maximum: Duration = Duration::ZERO,
            ValueType::WholeSeconds(1, 65_535).or("unlimited", "the client's choice"),
            why: "A client knows best how often it can afford to send.",
            standard: "Server Keep Alive is a two-byte number of seconds [MQTT-3.2.2-21], [MQTT-3.2.2-22]. One and a half times \
                       the Keep Alive is the time of [MQTT-3.1.2-22].",
            elsewhere: "mosquitto `max_keepalive`, EMQX `mqtt.server_keepalive`";
        /// True if a 3.1 or 3.1.1 client may have no Keep Alive at all (Keep Alive 0). With false
        /// such a client is held to `maximum`, which must then be set.
        allow_never: bool = true,
            ValueType::Boolean.only(),
            why: "3.x has no way to tell a client another value, and the client would not send PINGREQ.";
    }

    /// The one timer of the broker.
    [expiry] Expiry {
        /// The precision of deadlines. Keep alive, redelivery, session expiry and all other
        /// deadlines fire never early, and at most this late.
        tick: Duration = Duration::from_millis(250),
            ValueType::Duration(millis(10), seconds(10)).only(),
            why: "A shorter tick buys precision with wake-ups.";
    }

    /// The treatment of a QoS 1 or 2 message that stays unacknowledged on a live connection. 3.1
    /// and 3.1.1 clients get the message again. 5.0 clients never do [MQTT-4.4.0-1]: they are
    /// reported or disconnected. The standard requires redelivery at reconnect, which has no
    /// switch.
    [redelivery] Redelivery {
        /// Time until an unacknowledged QoS 1 or 2 message is sent again on a live 3.1 or 3.1.1
        /// connection. The time counts from when the client's kernel has the message. Redelivery at
        /// reconnect goes on with "off".
        interval: Duration = Duration::from_secs(20),
            ValueType::Duration(millis(1), days(1)).or("off", "never on a live connection"),
            why: "It is longer than most work that a client does before it acknowledges.",
            standard: "5.0 forbids a resend on a live connection [MQTT-4.4.0-1]; 3.1.1 leaves it open.",
            elsewhere: "EMQX `mqtt.retry_interval`, NATS `ack_wait`";
        /// The factor by which the spacing grows with each resend of the same message.
        backoff: f64 = 2.0,
            ValueType::Number(1.0, 10.0).only(),
            why: "If a resend did not help, the next one is less likely to help.";
        /// The shortest `interval` or `ack_timeout` that a client may request for its own session.
        /// A client requests them in 5.0 by the CONNECT user property `ack-timeout` (CONNACK says
        /// what is granted), and in any version by a publish of, say, 5s to
        /// `$homing/session/retry-interval` or `$homing/session/ack-timeout`. The client is granted
        /// no less than this, and no more than `max_backoff` or `max_ack_timeout`, or "off". The
        /// granted times are published to the client on `$homing/session/granted`.
        min_requested: Duration = Duration::from_secs(1),
            ValueType::Duration(millis(1), days(1)).only(),
            why: "A client cannot make the broker resend without a pause.";
        /// The longest spacing to which `backoff` grows; at least `interval`.
        max_backoff: Duration = Duration::from_secs(300),
            ValueType::Duration(millis(1), days(7)).only(),
            why: "A client that has recovered gets its message within minutes.";
        /// The share of the spacing that chance may add, once for each connection and round. Chance
        /// never shortens the spacing.
        jitter: f64 = 0.2,
            ValueType::Number(0.0, 1.0).only(),
            why: "A fleet that stalled together does not get its messages again together.";
        /// Resends of one message before `on_exhausted`.
        attempts: u16 = 5,
            ValueType::Integer(1, 65_535).or("unlimited", "on_exhausted never applies"),
            why: "Without jitter the fifth resend comes 10 minutes after the first transmission.";
        /// The action when the attempts are used up. "disconnect" closes the connection where the
        /// session outlives it, so that the client returns and gets its messages again; elsewhere
        /// it acts as "keep". "keep" goes on every `max_backoff`. "dead_letter" drops the message
        /// and publishes it to `$dead/<client id>/<its topic>`; resends then count over all
        /// connections, and in 5.0 too.
        on_exhausted: OnExhausted = OnExhausted::Disconnect,
            ValueType::OneOf(OnExhausted::WORDS).only(),
            why: "No message is dropped unless you say so.";
        /// Resends to one connection within one `expiry.tick`. The rest follow in the next.
        resends_per_tick: u32 = 100,
            ValueType::Integer(1, 65_535).only(),
            why: "It is a whole window of the default `limits.in_flight`.";
        /// The time that a 5.0 client may leave a message unacknowledged. The time counts from when
        /// the client's kernel has the message. `on_ack_timeout` says what happens then.
        ack_timeout: Duration = Duration::from_secs(60),
            ValueType::Duration(millis(1), days(1)).or("off", "for ever"),
            why: "It is three times what 3.x clients are given before a resend, since a disconnect costs more.",
            standard: "5.0 forbids a resend on a live connection [MQTT-4.4.0-1].",
            elsewhere: "NATS `ack_wait`";
        /// The longest ack timeout of a slow client. Each disconnect for the same message doubles
        /// the ack timeout of that session, up to this, so that a slow client gets the time it
        /// needs. The value is at least `ack_timeout`.
        max_ack_timeout: Duration = Duration::from_secs(3600),
            ValueType::Duration(millis(1), days(7)).only(),
            why: "Six disconnects for the same message lead to it from the default `ack_timeout`.";
        /// The action on a 5.0 client that does not acknowledge in time. "auto" disconnects it
        /// (0x97, with a Reason String) where the session outlives the connection, so that the
        /// client returns and gets its messages again; elsewhere it acts as "alarm". "alarm" is a
        /// log line and a count every `ack_timeout`. "disconnect" disconnects the client even where
        /// the message ends with its session. A disconnect publishes the client's will; a will
        /// delay avoids that.
        on_ack_timeout: OnAckTimeout = OnAckTimeout::Auto,
            ValueType::OneOf(OnAckTimeout::WORDS).only(),
            why: "A message is redelivered where that is possible, and dropped nowhere.";
        /// True if a message becomes a dead letter when a 5.0 client acknowledges it with a reason
        /// code of 0x80 or above. The message is finished for that client, and counted, either way.
        negative_ack: bool = false,
            ValueType::Boolean.only(),
            why: "A negative acknowledgement is a decision of the receiver.";
        /// Causes of a drop for which the dropped message becomes a dead letter: it is published to
        /// `$dead/<client id>/<its topic>`, once for each receiver that does not get it. In the
        /// environment and in flags, separate the causes by commas. "outbox_full" concerns QoS 0.
        /// Drops of other causes are only counted. A dead letter keeps payload and properties
        /// without Message Expiry Interval. Its user properties are cause, reason-code
        /// (`negative_ack`), attempts, first-sent and last-sent (milliseconds since 1970),
        /// publisher and original-qos. A dead letter never makes another. "/", "+", "#" and "%" in
        /// a client id are written %2F, %2B, %23 and %25. A message that all members of a shared
        /// group refused goes to `$dead/$share%2F<group>/<its topic>`.
        dead_letters: Vec<String> = Vec::new(),
            ValueType::SomeOf(DEAD_LETTER_CAUSES).only(),
            why: "Where any cause is on, each message keeps its publisher's client id.";
        /// Exceptions by client, user and topic, 64 at most. For each setting, the first matching
        /// rule in file order wins. `client_id` and `user_name` are globs (`*`, `?`, `[a-z]`,
        /// `{one,other}`) that are compared at CONNECT. `topic` is a topic filter that is compared
        /// with each message. A setting that a rule leaves out is left to the rules and settings
        /// below it. A rule may set `interval`, `backoff`, `max_backoff`, `jitter`, `attempts`,
        /// `on_exhausted`, `ack_timeout`, `max_ack_timeout`, `on_ack_timeout`, `negative_ack` and
        /// `dead_letters`; without a topic also `min_requested` and `resends_per_tick`.
        ///
        /// A client's own request beats the `interval` and `ack_timeout` of a rule, unless the rule
        /// has a topic and not `client_may_override = true`. Order is kept: a message whose topic
        /// has a shorter interval is not sent again before the unacknowledged messages that were
        /// sent before it. Messages whose topic has the interval "off" hold nobody up.
        rules: Vec<RedeliveryRule> = Vec::new(),
            ValueType::Tables("redelivery.rules", redelivery_rule::problems).only();
    }
    example: "[[redelivery.rules]]\n\
              client_id = \"pump-*\"\n\
              interval = \"5s\"\n\
              ack_timeout = \"10s\"\n\
              \n\
              [[redelivery.rules]]\n\
              topic = \"telemetry/#\"\n\
              attempts = 3\n\
              on_exhausted = \"dead_letter\"\n\
              dead_letters = [\"expired\", \"queue_refused\"]\n";

    /// The store: sessions and messages that survive a restart. Only the `homing` command opens a
    /// store by these keys. A broker that is started in code uses the store that it is handed, or
    /// none.
    [store] Store {
        /// The data directory. A missing directory is created. One broker at a time may use it.
        /// `--data-dir DIR` does the same.
        path: String = String::new(),
            ValueType::Path.or(
                "auto",
                "the first of systemd's STATE_DIRECTORY if there is one, else homing-data in the working directory"
            ),
            why: "It fits a service of systemd as well as a first try.",
            elsewhere: "mosquitto `persistence_location`, EMQX `node.data_dir`, FlashMQ `storage_dir`, NATS `store_dir`";
        /// The promise of an acknowledgement, for a session that outlives its connection. "commit":
        /// the message is on the disk. "interval": the message is on the disk within
        /// `sync_interval`, and survives the end of the process at once. "os": it survives the end
        /// of the process, and a power loss may cost all of it. "none", or `--ephemeral`:
        /// everything is in memory, and ends with the process. Sessions that end with their
        /// connection, and messages for them alone, are never written: their speed is that of
        /// "none".
        durability: Durability = Durability::Commit,
            ValueType::OneOf(Durability::WORDS).only(),
            why: "A broker should be durable without a flag.",
            elsewhere: "mosquitto `persistence`";
        /// With `durability = "interval"` alone: the time until an acknowledged message is forced
        /// to the disk, at most.
        sync_interval: Duration = Duration::from_secs(1),
            ValueType::Duration(millis(10), seconds(3600)).only(),
            why: "A loss of power costs one second at most.",
            elsewhere: "mosquitto `autosave_interval`, NATS `sync_interval`";
        /// The largest size of the database. Its write-ahead log comes on top, usually 16 MiB. The
        /// store counts as full from 20 MiB below the limit on, until acknowledgements have made
        /// room. Then QoS 1 and 2 messages are refused (5.0: 0x97; 3.x: the connection is closed).
        /// So are new sessions that outlive their connections, and new subscriptions of such
        /// sessions (5.0: 0x97; 3.x: 0x03 and 0x80). A retained message at QoS 0 still reaches
        /// subscribers. It is retained if it is no larger than the one before; otherwise neither is
        /// retained. A full disk has the same effect.
        size_limit: ByteSize = ByteSize(0),
            ValueType::Size(64 << 20, 256 << 40).or("unlimited", "what the disk holds"),
            elsewhere: "NATS `max_file_store`";
        /// Messages that wait in the queue of one session in the store, in place of
        /// `limits.queue_messages`. Only the head of a long queue is in memory. Each other message
        /// takes some 20 to 110 B there, which count against `limits.memory`.
        queue_messages: u32 = 100_000,
            ValueType::Integer(1, ONE_BILLION).only(),
            why: "It is a message a minute for ten weeks.";
        /// Bytes that wait in such a queue, in place of `limits.queue_bytes`.
        queue_bytes: ByteSize = ByteSize::mib(256),
            ValueType::Size(ONE_KIB, ONE_TIB).only();
    }

    /// The broker's own topics.
    [sys] Sys {
        /// The interval at which the `$SYS/broker/...` topics are published.
        publish_interval: Duration = Duration::from_secs(10),
            ValueType::Duration(millis(1), days(1)).or("off", "never; no last disconnects are kept, either"),
            why: "It is the default of mosquitto, too.",
            elsewhere: "mosquitto `sys_interval`, EMQX `sys_topics.sys_msg_interval`";
        /// Maximum number of last-disconnect records: why a client was last disconnected, as a
        /// retained message (JSON, about 400 bytes) on `$SYS/broker/clients/<client
        /// id>/last-disconnect`. Beyond it the oldest go. A plain DISCONNECT of the client's own is
        /// not recorded. "/", "+", "#" and "%" in a client id are written %2F, %2B, %23 and %25.
        last_disconnects: u32 = 1_000,
            ValueType::Integer(1, 1_000_000).or("off", "none are kept"),
            why: "They take about 400 KB.";
        /// True if events are published: what becomes of an unacknowledged message, at once, as
        /// JSON on `$SYS/broker/events/<kind>/<client id>`. The kinds are stalled, redelivered,
        /// exhausted and disconnected; the client id is written as above. Events are QoS 0 and
        /// never retained.
        events: bool = false,
            ValueType::Boolean.only(),
            why: "In most brokers nobody subscribes to events.";
        /// Events within one second in the whole broker. Further events are suppressed and counted
        /// on `$SYS/broker/events/suppressed`. The key also bounds the number of clients with a
        /// count, to about 120 times as many.
        events_per_second: u32 = 100,
            ValueType::Integer(1, 10_000).only();
        /// Events of one kind about one client within one minute. Further events are suppressed;
        /// the next one says how many.
        events_per_client: u32 = 10,
            ValueType::Integer(1, 10_000).only(),
            why: "It is above what one client causes at the default intervals.";
    }

    /// The log on standard error.
    [log] Log {
        /// The least severe lines that are written, or directives for single modules. Redeliveries
        /// are at debug.
        level: String = "info".to_owned(),
            ValueType::LogLevel.only(),
            elsewhere: "mosquitto `log_type`, EMQX `log.console.level`, FlashMQ `log_level`";
        /// "text" is one line for people. "json" is one object on a line. Both go to standard
        /// error.
        format: LogFormat = LogFormat::Text,
            ValueType::OneOf(LogFormat::WORDS).only(),
            elsewhere: "EMQX `log.console.formatter`";
        /// Connect, refusal and disconnect lines within one second in the whole broker. Further
        /// lines are suppressed, and their number is reported. Lines that the level hides do not
        /// count. A text of a client takes at most 256 characters of a line. If nobody reads
        /// standard error, lines beyond 256 KiB are dropped, counted on `$SYS/broker/log/dropped`
        /// and reported.
        events_per_second: u32 = 100,
            ValueType::Integer(1, 1_000_000).only(),
            why: "Many reconnects at once must not also write many lines.";
    }

    /// The HTTP interface for operators and their tools: /healthz and /readyz for probes, /metrics
    /// for Prometheus.
    [admin] Admin {
        /// Addresses of the HTTP interface, each IP:PORT. If the default address is taken, the
        /// broker warns and runs without the interface; an address that is set here must be free.
        addresses: Vec<SocketAddr> = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT)],
            ValueType::Addresses.or("off", "no HTTP interface"),
            why: "Health and metrics cost nothing until somebody asks, and only this machine can.",
            elsewhere: "EMQX `dashboard.listeners.http.bind` and `prometheus`, NATS `http`, mosquitto `listener` with `protocol http_api`";
        /// The Unix socket of the interface, for programs on this machine. Root and the user of the
        /// broker may do everything there, and members of its group may look. With "auto" it is
        /// `homing.sock` in systemd's RUNTIME_DIRECTORY, else in the data directory; a broker with
        /// neither has none.
        socket: String = String::new(),
            ValueType::Path.or("auto", "in the runtime or data directory"),
            why: "No token is needed where the kernel knows who asks.";
        /// The file of tokens, as `homing admin-token` writes it. A request has a token as
        /// `Authorization: Bearer TOKEN`. Without the file only /healthz, /readyz, and on this
        /// machine /metrics, are answered over TCP.
        tokens_file: String = String::new(),
            ValueType::Path.or("off", "no file");
        /// True if an address beyond loopback may be plain HTTP. Without it the broker does not
        /// start with such an address, because tokens and figures would cross the network
        /// unencrypted. Set it where a proxy or a private network protects the port.
        allow_plain_http: bool = false,
            ValueType::Boolean.only();
    }

    tables

    /// Listeners with settings of their own, 256 at most. `network.listen` is the quick way to
    /// plain listeners; it has its default only if no listener stands here. `address` is the only
    /// key that each listener needs.
    ///
    /// `name` stands in the log. `backlog` and `connections` are those of `network` and `limits`,
    /// for this listener. So are `packet_size`, `messages_per_second` and `bytes_per_second` of
    /// `limits`, and `keep_alive_maximum`, which is `maximum` of `keep_alive`.
    /// `connects_per_second` is a rate of this listener besides that of `limits`.
    ///
    /// `auth` has the methods for the clients of this listener, and `anonymous` says which clients
    /// without credentials may enter; else `auth.methods` and `auth.anonymous` hold. `client_id`
    /// is the form of the client ids: %u stands for the user name, and * for any text. With
    /// "%u-*" nobody can take the client id of another user. A client with another client id is
    /// refused (5.0: 0x85; 3.x: return code 2). An id that the broker assigns is always allowed.
    ///
    /// An `address` may be unix:/path. `mode` ("0660") and `group` are the permissions and the
    /// group of the socket. A socket that a dead process left there is replaced.
    ///
    /// `protocol` is "mqtt" or "websocket". A WebSocket has the path `websocket_path` ("/mqtt"; "*"
    /// accepts any). `origins` lists the web pages that may connect, such as app.example.com with
    /// https:// before it; "*" accepts any. Without it only pages of the same host may, and
    /// programs that are no browser.
    ///
    /// `proxy_protocol` is for a listener behind HAProxy or another proxy: "v1", "v2" or "any".
    /// Each connection must begin with a PROXY header, and the address in it counts as the
    /// client's. The header is believed only from `trusted_proxies`, which is required unless the
    /// listener is on loopback or a Unix socket. With `proxy_tls` the header must say that the
    /// client used TLS; the common name of a verified certificate in it is the user name. A
    /// WebSocket listener believes X-Forwarded-For from `trusted_proxies`.
    ///
    /// [listeners.tls] turns TLS on. `certificates` has the certificates with their keys (PEM). The
    /// name that the client asks for selects one; else the first that the client can verify.
    /// `minimum` is the lowest version ("1.2"). `client_certificates` asks clients for a
    /// certificate: "off" is the default, with "optional" a client may have none, and with
    /// "required" it must have one. A certificate has to be issued by an authority in the file
    /// `client_ca`, and must not stand in a revocation list of `crl`; `crl_check` is "leaf" or
    /// "chain". `certificate_user` selects the user name: "cn", "san_dns", "san_uri", "san_email"
    /// or "subject". With `certificate_dates = false` the dates of clients' certificates are not
    /// checked. `alpn` has the application protocols ("mqtt"), and an empty list turns the check
    /// off. `groups` has the key exchange groups, `record_size` the longest record ("16 KiB"), and
    /// `tickets = false` stops clients from resuming sessions. docs/security.md has a recipe.
    [[listeners]] Listener, ValueType::Tables("listeners", listener_checks::problems).only(),
    example: "[[listeners]]\n\
              address = \"127.0.0.1:1883\"\n\
              \n\
              [[listeners]]\n\
              name = \"devices\"\n\
              address = \"0.0.0.0:8883\"\n\
              connections = 50_000\n\
              [listeners.tls]\n\
              certificates = [{ certificate = \"server.pem\", key = \"server.key\" }]\n\
              client_certificates = \"optional\"\n\
              client_ca = \"ca.pem\"\n";
}

impl Config {
    /// Returns the settings of authentication for the clients of a listener. Files and methods that
    /// the listener does not use are left out.
    pub fn auth_of(&self, listener: &Listener) -> Auth {
        let mut auth = self.auth.clone();
        auth.anonymous = listener.anonymous.unwrap_or(auth.anonymous);
        if let Some(methods) = &listener.auth {
            auth.methods.clone_from(methods);
            if !has(methods, "password") {
                auth.password_file.clear();
            }
            if !has(methods, "jwt") {
                auth.jwt_keys.clear();
            }
        }
        auth
    }

    /// Returns all listeners: those of `network.listen`, then those of `[[listeners]]`. The place
    /// in the list is the number of the listener.
    pub fn all_listeners(&self) -> Vec<Listener> {
        let quick = self.network.listen.iter().map(|address| Listener::plain(*address));
        quick.chain(self.listeners.iter().cloned()).collect()
    }
}

/// Returns true for a text with at least one character.
fn is_text(value: &config::Value) -> bool {
    value::text(value).is_some_and(|text| !text.is_empty())
}

/// Returns every key, in the order of the file.
pub(super) fn keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// Returns the key with this dotted path.
pub(super) fn key(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

impl Acl {
    /// Returns the path of the ACL file; `None` without one.
    pub fn path(&self) -> Option<PathBuf> {
        path_of(&self.file)
    }
}

/// Returns the path of a key of paths; `None` for its word.
fn path_of(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// Returns the first directory of a list of systemd, such as STATE_DIRECTORY; `None` for no list
/// and an empty one.
fn first_directory(list: Option<&OsStr>) -> Option<&Path> {
    let first = list?.to_str()?.split(':').next()?;
    (!first.is_empty()).then(|| Path::new(first))
}

/// Returns true if a list of methods has this one.
pub(super) fn has(methods: &[String], method: &str) -> bool {
    methods.iter().any(|name| name == method)
}

impl Bans {
    /// Returns the path of the file of bans; `None` without one.
    pub fn path(&self) -> Option<PathBuf> {
        path_of(&self.file)
    }
}

impl Auth {
    /// Returns the path of the password file; `None` without one.
    pub fn password_path(&self) -> Option<PathBuf> {
        path_of(&self.password_file)
    }

    /// Returns the path of the keys of tokens; `None` without one.
    pub fn jwt_keys_path(&self) -> Option<PathBuf> {
        path_of(&self.jwt_keys)
    }

    /// Returns the number of threads that check passwords.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).max(1)),
            n => n,
        }
    }
}

impl Runtime {
    /// Returns the number of handshake threads: as configured or, for "auto", half of the threads.
    pub fn handshake_thread_count(&self) -> usize {
        match self.handshake_threads {
            0 => (self.thread_count() / 2).max(1),
            n => n,
        }
    }

    /// Returns the number of threads to start: as configured or, for "auto", one for each core of
    /// this process.
    pub fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

impl Admin {
    /// Returns the path of the file of tokens; `None` without one.
    pub fn tokens_path(&self) -> Option<PathBuf> {
        path_of(&self.tokens_file)
    }

    /// Returns the path of the Unix socket; `None` for none. `runtime` is systemd's
    /// RUNTIME_DIRECTORY, and `data` the data directory.
    pub fn socket_path(&self, runtime: Option<&OsStr>, data: Option<&Path>) -> Option<PathBuf> {
        let in_directory =
            || first_directory(runtime).or(data).map(|directory| directory.join("homing.sock"));
        path_of(&self.socket).or_else(in_directory)
    }
}

impl Store {
    /// Returns the data directory, or `None` if everything is kept in memory. `state_directory` is
    /// systemd's variable `STATE_DIRECTORY`: a list with colons between, of which the first is
    /// ours.
    pub fn directory(&self, state_directory: Option<&OsStr>) -> Option<PathBuf> {
        if self.durability == Durability::None {
            return None;
        }
        let default = || first_directory(state_directory).unwrap_or(Path::new(DEFAULT_DIRECTORY)).to_owned();
        Some(path_of(&self.path).unwrap_or_else(default))
    }

    /// Returns how often the store has to be synced besides its commits, or `None` if commits alone
    /// decide.
    pub fn synced_every(&self) -> Option<Duration> {
        (self.durability == Durability::Interval).then_some(self.sync_interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_is_the_configured_one_or_systemds_or_beside_the_process() {
        let directory = |path: &str, state: Option<&str>| {
            let store = Store { path: path.into(), ..Store::default() };
            store.directory(state.map(OsStr::new)).unwrap()
        };
        assert_eq!(directory("d", Some("/var/lib/homing")), PathBuf::from("d"));
        assert_eq!(directory("", Some("/var/lib/homing:/var/lib/other")), PathBuf::from("/var/lib/homing"));
        assert_eq!(directory("", Some("")), PathBuf::from(DEFAULT_DIRECTORY));
        assert_eq!(directory("", None), PathBuf::from(DEFAULT_DIRECTORY));
        let none = Store { durability: Durability::None, path: "d".into(), ..Store::default() };
        assert_eq!(none.directory(None), None);
    }

    #[test]
    fn only_interval_syncs_between_commits() {
        let of = |durability| Store { durability, ..Store::default() }.synced_every();
        assert_eq!(of(Durability::Interval), Some(Duration::from_secs(1)));
        assert!([Durability::None, Durability::Os, Durability::Commit].into_iter().all(|d| of(d).is_none()));
    }

    #[test]
    fn every_default_is_allowed_and_reads_back() {
        let mut read =
            Config { log: Log { level: "warn".to_owned(), ..Log::default() }, ..Config::default() };
        for key in keys() {
            let default = key.value(&Config::default());
            assert!(key.rule.admits(&default), "{} = {default}", key.path);
            assert!(key.set(&mut read, &default), "{} = {default}", key.path);
        }
        assert_eq!(read, Config::default());
    }

    #[test]
    fn each_key_sets_its_own_field_and_no_other() {
        for key in keys().filter(|key| key.rule.word.is_some()) {
            let word = key.rule.word.map(|word| word.text).unwrap();
            let mut config = Config::default();
            assert!(key.set(&mut config, &config::Value::new(None, word)), "{}", key.path);
            let changed = keys().filter(|other| {
                other.value(&config).to_string() != other.value(&Config::default()).to_string()
            });
            assert!(changed.map(|other| other.path).all(|path| path == key.path), "{}", key.path);
        }
    }

    #[test]
    fn causes_of_dead_letters_are_causes_of_drops() {
        use crate::session::drops::DropReason;
        let names: Vec<&str> = DropReason::ALL.iter().map(|cause| cause.name()).collect();
        assert!(DEAD_LETTER_CAUSES.iter().all(|cause| names.contains(cause)));
    }
}
