//! The routing of messages: subscriptions, retained messages and shared subscriptions.
//!
//! Routing names sessions by number and knows nothing else of them. Routing has no clock and no
//! I/O. [`crate::shard`] calls it. Routing imports [`crate::mqtt`] and [`crate::persistence`].
//!
//! | file | concern |
//! |---|---|
//! | [`subscription_tree`] | finds the subscriptions that match a Topic Name |
//! | [`retained`] | finds the retained messages that match a Topic Filter |
//! | [`retained_order`] | which retained messages come live, and which are read |
//! | `router` | the subscriptions of one shard, what it knows of its peers, and shared groups |
//! | [`limit_shares`] | the parts of clients and listeners in a limit of the whole broker |
//! | [`shared_group`] | keeps the members of one shared subscription and chooses among them |
//! | [`presence`] | knows which members of shared subscriptions are connected, in all shards |
//! | `member` | a member of a shared subscription, its address, and its presence |
//! | `split_table` | a hash table whose changes take a bounded time |
//! | `paged_slab` | values in numbered places, whose changes take a bounded time |

pub mod limit_shares;
mod member;
mod paged_slab;
pub mod presence;
pub mod retained;
pub mod retained_order;
pub(crate) mod router;
pub mod shared_group;
mod split_table;
pub mod subscription_tree;
