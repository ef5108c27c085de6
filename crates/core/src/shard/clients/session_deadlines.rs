//! Handles expired deadlines of sessions: a delayed will, held messages, and the end of a session
//! whose expiry interval is over. Those of connections are in `deadlines`.
//!
//! The session has the true times, which `leave` sets at the end of its connection, from the
//! interval of CONNECT or DISCONNECT, and `recovery` after a restart.

use crate::events::client_counts::SessionEnd;
use crate::shard::Shard;
use crate::shard::clients::will_publication::DueWill;
use crate::shard::features::hold;
use crate::shard::turn::work::Job;
use crate::slots::SessionId;
use crate::time::Instant;

/// Handles as many sessions with an expired deadline as this turn has steps for. Returns the
/// job that is left. If a session leads to a large publication, the remaining sessions wait for
/// its end.
pub(crate) fn go_on_with_due(now: Instant, shard: &mut Shard) -> Option<Job> {
    while shard.work.has_due() {
        if shard.core.turn.is_over() || shard.fans.blocks_own() {
            return Some(Job::Due);
        }
        shard.core.turn.spend(1);
        if let Some(id) = shard.work.pop_due() {
            session_deadline_expired(now, id, shard);
        }
    }
    None
}

/// Handles an expired deadline of a session: will, held messages, and session expiry.
pub(crate) fn session_deadline_expired(now: Instant, id: SessionId, shard: &mut Shard) {
    // The session has ended since.
    let Some(session_entry) = shard.core.sessions.get_mut(id) else { return };
    session_entry.registered.fired();
    if session_entry.will_due() <= now {
        session_entry.set_will_due(Instant::NEVER);
        let will = session_entry.session.will.take();
        DueWill::publish_for(now, id, will, shard);
        shard.core.record_session(id);
    }
    hold::refuse_overdue(now, id, shard);
    if shard.core.sessions.get(id).is_some_and(|r| r.ends <= now) {
        shard.end_session(now, id, SessionEnd::Expired);
        return;
    }
    shard.core.sessions.register(id, &mut shard.core.effects);
}
