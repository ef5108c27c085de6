//! Bans of addresses and of certificates, which only the driver knows.

use super::ShardDriver;
use crate::access::bans::{Ban, BanList};
use crate::broker::connection::{PeerAddress, Transport};
use crate::broker::message::BansChanged;
use crate::clock;
use std::sync::Arc;

/// Slots of connections that are checked in one go. A check takes 10 us with a certificate.
const CONNECTIONS_AT_ONCE: usize = 256;

impl ShardDriver {
    /// Puts new bans in force, and disconnects the clients that are banned now. Checks up to
    /// [`CONNECTIONS_AT_ONCE`] slots. Returns the first slot that is left, or `None` if none is.
    pub fn bans_changed(&self, change: &BansChanged) -> Option<usize> {
        let BansChanged { bans, from } = change;
        let end = from + CONNECTIONS_AT_ONCE;
        let (origins, is_left) = {
            let handles = self.handles.borrow();
            let open = handles.range(*from..end);
            let origins: Vec<_> =
                open.map(|handle| (handle.id, of_origin(bans, &handle.peer, handle.transport()))).collect();
            (origins, end < handles.slots())
        };
        let is_newest = self.in_new_turn(|shard, now| {
            if *from == 0 {
                shard.access_control().replace_bans(Some(Arc::clone(bans)));
            }
            let is_newest = shard.access_control().bans().is_some_and(|newest| Arc::ptr_eq(newest, bans));
            for (id, origin) in origins.into_iter().filter(|_| is_newest) {
                shard.access_control().disconnect_if_banned(now, id, origin);
            }
            is_newest
        });
        // A newer change has its own walk.
        (is_left && is_newest).then_some(end)
    }
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
