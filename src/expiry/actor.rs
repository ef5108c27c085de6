//! The expiry actor: the only timer of the broker. The actor sleeps until the first bucket in use
//! ends, polls the queue, and sends the expired deadlines.
//!
//! The actor serves all shards. A thread of its own keeps deadlines punctual while a shard is busy.
//! The actor decides nothing: an expired deadline only says that a registered bucket has ended. The
//! owner may have moved its deadline since, and compares before it acts. The true deadlines and all
//! state of connections stay with their owners.
//!
//! Each round looks at 8,192 entries at most. Then the mailbox has its turn, since actix drains the
//! mailbox before it polls futures. An empty queue never wakes the actor.

use super::deadline::DeadlineKind;
use super::message::{
    CountKeys, ExpiredDeadline, ExpiredDeadlines, ExpiryInspection, Inspect, PollNow, Register,
    RegisteredDeadlines, Survey,
};
use super::queue::{self, DeadlineKey, ExpiryQueue, More, WheelCount};
use super::slot::SlotSpace;
use super::statistics::{AHEAD, ExpiryStatistics};
use crate::clock;
use crate::pulse::Pulse;
use crate::time::Instant;
use actix::{Actor, ActorFuture, AsyncContext, Context, Handler, MessageResult, Recipient};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// The longest sleep. The timer of a sleep stops while the machine is suspended; deadlines do not.
/// So deadlines that passed in a suspend are found at most this long after it.
const SLEEP: Duration = Duration::from_secs(10);

/// Entries that a round looks at: well under the 2 ms that one round may hold the actor.
const ROUND: usize = 8_192;

/// The actor that owns the expiry queue and sends expired deadlines to the shards.
pub struct ExpiryActor {
    queue: ExpiryQueue,
    slots: SlotSpace,
    shards: Vec<Recipient<ExpiredDeadlines>>,
    statistics: Arc<ExpiryStatistics>,
    /// The time of the next poll: the end of the first bucket in use, or earlier after a
    /// deregistration. `None` if nothing is registered.
    wake: Option<Instant>,
    /// Registered keys of each kind.
    keys: [usize; DeadlineKind::COUNT],
    /// Number of rounds of the current tick.
    rounds: u64,
    /// The keys of one round. Empty between rounds; kept for its allocation.
    polled: Vec<DeadlineKey>,
    batches: Vec<Vec<ExpiredDeadline>>,
    /// Callers waiting for the running count.
    askers: Vec<oneshot::Sender<Arc<WheelCount>>>,
}

impl ExpiryActor {
    /// Creates the actor. `shards` are in the order of their numbers, at most 65,535.
    ///
    /// # Panics
    /// Panics if there are more shards.
    pub fn new(
        interval: Duration,
        shards: Vec<Recipient<ExpiredDeadlines>>,
        statistics: Arc<ExpiryStatistics>,
    ) -> ExpiryActor {
        let count = u16::try_from(shards.len()).expect("at most 65,535 shards");
        ExpiryActor {
            queue: ExpiryQueue::new(interval, clock::now()),
            slots: SlotSpace::new(count),
            batches: shards.iter().map(|_| Vec::new()).collect(),
            shards,
            statistics,
            wake: None,
            keys: [0; DeadlineKind::COUNT],
            rounds: 0,
            polled: Vec::new(),
            askers: Vec::new(),
        }
    }

    /// Polls once, sends due keys, and sets the next wake-up unless more is due now.
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

    fn report_keys(&self) {
        debug_assert_eq!(self.keys.iter().sum::<usize>(), self.queue.len());
        self.statistics.registered(self.keys);
    }

