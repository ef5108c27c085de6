//! Homing beside the real mosquitto: password files that each program writes and the other reads,
//! and the meaning of ACL files.
//!
//! `mosquitto` and `mosquitto_passwd` must be installed; `tests/run` installs them. Without them the
//! tests fail, because a test that skips itself shows nothing.

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod broker;
mod passwords;
