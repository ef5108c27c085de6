//! Crashes of the whole broker: memory is gone, every connection breaks, and clients come back.

use crate::memory_store::Image;
use crate::oracle::{Live, Oracle, SessionLog};
use crate::plan::LONG;
use crate::store::HEARTBEAT_MS;
use crate::topics::is_share;
use crate::trace::trace;
use crate::world::{Event, World};
use homing::mqtt::message::Message;
use homing::mqtt::packet::QoS;
use homing::persistence::records::EntryNumber;
use homing::session::outbound::queue::QueuePolicy;

/// How long after a shortage what was answered in it may not be stored.
const UNSETTLED_MS: u64 = 1_000;

/// What a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// There is no store.
    Nothing,
    /// What was acknowledged, and of the rest nobody knows what.
    Committed,
}

impl World {
    /// The broker's process ends without a word, and another begins in a while.
    pub fn crash(&mut self) {
        trace!(self, "== the broker crashes");
        self.saw("the broker crashes");
        self.forget_the_brokers();
        self.break_all();
        let back_at = self.now + self.rng.between(10, 1_500);
        if self.disk.is_none() {
            self.up_at = back_at;
            self.oracle.crashed(self.now, self.up_at, 0, Survival::Nothing);
            return self.boot();
        }
        self.check_survival();
        for node in &self.nodes {
            self.drops.merge(&node.core.snapshot().counters.drops);
        }
        self.nodes.clear();
        if self.rng.percent(50) {
            self.plan.shards = self.rng.between(2, 4) as u8;
        }
        // What the sessions are subscribed to is known to every shard before anybody can publish.
        self.up_at = back_at + self.plan.under_way_ms();
        let late = self.plan.late_ms() + 8 * self.plan.store_ms();
        let unmeasured = self.clocks.down(back_at);
        if unmeasured > 0 {
            self.saw("no clock shows how long the broker was down");
        }
        self.oracle.unmeasured += unmeasured;
        self.oracle.crashed(self.now, self.up_at, late, Survival::Committed);
        if self.oracle.was_short(self.now.saturating_sub(UNSETTLED_MS), self.now) {
            // That a session is connected may not be stored: its end counts from an earlier
            // absence.
            let brief = |l: &&mut Live| l.expiry < u64::from(LONG) * 1_000;
            self.oracle.live.iter_mut().flatten().filter(brief).for_each(|l| l.doubtful = true);
        }
        self.schedule(back_at, Event::Boot);
        self.schedule(self.up_at, Event::Settled);
    }

    /// All that was acknowledged is in what is left.
    fn check_survival(&mut self) {
        let Some(disk) = &self.disk else { return };
        let acknowledged = |number: &usize| {
            let message = &self.oracle.messages[*number];
            message.acknowledged.is_some() && !message.is_will
        };
        let numbers: Vec<usize> = (0..self.oracle.messages.len()).filter(acknowledged).collect();
        let result = disk.memory.look(|image| {
            // What is retained, and what has no publisher, does not wait for what is held.
            let holds = self.plan.settings.session.send.queue.policy == QueuePolicy::Hold;
            let mut clients = self.clients.iter().filter(|_| !holds);
            clients.try_for_each(|client| check_order_kept(image, &client.manners.name))?;
            numbers.into_iter().try_for_each(|number| self.check_kept(image, number))
        });
        self.check(result.map_err(|what| format!("after a crash {what}")));
    }
}

/// What a session has in flight was sent in the order of its deliveries, and before all that is in
/// its queue: whatever of it is kept, it is sent in that order again. The rows of an expired message
/// may stay until its topic was read. It is not sent any more.
fn check_order_kept(image: &Image, client: &str) -> Result<(), String> {
    let Some(session) = image.session(client) else { return Ok(()) };
    let may_expire = |message: &Message| !message.header().expires.is_never();
    let entries = image.entries(session.key);
    let entries = entries.filter(|(e, message)| e.flight.is_some() || !message.is_some_and(may_expire));
    let mut entries: Vec<_> = entries.map(|(e, _)| (e.number, e.flight.map(|f| f.running))).collect();
    entries.sort();
    let place = |(_, running): &(EntryNumber, Option<u64>)| running.unwrap_or(u64::MAX);
    match entries.windows(2).find(|pair| place(&pair[0]) > place(&pair[1])) {
        Some(pair) => Err(format!("{client} is sent what is younger first: {pair:?}")),
        None => Ok(()),
    }
}

impl Oracle {
    /// The broker's process is gone; it is back at `up_at`.
    pub fn crashed(&mut self, now: u64, up_at: u64, late: u64, survival: Survival) {
        let kept = survival == Survival::Committed;
        self.crashes.extend(kept.then_some(now));
        for client in 0..self.live.len() {
            let ghost = self.ghosts.remove(&client);
            let left = match self.live[client].take() {
                Some(live) if kept && live.stored_expiry.1 > 0 => {
                    Some(survivor(live, now, up_at, self.unmeasured, ghost))
                }
                Some(Live { number, .. }) => {
                    self.sessions[number].ended = Some(now);
                    ghost.map(returned).filter(|_| kept)
                }
                None => ghost.map(returned).filter(|_| kept),
            };
            if let Some(Live { number, .. }) = left {
                self.sessions[number].survived = true;
            }
            self.live[client] = left;
        }
        self.lose_shares(now, late);
        self.delayed_crash(now, up_at, late, survival);
        self.wills_crash(now, up_at, late, survival);
        match survival {
            Survival::Nothing => self.forget_retained(now),
            Survival::Committed => {}
        }
    }

