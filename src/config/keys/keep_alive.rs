//! The keys of `[keep_alive]`.

use crate::config::rule::ValueType;
use crate::config::table::section;
use std::time::Duration;

section! {
    /// Bounds on the Keep Alive that clients ask for.
    [keep_alive] KeepAlive {
        /// The longest Keep Alive. A 5.0 client that asks for a longer one, or for none, is told to
        /// use this one. A 3.1 or 3.1.1 client that asks for a longer one is refused (return code
        /// 2), because it cannot be told another one. A client that sends no packet for one and a
        /// half times its Keep Alive is disconnected (5.0: 0x8D).
        maximum: Duration = Duration::ZERO,
            ValueType::WholeSeconds(1, 65_535).or("unlimited", "the client's choice"),
            reload: NewConnections,
            why: "A client knows best how often it can afford to send.",
            standard: "Server Keep Alive is a two-byte number of seconds [MQTT-3.2.2-21], [MQTT-3.2.2-22]. One and a half times \
                       the Keep Alive is the time of [MQTT-3.1.2-22].",
            elsewhere: "mosquitto `max_keepalive`, EMQX `mqtt.server_keepalive`";
        /// True if a 3.1 or 3.1.1 client may have no Keep Alive at all (Keep Alive 0). With false
        /// such a client is refused (return code 2), and `maximum` must be set.
        allow_never: bool = true,
            ValueType::Boolean.only(),
            reload: NewConnections,
            why: "Some clients of 3.x have no Keep Alive.";
    }
}
