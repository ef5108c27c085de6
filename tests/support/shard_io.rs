//! The I/O of one shard in a simulation.

use homing::durability::read_requests::{DelayedRequest, PageRequest};
use homing::events::client_events::ClientEvent;
use homing::expiry::deadline::Registration;
use homing::login::authentication::AuthRequest;
use homing::operators::publish_command::PublicationAnswer;
use homing::peers::peer_batch::PeerBatch;
use homing::persistence::records::{Batch, RetainedRecord};
use homing::routing::subscription_tree::ShardId;
use homing::session::outbox::Outbox;
use homing::session::trace_steps::TraceSteps;
use homing::shard::ConnectionId;
use homing::shard::clients::connection::Leaves;
use homing::shard::turn::io::{EventMessages, Io, Written};
use homing::time::Instant;

/// The I/O of one shard. What follows a call is collected.
#[derive(Default)]
pub struct ShardIo {
    pub clock: Instant,
    /// Open connections, and the bytes that each takes.
    pub room: Vec<(ConnectionId, usize)>,
    pub written: Vec<(ConnectionId, Vec<u8>)>,
    pub finished: Vec<ConnectionId>,
    pub resumed: Vec<ConnectionId>,
    pub batches: Vec<Batch>,
    pub retained: Vec<RetainedRecord>,
    pub pages: Vec<PageRequest>,
    pub peer_batches: Vec<(ShardId, PeerBatch)>,
}

impl Io for ShardIo {
    fn write(&mut self, id: ConnectionId, outbox: &mut Outbox) -> Option<Written> {
        let (_, room) = self.room.iter_mut().find(|(open, _)| *open == id)?;
        let bytes: Vec<u8> = outbox.pieces().iter().flat_map(|piece| piece.to_vec()).take(*room).collect();
        *room -= bytes.len();
        outbox.advance(bytes.len());
        let taken = bytes.len();
        if taken > 0 {
            self.written.push((id, bytes));
        }
        Some(Written::plain(taken))
    }

    fn read_clock(&mut self) -> Instant {
        self.clock
    }

    /// The simulation flushes a connection whose socket has room again.
    fn await_writable(&mut self, _: ConnectionId) {}

    fn finish(&mut self, id: ConnectionId, _: Leaves) {
        self.finished.push(id);
    }

    fn store_retained(&mut self, changes: Vec<RetainedRecord>) {
        self.retained.extend(changes);
    }

    fn commit(&mut self, batch: Batch) {
        self.batches.push(batch);
    }

    fn read_page(&mut self, request: PageRequest) {
        self.pages.push(request);
    }

    fn read_delayed(&mut self, _: DelayedRequest) {}

    fn send_to_peer(&mut self, to: ShardId, batch: PeerBatch) {
        self.peer_batches.push((to, batch));
    }

    fn register(&mut self, _: Instant, _: Vec<Registration>) {}

    fn read_now(&mut self, id: ConnectionId) {
        self.resumed.push(id);
    }

    fn resume(&mut self, id: ConnectionId) {
        self.resumed.push(id);
    }

    fn authenticate(&mut self, _: AuthRequest) {}

    fn answer_operator(&mut self, _: PublicationAnswer) {}

    fn trace(&mut self, _: TraceSteps) {}

    fn report(&mut self, _: Instant, _: &ClientEvent) -> EventMessages {
        EventMessages::default()
    }
}