    fn send(&mut self, tick: Instant, now: Instant) {
        let mut fired = [0; DeadlineKind::COUNT];
        for DeadlineKey { slot, generation } in self.polled.drain(..) {
            let (shard, kind, slot) = self.slots.local(slot);
            fired[kind as usize] += 1;
            self.keys[kind as usize] -= 1;
            self.batches[usize::from(shard)].push(ExpiredDeadline { kind, slot, generation });
        }
        for (shard, batch) in self.shards.iter().zip(&mut self.batches) {
            if !batch.is_empty() {
                // A stopped shard has no owners that wait for this.
                shard.do_send(ExpiredDeadlines { batch: std::mem::take(batch), tick, sent: now });
            }
        }
        self.statistics.sent(fired, now.since(tick));
        self.report_keys();
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
            let key = DeadlineKey { slot, generation: registration.generation };
            let before = self.queue.len();
            if let Some(bucket) = self.queue.update(key, registration.deadline) {
                self.wake = Some(self.wake.map_or(bucket, |wake| wake.min(bucket)));
            }
            // An update adds, removes or moves one key.
            let of_kind = &mut self.keys[registration.kind as usize];
            *of_kind = *of_kind + self.queue.len() - before;
        }
        self.report_keys();
    }
}

impl Handler<PollNow> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, _: PollNow, _: &mut Self::Context) {
        self.wake = Some(Instant::ZERO);
    }
}

impl Handler<Arc<Pulse>> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, pulse: Arc<Pulse>, _: &mut Self::Context) {
        pulse.beat();
    }
}

impl Handler<Survey> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, _: Survey, ctx: &mut Self::Context) {
        let now = clock::now();
        ctx.notify(CountOn(queue::QueueSurvey::new(AHEAD.map(|s| now + Duration::from_secs(s)))));
    }
}

/// The rest of a survey, which continues after all other messages.
struct CountOn(queue::QueueSurvey<{ AHEAD.len() }>);

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

impl Handler<CountKeys> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, CountKeys { reply }: CountKeys, ctx: &mut Self::Context) {
        self.askers.push(reply);
        if self.askers.len() == 1 {
            self.queue.begin_count(self.slots);
            ctx.notify(CountKeysOn);
        }
    }
}

/// The rest of a count by bucket, which continues after all other messages.
struct CountKeysOn;

impl actix::Message for CountKeysOn {
    type Result = ();
}

impl Handler<CountKeysOn> for ExpiryActor {
    type Result = ();

    fn handle(&mut self, _: CountKeysOn, ctx: &mut Self::Context) {
        let Some(count) = self.queue.count_on() else { return ctx.notify(CountKeysOn) };
        let count = Arc::<WheelCount>::from(count);
        for asker in self.askers.drain(..) {
            // A caller that timed out needs no reply.
            let _ = asker.send(Arc::clone(&count));
        }
    }
}

impl Handler<Inspect> for ExpiryActor {
    type Result = MessageResult<Inspect>;

    fn handle(&mut self, _: Inspect, _: &mut Self::Context) -> Self::Result {
        let mut shards = vec![[RegisteredDeadlines::default(); DeadlineKind::COUNT]; self.shards.len()];
        for (slot, ends) in self.queue.walk() {
            let (shard, kind, _) = self.slots.local(slot);
            let of_kind = &mut shards[usize::from(shard)][kind as usize];
            of_kind.keys += 1;
            of_kind.first = Some(of_kind.first.map_or(ends, |first| first.min(ends)));
        }
        let (interval, keys, buckets) = (self.queue.interval(), self.queue.len(), self.queue.dump());
        MessageResult(ExpiryInspection { interval, keys, buckets, shards })
    }
}

/// The future that runs the rounds of the actor when they are due.
///
/// Actix polls it after each pass over the mailbox, so an earlier wake-up takes effect at once.
struct Ticker {
    sleep: Pin<Box<Sleep>>,
    /// The wake-up for which the sleep is set; `None` once the sleep has ended.
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
                    // The mailbox comes first: registrations must not wait for the end of a long
                    // catch-up.
                    task.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            if self.armed != Some(wake) {
                // `now` is rounded down to its millisecond, so the sleep ends at or after `wake`.
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
