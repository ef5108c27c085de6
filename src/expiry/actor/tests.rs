//! The actor against the real clock: each test waits for expired deadlines, none for time to pass.

use super::*;
use crate::expiry::deadline::Registration;
use actix::Addr;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const INTERVAL: Duration = Duration::from_millis(20);
/// A failing test ends; a slow machine does not fail one.
const PATIENCE: Duration = Duration::from_secs(30);

/// The message that a shard sends when its first expired deadlines come.
type Reply = Rc<RefCell<Option<(Addr<ExpiryActor>, Register)>>>;

/// Stands for a shard: forwards its expired deadlines to the test.
struct Shard {
    expired: UnboundedSender<ExpiredDeadlines>,
    reply: Reply,
}

impl Actor for Shard {
    type Context = Context<Self>;
}

impl Handler<ExpiredDeadlines> for Shard {
    type Result = ();

    fn handle(&mut self, expired: ExpiredDeadlines, _: &mut Self::Context) {
        if let Some((expiry, register)) = self.reply.take() {
            expiry.do_send(register);
        }
        let _ = self.expired.send(expired);
    }
}

struct Fixture {
    expiry: Addr<ExpiryActor>,
    expired: Vec<UnboundedReceiver<ExpiredDeadlines>>,
    statistics: Arc<ExpiryStatistics>,
    reply: Reply,
}

impl Fixture {
    fn start(shards: usize) -> Fixture {
        let mut recipients = Vec::new();
        let mut expired = Vec::new();
        let reply = Reply::default();
        for _ in 0..shards {
            let (sender, receiver) = unbounded_channel();
            recipients.push(Shard { expired: sender, reply: reply.clone() }.start().recipient());
            expired.push(receiver);
        }
        let statistics = Arc::<ExpiryStatistics>::default();
        let expiry = ExpiryActor::new(INTERVAL, recipients, statistics.clone()).start();
        Fixture { expiry, expired, statistics, reply }
    }

    fn register(&self, shard: u16, batch: &[Registration]) {
        self.expiry.do_send(Register { shard, batch: batch.to_vec(), sent: clock::now() });
    }

    async fn next(&mut self, shard: usize) -> ExpiredDeadlines {
        let next = tokio::time::timeout(PATIENCE, self.expired[shard].recv());
        next.await.expect("an expired deadline in time").expect("the shard runs")
    }
}

fn run(test: impl AsyncFnOnce()) {
    actix_rt::System::new().block_on(test());
}

fn retransmit(slot: u32, deadline: Instant) -> Registration {
    Registration { kind: DeadlineKind::Retransmit, slot, generation: 1, deadline }
}

fn soon(ms: u64) -> Instant {
    clock::now() + Duration::from_millis(ms)
}

fn bucket(deadline: Instant) -> Instant {
    ExpiryQueue::new(INTERVAL, Instant::ZERO).bucket(deadline)
}

#[test]
fn an_expired_deadline_comes_at_its_bucket_and_not_before() {
    run(async || {
        let mut fixture = Fixture::start(1);
        let deadline = soon(30);
        fixture.register(0, &[retransmit(5, deadline)]);
        let ExpiredDeadlines { batch, tick, .. } = fixture.next(0).await;
        assert!(clock::now() >= bucket(deadline));
        assert_eq!(tick, bucket(deadline));
        assert_eq!(batch, [ExpiredDeadline { kind: DeadlineKind::Retransmit, slot: 5, generation: 1 }]);
        assert_eq!(fixture.statistics.fired(DeadlineKind::Retransmit), 1);
        assert_eq!(fixture.statistics.keys(), 0);
    });
}

#[test]
fn an_earlier_registration_wakes_earlier() {
    run(async || {
        let mut fixture = Fixture::start(1);
        fixture.register(0, &[retransmit(0, soon(3_600_000))]);
        fixture.expiry.send(PollNow).await.expect("running");
        fixture.register(0, &[retransmit(1, soon(30))]);
        assert_eq!(fixture.next(0).await.batch[0].slot, 1);
        assert_eq!(fixture.statistics.keys(), 1);
    });
}

