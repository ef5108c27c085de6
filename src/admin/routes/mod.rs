//! The routes of the HTTP interface.

pub(super) mod figures;
pub(super) mod health;
