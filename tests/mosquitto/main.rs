//! Homing beside the real mosquitto: password files that each program writes and the other reads,
//! the meaning of ACL files, and imported configurations with TLS and WebSocket.
//!
//! `mosquitto`, `mosquitto_passwd`, `mosquitto_pub` and `mosquitto_sub` must be installed; `tests/run` installs them. Without them
//! the tests fail, because a test that skips itself shows nothing.

#[path = "../transport/kit.rs"]
#[expect(dead_code, reason = "other tests use the rest of the kit")]
mod kit;
#[path = "../support/mod.rs"]
mod support;

mod acl;
mod bridge_addresses;
mod bridge_demand;
mod bridge_faults;
mod bridge_limits;
mod bridge_rings;
mod bridges;
mod broker;
mod import;
mod move_with_tls;
mod passwords;
