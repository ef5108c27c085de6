//! The keys of `[limits]`.

use crate::access::strikes::StrikeRule;
use crate::config::QueuePolicy;
use crate::config::bounds::{LARGEST_PACKET, LONGEST_EXPIRY, ONE_BILLION, ONE_KIB, ONE_TIB, SIXTEEN_TIB};
use crate::config::count_in;
use crate::config::listener;
use crate::config::rule::{ValueType, millis, seconds};
use crate::config::size::ByteSize;
use crate::config::table::section;
use crate::named_enum::Named;
use std::time::Duration;

/// The bytes of a client identifier that the broker assigns: `homing-` and 128 bits in hexadecimal.
const LEAST_CLIENT_ID: u64 = 39;

section! {
    /// Bounds on each client, each session and the whole broker.
    [limits] Limits {
        /// Connections at one time in the whole broker. A connection beyond it is closed when it is
        /// accepted, and the log says so.
        connections: u32 = 0,
            ValueType::Integer(1, 100_000_000).or("auto", "as many as the file descriptor limit of the process allows"),
            reload: Live,
            why: "Each connection takes a file descriptor.",
            elsewhere: "mosquitto `max_connections`, EMQX `listeners.tcp.default.max_connections`";
        /// Connections in their handshakes (PROXY, TLS, WebSocket) at one time in the whole broker.
        /// At the limit, the oldest connection of the address with the most handshakes is closed,
        /// if that address has more than 8 (IPv6 addresses count by their first 64 bits; with the
        /// same first 48 bits they may have 64 together). Otherwise the oldest of all is closed, if
        /// it is older than two seconds. Until then no connection is accepted, and clients wait.
        handshakes: u32 = 4096,
            ValueType::Integer(1, 1_000_000).only(),
            why: "A returning fleet waits, and one host cannot keep the others out.";
        /// Connections that are accepted in a second, in the whole broker. More wait in the backlog
        /// of the kernel. A listener may have a rate of its own besides.
        connects_per_second: u32 = 0,
            ValueType::Integer(1, listener::MOST_MESSAGES).or("unlimited", "as many as come"),
            reload: Live,
            why: "A fleet returns sooner, and no client waits so long that it gives up.",
            elsewhere: "EMQX `listeners.tcp.default.max_conn_rate`";
        /// Connections that one address may open within a time: "100 in 10s". Further connections
        /// of the address are closed when they are accepted, for the same time, or for another one
        /// with "100 in 10s for 1m". IPv6 addresses count by their first 64 bits; those with the
        /// same first 48 bits may open 16 times as many together. Behind a proxy that names the
        /// client, the client's address counts. The newest 65,536 addresses are counted.
        connects_per_address: StrikeRule = StrikeRule::default(),
            ValueType::Checked(count_in::is_rule, count_in::WORDS).or("unlimited", "addresses are not counted"),
            why: "Many clients may share one address.";
        /// Sessions at one time in the whole broker, connected or not. A client that needs a new
        /// session beyond it is refused: 5.0 with 0x97, 3.x with return code 3. A client whose
        /// session is there is accepted.
        sessions: u32 = 1_000_000,
            ValueType::Integer(1, ONE_BILLION).only(),
            reload: Live;
        /// The longest Session Expiry Interval that a client is granted. A 5.0 client that asks for
        /// more gets this much, and CONNACK says so. A 3.1 or 3.1.1 session without Clean Session
        /// gets exactly this. With 0s a session ends with its connection.
        session_expiry: Duration = Duration::from_secs(7 * 24 * 3600),
            ValueType::WholeSeconds(0, LONGEST_EXPIRY).only(),
            reload: NewConnections,
            why: "A device survives a long weekend, and a lost one is forgotten.",
            standard: "Session Expiry Interval (5.0 sections 3.1.2.11.2 and 3.2.2.3.2).",
            elsewhere: "mosquitto `persistent_client_expiration`, EMQX `mqtt.session_expiry_interval`, \
                        FlashMQ `expire_sessions_after_seconds`";
        /// The largest packet that is accepted from a client, with its fixed header. The size is
        /// checked before the packet is buffered. A client that sends a larger packet is
        /// disconnected (5.0: 0x95). So is a client that sends more than 65535 properties in one
        /// packet (0x97).
        packet_size: ByteSize = ByteSize::mib(2),
            ValueType::Size(ONE_KIB, LARGEST_PACKET).only(),
            reload: NewConnections,
            why: "A payload of 1 MiB fits. The protocol ends at 256 MiB.",
            standard: "5.0 clients are told it as Maximum Packet Size [MQTT-3.2.2-15].",
            elsewhere: "mosquitto, EMQX (`mqtt.`) and FlashMQ `max_packet_size`, NATS `max_payload`";
        /// The largest payload of a message. A message with a larger one is dropped and counted: a
        /// 5.0 client gets 0x83 at QoS 1 and 2, and 3.x an acknowledgement. A client whose will has
        /// a larger one is refused (5.0: 0x95, 3.x: return code 5).
        payload_size: ByteSize = ByteSize(0),
            ValueType::Size(1, LARGEST_PACKET).or("unlimited", "what fits into a packet"),
            reload: Live,
            why: "`packet_size` already bounds it, and tells 5.0 clients so.",
            elsewhere: "mosquitto `message_size_limit`";
        /// The largest CONNECT that is accepted, if `packet_size` is not lower. A will and a token
        /// in the password count. A client that sends a larger CONNECT is disconnected.
        connect_size: ByteSize = ByteSize::kib(64),
            ValueType::Size(ONE_KIB, LARGEST_PACKET).only(),
            reload: NewConnections,
            why: "A client that nothing has authenticated can use little memory.";
        /// The longest client identifier in bytes. A client with a longer one is refused: 5.0 with
        /// 0x85, 3.x with return code 2.
        client_id: ByteSize = ByteSize::kib(1),
            ValueType::Size(LEAST_CLIENT_ID, 65_535).only(),
            reload: NewConnections,
            why: "Bans, rules and lists look at each byte of it.",
            standard: "23 bytes must be allowed [MQTT-3.1.3-5]. The identifiers that the broker \
                       assigns have 39.";
        /// PUBLISH packets that each client may send a second. A client that sends more is not read
        /// for a while, so that it sends no more than this on average. Nothing is dropped, and Keep
        /// Alive is suspended meanwhile. A client that sent less may send the messages of one and a
        /// quarter `expiry.tick` at once.
        messages_per_second: u32 = 0,
            ValueType::Integer(1, listener::MOST_MESSAGES).or("unlimited", "clients send as fast as they can"),
            reload: Live,
            why: "The right rate depends on the clients.",
            elsewhere: "EMQX `listeners.tcp.default.messages_rate`";
        /// Bytes that each client may send a second, in packets of any kind. The rule is the same.
        /// A packet counts when it is whole, so a large one may make a long pause.
        bytes_per_second: ByteSize = ByteSize(0),
            ValueType::Size(listener::LEAST_BYTES, listener::MOST_BYTES).or("unlimited", "clients send as fast as they can"),
            reload: Live,
            elsewhere: "EMQX `listeners.tcp.default.bytes_rate`";
        /// QoS 1 and 2 messages that a client may send before the first of them is acknowledged, in
        /// every version. A 5.0 client that sends more is disconnected with 0x93. A 3.x client is
        /// not read until there is room.
        receive_maximum: u16 = 100,
            ValueType::Integer(1, 65_535).only(),
            reload: NewConnections,
            standard: "5.0 clients are told it as Receive Maximum [MQTT-3.3.4-7].";
        /// QoS 1 and 2 messages that are sent to a client before it has acknowledged the first of
        /// them. Further messages wait in the queue. A 5.0 client may ask for less with Receive
        /// Maximum.
        in_flight: u16 = 100,
            ValueType::Integer(1, 65_535).only(),
            reload: NewConnections,
            why: "A reconnect resends no more than this at once.",
            standard: "The broker never exceeds the client's Receive Maximum [MQTT-3.3.4-9].",
            elsewhere: "mosquitto `max_inflight_messages`, EMQX `mqtt.max_inflight`, NATS `max_ack_pending`";
        /// Messages that wait in the queue of one session, without those in flight. This key holds
        /// for sessions in memory; for sessions in the store, see `store.queue_messages`. At the
        /// bound `queue_policy` decides.
        queue_messages: u32 = 1000,
            ValueType::Integer(1, ONE_BILLION).only(),
            reload: Live,
            elsewhere: "mosquitto `max_queued_messages`, EMQX `mqtt.max_mqueue_len`, \
                        FlashMQ `max_qos_msg_pending_per_client`";
        /// Bytes that wait in the queue of one session. A message counts with its full size in
        /// every queue that it waits in. At the bound `queue_policy` decides.
        queue_bytes: ByteSize = ByteSize::mib(16),
            ValueType::Size(ONE_KIB, ONE_TIB).only(),
            reload: Live,
            elsewhere: "mosquitto `max_queued_bytes`, FlashMQ `max_qos_bytes_pending_per_client`";
        /// The policy for a message whose receiver's queue is full, once expired messages have been
        /// evicted. "refuse" does not queue the new message; a 5.0 publisher gets 0x97
        /// where nobody else took it. "drop_oldest" drops the oldest queued message. "disconnect"
        /// disconnects the receiver. "hold" keeps back the publisher's acknowledgement until there
        /// is room. A shared message that every member refuses waits for one of them, until that
        /// member has room or its session ends.
        queue_policy: QueuePolicy = QueuePolicy::Refuse,
            ValueType::OneOf(QueuePolicy::NAMES).only(),
            reload: Live,
            why: "No message is dropped that the broker has accepted.";
        /// The time that "hold" waits for room. The message is refused after that.
        hold_timeout: Duration = Duration::from_secs(10),
            ValueType::Duration(millis(1), seconds(3600)).only(),
            reload: Live,
            why: "Publishers usually wait longer for an acknowledgement.";
        /// Encoded bytes that wait for one socket. Beyond it QoS 0 messages are dropped and
        /// counted. QoS 1 and 2 messages stay in their queue.
        outbox: ByteSize = ByteSize::mib(1),
            ValueType::Size(ONE_KIB, ONE_TIB).only(),
            reload: Live,
            elsewhere: "FlashMQ `client_max_write_buffer_size`";
        /// Retained messages in the whole broker. Beyond it a message for a new topic is not
        /// retained: a 5.0 publisher gets 0x97 at QoS 1 and 2, and the message is routed at QoS 1.
        /// With "off" a 5.0 client that sets Retain is disconnected, and one whose will does is
        /// refused (0x9A). The messages of a 3.x client, and of a 5.0 client that came before, are
        /// delivered and not retained.
        retained_messages: u32 = 100_000,
            ValueType::Integer(1, ONE_BILLION).or("off", "no message is retained"),
            reload: Live,
            standard: "5.0 clients are told \"off\" as Retain Available 0 [MQTT-3.2.2-13].",
            elsewhere: "EMQX `retainer.backend.max_retained_messages`";
        /// Bytes of retained messages in the whole broker. A newer message that does not fit ends
        /// the older one of its topic, too.
        retained_bytes: ByteSize = ByteSize::mib(256),
            ValueType::Size(ONE_KIB, SIXTEEN_TIB).only(),
            reload: Live,
            why: "It is a quarter of the default `limits.memory`.";
        /// Messages in the whole broker that wait to be published later, by
        /// `$delayed/<seconds>/<topic>`. A message beyond it is refused: 5.0 with 0x97; 3.x is not
        /// acknowledged and its connection is closed.
        delayed_messages: u32 = 100_000,
            ValueType::Integer(1, ONE_BILLION).or("off", "all delayed messages are refused"),
            reload: Live,
            elsewhere: "EMQX `delayed.max_delayed_messages`";
        /// Bytes of the messages that wait to be published later. Beyond it they are refused in the
        /// same way. With a store, messages that are due later than a minute from now are on the
        /// disk alone.
        delayed_bytes: ByteSize = ByteSize::mib(256),
            ValueType::Size(ONE_KIB, SIXTEEN_TIB).only(),
            reload: Live,
            why: "It is a quarter of the default `limits.memory`.";
        /// The longest delay. A message with a longer one is refused in the same way.
        delayed_horizon: Duration = Duration::from_secs(30 * 24 * 3600),
            ValueType::WholeSeconds(0, LONGEST_EXPIRY).only(),
            reload: Live;
        /// The part of `retained_messages`, `retained_bytes`, `delayed_messages` and
        /// `delayed_bytes` that one client may take, in percent. Its first message is always
        /// admitted. Beyond it a message is refused as beyond the whole limit. A client is a client
        /// identifier on one listener; a listener may have a `share` of its own beside it.
        share_per_client: u16 = 50,
            ValueType::Integer(1, 100).only(),
            reload: Live,
            why: "No single client keeps all others out, and a bridge with many retained messages has room.";
        /// Dead letters in the whole broker that stay until an operator republishes or deletes
        /// them. Beyond it the oldest ones are dropped and counted. With a store they survive a
        /// restart. Dead letters are published to `$dead/...` in any case.
        dead_letters: u32 = 10_000,
            ValueType::Integer(1, 1_000_000).or("off", "dead letters are only published"),
            reload: Live,
            why: "An operator who looks once a day finds the messages of a bad night.";
        /// Bytes of the stored dead letters, which are in memory and in the store. Beyond it the
        /// oldest ones are dropped and counted. A letter that is larger than this divided by
        /// `runtime.threads` is only published.
        dead_letter_bytes: ByteSize = ByteSize::mib(64),
            ValueType::Size(ONE_KIB, SIXTEEN_TIB).only(),
            reload: Live,
            why: "It is a sixteenth of the default `limits.memory`.";
        /// Levels of a topic name or topic filter. A message for a deeper topic is dropped and
        /// counted (5.0: 0x90). A deeper filter is refused (5.0: 0x8F, 3.x: 0x80).
        topic_levels: u16 = 256,
            ValueType::Integer(1, 65_535).only(),
            reload: Live,
            why: "No usual hierarchy is so deep, and the depth of the index is bounded.",
            elsewhere: "EMQX `mqtt.max_topic_levels`";
        /// Subscriptions of one session. Further filters are refused: 5.0 with 0x97, 3.x with 0x80.
        /// One SUBSCRIBE is read to as many filters, or to 1024 if that is more; the others are
        /// refused. A SUBSCRIBE or UNSUBSCRIBE with more than 65535 filters ends the connection.
        subscriptions_per_client: u32 = 10_000,
            ValueType::Integer(1, 100_000_000).only(),
            reload: Live;
        /// Levels of all filters with wildcards of one session together. Further filters with
        /// wildcards are refused: 5.0 with 0x97, 3.x with 0x80. Each level may be a node of the
        /// subscription index, which takes some 100 bytes. Every PUBLISH whose topic leads to a
        /// node visits it, which takes 60 ns.
        wildcard_levels: u32 = 131_072,
            ValueType::Integer(1, 1_000_000_000).only(),
            reload: Live,
            why: "10,000 filters may have 13 levels each.";
        /// Topic aliases that a 5.0 client may use towards the broker. A client that uses a higher
        /// one is disconnected with 0x94.
        topic_alias_maximum: u16 = 10,
            ValueType::Integer(1, 65_535).or("off", "clients may use none"),
            reload: NewConnections,
            why: "Each alias costs the broker a topic name for each connection.",
            standard: "5.0 clients are told it as Topic Alias Maximum [MQTT-3.3.2-9].",
            elsewhere: "mosquitto `max_topic_alias`, EMQX `mqtt.max_topic_alias`, \
                        FlashMQ `max_incoming_topic_alias_value`";
        /// Memory that clients may use in the whole broker: messages (each counted once), sessions,
        /// wills, subscriptions and their index, queues, unwritten output, half-received packets,
        /// topic aliases, retained messages, pages from the store. Beyond the limit QoS 1 and 2 are
        /// refused, and QoS 0 is dropped and counted; new subscriptions and sessions are refused,
        /// too. Half-received packets of clients have a quarter of the limit, and half-received
        /// packets before CONNACK a sixteenth. If the packets of one kind have more than their
        /// part, the connection with the largest of them is disconnected. The limit is at least
        /// packet_size. The process takes up to half as much again, 64 MiB, and 2 KiB for each
        /// connection.
        memory: ByteSize = ByteSize::gib(1),
            ValueType::Size(ONE_KIB, SIXTEEN_TIB).only(),
            reload: Live,
            why: "It fits a machine with 2 GiB.",
            elsewhere: "mosquitto `memory_limit`";
    }
}
