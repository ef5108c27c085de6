//! The payload size from which sharing is cheaper than copying: the fan-out of one message to
//! sixteen sockets, with the payload copied into each outbox, and with the payload shared. Each
//! socket gets one write, and is read again.
//!
//! Run `cargo bench --bench outbox`. `mqtt::message::LARGE_PAYLOAD` was chosen by it. Reading costs
//! the same in both cases, and is part of both.

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use homing::session::outbox::{Outbox, Pool};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const RECEIVERS: usize = 16;
/// Bytes before the payload: fixed header, a topic of 25 bytes, Packet Identifier.
const HEAD: [u8; 33] = [7; 33];

struct Receiver {
    outbox: Outbox,
    here: TcpStream,
    there: TcpStream,
}

impl Receiver {
    fn new() -> Receiver {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let here = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (there, _) = listener.accept().expect("connected");
        here.set_nodelay(true).expect("a TCP socket");
        Receiver { outbox: Outbox::default(), here, there }
    }

    /// Makes one write, as the broker does. The buffers of the kernel always have room for one
    /// message.
    fn flush(&mut self, pool: &mut Pool) {
        while !self.outbox.is_empty() {
            let wrote = if self.outbox.is_contiguous() {
                self.here.write(self.outbox.front())
            } else {
                self.here.write_vectored(&self.outbox.pieces())
            };
            self.outbox.advance(wrote.expect("its peer is open"));
        }
        self.outbox.end_flush(pool);
    }
}

fn fan_out(c: &mut Criterion) {
    let mut receivers: Vec<_> = (0..RECEIVERS).map(|_| Receiver::new()).collect();
    let mut pool = Pool::default();
    let mut sink = vec![0; 256 * 1024];
    let mut group = c.benchmark_group("fan-out to 16");
    for kib in [1, 2, 4, 8, 16, 32, 64] {
        let payload = Bytes::from(vec![7_u8; kib * 1024]);
        group.throughput(Throughput::Elements(RECEIVERS as u64));
        for shares in [false, true] {
            let name = if shares { "shared" } else { "copied" };
            group.bench_function(BenchmarkId::new(name, format!("{kib} KiB")), |b| {
                b.iter(|| {
                    for receiver in &mut receivers {
                        receiver.outbox.lend(&mut pool);
                        receiver.outbox.buffer().extend_from_slice(&HEAD);
                        if shares {
                            receiver.outbox.push_shared(payload.clone());
                        } else {
                            receiver.outbox.buffer().extend_from_slice(&payload);
                        }
                    }
                    for receiver in &mut receivers {
                        receiver.flush(&mut pool);
                        let mut left = HEAD.len() + payload.len();
                        while left > 0 {
                            left -= receiver.there.read(&mut sink).expect("its peer is open");
                        }
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .without_plots();
    targets = fan_out
}
criterion_main!(benches);
