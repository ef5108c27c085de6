//! What becomes of the process and of its promises when the store fails: every call once, by a store that fails on demand
//! around the real one, and the real binary on a disk whose system calls fail.

#[expect(dead_code, unused_imports, reason = "shared with the broker's tests, which use all of it")]
#[path = "../support/mod.rs"]
mod support;

#[path = "../support/process.rs"]
#[expect(dead_code, reason = "shared with other tests, which use all of it")]
mod process;

#[path = "../support/shim.rs"]
mod shim;

mod disk;
mod every_call;
mod limit;
mod traffic;
