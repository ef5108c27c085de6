//! The broker over real sockets, seen from outside: raw packets in all three versions, and rumqttc
//! where an ordinary client is the point.
//!
//! Homing's own behaviour is tested here. `tests/conformance` tests the statements of the standard.
//!
//! Each test starts a broker of its own, so that all may run at once. No test sleeps for a result.
//! A test that asserts that nothing comes waits for a later event: a PINGRESP, or a marker message
//! behind an acknowledged one.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod ack_timeout;
mod authentication;
mod bad_input;
mod connect;
mod contradictions;
mod dead_letters;
mod delayed;
mod durability;
mod events;
mod flow_control;
mod half_closed;
mod http_service;
mod keep_alive;
mod message_expiry;
mod mount_point;
mod ordinary_clients;
mod owner;
mod properties;
mod publish;
mod redelivery;
mod redelivery_requests;
mod retained;
mod rules;
mod scripted;
mod session;
mod shared;
mod subscription;
mod sys;
mod tokens;
mod totals;
mod will;
mod withheld;
