//! Homing, an MQTT broker: the way of a message is
//! `socket -> codec -> session -> actions -> { outbox -> socket | routing | expiry | store }`.

pub mod broker;
pub mod clock;
pub mod config;
pub mod expiry;
pub mod mqtt;
pub mod routing;
pub mod time;
