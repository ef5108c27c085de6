//! The connection actor: one per client, on the thread of its session.
//!
//! Each connection is an actix actor with a mailbox and a life cycle. Its task polls its own
//! socket, and passes the bytes that it reads to the shard in the same turn. The mailbox gets
//! notices: wake-ups of the driver, and expired deadlines that tell the actor to retransmit or to
//! disconnect. The mailbox never gets messages of clients: the shard writes these into the outbox.
//!
//! This folder does not know the driver. The actor calls the trait [`ConnectionDriver`], so the
//! tests run an actor on a real socket without a shard.
//!
//! # Its context cannot spawn or wait
//!
//! [`ConnectionContext`] takes the place of `actix::Context`. The latter keeps some 350 bytes
//! inline for spawned futures, timers and waits, and an `Addr` that is held costs two allocations
//! more. A connection uses none of them, because its only future is its socket. At ten thousand
//! idle connections this saves four and a half megabytes. So `spawn` and `wait` panic, and with
//! them `run_later`, `run_interval` and asynchronous message handlers. A deadline belongs to the
//! expiry actor; `tests/layers.rs` checks that no file of a shard's thread names a timer.
//!
//! # Files
//!
//! | file | concern |
//! |---|---|
//! | `actor` | the actor: reads its socket, handles notices |
//! | `context` | the context of the actor, and the task that runs it |
//! | `far_socket` | the socket to another broker, behind the connection of a bridge |
//! | `handle` | the driver's way to the actor, and the flag that wakes the mailbox |
//! | `incoming` | a socket on its way to a shard |
//! | `kernel_view` | what the kernel says of the bytes of a socket |
//! | `peer` | the client's address |
//! | `transport` | the socket |
//! | `wrapped` | TLS and WebSocket on a socket, and the map from wire bytes to MQTT bytes |

mod actor;
mod context;
mod far_socket;
mod handle;
mod incoming;
mod kernel_view;
mod peer;
#[cfg(test)]
mod tests;
mod transport;
mod wrapped;

pub use actor::{ConnectionActor, ConnectionDriver};
pub use context::ConnectionContext;
pub use far_socket::{FarCodecs, FarProgress, FarSocket};
pub use handle::{ConnectionHandle, ConnectionNotice, Endpoint};
pub use incoming::{Incoming, Released};
pub use peer::{PeerAddress, is_loopback};
pub use transport::{DetachedTransport, SocketRead, Transport};
pub use wrapped::Wrapped;
