//! The HTTP interface of the running program, as operators and their tools use it.

#[path = "../support/mod.rs"]
mod support;

mod api;
mod dead_letters;
mod hostile;
mod http;
mod listeners;
mod live;
mod messages;
mod metrics;
mod mosquitto;
mod openapi;
mod pages;
mod reload;
mod schema;
mod topics;
mod traces;
mod wait_reasons;
