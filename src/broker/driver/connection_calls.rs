//! The calls of the connection actors: bytes, deadlines and the end of a socket for the shard.

use super::ShardDriver;
use crate::broker::connection::{ConnectionDriver, Incoming, Released};
use crate::clock;
use crate::events::client_events::DisconnectCause;
use crate::login::listener_terms::ListenerTerms;
use crate::mqtt::packet::ReasonCode;
use crate::routing::subscription_tree::ShardId;
use crate::session::outbound::stall::SocketView;
use crate::shard::clients::deadlines::IdleConnection;
use crate::shard::{ConnectionId, Input, ReadProgress};
use std::cell::RefMut;
use std::sync::Arc;

impl ConnectionDriver for ShardDriver {
    fn begin_turn(&self) {
        self.shard.borrow_mut().begin_turn();
    }

    fn read_buffer(&self) -> RefMut<'_, Vec<u8>> {
        self.read_buffer.borrow_mut()
    }

    fn opened(&self) -> RefMut<'_, Vec<u8>> {
        self.opened.borrow_mut()
    }

    fn read_size(&self, id: ConnectionId) -> usize {
        self.look(|shard| shard.connection(id).read_size())
    }

    fn is_silent(&self, id: ConnectionId) -> bool {
        self.look(|shard| {
            let connection = shard.connection(id);
            connection.reads() && connection.is_silent(clock::now())
        })
    }

    fn has_unread(&self, id: ConnectionId) -> bool {
        self.look(|shard| shard.connection(id).has_unread())
    }

    fn has_waiting(&self, id: ConnectionId) -> bool {
        self.look(|shard| shard.connection(id).has_waiting())
    }

    fn take_in(&self, id: ConnectionId, bytes: &[u8]) -> ReadProgress {
        self.traffic.add_received(bytes.len());
        self.with_shard(|shard, now| shard.take_in(now, id, bytes, &mut self.io()))
    }

    fn await_rest(&self, id: ConnectionId, has_partial: bool) {
        self.with_shard(|shard, now| shard.input(now, Input::AwaitRest { id, has_partial }));
    }

    fn flush_connection(&self, id: ConnectionId) {
        self.with_shard(|shard, now| shard.flush_connection(now, id, &mut self.io()));
    }

    fn half_close(&self, id: ConnectionId) -> bool {
        self.with_shard(|shard, now| shard.half_close(now, id))
    }

    fn acknowledgement_due(&self, id: ConnectionId, view: SocketView) {
        self.with_shard(|shard, now| shard.input(now, Input::AcknowledgementDue(id, view)));
    }

    fn keys_used_up(&self, id: ConnectionId) {
        let reason = ReasonCode::MAXIMUM_CONNECT_TIME;
        let why = DisconnectCause::MaximumConnectTime("the keys of TLS 1.2 are used up");
        self.with_shard(|shard, now| shard.disconnect(now, id, Some(reason), why));
    }

    fn disconnect_if_due(&self, id: ConnectionId) -> IdleConnection {
        self.with_shard(|shard, now| IdleConnection::check(now, id, shard))
    }

    fn release(&self, id: ConnectionId) -> Option<Released> {
        let peer = self.forget(id);
        let (accepted, arrival) = self.with_shard(|shard, _| shard.moved(id))?;
        Some(Released { peer: peer?, accepted, arrival })
    }

    fn move_to_shard(&self, shard: ShardId, socket: Result<Incoming, Arc<ListenerTerms>>) {
        match socket {
            Ok(incoming) => self.destinations.send_socket(shard, incoming),
            Err(listener) => self.statistics.connection_closed(&listener.connections),
        }
    }

    /// Reports the event at once, while the driver knows the client's address.
    fn closed(&self, id: ConnectionId, why: &str) {
        let pending = self.handles.borrow().find(id).map_or(0, |handle| handle.transport().pending_bytes());
        let listener = self.look(|shard| shard.connection(id).listener().cloned());
        self.with_shard(|shard, now| {
            if pending > 0 {
                shard.input(now, Input::DidNotLeave(id, pending));
            }
            shard.input(now, Input::Closed(id, why));
            shard.report_events(now, &mut self.io());
        });
        // Counted before the handle is dropped, because a client that sees the close may take the
        // free place at once.
        if let Some(listener) = listener {
            self.statistics.connection_closed(&listener.connections);
        }
        self.forget(id);
    }
}
