//! Permissions of clients: the rules of the ACL files, mount points, and the effects of their
//! changes.

pub(crate) mod access_change;
pub mod access_control;
pub(crate) mod mounted;
