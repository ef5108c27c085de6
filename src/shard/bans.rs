//! The bans in force, and the clients that they concern.
//!
//! Address, certificate and client identifier are checked before authentication. The user is
//! checked after it, so that nobody learns without the right credentials that a user is banned.

use crate::access::bans::Ban;
use crate::access::identity::Identity;
use crate::mqtt::packet::ReasonCode;
use crate::session::connect::ConnectRefusal;
use crate::shard::core::Core;
use crate::shard::flapping::FlappingKey;
use crate::shard::session_entry::SessionEntry;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::sync::Arc;

/// Returns the ban of the session of a connection, if one holds.
pub(crate) fn ban_of_session(now: Instant, id: ConnectionId, core: &mut Core) -> Option<Ban> {
    let bans = core.bans.as_ref()?;
    let session_entry = core.connections.get(id)?.session.and_then(|session| core.sessions.get(session))?;
    core.turn.charge_globs(bans.looked_at(&session_entry.session.client_id));
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
    core.turn.charge_globs(bans.looked_at(client_id));
    let origin = core.connections.get(id).and_then(|connection| connection.rare()?.ban);
    let has_client = || bans.has_client(core.dead_letters.wall().at(now), client_id);
    match origin.or_else(|| has_client().then_some(Ban::Client)) {
        Some(ban) => Err(refusal(ban, core)),
        None => Ok(()),
    }
}

/// Checks the user of a CONNECT whose credentials are right, and the connects of this client
/// before.
///
/// # Errors
/// The refusal, if the user is banned, or if the client connected too often.
pub(super) fn check_user(
    now: Instant,
    client_id: &str,
    user: Option<&Identity>,
    core: &mut Core,
) -> Result<(), ConnectRefusal> {
    let Some(user) = user else { return Ok(()) };
    if let Some(bans) = &core.bans
        && bans.has_user(core.dead_letters.wall().at(now), user.user())
    {
        return Err(refusal(Ban::User, core));
    }
    if let Some(flapping) = &core.flapping
        && user.is_verified()
        && flapping.is_blocked(now, &FlappingKey::new(client_id, user.user()))
    {
        return Err(refusal(Ban::Flapping, core));
    }
    Ok(())
}

/// Counts a connect of the client of a session, if it has a verified user.
pub(super) fn count_connect(now: Instant, session: SessionId, core: &mut Core) {
    let Core { flapping: Some(flapping), sessions, counters, .. } = core else { return };
    if let Some(key) = sessions.get(session).and_then(flapping_key) {
        counters.flapping_bans += u64::from(flapping.strike(now, key));
    }
}

/// Takes back a connect of a client that the broker disconnects because an acknowledgement is
/// overdue. The client has to come back then.
pub(super) fn forgive_connect(id: ConnectionId, core: &mut Core) {
    let Core { flapping: Some(flapping), sessions, connections, .. } = core else { return };
    let session = connections.get(id).and_then(|connection| sessions.get(connection.session?));
    if let Some(key) = session.and_then(flapping_key) {
        flapping.forgive(&key);
    }
}

/// Returns the key of a session with a verified user; `None` without one.
fn flapping_key(entry: &SessionEntry) -> Option<FlappingKey> {
    let user = entry.user().filter(|user| user.is_verified())?;
    Some(FlappingKey::new(&entry.session.client_id, user.user()))
}

/// Counts and returns a refusal. The text is for the log alone, because it would help to evade the
/// ban.
fn refusal(ban: Ban, core: &mut Core) -> ConnectRefusal {
    core.counters.banned_connects += 1;
    ConnectRefusal::unexplained(ReasonCode::BANNED, ban.text())
}
