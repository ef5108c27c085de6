//! Changes of permissions while clients are connected: the rules of the ACL files, bans, and users
//! that have lost their right to connect. What a client may write and read is decided in
//! [`crate::login::access_rules`].

use crate::access::bans::{Ban, BanList};
use crate::access::identity::Identity;
use crate::events::client_events::{DisconnectCause, Revocation};
use crate::login::acl_files::AclFiles;
use crate::login::listener_terms::ListenerTerms;
use crate::mqtt::packet::ReasonCode;
use crate::shard::Shard;
use crate::shard::clients::bans::FoundBan;
use crate::shard::core::Core;
use crate::shard::turn::work::Job;
use crate::slots::ConnectionId;
use crate::time::Instant;
use std::sync::Arc;

/// The result of one call of [`PermissionChanges::revoke`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedPortion {
    /// Clients that were disconnected.
    pub disconnected: u64,
    /// The first slot that is left; `None` at the end.
    pub next: Option<u32>,
}

/// Slots of sessions that [`PermissionChanges::revoke`] looks at in one call.
const SLOTS: u32 = 2_000;

/// The result of a look at a connected client after a change of the bans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanCheck {
    /// No ban holds for the client, or it was gone already.
    Stays,
    /// The client is banned, and was disconnected.
    Disconnected,
    /// The turn has no steps for all globs. The next look at the client goes on with the rest.
    Later,
}

/// A shard, borrowed to change the permissions of its clients.
#[derive(Debug)]
pub struct PermissionChanges<'a> {
    shard: &'a mut Shard,
}

impl<'a> PermissionChanges<'a> {
    /// Returns the rules of the shard.
    pub(in crate::shard) fn new(shard: &'a mut Shard) -> PermissionChanges<'a> {
        PermissionChanges { shard }
    }

    /// Replaces the rules of all ACL files. The new rules hold for the next packet and the next
    /// delivery of each client. Subscriptions stay, and bring what the new rules allow. A walk over
    /// the sessions drops the messages that may no longer be read. The walk takes several turns if
    /// needed.
    pub fn replace_acls(&mut self, files: AclFiles) {
        self.shard.core.access.replace(files);
        self.rules_changed();
    }

    /// Begins the walk over the sessions after a change of the rules.
    pub(in crate::shard) fn rules_changed(&mut self) {
        self.shard.routes.orphaned_queues.rules_changed();
        self.shard.work.later([Job::RulesChanged { from: 0 }]);
    }

    /// Disconnects the clients of users that `is_revoked` at the listener of the client, with 0x87.
    /// Looks at 2,000 slots of sessions at most, from `from` on. At the slot 0, decisions that wait
    /// for their CONNECT become void, because their users have no session yet.
    pub fn revoke(
        &mut self,
        now: Instant,
        from: u32,
        is_revoked: &dyn Fn(&Identity, &ListenerTerms) -> bool,
    ) -> RevokedPortion {
        if from == 0 {
            self.shard.core.connections.note_revocation();
        }
        let end = self.shard.core.sessions.end_of_slots();
        let until = end.min(from.saturating_add(SLOTS));
        let mut disconnected = 0;
        for slot in from..until {
            let Core { sessions, connections, .. } = &self.shard.core;
            let connection = sessions.at(slot).and_then(|(_, entry)| {
                let (id, user) = (entry.connection?, entry.user()?);
                is_revoked(user, &connections.get(id)?.listener).then_some(id)
            });
            if let Some(id) = connection {
                let reason = Some(ReasonCode::NOT_AUTHORIZED);
                let cause = DisconnectCause::Revoked(Revocation::Password);
                disconnected += u64::from(self.shard.disconnect(now, id, reason, cause));
            }
        }
        RevokedPortion { disconnected, next: (until < end).then_some(until) }
    }

    /// Replaces the bans; `None` for none. The new bans hold for each CONNECT from now on. The
    /// caller finds the connected clients that are banned now with [`Self::disconnect_if_banned`].
    pub fn replace_bans(&mut self, bans: Option<Arc<BanList>>) {
        self.shard.bans.replace(bans);
    }

    /// Returns the bans; `None` if none are configured.
    pub fn bans(&self) -> Option<&Arc<BanList>> {
        self.shard.bans.list()
    }

    /// Disconnects a client with 0x98 if it is banned. `origin` is the ban of its address or of its
    /// certificate, if one holds.
    // 5.0 section 3.14.2.1: 0x8A is for CONNACK alone.
    pub fn disconnect_if_banned(&mut self, now: Instant, id: ConnectionId, origin: Option<Ban>) -> BanCheck {
        self.shard.core.turn.spend(1);
        let found = match origin {
            Some(ban) => FoundBan::Banned(ban),
            None => self.shard.bans.of_session(now, id, &mut self.shard.core),
        };
        match found {
            FoundBan::Banned(ban) => {
                let reason = Some(ReasonCode::ADMINISTRATIVE_ACTION);
                match self.shard.disconnect(now, id, reason, DisconnectCause::Banned(ban)) {
                    true => BanCheck::Disconnected,
                    false => BanCheck::Stays,
                }
            }
            FoundBan::Free => BanCheck::Stays,
            FoundBan::Later => BanCheck::Later,
        }
    }

    /// Returns true if the steps of the turn are used up.
    pub fn is_turn_over(&self) -> bool {
        self.shard.core.turn.is_over()
    }
}
