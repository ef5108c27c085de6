//! What clients may do: the rules of the ACL files, bans, mount points, and what follows when these
//! change.

pub mod access;
pub(crate) mod access_change;
pub mod access_control;
pub(crate) mod acl_files;
pub(crate) mod mounted;
