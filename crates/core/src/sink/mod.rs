//! HTTP services that get messages: sinks.
//!
//! A sink is an ordinary session with the client identifier `$sink/NAME`, and the shard knows
//! little more about it. What the shard sends to this subscriber becomes requests to a service, and
//! the answers of the service become acknowledgements:
//!
//! ```text
//! shard of $sink/NAME  ── PUBLISH ──>  Dispatcher  ── request ──>  the service
//!                      <── PUBACK ───              <── status ───
//! ```
//!
//! The dispatcher keeps nothing that would have to be stored: queue, window and redelivery are those
//! of the session. A message has the same identifier each time it is sent, also by a broker that
//! was killed in between: the number of its delivery, which is in the store.
//!
//! | file | concern |
//! |---|---|
//! | [`hello`] | the beginning of the connection to the shard |
//! | [`answer`] | the meaning of a status |
//! | [`encoding`] | a message as JSON, or as headers and a body |
//! | [`batch`] | the messages of one request |
//! | [`times`] | how long the service takes |
//! | [`dispatcher`] | what is sent when, what is sent again, what is acknowledged |

pub mod answer;
pub mod batch;
pub mod dispatcher;
#[cfg(test)]
mod dispatcher_tests;
pub mod encoding;
pub mod hello;
pub mod times;

use crate::named_enum::named_enum;

/// The beginning of the client identifiers of sinks. No client may use it.
pub const CLIENT_ID_PREFIX: &str = "$sink/";

/// Returns the client identifier of the sink with this name.
pub fn client_id(name: &str) -> String {
    format!("{CLIENT_ID_PREFIX}{name}")
}

named_enum! {
    /// The state of a sink.
    pub enum SinkState {
        /// The session gets its subscriptions.
        Starting = "starting",
        /// Messages are sent as they come.
        Ready = "ready",
        /// The last request failed. Messages wait, and it is sent again.
        Failing = "failing",
    }
}

named_enum! {
    /// The form of a request.
    #[derive(Default)]
    pub enum SinkFormat {
        /// A list of messages, as JSON.
        #[default]
        Json = "json",
        /// One message: its payload is the body, the rest is in headers.
        Raw = "raw",
    }
}
