//! New settings of the operator while the broker runs.
//!
//! Nobody is disconnected, and no message is dropped. A queue above a new bound keeps its messages.
//! New redelivery settings reach the sessions by a walk of [`SLOTS`] slots in a turn: a packet in
//! flight has the new settings from its next deadline on, and a new packet at once.

use crate::shard::clients::bans::Bans;
use crate::shard::core::Core;
use crate::shard::settings::ShardSettings;
use crate::shard::turn::work::Job;

/// Maximum number of slots of sessions that one turn looks at.
const SLOTS: u32 = 1_024;

/// Replaces the settings between two turns. The new settings hold for connections before CONNECT
/// and for all later packets. Returns the job that gives the sessions new redelivery settings, if
/// these have changed.
pub(crate) fn replace_settings(settings: ShardSettings, bans: &mut Bans, core: &mut Core) -> Option<Job> {
    let (old, new) = (&core.settings.session.send, &settings.session.send);
    let is_new_redelivery = old.redelivery != new.redelivery || old.rules != new.rules;
    if settings.flapping != core.settings.flapping {
        // Only then, since the counts begin anew.
        bans.count_anew(settings.flapping);
    }
    core.connections.set_timeouts(&settings);
    core.counters.objectives.replace(&settings.objectives);
    if settings.own_queues != core.settings.own_queues {
        core.sessions.replace_own_queues(&settings.own_queues);
    }
    core.settings = settings;
    if !is_new_redelivery {
        return None;
    }
    let Core { sessions, dead_letters, settings, .. } = core;
    sessions.replace_rules(&settings.session.send);
    dead_letters.set_keep_publisher(sessions.rules().keep_dead_letters());
    Some(Job::SettingsChanged { from: 0 })
}

/// Gives some sessions the redelivery settings that hold now. Begins at the slot `from`. Returns
/// the job that is left.
pub(crate) fn walk_after_reload(from: u32, core: &mut Core) -> Option<Job> {
    let end = core.sessions.end_of_slots();
    let until = end.min(from.saturating_add(SLOTS));
    for slot in from..until {
        core.turn.spend(1);
        renew_redelivery(slot, core);
    }
    (until < end).then_some(Job::SettingsChanged { from: until })
}

fn renew_redelivery(slot: u32, core: &mut Core) {
    let Core { sessions, connections, access, .. } = core;
    // The slot is free.
    let Some((id, entry)) = sessions.at(slot) else { return };
    let (client_id, user) = (entry.session.client_id.clone(), entry.user().cloned());
    let name = access.name_in_redelivery_rules(user.as_deref());
    let redelivery = sessions.redelivery_of(&client_id, name);
    let Some(entry) = sessions.get_mut(id) else { return };
    entry.session.sender.set_redelivery(redelivery);
    if let Some(connection) = entry.connection.and_then(|id| connections.get_mut(id)) {
        entry.session.set_ack_wait(&mut connection.wire);
    }
}
