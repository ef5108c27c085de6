//! HTTP sinks: the real program, and services of every kind.
//!
//! | file | concern |
//! |---|---|
//! | `broker` | a broker that keeps its address and its store over its ends |
//! | `service` | a service that answers as its script says |
//! | `delivery` | what comes to a service, and in which form |
//! | `answers` | what the answers of a service lead to |
//! | `bad_services` | services that hang, reset, never end, or are somebody else |
//! | `files` | secrets, certificates and reloads |
//! | `doctor` | what `homing doctor` says of a service |
//! | `kills` | `kill -9` of the broker and of the service, by turns |

#[path = "../transport/kit.rs"]
#[expect(dead_code, reason = "other tests use the rest of the kit")]
mod kit;
#[path = "../support/mod.rs"]
mod support;

mod answers;
mod bad_services;
mod broker;
mod delivery;
mod doctor;
mod files;
mod kills;
mod service;
