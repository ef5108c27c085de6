//! What a shard reports about itself and its clients. Nothing here changes a delivery.
//!
//! | file | concern |
//! |---|---|
//! | `client_events` | connected, disconnected, stalled and the like, for the event topics |
//! | `notes` | notes these events |
//! | `last_disconnect` | why each client was last disconnected |
//! | `longest_wait` | which clients have waited longest for an acknowledgement |
//! | `usage` | what the shard holds, counted |

pub mod client_events;
pub mod last_disconnect;
pub mod longest_wait;
mod notes;
pub mod usage;
