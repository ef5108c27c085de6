//! The store fails: the process ends as it should, and keeps what it acknowledged.
//!
//! Each call of the store fails once, in a store around the real one that fails on demand. And the
//! real binary runs on a disk whose system calls fail.

#[path = "../support/mod.rs"]
mod support;

mod disk;
mod every_call;
mod full;
mod letters;
mod limit;
mod traffic;
