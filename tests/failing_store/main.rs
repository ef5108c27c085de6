//! What becomes of the process and of its promises when the store fails: every call once, by a store that fails on demand
//! around the real one, and the real binary on a disk whose system calls fail.

#[path = "../support/mod.rs"]
mod support;

mod disk;
mod every_call;
mod full;
mod limit;
mod traffic;
