//! The client's end of the protocol, for connections that the broker itself makes: bridges.
//!
//! A bridge joins two brokers. Here it is an ordinary session with the client identifier
//! `$bridge/NAME`, and the shard knows nothing more about it. At the other broker it is an ordinary
//! client. [`link::Link`] stands between them:
//!
//! ```text
//! shard of $bridge/NAME  <── here ──>  Link  <── there ──>  the other broker
//! ```
//!
//! What the shard sends to its subscriber is, there, the PUBLISH of a client; what comes from there
//! is, here, the PUBLISH of a client. Packet Identifiers pass unchanged, because the identifiers of
//! the two directions are independent on both connections. So the link keeps nothing that would
//! have to be stored: window, queue, redelivery and QoS 2 identifiers are those of the two
//! sessions.
//!
//! | file | concern |
//! |---|---|
//! | [`rules`] | the topics that pass, and their names at the other side |
//! | [`hello`] | CONNECT to the other broker, its CONNACK, and CONNECT to the shard |
//! | [`identifiers`] | a set of Packet Identifiers |
//! | [`link`] | the packets of an established connection, in both directions |
//! | `answers` | acknowledgements that pass, and those of the link itself |
//! | `freeing` | the identifiers that the other broker remembers of an earlier session here |
//! | `subscribe` | SUBSCRIBE and UNSUBSCRIBE to both sides |
//! | `notification` | the state of the bridge on a topic of the other broker |
//! | `outcome` | the end of such a connection, its counts and news |
//! | [`path`] | the brokers that a message has passed, against loops over more than two; two need No Local alone (`rules`) |
//! | [`deadlines`] | PINGREQ, brokers that do not answer or acknowledge, and connections without messages |
//! | [`backoff`] | the time until the next attempt to connect, or to send a request of a sink |

mod answers;
pub mod backoff;
pub mod deadlines;
mod freeing;
pub mod hello;
pub mod identifiers;
pub mod link;
#[cfg(test)]
mod link_tests;
mod notification;
mod outcome;
pub mod path;
pub mod rules;
mod subscribe;

use crate::named_enum::named_enum;

/// The beginning of the client identifiers of bridges. No client may use it.
pub const CLIENT_ID_PREFIX: &str = "$bridge/";

/// Returns the topic on which brokers tell the state of a bridge, as mosquitto does. `client_id` is
/// that at the other broker.
pub fn notification_topic(client_id: &str) -> String {
    format!("$SYS/broker/connection/{client_id}/state")
}

/// Returns the client identifier of the bridge with this name.
pub fn client_id(name: &str) -> String {
    format!("{CLIENT_ID_PREFIX}{name}")
}

named_enum! {
    /// The state of a bridge.
    pub enum BridgeState {
        /// The name of the other broker is resolved, or its socket or TLS is not connected yet.
        Dialling = "dialling",
        /// CONNECT is sent.
        AwaitingConnack = "awaiting_connack",
        /// The other broker has accepted CONNECT, and has not answered SUBSCRIBE.
        Subscribing = "subscribing",
        /// Messages pass in both directions.
        Established = "established",
        /// The next attempt has its time.
        Waiting = "waiting",
        /// No connection is wanted: until a message waits, or an operator asks for one.
        Idle = "idle",
    }

    /// The time at which a bridge connects.
    #[derive(Default)]
    pub enum ConnectWhen {
        /// Always.
        #[default]
        Always = "always",
        /// From the first message that waits here until none has passed for a while.
        OnDemand = "on_demand",
        /// From the order of an operator on.
        Manual = "manual",
    }

    /// The last order of an operator to a bridge.
    #[derive(Default)]
    pub enum ConnectOrder {
        /// None: the configuration counts.
        #[default]
        None = "none",
        /// To connect.
        Connect = "connect",
        /// To disconnect, and to stay so.
        Disconnect = "disconnect",
    }
}

impl ConnectWhen {
    /// Returns true if a bridge has to connect now. `has_messages` is true if messages wait here.
    pub fn wants(self, order: ConnectOrder, has_messages: bool) -> bool {
        match (order, self) {
            (ConnectOrder::Disconnect, _) | (ConnectOrder::None, ConnectWhen::Manual) => false,
            (ConnectOrder::Connect, _) | (ConnectOrder::None, ConnectWhen::Always) => true,
            (ConnectOrder::None, ConnectWhen::OnDemand) => has_messages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_counts_more_than_the_configuration() {
        use ConnectWhen::{Always, Manual, OnDemand};
        for (when, nothing_waits, messages_wait) in
            [(Always, true, true), (OnDemand, false, true), (Manual, false, false)]
        {
            assert_eq!(when.wants(ConnectOrder::None, false), nothing_waits);
            assert_eq!(when.wants(ConnectOrder::None, true), messages_wait);
            assert!(when.wants(ConnectOrder::Connect, false));
            assert!(!when.wants(ConnectOrder::Disconnect, true));
        }
    }
}
