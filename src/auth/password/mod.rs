//! The password file and its hashes.
//!
//! | file | format of a line, after `user:` | one check, measured |
//! |---|---|---|
//! | [`sha512`] | `$6$salt$hash`, of mosquitto 1.x | 1 us |
//! | [`pbkdf2`] | `$7$iterations$salt$hash`, of mosquitto 2.0 and 2.1 | 0.04 to 0.4 ms |
//! | [`argon2`] | `$argon2id$v=19$m=..,t=..,p=..$salt$hash`, of mosquitto 2.1 | 20 to 40 ms |
//! | [`scram`] | `$scram-sha-256$i=..$salt$stored$server` | 0.4 ms |
//!
//! [`hash`] is one of the four, and [`hash_text`] reads and writes the parts of their texts.
//! [`mod@file`] is the whole file, and answers for a user.

pub mod argon2;
pub mod decoy_secret;
pub mod file;
pub mod hash;
pub mod hash_text;
pub mod pbkdf2;
pub mod scram;
pub mod sha512;

pub use file::{PasswordFile, Verdict};
