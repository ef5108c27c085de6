//! The other parts of the broker that a driver sends messages to: peers, the expiry actor and the
//! store.
//!
//! The parts start one after the other, and a shard works before all of them are known. The
//! supervisor first sends every shard its peers, and then the expiry actor.

use crate::broker::authenticator::{AuthClient, AuthClientParts};
use crate::broker::connection::Incoming;
use crate::broker::message::{Adopt, ConnectPeers, PeerAddresses, PeerTurn};
use crate::clock;
use crate::expiry::actor::ExpiryActor;
use crate::expiry::deadline::Registration;
use crate::expiry::message::{Register, Survey};
use crate::peers::peer_batch::PeerBatch;
use crate::routing::subscription_tree::ShardId;
use crate::store::writer::ToStore;
use crate::time::Instant;
use actix::Addr;
use std::cell::{OnceCell, RefCell};

/// The ways out of one shard's thread.
pub(super) struct Destinations {
    here: ShardId,
    /// By number, this shard included. Empty until the supervisor has connected the shards.
    peers: OnceCell<Vec<PeerAddresses>>,
    /// Empty without a store.
    store: OnceCell<ToStore>,
    /// Empty without an authenticator.
    authenticator: OnceCell<AuthClient>,
    expiry: OnceCell<Addr<ExpiryActor>>,
    /// Deadlines that were set before the expiry actor was known.
    early: RefCell<Vec<Registration>>,
}

impl Destinations {
    /// Returns the destinations of a shard that knows none yet.
    pub(super) fn new(here: ShardId) -> Destinations {
        Destinations {
            here,
            peers: OnceCell::new(),
            store: OnceCell::new(),
            authenticator: OnceCell::new(),
            expiry: OnceCell::new(),
            early: RefCell::default(),
        }
    }

    /// Returns the number of the shard that sends.
    pub(super) fn here(&self) -> ShardId {
        self.here
    }

    /// Sets the peers, and the store and the authenticator if they exist.
    pub(super) fn connect(&self, all: ConnectPeers) {
        let _ = self.peers.set(all.peers);
        if let Some(store) = all.store {
            let _ = self.store.set(store);
        }
        if let Some(parts) = all.authenticator {
            self.connect_authenticator(parts);
        }
    }

    /// Sets the authenticator. Later calls have no effect.
    pub(super) fn connect_authenticator(&self, parts: AuthClientParts) {
        let _ = self.authenticator.set(AuthClient::new(parts));
    }

    /// Returns the way to the authenticator; `None` without one.
    pub(super) fn authenticator(&self) -> Option<&AuthClient> {
        self.authenticator.get()
    }

    /// Returns true once the peers are known.
    pub(super) fn is_connected(&self) -> bool {
        self.peers.get().is_some()
    }

    /// Sets the expiry actor, and registers the deadlines that waited.
    pub(super) fn start_timers(&self, expiry: Addr<ExpiryActor>) {
        let batch = self.early.take();
        let _ = self.expiry.set(expiry);
        if !batch.is_empty() {
            self.register(clock::now(), batch);
        }
    }

    /// Registers deadlines, or holds them back until the expiry actor is known.
    pub(super) fn register(&self, now: Instant, batch: Vec<Registration>) {
        match self.expiry.get() {
            Some(expiry) => expiry.do_send(Register { shard: u16::from(self.here.0), batch, sent: now }),
            None => self.early.borrow_mut().extend(batch),
        }
    }

    /// Requests that the expiry actor counts the deadlines that are due soon.
    pub(super) fn survey_deadlines(&self) {
        if let Some(expiry) = self.expiry.get() {
            expiry.do_send(Survey);
        }
    }

    pub(super) fn send_to_peer(&self, to: ShardId, batch: PeerBatch) {
        if let Some(peer) = self.peer(to) {
            peer.batches.do_send(PeerTurn(batch));
        }
    }

    pub(super) fn send_socket(&self, to: ShardId, incoming: Incoming) {
        if let Some(peer) = self.peer(to) {
            peer.sockets.do_send(Adopt(vec![incoming]));
        }
    }

    /// Returns the way to the store; `None` without one.
    pub(super) fn store(&self) -> Option<&ToStore> {
        self.store.get()
    }

    fn peer(&self, shard: ShardId) -> Option<&PeerAddresses> {
        self.peers.get()?.get(usize::from(shard.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::deadline::DeadlineKind;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn deadlines_wait_until_the_expiry_actor_is_known() {
        actix_rt::System::new().block_on(async {
            let destinations = Destinations::new(ShardId(0));
            let registration = Registration {
                kind: DeadlineKind::Session,
                slot: 1,
                generation: 2,
                deadline: Instant::from_millis(5_000),
            };
            destinations.register(Instant::ZERO, vec![registration]);
            destinations.register(Instant::ZERO, vec![registration]);
            assert_eq!(destinations.early.borrow().len(), 2);
            let actor = ExpiryActor::new(Duration::from_secs(1), Vec::new(), Arc::default());
            destinations.start_timers(actix::Actor::start(actor));
            assert_eq!(destinations.early.borrow().len(), 0);
            destinations.register(Instant::ZERO, vec![registration]);
            assert_eq!(destinations.early.borrow().len(), 0, "sent at once");
        });
    }
}
