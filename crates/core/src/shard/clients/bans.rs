//! The bans in force, and the clients that they concern.
//!
//! Address, certificate and client identifier are checked before authentication. The user is
//! checked after it, so that nobody learns without the right credentials that a user is banned.

use crate::access::bans::{Ban, BanList, GlobSearch};
use crate::access::identity::Identity;
use crate::access::strikes::StrikeRule;
use crate::login::flapping::{self, Flapping, FlappingKey};
use crate::mqtt::packet::ReasonCode;
use crate::session::connect::ConnectRefusal;
use crate::shard::clients::connection::Connection;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::core::Core;
use crate::shard::turn::Turn;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::sync::{Arc, Weak};

/// The number of the next glob that looks at the client identifier of a connection. Another list of
/// bans begins anew.
#[derive(Debug)]
pub(crate) struct BanSearch {
    bans: Weak<BanList>,
    next: usize,
}

/// The result of a search for a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundBan {
    /// This ban holds.
    Banned(Ban),
    /// No ban holds.
    Free,
    /// The turn has no steps for the globs that are left. The search goes on in a later turn.
    Later,
}

/// The bans in force in one shard, and the connects that may lead to a ban.
#[derive(Debug)]
pub(crate) struct Bans {
    /// `None` if no ban is configured.
    list: Option<Arc<BanList>>,
    /// `None` if clients may connect as often as they like.
    flapping: Option<Flapping>,
}

impl Bans {
    /// Returns no bans. `rule` bans clients that connect too often.
    pub(crate) fn new(rule: StrikeRule) -> Bans {
        Bans { list: None, flapping: flapping::counted(rule) }
    }

    /// Replaces the list of bans.
    pub(crate) fn replace(&mut self, list: Option<Arc<BanList>>) {
        self.list = list;
    }

    /// Returns the list of bans; `None` if no ban is configured.
    pub(crate) fn list(&self) -> Option<&Arc<BanList>> {
        self.list.as_ref()
    }

    /// Replaces the rule about frequent connects, and begins to count them anew.
    pub(crate) fn count_anew(&mut self, rule: StrikeRule) {
        self.flapping = flapping::counted(rule);
    }

    /// Looks for the ban of the session of a connection.
    pub(crate) fn of_session(&self, now: Instant, id: ConnectionId, core: &mut Core) -> FoundBan {
        let unix_ms = core.dead_letters.wall().at(now);
        // Without a session there is nobody whom a ban could concern.
        let (Some(bans), Some(client)) = (&self.list, core.client(id)) else { return FoundBan::Free };
        if client.entry.user().is_some_and(|user| bans.has_user(unix_ms, user.user())) {
            return FoundBan::Banned(Ban::User);
        }
        ban_of_client(unix_ms, &client.entry.session.client_id, (bans, client.connection), client.turn)
    }

    /// Checks address, certificate and client identifier of a CONNECT. Returns false if the turn
    /// has no steps for the rest: the CONNECT is to be handled again in a later one.
    ///
    /// # Errors
    /// The refusal, if the address, certificate or client identifier is banned.
    pub(crate) fn check_client(
        &self,
        now: Instant,
        id: ConnectionId,
        client_id: &str,
        core: &mut Core,
    ) -> Result<bool, ConnectRefusal> {
        let Core { connections, turn, dead_letters, .. } = &mut *core;
        // Without bans there is nothing to check.
        let (Some(bans), Some(connection)) = (&self.list, connections.get_mut(id)) else { return Ok(true) };
        let found = match connection.rare().and_then(|rare| rare.ban) {
            Some(origin) => FoundBan::Banned(origin),
            None => ban_of_client(dead_letters.wall().at(now), client_id, (bans, connection), turn),
        };
        match found {
            FoundBan::Banned(ban) => Err(refusal(ban, core)),
            FoundBan::Free => Ok(true),
            FoundBan::Later => Ok(false),
        }
    }

    /// Checks the user of a CONNECT whose credentials are right, and the connects of this client
    /// before.
    ///
    /// # Errors
    /// The refusal, if the user is banned, or if the client connected too often.
    pub(crate) fn check_user(
        &self,
        now: Instant,
        client_id: &str,
        user: Option<&Identity>,
        core: &mut Core,
    ) -> Result<(), ConnectRefusal> {
        // Only a user can be banned, or connect too often.
        let Some(user) = user else { return Ok(()) };
        if let Some(bans) = &self.list
            && bans.has_user(core.dead_letters.wall().at(now), user.user())
        {
            return Err(refusal(Ban::User, core));
        }
        if let Some(flapping) = &self.flapping
            && user.is_verified()
            && flapping.is_blocked(now, &FlappingKey::new(client_id, user.user()))
        {
            return Err(refusal(Ban::Flapping, core));
        }
        Ok(())
    }

    /// Counts a connect of the client of a session, if it has a verified user.
    pub(crate) fn count_connect(&mut self, now: Instant, session: SessionId, core: &mut Core) {
        if let Some(flapping) = &mut self.flapping
            && let Some(key) = core.sessions.get(session).and_then(flapping_key)
        {
            core.counters.flapping_bans += u64::from(flapping.strike(now, key));
        }
    }

    /// Takes back a connect of a client that the broker disconnects because an acknowledgement is
    /// overdue. The client has to come back then.
    pub(crate) fn forgive_connect(&mut self, id: ConnectionId, core: &Core) {
        let session = core.connections.get(id).and_then(|connection| core.sessions.get(connection.session?));
        if let Some(flapping) = &mut self.flapping
            && let Some(key) = session.and_then(flapping_key)
        {
            flapping.forgive(&key);
        }
    }
}

/// Looks for the ban of a client identifier, for the rest of the turn or a portion of one. The
/// connection keeps the place of a search that is not done.
fn ban_of_client(
    unix_ms: u64,
    client_id: &str,
    (bans, connection): (&Arc<BanList>, &mut Connection),
    turn: &mut Turn,
) -> FoundBan {
    if bans.has_client(unix_ms, client_id) {
        return FoundBan::Banned(Ban::Client);
    }
    if bans.globs() == 0 {
        return FoundBan::Free;
    }
    let search = connection.rare().and_then(|rare| rare.ban_search.as_ref());
    let from =
        search.filter(|search| search.bans.as_ptr() == Arc::as_ptr(bans)).map_or(0, |search| search.next);
    let most = turn.globs_at_once(client_id.len());
    let looked = most.min(bans.globs().saturating_sub(from));
    turn.spend_globs(looked * client_id.len());
    let (found, next) = match bans.search_globs(unix_ms, client_id, from, most) {
        GlobSearch::Banned => (FoundBan::Banned(Ban::Client), None),
        GlobSearch::Free => (FoundBan::Free, None),
        GlobSearch::Left(next) => (FoundBan::Later, Some(next)),
    };
    match next {
        Some(next) => {
            connection.rare_mut().ban_search = Some(BanSearch { bans: Arc::downgrade(bans), next });
        }
        None if from > 0 => connection.rare_mut().ban_search = None,
        None => {}
    }
    found
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
