//! Memory and disk that run out, and come back, while clients go on: what is refused meanwhile, and
//! what is not.
//!
//! Over the memory budget, and with a full store, the broker refuses what it would have to hold. A
//! shortage is one of these:
//!
//! | shortage | what is so |
//! |---|---|
//! | memory | more is held than `limits.memory` |
//! | disk, tight | the store has room for a few small messages |
//! | disk, full | the store has none but its reserve, in which everything still fits that was taken before |
//! | disk, blocked | nor that: a transaction is committed only if it leaves the store no larger than it was |
//!
//! The oracle looks at both sides. What was sent and answered within a shortage must have been
//! refused, unless it needs no room; and whoever is refused must have asked in one. A known session
//! is never refused. The other oracles go on: nothing acknowledged is dropped, and when there is
//! room again all comes to rest.

use crate::memory_store::Memory;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::trace::trace;
use crate::world::{Event, World};
use homing::mqtt::charge::Charge;
use homing::mqtt::packet::QoS;
use homing::store::Store;
use homing::store::coalesce::CommitGroup;
use std::sync::atomic::Ordering;

/// Seeds that failed before there was this play without.
const SHORTAGE: u64 = 0x30_0000_0000;

/// Between two attempts to commit what does not fit, as in the writer.
pub const RETRY_MS: u64 = 250;

/// Blocked commits keep everybody waiting: shorter than clients' ack wait.
const BLOCKED_MS: u64 = 1_500;

/// How long after the clients begin to behave the last shortage may end.
const INTO_SETTLING_MS: u64 = 3_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    Memory,
    Disk(Disk),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    Tight,
    Full,
    Blocked,
}

/// When something was short.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    pub of: Short,
    pub from: u64,
    /// `u64::MAX` while it lasts.
    pub until: u64,
}

pub struct Shortage {
    pub plays: bool,
    /// What is short now.
    pub memory: bool,
    pub disk: Option<Disk>,
    /// The client that took over last, and when.
    pub took_over: Option<(usize, u64)>,
    /// For how long commits were or will be blocked in all.
    pub blocked_ms: u64,
    /// Bytes of room where it is tight.
    room: i64,
    ballast: Charge,
    rng: Rng,
}

impl Shortage {
    pub fn new(seed: u64, may_play: bool) -> Shortage {
        let mut rng = Rng::new(seed ^ SHORTAGE);
        let plays = rng.percent(20) && may_play;
        Shortage {
            plays,
            memory: false,
            disk: None,
            took_over: None,
            blocked_ms: 0,
            room: 0,
            ballast: Charge::NONE,
            rng,
        }
    }

    /// Whether there is no room for a message of this QoS now.
    pub fn has_none_for(&self, qos: QoS) -> bool {
        let is_full = matches!(self.disk, Some(Disk::Full | Disk::Blocked));
        self.memory || is_full && qos > QoS::AtMostOnce
    }

    /// Whether something may be refused now.
    pub fn is(&self) -> bool {
        self.memory || self.disk.is_some()
    }
}

/// Whether one of these periods has a time from `from` to `to`.
pub fn is_short_in(periods: &[Period], from: u64, to: u64) -> bool {
    periods.iter().any(|p| p.from <= to && from <= p.until)
}

impl Oracle {
    /// Whether something was short at any time from `from` to `to`.
    pub fn was_short(&self, from: u64, to: u64) -> bool {
        is_short_in(&self.shortages, from, to)
    }

    /// Whether something was so short all that time that what needs it was refused for certain.
    pub fn had_none(&self, from: u64, to: u64, of: impl Fn(Short) -> bool) -> bool {
        // In the milliseconds in which it begins and ends nobody knows which was first.
        let all = |p: &&Period| p.from < from && to < p.until && p.of != Short::Disk(Disk::Tight);
        self.shortages.iter().filter(all).any(|p| of(p.of))
    }
}

