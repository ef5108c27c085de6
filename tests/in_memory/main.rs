//! The codec and whole shards fed with bytes in virtual time, without sockets: however a stream is split, whatever is in it.
//!
//! `decoder` and `script` say what must hold for any bytes; the fuzz targets in `fuzz/` run the same functions, and what they
//! found is kept in `findings`. `admission` has what is refused for want of room, `shares` has the choice in shared groups over several shards,
//! `gates` who is told when, and where shared messages wait, `stored` what is committed at once, `turns` how much one turn does.
//! `suspend` is a machine that slept.

mod admission;
#[path = "../../src/mqtt/codec/cases.rs"]
#[expect(dead_code, reason = "what is expected of each case in detail the codec's own tests say")]
mod cases;
mod decoder;
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
