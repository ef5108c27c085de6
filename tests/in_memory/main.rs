//! The codec and whole shards fed with bytes in virtual time, without sockets: however a stream is split, whatever is in it.
//!
//! `decoder` and `script` say what must hold for any bytes; the fuzz targets in `fuzz/` run the same functions, and what they
//! found is kept in `findings`. `admission` has what is refused for want of room, `shares` has the choice in shared groups over several shards,
//! `gates` has when publishers are answered and where shared messages wait, `stored` what is committed at once, `turns` how much one turn does.
//! `differential` compares the codec with another, `codec_allocations` counts what it allocates. `suspend` is a machine that slept. `directed` has situations that the simulation found and that its seeds rarely meet.

mod admission;
#[path = "../../src/mqtt/codec/cases.rs"]
#[expect(dead_code, reason = "what is expected of each case in detail the codec's own tests say")]
mod cases;
mod client;
mod codec_allocations;
mod decoder;
mod differential;
mod directed;
mod findings;
mod gates;
mod memory;
mod peers;
mod script;
mod shares;
mod splits;
mod stored;
mod suspend;
mod turns;
mod world;

#[global_allocator]
static JEMALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
