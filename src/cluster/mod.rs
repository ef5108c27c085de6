//! A cluster of brokers: several machines that act as one.
//!
//! | module | concern |
//! |---|---|
//! | `engine` | the door to what keeps the log of a cell on several machines |
//! | `nats` | the engine behind it: NATS JetStream (cargo feature `cluster`) |

pub mod engine;
#[cfg(test)]
#[path = "../../tests/support/engine_contract.rs"]
#[expect(unreachable_pub, reason = "a module of the test kit")]
mod engine_contract;
#[cfg(test)]
#[path = "../../tests/support/memory_engine.rs"]
#[expect(unreachable_pub, reason = "a module of the test kit")]
mod memory_engine;
#[cfg(test)]
#[path = "model_tests.rs"]
mod model_tests;
#[cfg(feature = "cluster")]
pub mod nats;
