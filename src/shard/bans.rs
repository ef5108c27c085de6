//! The bans in force, and the clients that they concern.
//!
//! Address, certificate and client identifier are checked before authentication. The user is
//! checked after it, so that nobody learns without the right credentials that a user is banned.

use crate::access::bans::{Ban, BanList};
use crate::access::identity::Identity;
use crate::mqtt::packet::ReasonCode;
use crate::session::connect::ConnectRefusal;
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::observe::client_events::DisconnectCause;
use crate::shard::slots::ConnectionId;
use crate::time::Instant;
use std::sync::Arc;

impl Shard {
    /// Replaces the bans; `None` for none. They hold for each CONNECT from now on. The caller finds the connected
    /// clients that are banned now with [`Self::disconnect_if_banned`].
    pub fn replace_bans(&mut self, bans: Option<Arc<BanList>>) {
        self.core.bans = bans;
    }

    /// Returns the bans; `None` if none are configured.
    pub fn bans(&self) -> Option<&Arc<BanList>> {
        self.core.bans.as_ref()
    }

    /// Disconnects a client with 0x98 if it is banned. `origin` is the ban of its address or of its
    /// certificate, if one holds.
    // 5.0 section 3.14.2.1: 0x8A stands in CONNACK alone.
    pub fn disconnect_if_banned(&mut self, now: Instant, id: ConnectionId, origin: Option<Ban>) {
        if let Some(ban) = origin.or_else(|| ban_of_session(now, id, &self.core)) {
            let reason = Some(ReasonCode::ADMINISTRATIVE_ACTION);
            self.disconnect(now, id, reason, DisconnectCause::Banned(ban));
        }
    }
}

/// Returns the ban of the session of a connection, if one holds.
fn ban_of_session(now: Instant, id: ConnectionId, core: &Core) -> Option<Ban> {
    let bans = core.bans.as_ref()?;
    let session_entry = core.connections.get(id)?.session.and_then(|session| core.sessions.get(session))?;
    let unix_ms = core.dead_letters.wall().at(now);
    let has_user = |user: &Arc<Identity>| bans.has_user(unix_ms, user.user());
    if bans.has_client(unix_ms, &session_entry.session.client_id) {
        return Some(Ban::Client);
    }
    session_entry.user().is_some_and(has_user).then_some(Ban::User)
}

/// Checks address, certificate and client identifier of a CONNECT.
///
/// # Errors
/// The refusal, if one of them is banned.
pub(super) fn check_client(
    now: Instant,
    id: ConnectionId,
    client_id: &str,
    core: &mut Core,
) -> Result<(), ConnectRefusal> {
    let Some(bans) = &core.bans else { return Ok(()) };
    let origin = core.connections.get(id).and_then(|connection| connection.rare()?.ban);
    let has_client = || bans.has_client(core.dead_letters.wall().at(now), client_id);
    match origin.or_else(|| has_client().then_some(Ban::Client)) {
        Some(ban) => Err(refusal(ban, core)),
        None => Ok(()),
    }
}

/// Checks the user of a CONNECT whose credentials are right.
///
/// # Errors
/// The refusal, if the user is banned.
pub(super) fn check_user(
    now: Instant,
    user: Option<&Identity>,
    core: &mut Core,
) -> Result<(), ConnectRefusal> {
    match (&core.bans, user) {
        (Some(bans), Some(user)) if bans.has_user(core.dead_letters.wall().at(now), user.user()) => {
            Err(refusal(Ban::User, core))
        }
        _ => Ok(()),
    }
}

/// Counts and returns a refusal. The text is for the log alone, because it would help to evade the
/// ban.
fn refusal(ban: Ban, core: &mut Core) -> ConnectRefusal {
    core.counters.banned_connects += 1;
    ConnectRefusal::untold(ReasonCode::BANNED, ban.text())
}
