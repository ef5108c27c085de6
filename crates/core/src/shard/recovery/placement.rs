//! Gives the recovered state to shards: each session, each delayed message and each dead letter
//! gets the shard where it lives from now on. The number of shards may differ from that of the last
//! run.

use crate::persistence::letter::StoredLetter;
use crate::persistence::records::{
    BodyCopy, BodyNumber, CountedDelayed, ReadEntry, Recovered, RecoveredEntry, RecoveredSession,
    StoredDelayed,
};
use crate::routing::subscription_tree::ShardId;
use crate::shard::clients::connect::shard_of;
use crate::shard::features::delayed::owner;
use crate::shard::recovery::InFlightRead;
use crate::time::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The recovered state of one shard.
#[derive(Debug, Default)]
pub struct RecoveredShard {
    /// The same as in [`Recovered`]: above every number that the store has seen.
    pub next_number: u64,
    /// The time that the broker was down.
    pub down: Duration,
    /// The same as in [`Recovered`]: counts the sessions that are taken up.
    pub progress: Arc<AtomicU64>,
    /// The sessions that live in this shard.
    pub sessions: Vec<RecoveredSession>,
    /// This shard's part of the unsent deliveries of ended sessions.
    pub orphaned: Vec<RecoveredEntry>,
    /// The messages of deliveries in flight, which must be in memory from the start.
    pub in_flight: InFlightRead,
    /// The delayed messages that are due before `read_until`.
    pub delayed: Vec<StoredDelayed>,
    /// The counts of all delayed messages of this shard, including those that are due later.
    pub delayed_in_all: Vec<CountedDelayed>,
    /// All messages that are due before this time are in `delayed`.
    pub read_until: Instant,
    /// The dead letters of the receivers that live in this shard.
    pub letters: Vec<StoredLetter>,
}

/// Gives each shard bodies of its own. If sessions of several shards share a body after the change,
/// all shards but the first get a copy. Returns the copies that the store must make before any of
/// these bodies is read.
pub fn repartition(recovered: &mut Recovered, shards: u8) -> Vec<BodyCopy> {
    let mut owners: HashMap<BodyNumber, u8, FixedState> = HashMap::default();
    let mut copies: HashMap<(BodyNumber, u8), BodyCopy, FixedState> = HashMap::default();
    for session in &mut recovered.sessions {
        let home = shard_of(&session.session.client_id, shards).0;
        for entry in &mut session.entries {
            let Some(body) = &mut entry.body else { continue };
            if *owners.entry(body.number).or_insert(home) == home {
                continue;
            }
            let from = body.number;
            let copy = copies.entry((from, home)).or_insert_with(|| {
                recovered.next_number += 1;
                let to = BodyNumber(recovered.next_number);
                BodyCopy { from, to, entries: Vec::new() }
            });
            copy.entries.push(entry.number);
            body.number = copy.to;
        }
    }
    recovered.next_number += 1;
    copies.into_values().collect()
}

/// Returns the recovered state of each shard. `in_flight` has the messages that were read for the
/// entries of [`crate::shard::recovery::in_flight`]. `recovered` has all delayed
/// messages that are due before `read_until`.
pub fn share_out(
    recovered: Recovered,
    in_flight: Vec<ReadEntry>,
    read_until: Instant,
    shards: u8,
) -> Vec<RecoveredShard> {
    let Recovered {
        next_number, down, progress, sessions, orphaned, delayed, delayed_in_all, letters, ..
    } = recovered;
    let mut read: InFlightRead = in_flight.into_iter().map(|entry| (entry.number, entry)).collect();
    let mut shares: Vec<RecoveredShard> = (0..shards)
        .map(|_| RecoveredShard {
            next_number,
            down,
            read_until,
            progress: Arc::clone(&progress),
            ..RecoveredShard::default()
        })
        .collect();
    for delayed in delayed {
        if let Some(share) = shares.get_mut(usize::from(owner(delayed.number, shards))) {
            share.delayed.push(delayed);
        }
    }
    for counted in delayed_in_all {
        if let Some(share) = shares.get_mut(usize::from(owner(counted.number, shards))) {
            share.delayed_in_all.push(counted);
        }
    }
    for letter in letters {
        if let Some(share) = shares.get_mut(usize::from(shard_of(&letter.receiver, shards).0)) {
            share.letters.push(letter);
        }
    }
    let mut owners: HashMap<BodyNumber, ShardId, FixedState> = HashMap::default();
    for session in sessions {
        let home = shard_of(&session.session.client_id, shards);
        let Some(share) = shares.get_mut(usize::from(home.0)) else { continue };
        if !orphaned.is_empty() {
            owners.extend(session.entries.iter().filter_map(|entry| Some((entry.body?.number, home))));
        }
        for entry in &session.entries {
            if let Some(read) = read.remove(&entry.number) {
                share.in_flight.insert(entry.number, read);
            }
        }
        share.sessions.push(session);
    }
    for entry in orphaned {
        // If sessions share the body, the entry goes to their shard, because a body belongs to one
        // shard. Any other entry goes to the first shard.
        let owner = entry.body.and_then(|body| owners.get(&body.number)).map_or(0, |home| home.0);
        if let Some(share) = shares.get_mut(usize::from(owner)) {
            share.orphaned.push(entry);
        }
    }
    shares
}
