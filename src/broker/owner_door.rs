//! The door of the broker for the driver of the ownership of its cell, in a cluster
//! ([`crate::ownership`]).
//!
//! | output of the ownership | call |
//! |---|---|
//! | each stored append | `lease().set_until(ownership.lease_until())` |
//! | `Serve`, `Rejoin` | [`OwnerDoor::let_in`] |
//! | `Isolate`, `Flush` | [`OwnerDoor::shut_out`]; before `Flush`, the end of the lease |
//! | `StopAcknowledging` | `lease().set_until(Instant::ZERO)` |
//!
//! Four times a second the driver calls `lease().take_used()`. If it returns true, a promise left
//! by the lease alone, which the ownership has to hear. With `acks = "commit"` the driver never
//! sets the lease: each promise then waits for an append.

use super::observer::Observer;
use super::signals::Request;
use super::start_error::StartError;
use crate::shared::lease::Lease;

/// The door of a running broker. Cheap to clone, and usable on any thread.
#[derive(Clone)]
pub struct OwnerDoor(Observer);

impl OwnerDoor {
    /// Returns the door of the broker that this view is of.
    pub(super) fn new(observer: Observer) -> OwnerDoor {
        OwnerDoor(observer)
    }

    /// Returns the lease, which the shards read at each write of a promise.
    pub fn lease(&self) -> &Lease {
        &self.0.shared().lease
    }

    /// Opens the listeners that are closed, and lets clients in. Does nothing if the broker stops.
    /// Waits for a reload that is under way.
    ///
    /// # Errors
    /// The system refuses an address.
    pub async fn let_in(&self) -> Result<(), StartError> {
        self.0.request(Request::LetIn).await.unwrap_or(Ok(()))
    }

    /// Closes the listeners, and disconnects every client as at a stop: 5.0 clients get DISCONNECT
    /// 0x8B, and no will is published. Returns when every shard has begun it. Does nothing if the
    /// broker stops. Waits for a reload that is under way.
    pub async fn shut_out(&self) {
        // Without an answer the broker stops, and shuts its clients out by itself.
        let _ = self.0.request(Request::ShutOut).await;
    }
}
