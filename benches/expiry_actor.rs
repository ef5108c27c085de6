//! The longest time for which the expiry actor is busy while the keys of 1,000,000 connections come
//! due in one tick. A registration must wait for so long. The aim is 2 ms. Run `cargo bench --bench
//! expiry_actor`.
//!
//! Another thread asks the actor for a small thing all the time. The longest wait for the answer is
//! the longest busy time and two wake-ups.

use actix::{Actor, Addr, Context, Handler};
use actix_rt::{Arbiter, System};
use homing::clock;
use homing::expiry::actor::ExpiryActor;
use homing::expiry::deadline::{DeadlineKind, Registration};
use homing::expiry::message::{CountKeys, ExpiredDeadlines, PollNow, Register, Survey};
use homing::expiry::statistics::ExpiryStatistics;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static JEMALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const CONNECTIONS: u32 = 1_000_000;
const RUNS: usize = 7;
/// Registrations of one turn of a shard.
const BATCH: u32 = 1_000;

/// An actor in place of a shard.
struct Shard;

impl Actor for Shard {
    type Context = Context<Self>;
}

impl Handler<ExpiredDeadlines> for Shard {
    type Result = ();

    fn handle(&mut self, _: ExpiredDeadlines, _: &mut Self::Context) {}
}

/// The longest waits of one run, in milliseconds.
struct Longest {
    idle: f64,
    tick: f64,
    survey: f64,
    count: f64,
    /// The time from the question to the count of all keys.
    counted: f64,
}

async fn run() -> Longest {
    let statistics = Arc::<ExpiryStatistics>::default();
    let (timers, shards) = (Arbiter::new(), Arbiter::new());
    let shard = Shard::start_in_arbiter(&shards.handle(), |_| Shard).recipient();
    let figures = Arc::clone(&statistics);
    let expiry = ExpiryActor::start_in_arbiter(&timers.handle(), move |_| {
        ExpiryActor::new(Duration::from_millis(250), vec![shard], figures)
    });
    let deadline = clock::now() + Duration::from_secs(5);
    for from in (0..CONNECTIONS).step_by(BATCH as usize) {
        let registration =
            |slot| Registration { kind: DeadlineKind::ReadIdle, slot, generation: 1, deadline };
        let batch = (from..from + BATCH).map(registration).collect();
        expiry.do_send(Register { shard: 0, batch, sent: clock::now() });
    }
    wait(&expiry).await;
    assert_eq!(statistics.keys(), u64::from(CONNECTIONS), "none is due while they are registered");
    let (mut idle, mut tick, mut survey) = (0.0_f64, 0.0_f64, 0.0_f64);
    expiry.do_send(Survey);
    while statistics.due()[2] == 0 {
        survey = survey.max(wait(&expiry).await);
    }
    let (reply, mut answer) = tokio::sync::oneshot::channel();
    let (began, mut count) = (clock::nanos(), 0.0_f64);
    expiry.do_send(CountKeys { reply });
    let keys = loop {
        count = count.max(wait(&expiry).await);
        if let Ok(wheel) = answer.try_recv() {
            break wheel.keys();
        }
    };
    let counted = since(began);
    assert_eq!(keys, u64::from(CONNECTIONS), "each key is counted once");
    while statistics.keys() > 0 {
        let before = statistics.keys();
        let waited = wait(&expiry).await;
        let longest = if before == u64::from(CONNECTIONS) && statistics.keys() == before {
            &mut idle
        } else {
            &mut tick
        };
        *longest = longest.max(waited);
    }
    for arbiter in [timers, shards] {
        arbiter.stop();
        arbiter.join().expect("no panic");
    }
    Longest { idle, tick, survey, count, counted }
}

async fn wait(expiry: &Addr<ExpiryActor>) -> f64 {
    let began = clock::nanos();
    expiry.send(PollNow).await.expect("it runs");
    since(began)
}

fn since(began: u64) -> f64 {
    (clock::nanos() - began) as f64 / 1e6
}

fn main() {
    let runs: Vec<_> = (0..RUNS).map(|_| System::new().block_on(run())).collect();
    let sorted = |of: fn(&Longest) -> f64| {
        let mut values: Vec<_> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    println!("the longest wait for the actor in each of {RUNS} runs with {CONNECTIONS} keys, ms");
    println!("while nothing is due     {:>6.2?}", sorted(|l| l.idle));
    println!("while all come due       {:>6.2?}", sorted(|l| l.tick));
    println!("while it counts for $SYS {:>6.2?}", sorted(|l| l.survey));
    println!("while it counts the wheel {:>5.2?}", sorted(|l| l.count));
    println!("the count of the wheel, ms {:.1?}", sorted(|l| l.counted));
}
