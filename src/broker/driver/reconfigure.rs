//! New settings of the operator.

use super::ShardDriver;
use crate::broker::message::SettingsChanged;

impl ShardDriver {
    /// Puts new settings in force, between two turns.
    pub fn settings_changed(&self, change: &SettingsChanged) {
        self.listeners.borrow_mut().set_rates(change.events);
        self.in_new_turn(|shard, _| shard.replace_settings((*change.settings).clone()));
    }
}
