//! Connected clients that may not stay: bans of addresses and of certificates, and certificates
//! that are not valid any more. Only the driver knows the sockets.

use super::ShardDriver;

use crate::access::bans::{Ban, BanList};
use crate::broker::connection::{ConnectionHandle, PeerAddress, Transport};
use crate::broker::message::{BansChanged, TlsChanged};
use crate::broker::revocations::RevokedBy;
use crate::clock;
use crate::events::client_events::{DisconnectCause, Revocation};
use crate::login::listener_terms::ListenerTerms;
use crate::mqtt::packet::ReasonCode;
use crate::net::tls::verify::ChainError;
use crate::shard::rules::permission_changes::BanCheck;
use std::sync::{Arc, Weak};

/// Slots of connections that are checked in one go. A check takes 10 us with a certificate.
const CONNECTIONS_AT_ONCE: usize = 256;

/// The time for which certificates are checked in one go. A check takes 50 us for an ordinary chain
/// and up to 2 ms for the most costly one that is looked at.
const CHECK_NANOS: u64 = 2_000_000;

impl ShardDriver {
    /// Puts new bans in force, and disconnects the clients that are banned now. Checks up to
    /// [`CONNECTIONS_AT_ONCE`] slots, for one turn at most. Returns [`BansChanged::from`] of the
    /// rest, or `None` if no slot is left.
    pub fn bans_changed(&self, change: &BansChanged) -> Option<usize> {
        let BansChanged { bans, from, tally } = change;
        let first = from.saturating_sub(1);
        let end = first + CONNECTIONS_AT_ONCE;
        let (origins, is_left) = {
            let handles = self.handles.borrow();
            let open = handles.range(first..end);
            let origins: Vec<_> =
                open.map(|handle| (handle.id, of_origin(bans, &handle.peer, handle.transport()))).collect();
            (origins, end < handles.slots())
        };
        let (is_newest, rest) = self.in_new_turn(|shard, now| {
            if *from == 0 {
                shard.permission_changes().replace_bans(Some(Arc::clone(bans)));
            }
            let is_newest = shard.permission_changes().bans().is_some_and(|newest| Arc::ptr_eq(newest, bans));
            let mut origins = origins.into_iter().filter(|_| is_newest);
            let rest = origins.find_map(|(id, origin)| {
                let (mut control, slot) = (shard.permission_changes(), id.slot as usize);
                let check = control.disconnect_if_banned(now, id, origin);
                tally.add(RevokedBy::Bans, u64::from(check == BanCheck::Disconnected));
                match check {
                    BanCheck::Later => Some(slot + 1),
                    _ => control.is_turn_over().then_some(slot + 2),
                }
            });
            (is_newest, rest)
        });
        // A newer change has its own walk.
        rest.or(is_left.then_some(end + 1)).filter(|_| is_newest)
    }

    /// Checks the certificates of clients again, for up to [`CHECK_NANOS`]. Disconnects clients
    /// whose certificates are no longer valid. Returns the first slot that is left, or `None` if
    /// none is.
    pub fn tls_changed(&self, change: &TlsChanged) -> Option<usize> {
        let TlsChanged { listener, server, from, tally } = change;
        if *from == 0 {
            let mut changed = self.changed_tls.borrow_mut();
            changed.retain(|(other, _)| !other.ptr_eq(listener) && other.strong_count() > 0);
            changed.push((listener.clone(), Arc::clone(server)));
        }
        let is_newest =
            |(other, newest): &(Weak<_>, _)| other.ptr_eq(listener) && Arc::ptr_eq(newest, server);
        if !self.changed_tls.borrow().iter().any(is_newest) {
            // A newer change has its own walk.
            return None;
        }
        let unix_ms = clock::unix_millis();
        let (mut refused, mut next) = (Vec::new(), *from);
        let is_left = {
            let (handles, shard, began) = (self.handles.borrow(), self.shard.borrow(), clock::nanos());
            while next < handles.slots() && clock::nanos() - began < CHECK_NANOS {
                let of_listener = |handle: &&ConnectionHandle<_>| {
                    shard.connection(handle.id).listener().is_some_and(|own| is_same(own, listener))
                };
                if let Some(handle) = handles.range(next..next + 1).find(of_listener)
                    && let Err(error) = handle.transport().check_chain(server, unix_ms)
                {
                    refused.push((handle.id, error));
                }
                next += 1;
            }
            next < handles.slots()
        };
        self.in_new_turn(|shard, now| {
            for (id, error) in refused {
                let cause = DisconnectCause::Revoked(Revocation::Certificate(error.to_string().into()));
                if shard.disconnect(now, id, Some(ReasonCode::NOT_AUTHORIZED), cause) {
                    tally.add(RevokedBy::Tls, 1);
                }
            }
        });
        is_left.then_some(next)
    }

    /// Checks the certificate of a client whose TLS handshake may be older than the TLS of its
    /// listener: a WebSocket upgrade or a move between shards may come in between. Errors: the
    /// chain is not valid any more.
    pub(super) fn check_newcomer(
        &self,
        listener: &Arc<ListenerTerms>,
        transport: &Transport,
    ) -> Result<(), ChainError> {
        let changed = self.changed_tls.borrow();
        match changed.iter().find(|(changed, _)| is_same(listener, changed)) {
            Some((_, server)) => transport.check_chain(server, clock::unix_millis()),
            None => Ok(()),
        }
    }
}

/// Returns true if both are the same listener.
fn is_same(one: &Arc<ListenerTerms>, other: &Weak<ListenerTerms>) -> bool {
    std::ptr::eq(Arc::as_ptr(one), other.as_ptr())
}

/// Returns the ban of an address or of a certificate, if one holds.
pub(super) fn of_origin(bans: &BanList, peer: &PeerAddress, transport: &Transport) -> Option<Ban> {
    let unix_ms = clock::unix_millis();
    if peer.socket_address().is_some_and(|address| bans.has_address(unix_ms, address.ip())) {
        return Some(Ban::Address);
    }
    let has_serial = |serial: String| bans.has_serial(unix_ms, &serial);
    (bans.has_serials() && transport.client_serial().is_some_and(has_serial)).then_some(Ban::Serial)
}
