//! Homing, an MQTT broker: the way of a message is
//! `socket -> codec -> session -> actions -> { outbox -> socket | routing | expiry | store }`.

#![warn(clippy::unwrap_used, reason = "a panic is fatal to the whole broker, so it must be argued for")]

pub mod broker;
pub mod clock;
pub mod config;
pub mod expiry;
pub mod health;
pub mod load;
pub mod mqtt;
pub mod routing;
pub mod time;
