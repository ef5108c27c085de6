//! The engine of a cluster on three real nats-servers: what it must do, and what remains of the log
//! after faults. `tests/cluster/run` installs the servers and runs this.
//!
//! | file | what |
//! |---|---|
//! | `servers` | three servers, which are killed, stopped, cut off and restarted |
//! | `proxy` | the ways between them, and from the nodes to them |
//! | `writer` | appends as an owner does, and compares the log with what was acknowledged |
//! | `calls` | the contract, settings, bounds in time, certificates |
//! | `faults` | faults of servers while a node appends |
//! | `latency` | measurements |
//!
//! `CLUSTER_ROUNDS=n` repeats each fault, and `CLAIM_ROUNDS=n` makes two nodes claim n times.

mod calls;
#[path = "../support/engine_contract.rs"]
mod engine_contract;
mod faults;
mod latency;
mod proxy;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod writer;