    /// Messages that are put off: forgotten, or out a while after the broker is back if that was
    /// their time.
    fn delayed_crash(&mut self, now: u64, up_at: u64, late: u64, survival: Survival) {
        for message in self.messages.iter_mut().filter(|m| m.delay.is_some()) {
            let Some(routed) = message.acknowledged.filter(|at| at + late >= now) else { continue };
            match survival {
                Survival::Nothing => message.acknowledged = None,
                Survival::Committed => {
                    message.acknowledged = Some(routed.max(up_at) + late + self.unmeasured)
                }
            }
        }
    }

    /// The messages of a member whose session is not stored are dropped with it, though others are
    /// in its group.
    fn lose_shares(&mut self, now: u64, late: u64) {
        let Oracle { sessions, messages, astray, .. } = self;
        let ends = |log: &&SessionLog| log.vague || log.ended.is_some_and(|ended| ended + late >= now);
        let shares = sessions.iter().filter(ends).flat_map(|log| &log.subscriptions);
        for s in shares.filter(|s| is_share(s.filter)) {
            let may_have = |m: &&usize| s.covers(messages[**m].topic) && messages[**m].first_sent <= now;
            let all: Vec<usize> = (0..messages.len()).collect();
            astray.extend(all.iter().filter(may_have));
        }
    }

    fn forget_retained(&mut self, now: u64) {
        let Oracle { messages, retaining, forgotten, .. } = self;
        for retaining in retaining.values_mut() {
            retaining.retain(|m| {
                let message = &messages[*m];
                // What has no acknowledgement yet is sent again.
                let again =
                    message.acknowledged.is_none() && message.qos > QoS::AtMostOnce && !message.is_will;
                if !again {
                    forgotten.insert(*m, now);
                }
                again
            });
        }
    }

    /// An acknowledgement came that the broker had sent before it crashed.
    pub fn acknowledged_before_crash(&mut self, message: usize, crash: u64) {
        if let Some(retaining) = self.retaining.get_mut(&self.messages[message].topic) {
            retaining.retain(|m| *m != message);
        }
        self.forgotten.insert(message, crash);
    }
}

/// A session of which at least something was stored.
/// `unmeasured`: time by which it may live longer.
fn survivor(live: Live, now: u64, up_at: u64, unmeasured: u64, ghost: Option<usize>) -> Live {
    let (least, most) = live.stored_expiry;
    let ends = if live.connected.is_some() { 0 } else { live.ends };
    Live {
        connected: None,
        may_end: live.may_end.min(now.saturating_sub(HEARTBEAT_MS) + least),
        ends: ends.max(up_at.saturating_add(most)).saturating_add(unmeasured),
        doubtful: !live.known || least == 0 || ghost.is_some(),
        ..live
    }
}

/// A session that had ended, and may be back because that was not stored.
fn returned(number: usize) -> Live {
    Live {
        number,
        expiry: 0,
        stored_expiry: (0, u64::MAX),
        connected: None,
        ends: u64::MAX,
        may_end: 0,
        known: false,
        told: false,
        doubtful: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that connected at 0 by socket 1, for a minute.
    fn connected(clean: bool) -> Oracle {
        let mut oracle = Oracle::new(1);
        oracle.connected(0, 0, 1, clean, 60, false).unwrap();
        oracle
    }

    /// Whether after a crash at 1,000 it may be told, at 20,000, that there is its session, and
    /// that there is none.
    fn answers(connected: impl Fn() -> Oracle, survival: Survival) -> (bool, bool) {
        let answer = |present| {
            let mut oracle = connected();
            oracle.crashed(1_000, 2_000, 0, survival);
            oracle.connected(20_000, 0, 2, false, 60, present).is_ok()
        };
        (answer(true), answer(false))
    }

    #[test]
    fn a_session_that_its_client_knows_of_survives() {
        let known = || {
            let mut oracle = connected(false);
            oracle.connack_came(0, 1);
            oracle
        };
        assert_eq!(answers(known, Survival::Committed), (true, false));
        assert_eq!(answers(known, Survival::Nothing), (false, true));
    }

    #[test]
    fn a_session_without_connack_may_survive() {
        assert_eq!(answers(|| connected(false), Survival::Committed), (true, true));
    }

    #[test]
    fn an_end_that_nobody_was_told_of_may_be_forgotten() {
        let left = || {
            let mut oracle = connected(false);
            oracle.connack_came(0, 1);
            oracle.disconnected(500, 0, 1, Some(0));
            oracle
        };
        assert_eq!(answers(left, Survival::Committed), (true, true));
        let back = || {
            let mut oracle = left();
            oracle.connected(600, 0, 3, true, 0, false).unwrap();
            oracle.connack_came(0, 3);
            oracle
        };
        assert_eq!(answers(back, Survival::Committed), (false, true));
    }

    #[test]
    fn expiry_counts_from_a_heartbeat_before_the_crash_to_its_return() {
        let brief = || {
            let mut oracle = Oracle::new(1);
            oracle.connected(0, 0, 1, false, 15, false).unwrap();
            oracle.connack_came(0, 1);
            oracle.crashed(50_000, 51_000, 0, Survival::Committed);
            oracle
        };
        for (at, present) in [(54_000, false), (67_000, true)] {
            assert!(brief().connected(at, 0, 2, false, 15, present).is_err(), "{present} at {at}");
        }
        for present in [true, false] {
            assert!(brief().connected(60_000, 0, 2, false, 15, present).is_ok());
        }
    }
}
