//! Shared subscriptions: groups and the choice among their members.
