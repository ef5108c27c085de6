//! The core of one thread: sessions, their connections and their part of the routing, as a state
//! machine.
//!
//! Pure: a shard knows no clock, no socket and no other thread. `homing::broker` passes in bytes,
//! expired deadlines and peer batches with the time, and carries out the
//! [`Effects`](turn::effects::Effects) at the end of each turn. The simulation and the in-memory
//! tests do the same with virtual time. The module imports [`crate::mqtt`], [`crate::persistence`],
//! [`crate::session`], [`crate::routing`] and the pure part of [`crate::expiry`].
//!
//! # Layers
//!
//! Each part of the state has one owner with private fields. A method that needs several owners
//! belongs to the layer that has all of them. A layer calls only lower layers
//! (`docs/architecture.md`).
//!
//! | layer | files |
//! |---|---|
//! | inputs: `Shard` | `inputs`, `io` (the turn), `receive` (bytes to packets), `read_ahead` |
//! | a packet | `connect`, `publish`, `mounted`, `subscribe`, `suback` |
//! | a portion | `fan_out`, `deadlines` |
//! | one batch of a peer | [`exchange`] |
//! | the doors for operators | `view`, `control` |
//! | what follows: `Shard` | `follow_up`, `commits`, `leave`, `access_change`, `own_messages` |
//! | | `auth_exchange`, `features/hold` |
//! | middle: `Routes` | `routes`, `features/orphaned_queues/settling` |
//! | shared groups: `Routes` | `share` |
//! | lowest: `Core` | `core`, `client`, `deliver`, `observe/notes` |
//! | owners | see below |
//!
//! | owner | owns |
//! |---|---|
//! | `connections` | connections, their deadlines, pauses and partial packets |
//! | `sessions` | sessions, their client identifiers, deadlines and records |
//! | [`durability`] | the commit gates; recovery from the store |
//! | [`exchange`] | messages between shards |
//! | `router` | who is subscribed to what; shared groups |
//! | `fans`, `own_publications` | publications that take several turns, and those behind them |
//! | `work` | jobs that continue in a later turn |
//! | `retained_order` | which retained messages a new subscription gets live |
//! | `drops` | messages that a receiver will not get, by client and the last ones |
//! | [`turn`] | the budget of one turn; receivers that deliveries found full |
//! | `effects` | the lists that the driver carries out after a turn |
//! | `scratch` | buffers that are used again and again, so that nothing allocates |
//! | [`features`] | delayed messages, dead letters, `hold`, orphaned queues, requests |
//! | [`observe`] | events and figures about clients |
//!
//! | data | of |
//! |---|---|
//! | `connection`, `session_entry` | one connection, one session |
//! | `pause` | the causes for which the requests of a client wait |
//! | `connection_view` | one connection as its driver sees it |
//! | `access_control` | changes of permissions |
//! | `arrival` | the facts about a connection before its first packet |
//! | [`randomness`] | random numbers, which come from outside |
//! | `authentication` | requests to the authenticator, and decisions |
//! | `pending_exchange` | an exchange of AUTH packets that waits for the client |
//! | `bans`, `flapping` | the bans in force; the connects of each client, counted |
//! | `reconfigure` | new settings while the broker runs |
//! | `publication` | one message on its way |
//! | `answer`, `subscribe_request`, `ended_session` | work that may take several turns |
//! | `access` | the topics that clients may write and read |
//! | `admission` | changes that need memory or disk, and the check that there is some |
//! | [`settings`], `listener_terms` | the operator's settings, and those of one listener |
//! | [`shared_state`], [`totals`], `debts` | the state that all shards share |
//! | `slots`, `client_table`, `flow` | identifiers; client identifiers; the result of a packet |

mod admission;
pub mod clients;
mod commits;
pub(crate) mod control;
mod core;
mod delivery;
pub mod durability;
pub mod exchange;
pub mod features;
mod inputs;
pub mod login;
pub mod observe;
pub mod randomness;
mod reconfigure;
pub mod rules;
pub mod settings;
mod share;
pub mod shared_state;
mod subscriptions;
pub mod totals;
pub mod turn;
pub(crate) mod view;

pub use clients::connect::shard_of;
pub use clients::receive::ReadProgress;
pub use clients::session_entry::SessionEntry;
pub use clients::slots::{ConnectionId, SessionId};
use core::Core;
use delivery::fans::Fans;
use features::delayed::Delayed;
use login::bans::Bans;
pub use observe::snapshot::ShardSnapshot;
use randomness::Randomness;
pub use settings::{DelayedLimits, LetterLimits, OWN_HOUSEKEEPING, ShardSettings};
pub use shared_state::{PartialShare, Pot, SharedState};
use subscriptions::routes::Routes;
use turn::work::Work;

/// One shard: the components of each layer, and the inputs.
#[derive(Debug)]
pub struct Shard {
    /// Sessions and connections, and the components that every packet needs.
    core: Core,
    /// Subscriptions, shared groups, and messages that wait for a member of a group.
    routes: Routes,
    /// Publications that take more than one turn.
    fans: Fans,
    /// Other work that continues in a later turn.
    work: Work,
    delayed: Delayed,
    bans: Bans,
    randomness: Randomness,
}
