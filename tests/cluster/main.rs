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
//! | `fleet` | nodes by their configurations, and the commands |
//! | `alarms` | a log that lost frames, was changed or purged, and `homing cluster reseed` |
//! | `refusals` | settings, servers, directories and commands that make no sense |
//! | `endings` | SIGTERM to a node in each of its states |
//! | `hung_disk` | a node whose disk hangs, though all its other parts work |
//! | `beginnings` | over TLS: a cluster that begins with the store of a broker by itself |
//! | `latency` | measurements |
//! | `operators` | what operators see of two nodes of Homing |
//! | `plant` | three nodes of Homing on the servers |
//! | `nodes` | faults of nodes and servers under the clients of `tests/crash` |
//! | `cut_off` | what clients of a cut-off owner see |
//! | `haproxy` | HAProxy in front of the nodes |
//! | `stream` | numbered messages at a steady rate, which are checked as they come |
//! | `soak` | the same faults for hours |
//!
//! `CLUSTER_ROUNDS=n` repeats each fault, and `CLAIM_ROUNDS=n` makes two nodes claim n times.

mod alarms;
mod beginnings;
mod calls;
#[path = "../crash/clients.rs"]
mod clients;
mod cut_off;
mod endings;
#[path = "../support/engine_contract.rs"]
mod engine_contract;
mod faults;
mod fleet;
mod haproxy;
mod hung_disk;
#[path = "../crash/judge.rs"]
mod judge;
mod latency;
#[path = "../crash/link.rs"]
mod link;
#[path = "../crash/mortal.rs"]
mod mortal;
mod nodes;
mod operators;
mod plant;
mod proxy;
#[path = "../crash/publisher.rs"]
mod publisher;
mod refusals;
#[path = "../crash/retained.rs"]
mod retained;
mod servers;
mod soak;
mod stream;
#[path = "../crash/subscriber/mod.rs"]
mod subscriber;
#[path = "../support/mod.rs"]
mod support;
#[path = "../crash/trial.rs"]
mod trial;
mod writer;
