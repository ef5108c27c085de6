//! New settings of the operator while the broker runs.
//!
//! Nobody is disconnected, and no message is dropped. A queue that is above a new bound keeps what
//! it holds. New redelivery settings reach the sessions by a walk of [`SLOTS`] slots in a turn: a
//! packet in flight has the new settings from its next deadline on, and a new packet at once.

use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::lifecycle::Lifecycle;
use crate::shard::settings::ShardSettings;
use crate::shard::work::Job;

/// Maximum number of slots of sessions that one turn looks at.
const SLOTS: u32 = 1_024;

impl Shard {
    /// Replaces the settings between two turns. The settings of the connections before CONNECT and
    /// of all packets to come are the new ones.
    ///
    /// The caller leaves unchanged what connected clients were promised: `packet_size`,
    /// `topic_alias_maximum` and `receive_maximum`. The rules of the ACL file stay as they are.
    pub fn replace_settings(&mut self, settings: ShardSettings) {
        let (old, new) = (&self.core.settings.session.send, &settings.session.send);
        let is_new_redelivery = old.redelivery != new.redelivery || old.rules != new.rules;
        self.core.connections.set_timeouts(&settings);
        self.core.settings = settings;
        if is_new_redelivery {
            let Core { sessions, dead_letters, settings, .. } = &mut self.core;
            sessions.replace_rules(&settings.session.send);
            dead_letters.set_keep_publisher(sessions.rules().keep_dead_letters());
            self.work.later(Job::SettingsChanged { from: 0 });
        }
    }
}

impl Lifecycle<'_> {
    /// Gives some sessions the redelivery settings that hold now. Begins at the slot `from`.
    /// Returns the job that is left.
    pub(crate) fn walk_after_reload(&mut self, from: u32) -> Option<Job> {
        let end = self.core.sessions.end_of_slots();
        let until = end.min(from.saturating_add(SLOTS));
        for slot in from..until {
            self.core.turn.charge(1);
            self.renew_redelivery(slot);
        }
        (until < end).then_some(Job::SettingsChanged { from: until })
    }

    fn renew_redelivery(&mut self, slot: u32) {
        let Core { sessions, connections, .. } = &mut *self.core;
        let Some((id, entry)) = sessions.at(slot) else { return };
        let (client_id, user) = (entry.session.client_id.clone(), entry.user().cloned());
        let redelivery = sessions.redelivery_of(&client_id, user.as_ref().map(|user| user.user()));
        let Some(entry) = sessions.get_mut(id) else { return };
        entry.session.sender.set_terms(redelivery);
        if let Some(connection) = entry.connection.and_then(|id| connections.get_mut(id)) {
            entry.session.set_ack_wait(&mut connection.wire);
        }
    }
}
