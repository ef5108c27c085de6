//! Permissions of clients: the rules of the ACL files, mount points, and the effects of their
//! changes.

pub mod access;
pub(crate) mod access_change;
pub mod access_control;
pub mod acl_files;
pub(crate) mod mounted;
