//! The keys of `[redelivery]`.

use crate::config::redelivery_rule;
use crate::config::rule::{ValueType, days, millis};
use crate::config::table::section;
use crate::config::{OnAckTimeout, OnExhausted};
use crate::named_enum::Named;
use crate::session::drops::{DropReason, DropReasons};
use crate::session::redelivery_rule::RedeliveryRule;
use std::time::Duration;

section! {
    /// The treatment of a QoS 1 or 2 message that stays unacknowledged on a live connection. 3.1
    /// and 3.1.1 clients get the message again. 5.0 clients never do [MQTT-4.4.0-1]: they are
    /// reported or disconnected. The standard requires redelivery at reconnect, which has no
    /// switch.
    [redelivery] Redelivery {
        /// Time until an unacknowledged QoS 1 or 2 message is sent again on a live 3.1 or 3.1.1
        /// connection. The time counts from when the client's kernel has the message. Redelivery at
        /// reconnect goes on with "off".
        interval: Duration = Duration::from_secs(15),
            ValueType::Duration(millis(1), days(1)).or("off", "never on a live connection"),
            reload: Live,
            why: "It is longer than most work that a client does before it acknowledges.",
            standard: "5.0 forbids a resend on a live connection [MQTT-4.4.0-1]; 3.1.1 leaves it open.",
            elsewhere: "EMQX `mqtt.retry_interval`, NATS `ack_wait`";
        /// The factor by which the spacing grows with each resend of the same message.
        backoff: f64 = 2.0,
            ValueType::Number(1.0, 10.0).only(),
            reload: Live,
            why: "If a resend did not help, the next one is less likely to help, and a slow link gets fewer of them.";
        /// The shortest `interval` or `ack_timeout` that a client may request for its own session.
        /// A client requests them in 5.0 by the CONNECT user property `ack-timeout` (CONNACK says
        /// what is granted), and in any version by a publish of, say, 5s to
        /// `$homing/session/retry-interval` or `$homing/session/ack-timeout`. The client is granted
        /// no less than this, and no more than `max_backoff` or `max_ack_timeout`, or "off". The
        /// granted times are published to the client on `$homing/session/granted`.
        min_requested: Duration = Duration::from_secs(1),
            ValueType::Duration(millis(1), days(1)).only(),
            reload: Live,
            why: "A client cannot make the broker resend without a pause.";
        /// The longest spacing to which `backoff` grows; at least `interval`.
        max_backoff: Duration = Duration::from_secs(300),
            ValueType::Duration(millis(1), days(7)).only(),
            reload: Live,
            why: "A client that has recovered gets its message within minutes.";
        /// The share of the spacing that chance may add, once for each connection and round. Chance
        /// never shortens the spacing.
        jitter: f64 = 0.2,
            ValueType::Number(0.0, 1.0).only(),
            reload: Live,
            why: "A fleet that stalled together does not get its messages again together.";
        /// Resends of one message before `on_exhausted`.
        attempts: u16 = 3,
            ValueType::Integer(1, 65_535).or("unlimited", "on_exhausted never applies"),
            reload: Live,
            why: "Resends after 15 s, 45 s and 105 s; a client that stays stuck is disconnected after 225 s, and with the most jitter after 270 s.";
        /// The action when the attempts are used up. "disconnect" closes the connection where the
        /// session outlives it, so that the client returns and gets its messages again; elsewhere
        /// it acts as "keep". "keep" goes on every `max_backoff`. "dead_letter" drops the message
        /// and publishes it to `$dead/<client id>/<its topic>`; resends then count over all
        /// connections, and in 5.0 too.
        on_exhausted: OnExhausted = OnExhausted::Disconnect,
            ValueType::OneOf(OnExhausted::NAMES).only(),
            reload: Live,
            why: "No message is dropped unless you say so.";
        /// Resends to one connection within one `expiry.tick`. The rest follow in the next.
        resends_per_tick: u32 = 100,
            ValueType::Integer(1, 65_535).only(),
            reload: Live,
            why: "It is a whole window of the default `limits.in_flight`.";
        /// The time that a 5.0 client may leave a message unacknowledged. The time counts from when
        /// the client's kernel has the message. `on_ack_timeout` says what happens then.
        ack_timeout: Duration = Duration::from_secs(60),
            ValueType::Duration(millis(1), days(1)).or("off", "for ever"),
            reload: Live,
            why: "It is four times what 3.x clients are given before a resend, since a disconnect costs more.",
            standard: "5.0 forbids a resend on a live connection [MQTT-4.4.0-1].",
            elsewhere: "NATS `ack_wait`";
        /// The longest ack timeout of a slow client. Each disconnect for the same message doubles
        /// the ack timeout of that session, up to this, so that a slow client gets the time it
        /// needs. The value is at least `ack_timeout`.
        max_ack_timeout: Duration = Duration::from_secs(3600),
            ValueType::Duration(millis(1), days(7)).only(),
            reload: Live,
            why: "Six disconnects for the same message lead to it from the default `ack_timeout`.";
        /// The action on a 5.0 client that does not acknowledge in time. "auto" disconnects it
        /// (0x97, with a Reason String) where the session outlives the connection, so that the
        /// client returns and gets its messages again; elsewhere it acts as "alarm". "alarm" is a
        /// log line and a count every `ack_timeout`. "disconnect" disconnects the client even where
        /// the message ends with its session. A disconnect publishes the client's will; a will
        /// delay avoids that.
        on_ack_timeout: OnAckTimeout = OnAckTimeout::Auto,
            ValueType::OneOf(OnAckTimeout::NAMES).only(),
            reload: Live,
            why: "A message is redelivered where that is possible, and dropped nowhere.";
        /// True if a message becomes a dead letter when a 5.0 client acknowledges it with a reason
        /// code of 0x80 or above. The message is finished for that client, and counted, either way.
        negative_ack: bool = false,
            ValueType::Boolean.only(),
            reload: Live,
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
        dead_letters: DropReasons = DropReasons::default(),
            ValueType::SomeOf(&DropReason::DEAD_LETTER_CAUSES).only(),
            reload: Live,
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
            ValueType::Tables("redelivery.rules", redelivery_rule::problems).only(),
            reload: Live;
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
}
