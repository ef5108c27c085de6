//! Whole shards in virtual time: see `tests/in_memory/script.rs`.
#![no_main]

#[path = "../../../crates/core/src/mqtt/codec/cases.rs"]
#[expect(dead_code, reason = "what is expected of each case in detail the codec's own tests say")]
mod cases;
#[path = "../../in_memory/driver.rs"]
#[expect(dead_code, reason = "the in-memory tests need more of the driver than a script")]
mod driver;
#[path = "../../in_memory/script.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|input: &[u8]| script::run(input));
