//! The expiry actor: the one timer of the broker. Sleeps to the end of the first bucket in use, polls, sends verdicts.
//!
//! It runs in an arbiter of its own, so that a busy shard does not make deadlines late, and serves all
//! shards. It decides nothing: a verdict says that a registered bucket has ended, and the owner, who may have moved
//! its deadline since, compares with its own before it acts. Not here: the owners' deadlines, and any per-connection state.
//!
//! Bounds: a round looks at 8,192 entries, then the mailbox has its turn, since actix drains the mailbox before
//! it polls futures. An empty queue does not wake at all.

use super::deadline::DeadlineKind;
use super::message::{Inspect, Inspection, PollNow, Register, Registered, Survey, Verdict, Verdicts};
use super::queue::{self, ExpiryQueue, Key, More};
use super::slot::SlotSpace;
use super::statistics::{AHEAD, ExpiryStatistics};
use crate::clock;
use crate::time::Instant;
use actix::{Actor, ActorFuture, AsyncContext, Context, Handler, MessageResult, Recipient};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// The longest sleep. Its timer stands still while the machine is suspended, and deadlines do not: those that passed in a
/// suspend are found this long after it.
const SLEEP: Duration = Duration::from_secs(10);

/// Entries a round looks at, well within the 2 ms that the actor may be held.
const ROUND: usize = 8_192;

/// See the module's text.
pub struct ExpiryActor {
    queue: ExpiryQueue,
    slots: SlotSpace,
    shards: Vec<Recipient<Verdicts>>,
    statistics: Arc<ExpiryStatistics>,
    /// When to poll next: the end of the first bucket in use, or earlier after a deregistration.
    wake: Option<Instant>,
    /// Rounds of the tick under way.
    rounds: u64,
    /// Kept empty between rounds.
    polled: Vec<Key>,
    batches: Vec<Vec<Verdict>>,
}

impl ExpiryActor {
    /// `shards` in the order of their numbers, at most 65,536.
    pub fn new(
        interval: Duration,
        shards: Vec<Recipient<Verdicts>>,
        statistics: Arc<ExpiryStatistics>,
    ) -> ExpiryActor {
        let count = u16::try_from(shards.len()).expect("fewer arbiters than 65,536");
        ExpiryActor {
            queue: ExpiryQueue::new(interval, clock::now()),
            slots: SlotSpace::new(count),
            batches: shards.iter().map(|_| Vec::new()).collect(),
            shards,
            statistics,
            wake: None,
            rounds: 0,
            polled: Vec::new(),
        }
    }

    /// Polls once, sends what is due, and sets the next wake-up unless more is due now.
    fn round(&mut self, now: Instant) -> More {
        let tick = self.queue.next_boundary().unwrap_or(now);
        let more = self.queue.poll(now, ROUND, &mut self.polled);
        self.send(tick, now);
        self.rounds += 1;
        if more == More::Nothing {
            self.statistics.ticked(self.rounds, self.queue.buckets_in_use());
            self.rounds = 0;
            self.wake = self.queue.next_boundary();
        }
        more
    }

    fn send(&mut self, tick: Instant, now: Instant) {
        let mut fired = [0; DeadlineKind::COUNT];
        for Key { slot, generation } in self.polled.drain(..) {
            let (shard, kind, slot) = self.slots.local(slot);
            fired[kind as usize] += 1;
            self.batches[usize::from(shard)].push(Verdict { kind, slot, generation });
        }
        for (shard, batch) in self.shards.iter().zip(&mut self.batches) {
            if !batch.is_empty() {
                // A shard that is gone has no owners left to tell.
                shard.do_send(Verdicts { batch: std::mem::take(batch), tick, sent: now });
            }
        }
        self.statistics.sent(fired, now.since(tick));
        self.statistics.registered(self.queue.len());
    }
}

impl Actor for ExpiryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.spawn(Ticker { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), armed: None });
    }
}

impl Handler<Register> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, Register { shard, batch, sent }: Register, _: &mut Self::Context) {
        self.statistics.registration_lag.add(clock::now().since(sent), 1);
        assert!(usize::from(shard) < self.shards.len(), "a shard of this broker's");
        for registration in batch {
            let slot = self.slots.global(shard, registration.kind, registration.slot);
            let key = Key { slot, generation: registration.generation };
            if let Some(bucket) = self.queue.update(key, registration.deadline) {
                self.wake = Some(self.wake.map_or(bucket, |wake| wake.min(bucket)));
            }
        }
        self.statistics.registered(self.queue.len());
    }
}

impl Handler<PollNow> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, _: PollNow, _: &mut Self::Context) {
        self.wake = Some(Instant::ZERO);
    }
}

impl Handler<Survey> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, _: Survey, ctx: &mut Self::Context) {
        let now = clock::now();
        ctx.notify(CountOn(queue::Survey::new(AHEAD.map(|s| now + Duration::from_secs(s)))));
    }
}

/// A survey goes on, after whatever else there is to do.
struct CountOn(queue::Survey<{ AHEAD.len() }>);

impl actix::Message for CountOn {
    type Result = ();
}

impl Handler<CountOn> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, CountOn(mut survey): CountOn, ctx: &mut Self::Context) {
        match self.queue.survey(&mut survey) {
            More::Due => ctx.notify(CountOn(survey)),
            More::Nothing => self.statistics.surveyed(survey.due),
        }
    }
}

impl Handler<Inspect> for ExpiryActor {
    type Result = MessageResult<Inspect>;

    fn handle(&mut self, _: Inspect, _: &mut Self::Context) -> Self::Result {
        let mut shards = vec![[Registered::default(); DeadlineKind::COUNT]; self.shards.len()];
        for (slot, ends) in self.queue.walk() {
            let (shard, kind, _) = self.slots.local(slot);
            let of_kind = &mut shards[usize::from(shard)][kind as usize];
            of_kind.keys += 1;
            of_kind.first = Some(of_kind.first.map_or(ends, |first| first.min(ends)));
        }
        let (interval, keys, buckets) = (self.queue.interval(), self.queue.len(), self.queue.dump());
        MessageResult(Inspection { interval, keys, buckets, shards })
    }
}

/// Runs the actor's rounds when they are due. Polled after each pass over the mailbox, so an earlier wake-up is seen at once.
struct Ticker {
    sleep: Pin<Box<Sleep>>,
    /// What the sleep is set to; nothing once it has ended.
    armed: Option<Instant>,
}

impl ActorFuture<ExpiryActor> for Ticker {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut ExpiryActor,
        _: &mut Context<ExpiryActor>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        while let Some(wake) = actor.wake {
            let now = clock::now();
            if wake <= now {
                if actor.round(now) == More::Due {
                    // The mailbox first: registrations must not wait for the end of a long catch-up.
                    task.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            if self.armed != Some(wake) {
                // `now` is rounded down to its millisecond, so this ends at or after `wake`.
                self.sleep.set(tokio::time::sleep(wake.since(now).min(SLEEP)));
                self.armed = Some(wake);
            }
            if self.sleep.as_mut().poll(task).is_pending() {
                return Poll::Pending;
            }
            self.armed = None;
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
