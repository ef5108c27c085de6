//! Authentication and authorization as services: files, hashes, and their caches.
//!
//! - [`password`]: the password file and its hashes.
//! - [`acl_file`]: the ACL file.
//! - [`ban_file`]: the file of bans.
//! - [`file_digests`]: digests of files, so that a reload finds changed files.
//! - [`file_error`]: the mistakes in such a file, with their lines.
//! - [`file_watch`]: files that are read again when they change.
//! - [`passwd`]: the command `homing passwd`.
//! - [`jwt`]: signed tokens and their keys.
//! - [`http`]: the HTTP service of the operator that decides logins.
//! - [`replacement`]: a file that is replaced at once.
//! - [`random`]: the randomness of the system.
//! - [`session_rules`]: the rules of one session, from a token or a service.
//! - [`cache`]: successful logins, remembered for a time.
//! - [`guessing`]: failed logins, counted for each address.
//! - [`scram`]: the messages of SCRAM-SHA-256.
//!
//! The functions block: a hash may take 38 ms and more. The functions use no actor and no socket.

pub mod acl_file;
pub mod ban_file;
pub mod cache;
pub mod file_digests;
pub mod file_error;
pub mod file_watch;
pub mod guessing;
pub mod http;
pub mod jwt;
pub mod passwd;
pub mod password;
pub mod random;
pub mod replacement;
pub mod scram;
pub mod session_rules;
