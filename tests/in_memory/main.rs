//! Tests that feed bytes to the codec and to whole shards, in virtual time and without sockets.
//!
//! | module | subject |
//! | --- | --- |
//! | `decoder`, `splits` | the decoder for any bytes, however the stream is split |
//! | `script` | one or two shards for any bytes; the fuzz targets run it and `decoder` |
//! | `findings` | failures that fuzzing found |
//! | `directed` | situations that the simulation found and that its seeds rarely meet |
//! | `differential` | our codec against that of rumqttc |
//! | `codec_allocations` | decoding and encoding allocate nothing |
//! | `authentication` | CONNECT packets that the authenticator decides |
//! | `auth_exchange` | AUTH packets: the exchange between CONNECT and CONNACK, and re-authentication |
//! | `bans` | clients that are banned |
//! | `access` | rules of an ACL that change, and shared messages that some members may not read |
//! | `access_change` | queues that are checked in portions, because the rules or the user have changed |
//! | `admission`, `memory` | requests that are refused for want of memory or disk |
//! | `shares` | the choice of a member of a shared group, over several shards |
//! | `large_groups` | shared groups with very many members that may not read a message |
//! | `delayed` | delayed messages that end while a look-up in the store is under way |
//! | `gates` | when publishers are answered, and where shared messages wait |
//! | `stored` | changes that are committed together |
//! | `turns` | the work of one turn |
//! | `turn_limits` | what one packet, one return or one commit may cause, at its limits |
//! | `restart` | the rules for stored sessions after a restart, and those of listeners |
//! | `refusals` | refused requests of clients, and what `where` finds of them and of drops |
//! | `rates` | clients that send more than their rate allows |
//! | `peers` | publishers that wait for other shards |
//! | `keep_alive` | packets that take longer than the Keep Alive of their client |
//! | `suspend` | a machine that was suspended |
//! | `gauges` | windows, queues and overdue sessions, as housekeeping counts them |
//! | `names` | names, topics and filters at their limits, charged by their bytes |
//! | `objectives` | delivery objectives: the end of each delivery counts once |
//! | `where_truth` | random messages in random states, and what `where` says of them |
//! | `publish` | messages that operators publish, and when they are answered |
//! | `bulk` | commands of operators about many things |
//! | `traces` | traces of operators, and that they change nothing |
//!
//! `driver` drives the shards. `client` has the packets and sessions of the clients.

mod access;
mod access_change;
mod admission;
mod auth_exchange;
mod authentication;
mod bans;
mod bulk;
#[path = "../../crates/core/src/mqtt/codec/cases.rs"]
#[expect(dead_code, reason = "what is expected of each case in detail the codec's own tests say")]
mod cases;
mod client;
mod codec_allocations;
#[path = "../support/core_settings.rs"]
mod core_settings;
mod decoder;
mod delayed;
mod differential;
mod directed;
mod driver;
mod findings;
mod gates;
mod gauges;
mod keep_alive;
mod large_groups;
mod lease;
mod letters;
mod memory;
#[path = "../support/memory_store.rs"]
#[expect(dead_code, reason = "the simulation looks at its content")]
mod memory_store;
mod names;
mod objectives;
mod paused;
mod peers;
mod publish;
mod questions;
mod rates;
mod refusals;
mod restart;
mod retained;
#[path = "../simulation/rng.rs"]
#[expect(dead_code, reason = "the simulation uses all of it")]
mod rng;
mod script;
mod shares;
mod slow_links;
mod splits;
mod stored;
mod suspend;
mod take_overs;
mod traces;
mod turn_limits;
mod turns;
mod waits;
mod where_truth;

#[global_allocator]
static JEMALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