#[test]
fn expired_deadlines_go_to_the_shard_that_registered_with_its_own_slot_and_kind() {
    run(async || {
        let mut fixture = Fixture::start(3);
        let deadline = soon(10);
        for shard in 0..3 {
            let batch = DeadlineKind::ALL.map(|kind| Registration {
                kind,
                slot: 40 + u32::from(shard),
                generation: 9,
                deadline,
            });
            fixture.register(shard, &batch);
        }
        for shard in 0..3 {
            let mut batch = fixture.next(shard).await.batch;
            batch.sort_unstable_by_key(|expired_deadline| expired_deadline.kind as u8);
            let slot = 40 + shard as u32;
            assert_eq!(batch, DeadlineKind::ALL.map(|kind| ExpiredDeadline { kind, slot, generation: 9 }));
        }
    });
}

#[test]
fn what_was_deregistered_or_moved_does_not_fire() {
    run(async || {
        let mut fixture = Fixture::start(1);
        fixture.register(0, &[retransmit(0, soon(20)), retransmit(1, soon(20)), retransmit(2, soon(80))]);
        fixture.register(0, &[retransmit(0, Instant::NEVER), retransmit(1, soon(3_600_000))]);
        let batch = fixture.next(0).await.batch;
        assert_eq!(batch.iter().map(|expired_deadline| expired_deadline.slot).collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn a_catch_up_takes_several_rounds_and_the_mailbox_has_its_turn_between_them() {
    run(async || {
        let mut fixture = Fixture::start(1);
        let keys = 6 * ROUND as u32;
        let overdue: Vec<_> = (1..=keys).map(|slot| retransmit(slot, Instant::ZERO)).collect();
        fixture.register(0, &overdue);
        let late = Register { shard: 0, batch: vec![retransmit(0, Instant::ZERO)], sent: clock::now() };
        *fixture.reply.borrow_mut() = Some((fixture.expiry.clone(), late));
        let mut slots = Vec::new();
        while slots.len() <= keys as usize {
            let batch = fixture.next(0).await.batch;
            assert!(batch.len() <= ROUND);
            slots.extend(batch.into_iter().map(|expired_deadline| expired_deadline.slot));
        }
        let late = slots.iter().position(|slot| *slot == 0).expect("fires too");
        assert!(late < 5 * ROUND, "taken in between the rounds, so not the last");
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), 1 + keys as usize);
        assert_eq!(fixture.statistics.keys(), 0);
        fixture.expiry.send(PollNow).await.expect("running");
        assert!(fixture.statistics.longest_catch_up() >= 6);
    });
}

#[test]
fn only_buckets_in_use_wake_the_actor() {
    run(async || {
        let mut fixture = Fixture::start(1);
        fixture.register(0, &[retransmit(0, soon(10)), retransmit(1, soon(200))]);
        let mut fired = 0;
        while fired < 2 {
            fired += fixture.next(0).await.batch.len();
        }
        assert!(fixture.statistics.ticks() <= 2, "ten intervals, two buckets");
        assert_eq!(fixture.statistics.buckets_in_use(), 0);
    });
}

#[test]
fn a_polled_key_fires_again_only_when_registered_again() {
    run(async || {
        let mut fixture = Fixture::start(1);
        for generation in 1..4 {
            let registration = Registration { generation, ..retransmit(0, soon(10)) };
            fixture.register(0, &[registration]);
            let batch = fixture.next(0).await.batch;
            assert_eq!(
                batch.iter().map(|expired_deadline| expired_deadline.generation).collect::<Vec<_>>(),
                [generation]
            );
        }
        fixture.register(0, &[retransmit(1, soon(60))]);
        assert_eq!(fixture.next(0).await.batch.len(), 1);
    });
}

#[test]
fn an_inspection_tells_the_shards_and_kinds_apart() {
    run(async || {
        let fixture = Fixture::start(2);
        let (near, far) = (soon(3_600_000), soon(7_200_000));
        fixture.register(0, &[retransmit(0, far), retransmit(1, near)]);
        let idle = Registration { kind: DeadlineKind::ReadIdle, slot: 7, generation: 0, deadline: far };
        fixture.register(1, &[idle]);
        let ExpiryInspection { interval, keys, buckets, shards } =
            fixture.expiry.send(Inspect).await.expect("running");
        assert_eq!((interval, keys, shards.len()), (INTERVAL, 3, 2));
        assert_eq!(buckets, [(bucket(near), 1), (bucket(far), 2)]);
        let told =
            |shard: usize, kind| (shards[shard][kind as usize].keys, shards[shard][kind as usize].first);
        assert_eq!(told(0, DeadlineKind::Retransmit), (2, Some(bucket(near))));
        assert_eq!(told(0, DeadlineKind::ReadIdle), (0, None));
        assert_eq!(told(1, DeadlineKind::ReadIdle), (1, Some(bucket(far))));
    });
}
