//! The rows of answers, which the pages show, too. The type of a row is its description for
//! programs.

pub(super) mod bridge;
pub(super) mod client;
pub(super) mod far_session;
pub(super) mod message;
pub(super) mod refused;
pub(super) mod sink;
