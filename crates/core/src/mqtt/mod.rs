//! The protocol: bytes, packets, topics and messages.
//!
//! This folder is pure and knows no session and no connection. The session, the routing and the
//! shard call it. From this crate it imports only [`crate::time`].
//!
//! | file | concern |
//! |---|---|
//! | [`codec`] | from bytes to packets and back, for every version |
//! | [`packet`] | the control packets as values |
//! | [`topic`] | Topic Names and Topic Filters |
//! | [`message`] | one application message, as the broker stores it |
//! | [`excerpt`] | the beginning of a long text |
//! | [`publisher_name`] | the name of a publisher, which its messages share |
//! | [`retained_message`] | a retained message with the client that published it |
//! | [`owner`] | the client for which a retained or delayed message counts |
//! | [`will`] | the Will Message of a CONNECT |
//! | [`outcome`] | the result of a publication |
//! | [`subscription_ids`] | the Subscription Identifiers of one delivery |
//! | [`audit`] | the number by which a trace follows a message |
//! | [`charge`] | the account of `limits.memory` |
//! | [`websocket`] | MQTT over WebSocket: frame headers, and the upgrade of a client |
//! | [`keyed`] | a hash that clients cannot predict, for tables with their strings as keys |

pub mod audit;
pub mod charge;
pub mod codec;
pub mod excerpt;
pub mod keyed;
pub mod message;
pub mod outcome;
pub mod owner;
pub mod packet;
pub mod publisher_name;
pub mod retained_message;
pub mod subscription_ids;
pub mod topic;
pub mod websocket;
pub mod will;
