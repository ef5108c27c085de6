//! The decoder, through all its entries: see `tests/in_memory/decoder.rs`.
#![no_main]

#[path = "../../in_memory/decoder.rs"]
mod decoder;

#[global_allocator]
static JEMALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

libfuzzer_sys::fuzz_target!(|input: &[u8]| decoder::check(input));
