//! The routes of a shard: the subscriptions, the shared groups, and the messages that wait for a
//! member of a group.

use crate::routing::subscription_tree::ShardId;
use crate::shard::features::orphaned_queues::OrphanedQueues;
use crate::shard::router::Router;

/// The subscriptions, the shared groups, and the messages that wait for a member of a group.
#[derive(Debug)]
pub(crate) struct Routes {
    pub router: Router,
    pub orphaned_queues: OrphanedQueues,
}

impl Routes {
    /// Returns the routes of the shard `here`, without subscriptions.
    pub(crate) fn new(here: ShardId) -> Routes {
        Routes { router: Router::new(here), orphaned_queues: OrphanedQueues::default() }
    }
}
