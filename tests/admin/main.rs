//! The HTTP interface of the running program, as operators and their tools use it.

#[path = "../transport/kit.rs"]
#[expect(dead_code, reason = "other tests use the rest of the kit")]
mod kit;
#[path = "../support/memory_engine.rs"]
#[expect(dead_code, reason = "other tests use the faults of the model")]
mod memory_engine;
#[path = "../support/mod.rs"]
mod support;

mod api;
mod bridges;
mod bulk;
mod client_list;
mod dead_letters;
mod hostile;
mod hostile_readers;
mod http;
mod https;
mod hung_files;
mod hung_threads;
mod listeners;
mod live;
mod logins;
mod messages;
mod metrics;
mod mosquitto;
mod openapi;
#[cfg(feature = "otlp")]
mod otlp;
mod overview;
mod page_answers;
mod pages;
mod payloads;
mod publish;
mod questions;
mod reload;
mod remote;
mod schema;
mod self_checks;
mod sinks;
mod slow;
mod sourced_redelivery;
mod standby;
mod stored_messages;
mod topics;
mod trace_pages;
mod traces;
mod users;
mod wait_reasons;
