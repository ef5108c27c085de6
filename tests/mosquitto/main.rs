//! Homing beside the real mosquitto: password files that each program writes and the other reads,
//! the meaning of ACL files, and imported configurations.
//!
//! `mosquitto` and `mosquitto_passwd` must be installed; `tests/run` installs them. Without them
//! the tests fail, because a test that skips itself shows nothing.

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod broker;
mod import;
mod passwords;
