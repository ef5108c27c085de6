//! The core of one thread: sessions, their connections and their part of the routing, as a state
//! machine.
//!
//! Pure: a shard knows no clock, no socket and no other thread. The driver (`src/broker/driver`)
//! passes in bytes, expired deadlines and peer batches with the time, and carries out the
//! [`Effects`](turn::effects::Effects) at the end of each turn. The simulation and the in-memory
//! tests do the same with virtual time. The shard imports every module of this package but
//! [`crate::operators`], which is above it.
//!
//! # Layers
//!
//! Each part of the state has one owner with private fields. A method that needs several owners
//! belongs to the layer that has all of them. A layer calls only lower layers
//! (`docs/architecture.md`).
//!
//! | layer | files |
//! |---|---|
//! | inputs: `Shard` | `inputs`, [`turn::io`] (the turn), `clients/receive`, `clients/read_ahead`, |
//! | | `clients/flush` |
//! | a packet | `clients/connect`, `clients/connect_checks`, `clients/establish`, |
//! | | `clients/auth_exchange`, `delivery/publish`, `rules/mounted`, |
//! | | `delivery/operator_publish`, |
//! | | `subscriptions/subscribe`, `subscriptions/suback`, |
//! | | `subscriptions/retained_delivery` |
//! | a portion | `delivery/fan_out`, `delivery/published`, [`clients::deadlines`] |
//! | one batch of a peer | `delivery/peer_batches` |
//! | the doors for operators | `view`, `control` |
//! | what follows: `Shard` | `clients/follow_up`, `clients/session_deadlines`, `clients/leave`, |
//! | | `clients/will_publication`, `turn/commits`, `rules/access_change`, |
//! | | `delivery/own_messages`, `features/hold` |
//! | middle: `Routes` | `subscriptions/routes`, `delivery/receivers`, `share`, |
//! | | `features/orphaned_queues/settling` |
//! | lowest: `Core` | `core`, `clients/client`, `delivery/deliver`, `observe/notes` |
//! | owners | see below |
//!
//! # Rooms
//!
//! | room | concern | its owners own |
//! |---|---|---|
//! | [`rules`] | changes of what clients may do | nothing |
//! | [`clients`] | connections, sessions | `connections`: also deadlines, pauses, partial packets |
//! | | | `sessions`: also client identifiers, deadlines and records |
//! | | | `bans`: the bans in force, the connects of clients |
//! | `delivery` | a message on its way | `fans`: publications of several turns, those behind them |
//! | `subscriptions` | SUBSCRIBE, the routes | nothing |
//! | `share` | one member of a group | nothing |
//! | [`turn`] | the order of a turn | [`Turn`](turn::Turn): the budget; receivers found full |
//! | | | [`turn::effects`]: what the driver carries out after a turn |
//! | | | `work`: jobs that continue in a later turn |
//! | | | `scratch`: buffers that are used again and again |
//! | `recovery` | the start | nothing |
//! | [`features`] | what could be left out | delayed messages, orphaned queues |
//! | [`observe`] | reports about clients | figures, traces |
//!
//! Some owners know no other part of the shard, and are modules below it:
//!
//! - [`crate::login`]: terms of listeners, rules about topics
//! - [`crate::events`]: drops and refusals by client
//! - [`crate::peers`]: items, unanswered batches, peer barriers
//! - [`crate::durability`]: gates that open with a commit
//! - [`crate::letters`]: dead letters
//! - `routing::router`: the subscribers of a topic
//! - [`crate::routing::retained_order`]: the order between subscriptions and retained messages
//! - [`crate::shared`]: the state of all shards together
//!
//! Beside the rooms are the inputs, [`settings`] and their change (`reconfigure`), and `admission`
//! (is there memory and disk for a change?).

mod admission;
pub mod clients;
pub(crate) mod control;
mod core;
mod delivery;
pub mod features;
mod inputs;
pub mod observe;
pub mod randomness;
mod reconfigure;
pub mod recovery;
pub mod rules;
pub mod settings;
mod share;
mod subscriptions;
pub mod turn;
pub(crate) mod view;

pub use crate::letters::stored_letters::LetterLimits;
pub use crate::shared::{PartialShare, Pot, SharedState};
pub use crate::slots::{ConnectionId, SessionId};
use clients::bans::Bans;
pub use clients::connect::shard_of;
pub use clients::receive::ReadProgress;
pub use clients::session_entry::SessionEntry;
use core::Core;
use delivery::fans::Fans;
use features::delayed::Delayed;
pub use inputs::Input;
pub use observe::snapshot::ShardSnapshot;
use randomness::Randomness;
pub use settings::{DelayedLimits, OwnQueues, ShardSettings};
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