impl World {
    /// Settles when there is too little of what.
    pub fn plan_shortages(&mut self) {
        if !self.shortage.plays {
            return;
        }
        let last = self.plan.chaos_ms + INTO_SETTLING_MS;
        let rng = &mut self.shortage.rng;
        let mut plans = Vec::new();
        for memory in [true, false] {
            let mut from = rng.between(200, 2_500);
            for _ in 0..rng.between(u64::from(!memory), 3) {
                let of = match memory {
                    true => Short::Memory,
                    false => Short::Disk(rng.pick(&[Disk::Tight, Disk::Full, Disk::Full, Disk::Blocked])),
                };
                let most = if of == Short::Disk(Disk::Blocked) { BLOCKED_MS } else { 4_000 };
                let until = (from + rng.between(100, most)).min(last);
                if from >= until || !memory && self.plan.store.is_none() {
                    break;
                }
                plans.push((of, from, until));
                from = until + rng.between(100, 3_000);
            }
        }
        for (of, from, until) in plans {
            if of == Short::Disk(Disk::Blocked) {
                self.shortage.blocked_ms += until - from;
            }
            self.schedule(from, Event::Short { of, is: true });
            self.schedule(until, Event::Short { of, is: false });
        }
    }

    pub fn short(&mut self, of: Short, is: bool) {
        trace!(self, "== {of:?} is short: {is}");
        if is {
            self.oracle.shortages.push(Period { of, from: self.now, until: u64::MAX });
        } else {
            let now = self.now;
            let ends = |p: &&mut Period| p.of == of && p.until == u64::MAX;
            self.oracle.shortages.iter_mut().filter(ends).for_each(|p| p.until = now);
        }
        match of {
            Short::Memory => self.shortage.memory = is,
            Short::Disk(disk) => self.shortage.disk = is.then_some(disk),
        }
        if of == Short::Disk(Disk::Tight) {
            self.shortage.room = self.shortage.rng.between(0, 2_000) as i64;
        }
        self.tell_shortage();
    }

    /// The broker is told, also one that has just begun: its writer measures before it commits
    /// anything.
    pub fn tell_shortage(&mut self) {
        let Shortage { memory, disk, ballast, room, .. } = &mut self.shortage;
        // So that more than nothing is held.
        ballast.set(if *memory { 1_000 } else { 0 });
        self.shared.budget.limit(if *memory { 0 } else { u64::MAX });
        let room = match disk {
            None => i64::MAX,
            Some(Disk::Tight) => *room,
            Some(_) => 0,
        };
        self.shared.store_room.store(room, Ordering::Relaxed);
        let full = matches!(disk, Some(Disk::Full | Disk::Blocked));
        self.shared.store_full.store(full, Ordering::Relaxed);
    }

    /// Whether a transaction does not fit. One that makes room always does.
    pub fn is_too_large(&self, memory: &Memory, group: &CommitGroup) -> bool {
        if self.shortage.disk != Some(Disk::Blocked) || group.is_empty() {
            return false;
        }
        let after = Memory::from_image(memory.image());
        after.write(group);
        weight(&after) > weight(memory)
    }

    /// A client was let in, or not, just now.
    pub fn check_admitted(&mut self, client: usize, socket: usize, admitted: bool) -> Result<(), String> {
        let offer = &self.sockets[socket].offer;
        let kept = offer.expiry > 0;
        let (stored, has_will) = (self.disk.is_some() && kept, offer.will.is_some());
        let now = self.now;
        let live = self.oracle.live[client].as_ref();
        let Shortage { memory, disk, took_over, .. } = self.shortage;
        if admitted {
            // A session that ends as it is taken over made room.
            let is_new = live.is_none() && took_over != Some((client, now));
            let over = memory && is_new && (kept || has_will);
            let full = stored && is_new && matches!(disk, Some(Disk::Full | Disk::Blocked));
            return match over || full {
                true => Err(format!("client {client} is let in without room: {memory} {disk:?}")),
                false => Ok(()),
            };
        }
        // It returns to a session for certain: to one like the one it asks for, and to one in the
        // store.
        let returns = live.filter(|l| !l.doubtful && now < l.may_end);
        let returns_to_kept = returns.is_some_and(|l| !kept || l.expiry > 0);
        let returns_to_store = returns.is_some_and(|l| l.stored_expiry.0 > 0);
        let over = memory && (kept || has_will) && !returns_to_kept;
        let full = disk.is_some() && stored && !returns_to_store;
        if !over && !full {
            return Err(format!("client {client} is not let in though it needs no room: {memory} {disk:?}"));
        }
        self.saw("a CONNECT is refused for want of room");
        Ok(())
    }
}

/// What a store takes, in about bytes.
fn weight(memory: &Memory) -> u64 {
    const ROW: usize = 50;
    let rows = memory.look(|image| image.rows());
    let rows = rows.sessions + rows.subscriptions + rows.incoming + rows.bodies + rows.entries + rows.delayed;
    memory.bytes() + (rows * ROW) as u64
}
