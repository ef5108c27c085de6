//! The store at the start: what it had is shared out among the shards, and its threads are started.

use super::StartError;
use super::message::{Looked, Page};
use super::shard::ShardActor;
use crate::journal::record::{BodyNumber, Recovered, RecoveredSession, StoredDelayed};
use crate::mqtt::message::Message;
use crate::routing::shard::commit::PageRequest;
use crate::routing::shard::delayed::{HORIZON, owner};
use crate::routing::shard::recover::{InFlightRead, in_flight};
use crate::routing::shard::slots::Id;
use crate::routing::shard::{Common, home_of};
use crate::store::writer::{Notice, Options, SessionToken, Writer};
use crate::store::{BodyCopy, Moment, Store, StoreError};
use crate::time::Instant;
use actix::Addr;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// What one shard starts with.
#[derive(Debug, Default)]
pub struct Share {
    pub next_number: u64,
    pub down: Duration,
    pub sessions: Vec<RecoveredSession>,
    pub in_flight: InFlightRead,
    pub delayed: Vec<StoredDelayed>,
    /// Messages and bytes of all that are delayed, those due later among them.
    pub delayed_in_all: (usize, usize),
    /// All that is due before this is among `delayed`.
    pub read_until: Instant,
}

/// A store that was read and has no threads yet.
pub struct Opened {
    store: Box<dyn Store>,
    pub shares: Vec<Share>,
    pub retained: Vec<Message>,
}

/// Reads what is kept, for this number of shards.
pub fn open(mut store: Box<dyn Store>, shards: u8) -> Result<Opened, StoreError> {
    let now = Moment::now();
    let mut recovered = twice_if_full(|| store.recover(now, HORIZON))?;
    let copies = rehome(&mut recovered, shards);
    if !copies.is_empty() {
        twice_if_full(|| store.copy_bodies(&copies))?;
    }
    let wanted = in_flight(&recovered.sessions);
    let mut read: InFlightRead = InFlightRead::default();
    if !wanted.is_empty() {
        read.extend(store.reader()?.entries(&wanted)?.into_iter().map(|entry| (entry.number, entry)));
    }
    let Recovered { next_number, down, sessions, retained, delayed, delayed_in_all } = recovered;
    let entries: usize = sessions.iter().map(|s| s.entries.len()).sum();
    info!(
        sessions = sessions.len(),
        messages = entries,
        in_flight = wanted.len(),
        retained = retained.len(),
        down_ms = u64::try_from(down.as_millis()).unwrap_or(u64::MAX),
        "recovered"
    );
    let read_until = now.monotonic + HORIZON;
    let mut shares: Vec<Share> =
        (0..shards).map(|_| Share { next_number, down, read_until, ..Share::default() }).collect();
    for delayed in delayed {
        if let Some(share) = shares.get_mut(usize::from(owner(delayed.number, shards))) {
            share.delayed.push(delayed);
        }
    }
    for (number, size) in delayed_in_all {
        if let Some(share) = shares.get_mut(usize::from(owner(number, shards))) {
            share.delayed_in_all.0 += 1;
            share.delayed_in_all.1 += size;
        }
    }
    for session in sessions {
        let home = home_of(&session.session.client_id, shards);
        let Some(share) = shares.get_mut(usize::from(home.0)) else { continue };
        for entry in &session.entries {
            if let Some(read) = read.remove(&entry.number) {
                share.in_flight.insert(entry.number, read);
            }
        }
        share.sessions.push(session);
    }
    Ok(Opened { store, shares, retained })
}

/// A broker that starts on a full disk starts: the first attempt has opened the reserve.
fn twice_if_full<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    match attempt() {
        Err(StoreError::Full(why)) => {
            warn!(why, "the store has no room; trying again with what is in reserve");
            attempt()
        }
        other => other,
    }
}

/// A body belongs to one shard. Where sessions of several now share one, since there are more or fewer shards than there
/// were, all but the first get their own.
fn rehome(recovered: &mut Recovered, shards: u8) -> Vec<BodyCopy> {
    let mut owners: HashMap<BodyNumber, u8> = HashMap::new();
    let mut copies: HashMap<(BodyNumber, u8), BodyCopy> = HashMap::new();
    for session in &mut recovered.sessions {
        let home = home_of(&session.session.client_id, shards).0;
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

impl Opened {
    /// Starts the committing and the reading thread. `failed` is told when what is kept is not known any more.
    pub fn start(
        self,
        options: Options,
        shards: Vec<Addr<ShardActor>>,
        common: Arc<Common>,
        failed: oneshot::Sender<StoreError>,
    ) -> Result<Writer, StartError> {
        let failed = Mutex::new(Some(failed));
        let on = move |notice| match notice {
            Notice::Committed(committed) => {
                if let Some(shard) = shards.get(usize::from(committed.shard)) {
                    shard.do_send(committed);
                }
            }
            Notice::Page { shard, session, wanted, entries } => {
                let SessionToken { slot, generation } = session;
                let request = PageRequest { session: Id::new(slot, generation), wanted };
                if let Some(shard) = shards.get(usize::from(shard)) {
                    shard.do_send(Page { request, entries });
                }
            }
            Notice::Delayed { shard, request, delayed } => {
                if let Some(shard) = shards.get(usize::from(shard)) {
                    shard.do_send(Looked { request, delayed });
                }
            }
            Notice::Full(full) => common.store_full.store(full, Ordering::Relaxed),
            Notice::Failed(cause) => {
                error!(%cause, "the store failed: nothing more is acknowledged");
                let taken = failed.lock().ok().and_then(|mut failed| failed.take());
                if let Some(failed) = taken {
                    let _ = failed.send(cause);
                }
            }
        };
        Ok(Writer::start(self.store, options, on)?)
    }
}
