//! A cluster of brokers: several machines that act as one.
//!
//! Who owns a cell, when a standby claims it, and what an owner may promise is decided in
//! [`crate::ownership`].
//!
//! | module | concern |
//! |---|---|
//! | `engine` | the door to what keeps the log of a cell on several machines |
//! | `nats` | the engine behind it: NATS JetStream (cargo feature `cluster`) |
//! | `tail` | the end of the log that a node has, and the next frame behind it |
//! | `follower` | frames of the log on their way into the database of a node |
//! | `writes` | what a node has read and its database does not have yet |
//! | `own_frames` | the frames that a node makes |
//! | `driver` | the thread that carries out the ownership of a cell |
//! | [`driver_core`] | what that thread decides |
//! | `messages` | what the driver, its workers, the broker and the rows tell each other |
//! | `workers` | the threads that wait for the engine |
//! | `owner_log` | the log of a cell as the store of its owner sees it |
//! | `base` | a database that takes the place of the log before it |
//! | `commands` | what `homing cluster` does |
//! | `observed` | the rows as a command sees them |
//! | `reseed` | the way out of an alarm |
//! | `row` | what each node tells the others about itself |
//! | `view` | the cluster as a node sees it |
//! | `drift` | the settings and files in which nodes differ |
//! | `append_times` | how long the engine takes to store a frame |
//! | `report` | the state of the cluster for operators |
//! | `sys` | the cluster on topics of `$SYS` |
//! | `secret` | the secret behind the SCRAM salts of unknown names |
//! | `snapshots` | whole databases in the engine, in place of the log before them |
//! | `membership` | what a node waits for before it joins, and what it refuses |
//! | `node` | the life of a node, from its start to its end |

mod append_times;
mod base;
pub mod commands;
pub mod drift;
mod driver;
pub mod driver_core;
pub mod engine;
#[cfg(test)]
#[path = "../../tests/support/engine_contract.rs"]
#[expect(unreachable_pub, reason = "a module of the test kit")]
mod engine_contract;
mod follower;
#[cfg(test)]
mod follower_tests;
#[cfg(test)]
mod joining_tests;
pub mod membership;
#[cfg(test)]
#[path = "../../tests/support/memory_engine.rs"]
#[expect(unreachable_pub, reason = "a module of the test kit")]
mod memory_engine;
pub mod messages;
#[cfg(test)]
#[path = "model_tests.rs"]
mod model_tests;
#[cfg(feature = "cluster")]
pub mod nats;
pub mod node;
mod observed;
mod own_frames;
mod owner_log;
pub mod report;
pub mod reseed;
#[cfg(test)]
mod reseed_tests;
pub mod row;
mod secret;
mod snapshot_turn;
mod snapshots;
pub mod sys;
mod tail;
mod view;
mod workers;
mod writes;
